"""What the anchor systems make of edition v1: the figures that it was made to have. Store and search are the kit's own,
without the notebooks and processes of a run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kiokulab import embed
from kiokulab.judging import make_judge
from kiokulab.kioku import analyze, ingest, judge
from kiokulab.kioku.answer import make_answerer
from kiokulab.kioku.generate import load_edition
from kiokulab.kioku.records import ContextRow, MemoryRow

PERSONAS = load_edition(Path(__file__).resolve().parents[1] / "data" / "kioku" / "v1")[1]
PARAMS = {
    "route": "raw",
    "routing": "none",
    "embedder": "use",
    "k": 30,
    "budget_tokens": 1000,
    "floor": 0.01,
    "seed": 1,
    "bootstrap": 100,
    "answerer": "extractive",
    "grader": "rules",
}


@pytest.fixture(scope="module")
def rules():
    return make_judge("rules", embed.get(judge.JUDGE_EMBEDDER))


def oracle(persona, folder):
    """Memories and contexts of the oracle, by the very code of step 2."""
    unit = {
        "unit": f"{persona.id}/raw",
        "persona": persona.model_dump(mode="json"),
        "system": "oracle",
        "settings": {"embedder": "use"},
        "settle_s": 60,
        "store": str(folder / persona.id),
        **PARAMS,
    }
    rows = ingest.ingest_unit(unit)
    return [MemoryRow(**row) for row in rows["memories"]], [ContextRow(**row) for row in rows["contexts"]]


def everything(persona, folder):
    """What store-everything keeps; nobody asks it anything here, which would embed each utterance."""
    turns = [(session.date, turn) for session in persona.sessions for turn in session.turns]
    place = {"unit": f"{persona.id}/raw", "persona": persona.id, "route": "raw", "layer": "live"}
    return [
        MemoryRow(**place, id=f"m{n}", text=turn.text, created=date, kind=turn.role)
        for n, (date, turn) in enumerate(turns)
    ], []


def figures(system, rules, folder):
    rows = []
    for persona in PERSONAS:
        memories, contexts = system(persona, folder)
        rows += judge.judge_unit(
            persona, memories, contexts, judge=rules, answerer=make_answerer("extractive", embed.get("use"))
        )
    return analyze.metrics(rows, PERSONAS, SimpleNamespace(system=system.__name__, **PARAMS))


def test_the_oracle_has_a_perfect_store_and_95_percent_of_the_questions(rules, tmp_path):
    made = figures(oracle, rules, tmp_path)
    found = {name: (figure["k"], figure["n"]) for name, figure in made["metrics"].items()}
    lasting = sum(fact.lasts for persona in PERSONAS for fact in persona.facts)
    assert found["recall"] == (lasting, lasting) and found["update_applied"] == (100, 100)
    assert (
        found["old_version_kept"] == (0, 100)
        and found["forget_violation"] == (0, 40)
        and found["noise"][0] == found["language_mismatch"][0] == 0
    )
    assert made["metrics"]["compression"]["rate"] == 1
    right, asked = found["check_questions"]
    assert asked == lasting and right >= 0.95 * asked
    for language in ("en", "ja"):
        assert made["by_route"]["raw"]["by_language"][language]["metrics"]["check_questions"]["rate"] >= 0.95


def test_keeping_everything_costs_what_it_costs_in_life(rules, tmp_path):
    """Noise 75 to 90 %, compression 8 to 16; the judge finds nearly all of what is in there by construction."""
    made = figures(everything, rules, tmp_path)["metrics"]
    assert 0.75 <= made["noise"]["rate"] <= 0.90 and 8 <= made["compression"]["rate"] <= 16
    assert (
        made["recall"]["rate"] >= 0.95
        and made["update_applied"]["rate"] >= 0.95
        and made["old_version_kept"]["rate"] >= 0.95
    )
    assert made["forget_violation"]["rate"] == 1

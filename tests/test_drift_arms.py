import numpy as np
import pytest
from drift_mini import BASE, mini, record

from kiokulab.drift import arms
from kiokulab.drift.ingest import replay
from kiokulab.drift.judge import grade
from kiokulab.errors import InputError


def filled(name, *records):
    arm = arms.PLAIN_ARMS[name]()
    for item in records:
        arm.inscribe(item, "import")
    return arm


def keys(recalled):
    return [hit.key for hit in recalled.hits]


THREE = [
    record("a", "copper pump leaks", "slowly", at=BASE),
    record("b", "copper valve", "pump", at=BASE + 10, refs=("src/valve.rs",)),
    record("c", "tin gauge", "the gauge", at=BASE + 20),
]


def test_grep_counts_words_as_substrings_and_keeps_writing_order():
    arm = filled("grep", *THREE)
    assert keys(arm.recall("the copper pump leak", 10, None)) == ["a", "b"]
    assert [hit.score for hit in arm.recall("copper pump leak", 10, None).hits] == [1.0, 2 / 3]
    assert keys(arm.recall("is it the", 10, None)) == []
    assert keys(arm.recall("copper", 1, None)) == ["a"]
    assert keys(arm.recall("copper", 10, {"after": BASE + 1, "before": BASE + 20})) == ["b"]
    assert keys(arm.recall_path("src/valve.rs", 10)) == ["b"] and keys(arm.recall_path(" ", 10)) == []


@pytest.mark.parametrize("name", ["grep", "tfidf", "whole", "curated", "chance"])
def test_what_was_deleted_or_superseded_is_gone_and_what_comes_after_is_found(name):
    arm = filled(name, *THREE)
    arm.recall("copper pump gauge", 10, None)  # whatever is remembered between questions must not outlive a write
    arm.release("a", "over")
    arm.supersede("b", record("d", "copper pump returns"))
    arm.purge("nobody")
    found = keys(arm.recall("copper pump gauge", 10, None))
    assert set(found) == {"c", "d"}


def test_a_dump_shows_everything_and_its_standing_text_is_all_of_it():
    arm = filled("whole", *THREE)
    assert arm.recall("x", 1, None).dump and keys(arm.recall("x", 1, None)) == ["a", "b", "c"]
    assert arm.standing_tokens() == sum(-(-len(hit.text) // 4) + 1 for hit in arm.recall("x", 1, None).hits)


def test_the_curated_file_keeps_its_budget_and_puts_principles_first():
    notes = [record(f"n{n}", "title", "x" * 400, kind="Problem") for n in range(200)] + [
        record("p", "title", "y", kind="Principle")
    ]
    arm = filled("curated", *notes)
    shown = arm.recall("x", 1, None).hits
    assert shown[0].key == "p" and 2900 < arm.standing_tokens() <= 3000 and len(shown) < 60


def test_chance_is_the_same_for_the_same_question_and_holds_no_note_twice():
    arm = filled("chance", *[record(f"n{n}", "t") for n in range(50)])
    first = keys(arm.recall("what", 10, None))
    assert (
        first == keys(arm.recall("what", 10, None))
        and len(set(first)) == 10
        and first != keys(arm.recall("who", 10, None))
    )
    assert len(arm.recall("what", 80, None).hits) == 50


def test_tfidf_ranks_as_the_formula_says():
    arm = filled("tfidf", *THREE)
    rows = [arms.words(f"{r['title']}\n{r['body']}", 1, arms.TFIDF_STOPWORDS) for r in THREE]

    def vector(tokens):
        return {
            t: (1 + np.log(tokens.count(t))) * (np.log(4 / (1 + sum(t in row for row in rows))) + 1)
            for t in set(tokens)
        }

    def cosine(a, b):
        return sum(a[t] * b.get(t, 0) for t in a) / np.sqrt(
            sum(w * w for w in a.values()) * sum(w * w for w in b.values())
        )

    wanted = cosine(vector(["copper", "pump", "leaks", "leaks", "unseen"]), vector(rows[0]))
    hits = arm.recall("copper pump leaks leaks unseen", 10, None).hits
    assert hits[0].key == "a" and hits[0].score == pytest.approx(wanted) and hits[0].text == "copper pump leaks"


def test_tfidf_shows_only_what_is_near_the_best_and_declines_a_stranger():
    arm = filled("tfidf", *THREE)
    assert keys(arm.recall("tin gauge pump", 10, None)) == ["c"]
    assert arm.recall("pump Zebra", 10, None).declined and not arm.recall("pump zebra", 10, None).declined
    assert arm.recall("zebra", 10, None).declined


def test_tfidf_raises_a_changed_number_and_absorbs_a_repetition():
    arm = filled("tfidf", record("a", "amber harbour lease broker uses timeout 30 seconds"))
    repeated = arm.inscribe(record("b", "amber harbour lease broker uses timeout 30"), "write")
    assert (repeated.matched, repeated.nli_label) == ("a", "entailment")
    changed = arm.inscribe(record("c", "amber harbour lease broker uses timeout 45 seconds"), "write")
    assert [(s.a, s.b, s.hint) for s in changed.suspects] == [("c", "a", "contradiction")]
    arm.settle()
    assert {frozenset((s.a, s.b)) for s in arm.suspects()} == {frozenset("ac"), frozenset("bc")}


def test_tfidf_queue_is_the_rule_applied_to_every_pair():
    rng = np.random.default_rng(5)
    pool = ["amber", "harbour", "broker", "timeout", "seconds", "never", "not", "3", "17", "slow", "keeps"]
    arm = filled("tfidf", *[record(f"n{n}", " ".join(rng.choice(pool, 7))) for n in range(60)])
    arm.settle()
    titles = [arm.title_words[slot] for slot in arm.live]
    wanted = {
        frozenset((f"n{a}", f"n{b}"))
        for a in range(60)
        for b in range(a)
        if "contradiction" in (arm._differ(titles[a], titles[b]), arm._differ(titles[b], titles[a]))
    }
    assert {frozenset((s.a, s.b)) for s in arm.suspects()} == wanted and 5 < len(wanted) < 1500


def test_japanese_is_read_as_pairs_of_characters():
    assert arms.words("青い港の期限は30秒", 1, arms.TFIDF_STOPWORDS) == [
        "青い",
        "い港",
        "港の",
        "の期",
        "期限",
        "限は",
        "30",
        "秒",
    ]
    arm = filled("grep", record("a", "青い港の期限は30秒"), record("b", "赤い山の上限は5件"))
    assert keys(arm.recall("港の期限", 10, None)) == ["a"]


class Letters:
    """An embedder for tests: how often each letter stands in a text."""

    calls = 0

    def encode(self, texts):
        self.calls += 1
        rows = np.array(
            [[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], dtype=np.float32
        )
        return rows / np.maximum(1e-9, np.linalg.norm(rows, axis=1, keepdims=True))


def test_vector_embeds_a_script_at_once_and_ranks_by_likeness():
    embedder, script = Letters(), mini()
    receipt = grade(script, replay(script, arms.make("vector", script, lambda: embedder))).receipt
    assert embedder.calls == 1 and receipt["arm"] == "vector" and receipt["attempted"] == 8
    arm = arms.Vector(Letters())
    for item in THREE:
        arm.inscribe(item, "import")
    assert keys(arm.recall("tin gauge", 2, None))[0] == "c" and all(
        0 <= hit.score <= 1 for hit in arm.recall("tin", 3, None).hits
    )


def test_an_unknown_arm_is_refused():
    with pytest.raises(InputError, match="no arm 'engram'"):
        arms.make("engram", mini())


def test_hostile_text_goes_through_every_arm():
    odd = [record("a", "\ud800\x00<script>", "\u202e" * 1000), record("b", "", ""), record("c", "x" * 1_000_000, "\n")]
    for name in arms.PLAIN_ARMS:
        arm = filled(name, *odd)
        arm.settle()
        assert len(arm.recall("\ud800 \x00 script", 10, None).hits) <= 10
        arm.standing_tokens()

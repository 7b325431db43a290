import itertools
import json
import re
import statistics
import subprocess
import sys
from collections import Counter

import pytest

from kiokulab.drift import arms, generate
from kiokulab.drift.ingest import replay
from kiokulab.drift.judge import grade
from kiokulab.drift.script import load_script, make_script
from kiokulab.errors import InputError


@pytest.fixture(scope="module")
def worlds():
    return {
        (size, language): generate.generate(size, 1, language) for size in (100, 300) for language in generate.LANGUAGES
    }


def notes(script):
    return {record["key"]: record for op in script.ops if (record := op.get("record") or op.get("new"))}


def length(record):
    return len(record["title"]) + len(record["body"])


def test_the_same_arguments_give_the_same_bytes_in_another_process(worlds):
    program = "from kiokulab.drift.generate import generate; print(generate(100, 1, 'ja').digest)"
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert other.stdout.strip() == worlds[100, "ja"].digest


def test_the_frozen_edition_is_what_the_generator_gives():
    frozen = generate.load_edition("v0.1")
    assert [script.language for script in frozen] == ["en", "ja"]
    for script in frozen:
        assert generate.same(script, generate.generate(100, 1, script.language))
        assert load_script(generate.DATA / "v0.1" / f"{script.name}.json").text() == script.text()


def test_a_changed_edition_is_refused_with_its_file(tmp_path):
    generate.write_edition(tmp_path, "mine", 20, 3, ["en"])
    assert len(generate.load_edition(tmp_path)) == 1
    path = tmp_path / "en-20-seed3.json"
    path.write_text(path.read_text().replace("seconds", "minutes", 1))
    with pytest.raises(InputError, match=r"en-20-seed3\.json: missing, or not the file"):
        generate.load_edition(tmp_path)
    with pytest.raises(InputError, match="no usable edition"):
        generate.load_edition(tmp_path / "none")


@pytest.mark.parametrize("size", [100, 300])
def test_counts_are_those_of_the_public_worlds(worlds, size):
    script = worlds[size, "en"]
    found = Counter((p["expect"], p.get("natural", False)) for p in script.probes)
    cases = [p for p in script.probes if p["expect"] == "case"]
    ghosts = sum(p["shape"] == "transitive" for p in cases)
    assert (
        found["gold", False] == 4 * size and found["current", False] == 3 * (size // 20) == 3 * found["lineage", False]
    )
    assert (
        found["control", True] == size // 4
        and found["control", False] == size // 4 - ghosts
        and found["windowed", False] == size // 4
    )
    assert len(cases) == size // 3 and found["absent", False] == found["resurrect", False] == size // 6
    assert size // 4 <= found["linked", False] <= 2 * (size // 4) and script.spec["edges"] == int(1.06 * size)
    assert 30 <= found["bound", False] <= 64
    assert 0.05 < found["drifted", False] / size < 0.16


def test_the_two_languages_have_the_same_structure(worlds):
    def bones(script):
        def strip(value):
            return {
                k: strip(v) if isinstance(v, dict) else v
                for k, v in value.items()
                if k not in ("title", "body", "query", "answer", "answers", "reason", "path", "code_refs")
            }

        return [strip(op) for op in script.ops], [strip(p) for p in script.probes], script.spec

    assert bones(worlds[100, "en"]) == bones(worlds[100, "ja"])


@pytest.mark.parametrize("language", generate.LANGUAGES)
@pytest.mark.parametrize(
    "more", [{}, {"shape": "twin"}, {"shape": "late"}, {"authority": True}, {"size": 20}, {"seed": 9}]
)
def test_the_oracle_passes_every_task_and_mute_scores_three_hundred(language, more):
    script = generate.generate(**{"size": 100} | more, language=language)
    oracle = grade(script, replay(script, arms.make("oracle", script))).receipt
    assert oracle["passed"] == oracle["tasks"] and oracle["family_points"] == (
        800 if script.spec["size"] > 20 else oracle["family_points"]
    )
    assert grade(script, replay(script, arms.make("mute", script))).receipt["score"] == 300


def test_links_prefer_their_component(worlds):
    script = worlds[300, "en"]
    components = [name for name, _ in generate.vocabulary("en")["components"]]
    home = {
        key: next(name for name in components if f" {name} " in f" {r['title']} ")
        for key, r in notes(script).items()
        if key[0] == "f"
    }
    links = [op for op in script.ops if op["op"] == "link"]
    assert 0.62 < sum(home[op["from"]] == home[op["to"]] for op in links) / len(links) < 0.85
    assert len({frozenset((op["from"], op["to"])) for op in links}) == len(links)
    assert not {op["from"] for op in links} & {f"f{i:04d}" for i in range(12)}


def test_a_link_question_has_one_answer(worlds):
    for script in worlds.values():
        links = [op for op in script.ops if op["op"] == "link"]
        assert max(Counter(op["from"] for op in links if op["verb"] == "because").values()) == 1
        assert max(Counter(op["to"] for op in links if op["verb"] == "answers").values()) == 1


@pytest.mark.parametrize("language", generate.LANGUAGES)
@pytest.mark.parametrize("shape", ["stale", "late"])
def test_length_does_not_give_a_stale_copy_away(language, shape):
    script = generate.generate(400, 2, language, shape, pollution=0.3)
    found = notes(script)
    pairs = [(length(found[p["stale"]]), length(found[p["gold"]])) for p in script.probes if p["expect"] == "drifted"]
    assert len(pairs) > 80
    assert abs(statistics.mean(a - b for a, b in pairs)) < 0.02 * statistics.mean(b for _, b in pairs)
    assert 0.35 < sum(a > b for a, b in pairs) / len(pairs) < 0.65
    tails = generate.vocabulary(language)["tails"]
    assert all(
        found[p[name]]["title"].endswith(tuple(tails))
        for p in script.probes
        if p["expect"] == "drifted"
        for name in ("stale", "gold")
    )


@pytest.mark.parametrize("shape", generate.SHAPES)
def test_shapes_of_stale_copies(shape):
    script = generate.generate(100, 1, "en", shape)
    found = notes(script)
    for probe in script.probes:
        if probe["expect"] == "drifted":
            stale, gold = found[probe["stale"]], found[probe["gold"]]
            assert (stale["created_at"] > gold["created_at"]) is (shape == "late") and stale[
                "created_at"
            ] <= generate.BASE - 1800
            assert (stale["body"] == gold["body"]) is (shape == "twin")
            assert (stale["kind"], stale["code_refs"]) == (gold["kind"], gold["code_refs"]) and stale["title"] != gold[
                "title"
            ]


def test_a_seed_moves_times_lengths_references_and_links(worlds):
    one, two = notes(worlds[100, "en"]), notes(generate.generate(100, 2, "en"))
    keys = [f"f{i:04d}" for i in range(100)]
    for what in (lambda r: r["created_at"], length, lambda r: len(r["code_refs"])):
        assert [what(one[key]) for key in keys] != [what(two[key]) for key in keys]
    assert [o for o in worlds[100, "en"].ops if o["op"] == "link"] != [
        o for o in generate.generate(100, 2, "en").ops if o["op"] == "link"
    ]


def test_answers_stand_in_the_titles_and_no_question_is_ambiguous(worlds):
    for script in worlds.values():
        found = notes(script)
        for probe in script.probes:
            if probe.get("answer") and "gold" in probe:
                assert probe["answer"] in found[probe["gold"]]["title"]
        asked = {}
        for op in script.ops:
            if op["op"] == "recall":
                probe = next(p for p in script.probes if p["id"] == op["id"])
                gold = probe.get("gold") or probe.get("victim") or probe.get("head") or "nothing"
                assert asked.setdefault(op["query"], gold) == gold
        titles = Counter(record["title"] for key, record in found.items() if not key.startswith("z-"))
        assert max(titles.values()) == 1


def test_phantoms_and_ghosts_are_never_written(worlds):
    script = worlds[300, "en"]
    written = {
        " ".join(record["title"].split()[:2])
        for key, record in notes(script).items()
        if key[0] == "f" or key[:3] == "c00"
    }
    phantoms = [
        op["query"]
        for op in script.ops
        if op["op"] == "recall"
        for p in script.probes
        if p["id"] == op["id"] and p["expect"] == "control" and not p.get("natural")
    ]
    subjects = {f"{a} {b}" for a in generate.vocabulary("en")["first"] for b in generate.vocabulary("en")["second"]}
    for query in phantoms:
        pairs = {" ".join(pair) for pair in itertools.pairwise(query.rstrip("?").split())} & subjects
        assert pairs and not any(
            f"{pair} {component}" in record["title"]
            for pair in pairs
            for component, _ in generate.vocabulary("en")["components"]
            if f"{pair} {component}" in query
            for record in notes(script).values()
        )
    assert written


def test_every_case_says_what_its_shape_promises(worlds):
    found = {language: notes(worlds[300, language]) for language in generate.LANGUAGES}
    shapes = Counter()
    for probe in worlds[300, "en"].probes:
        if probe["expect"] == "case":
            shapes[probe["shape"]] += 1
            gold, planted = found["en"][probe["gold"]], found["en"][probe["planted"][0]]
            assert planted["kind"] == gold["kind"] and planted["code_refs"] == [] and planted["title"] != gold["title"]
            if probe["shape"] in ("unit", "unit_agree"):
                old, new = (re.search(r"of (\d+) (\w+)", r["title"]).groups() for r in (gold, planted))
                factor = {"milliseconds": 1000, "seconds": 60, "minutes": 60, "hours": 24, "kilobytes": 1024}[new[1]]
                assert (int(new[0]) == int(old[0]) * factor) is (not probe["positive"])
    assert set(shapes) >= {name for name, _, _ in generate.CASES} - {"unit", "unit_agree"}
    assert sum(p["positive"] for p in worlds[300, "en"].probes if p["expect"] == "case") > 50


@pytest.mark.parametrize("language", generate.LANGUAGES)
def test_no_sentence_of_a_world_has_an_open_frame_or_a_slash(language, worlds):
    for record in notes(worlds[300, language]).values():
        assert not re.search(r"[{}|/]|\s,|  |an? an? |ののは|であるのである", record["title"] + record["body"]), record


def test_authority_poses_all_scenarios_and_the_strongest_hand_wins():
    script = generate.generate(100, 1, "en", authority=True)
    ranked = [p for p in script.probes if p["expect"] == "ranked"]
    assert {p["scenario"] for p in ranked} == {row[1] for row in generate.AUTHORITY} and len(ranked) == 33
    strength = {"retrieval": 1, "assistant": 2, "user": 3, "supervisor": 4}
    best, last = Counter(), {}
    for n, op in enumerate(script.ops):
        if op["op"] == "endorse":
            best[op["key"]], last[op["key"]] = max(best[op["key"]], strength[op["by"]]), n
    for probe in ranked:
        rivals = [probe["winner"], *probe["losers"]]
        if probe["scenario"] != "pin_then_supersede":
            assert rivals[0] == max(rivals, key=lambda key: (best[key], last.get(key, 0)))
        assert probe["needs"] and all(name in arms.has() for name in probe["needs"])


def words_of(text, language):
    if language == "en":
        small = {
            "the",
            "and",
            "with",
            "that",
            "for",
            "how",
            "are",
            "was",
            "who",
            "has",
            "than",
            "from",
            "one",
            "two",
            "too",
            "much",
            "not",
        }
        return {
            re.sub("(ing|ies|es|ed|s)$", "", word)
            for word in re.findall("[a-z]{3,}", text.lower())
            if word not in small
        }
    runs = re.findall("[\u4e00-\u9fff]+", text)
    return {run[n : n + 2] for run in runs for n in range(len(run) - 1)} | set(re.findall("[\u30a1-\u30ff]{2,}", text))


@pytest.mark.parametrize("language", generate.LANGUAGES)
def test_a_paraphrase_shares_no_content_word_with_its_wording(language):
    vocabulary = generate.vocabulary(language)
    pairs = [pair for slots in vocabulary["slots"].values() for place in slots.values() for pair in place] + vocabulary[
        "components"
    ]
    assert len(pairs) == 266
    assert [pair for pair in pairs if words_of(pair[0], language) & words_of(pair[1], language)] == []
    assert all(len(set(vocabulary[name])) == 64 for name in ("first", "second"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 19},
        {"size": 20_001},
        {"language": "fr"},
        {"shape": "odd"},
        {"pollution": 1.5},
        {"seed": -1},
        {"size": 62, "authority": True},
        {"pollution": float("nan")},
    ],
)
def test_arguments_out_of_range_are_refused(wrong):
    with pytest.raises(InputError):
        generate.generate(**wrong)


def test_a_world_is_read_back_from_its_file(worlds, tmp_path):
    script = worlds[100, "ja"]
    value = json.loads(script.text())
    assert make_script(value["spec"], value["ops"], value["probes"], digest=value["digest"]).digest == script.digest

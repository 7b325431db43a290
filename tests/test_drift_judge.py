import copy
import random

import pytest
from drift_mini import BASE, OPS, PROBES, SPEC, hit, mini, record, silent
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab.drift import arms
from kiokulab.drift.ingest import replay
from kiokulab.drift.judge import grade, separation, token_score
from kiokulab.drift.script import Inscribed, Recalled, Suspect, make_script
from kiokulab.errors import InputError

ALL = {"suspects": True, "temporal": True, "trace": True, "history": True}


def graded(change=None, **capabilities):
    script = mini()
    transcript = silent(script, **capabilities)
    if change:
        change(transcript)
    return grade(script, transcript)


def verdict(name, hits=None, *, declined=False, dump=False, change=None, **capabilities):
    """True, False or None (not attempted) for one question answered by these hits."""

    def answer(transcript):
        if hits is not None:
            transcript.recalls[name] = Recalled(hits, declined, dump)
        if change:
            change(transcript)

    return next(task.passed for task in graded(answer, **capabilities).tasks if task.id == name)


def column(family, name, change=None, **capabilities):
    return next(f for f in graded(change, **capabilities).receipt["families"] if f["family"] == family)["columns"].get(
        name
    )


def test_the_oracle_passes_everything_and_silence_scores_three_hundred():
    script = mini()
    oracle = grade(script, replay(script, arms.make("oracle", script))).receipt
    assert (oracle["passed"], oracle["tasks"], oracle["failed"], oracle["flags"]) == (13, 13, [], [])
    assert oracle["family_points"] == 800
    mute = grade(script, replay(script, arms.make("mute", script))).receipt
    assert mute["score"] == 300 and mute["family_points"] == 200 and mute["success"] == 3 / 13


def test_another_scripts_transcript_is_refused():
    other = make_script(SPEC | {"seed": 2}, copy.deepcopy(OPS), copy.deepcopy(PROBES))
    with pytest.raises(InputError, match="answers the script"):
        grade(other, silent(mini()))


def test_a_question_without_a_reply_is_an_error_and_not_a_miss():
    with pytest.raises(InputError, match="no recall reply"):
        graded(lambda t: t.recalls.pop("R1"))


def test_a_question_of_a_family_that_is_not_attempted_needs_no_reply():
    assert verdict("R5", change=lambda t: t.recalls.pop("R5")) is None


filler = [hit(f"x{n}", "x") for n in range(9)]


@pytest.mark.parametrize(
    ("hits", "more", "passed"),
    [
        ([hit("f0")], {}, True),
        ([hit("f0", "PUMP USES 3 Bar")], {}, True),
        ([hit("f0", "pump")], {}, False),  # keyed, but not readable
        ([hit(None), hit(None, "3 bar")], {}, False),  # the words without the key
        ([*filler[:4], hit("f0")], {}, True),
        ([*filler[:5], hit("f0")], {}, False),
        ([*[hit("x", "x", tombstone=True)] * 5, hit("f0")], {}, True),  # tombstones take no rank
        ([hit("f0", tombstone=True)], {}, False),
        ([hit("s-f0", "4 bar"), hit("f0")], {}, False),
        ([hit("f0"), hit("s-f0", "4 bar")], {}, True),
        ([hit("f0", "no"), hit("s-f0")], {}, False),
        ([hit("s-f0", "4 bar", tombstone=True), hit("f0")], {}, True),
        ([*filler, hit("f0")], {"dump": True}, True),
        ([hit("f0"), hit("s-f0")], {"dump": True}, False),
        (
            [hit("f0", "no"), *filler[:3], hit("f0")],
            {},
            True,
        ),  # any hit with the key may show the answer; the first gives the rank
    ],
)
def test_gold(hits, more, passed):
    assert verdict("R1", hits, **more) is passed


def test_stale_above_counts_when_the_truth_is_missing():
    def only_stale(transcript):
        transcript.recalls["R1"] = Recalled([hit("s-f0", "4 bar")])

    assert column("retrieval", "stale_above", only_stale) == 1.0 and column("retrieval", "stale_above") == 0.0


@pytest.mark.parametrize(
    ("hits", "passed"),
    [
        ([hit("f1", "stick")], True),
        ([hit("f1", "other")], False),
        ([*filler[:5], hit("f1", "stick")], False),
        ([hit("f0", "none"), hit("f1", "stick")], True),
    ],
)
def test_bound(hits, passed):
    assert verdict("P1", hits) is passed


def test_path_cover_looks_at_the_first_k_live_hits_and_at_all_of_a_dump():
    far = [*[hit(f"x{n}", "x") for n in range(10)], hit("f0"), hit("f1", "stick")]
    assert column("retrieval", "path_cover", lambda t: t.recalls.update(P1=Recalled(far))) == 0.0
    assert column("retrieval", "path_cover", lambda t: t.recalls.update(P1=Recalled(far, dump=True))) == 1.0
    assert column("retrieval", "path_cover", lambda t: t.recalls.update(P1=Recalled(far[:9] + far[10:11]))) == 0.5


@pytest.mark.parametrize(
    ("hits", "declined", "passed"), [([], False, True), ([hit("f0")], False, False), ([hit("f0")], True, True)]
)
def test_control(hits, declined, passed):
    assert verdict("R2", hits, declined=declined) is passed


@pytest.mark.parametrize(
    ("hits", "passed"),
    [
        ([hit("g1", "2 units")], True),
        ([hit("g1", "2 units"), *filler, hit("g0", "1 unit")], False),
        ([hit("g1", "2 units"), hit("g0", "1 unit", tombstone=True)], True),
        ([*filler[:5], hit("g1", "2 units")], False),
    ],
)
def test_current(hits, passed):
    assert verdict("R3", hits) is passed


@pytest.mark.parametrize(
    ("keys", "passed"), [(None, None), ([], False), (["g1"], False), (["g0"], True), (["g1", "g0", "x"], True)]
)
def test_lineage_is_attempted_where_the_reply_has_keys_whatever_is_declared(keys, passed):
    def change(transcript):
        transcript.lineages["L1"] = keys

    assert verdict("L1", change=change) is passed and verdict("L1", change=change, history=True) is passed
    assert verdict("L1") is None


@pytest.mark.parametrize(
    ("hits", "passed"),
    [
        ([hit("f1", "stick")], True),
        ([hit("f1", "other")], False),
        ([hit("f0", neighbors=["f1"])], True),
        ([*filler[:4], hit("f0", neighbors=["f1"])], True),
        ([*filler[:5], hit("f0", neighbors=["f1"])], False),
        ([hit("f0", neighbors=["f1"], tombstone=True)], False),
    ],
)
def test_linked(hits, passed):
    assert verdict("R4", hits) is passed


@pytest.mark.parametrize(
    ("at", "passed"),
    [(BASE, True), (None, True), (BASE - 86_400, True), (BASE + 86_400, False), (BASE - 86_401, False)],
)
def test_windowed_is_half_open_and_a_hit_without_a_time_never_leaks(at, passed):
    assert verdict("R5", [hit("f0"), hit("x", created_at=at)], temporal=True) is passed


def queue(*pairs):
    return lambda transcript: transcript.suspects.update(S=[Suspect(*pair) for pair in pairs])


@pytest.mark.parametrize(
    ("change", "positive", "negative"),
    [
        (queue(), False, True),
        (lambda t: None, False, True),
        (queue(("f0", "c0a"), ("c1a", "f0")), True, False),
        (queue(("c0a", "f0", "neutral"), ("c1a", "f0", "neutral")), True, True),
        (queue(("c0a", "f0", "entailment"), ("c1a", "f0", "entailment")), False, True),
        (
            queue(
                ("c0a", "f0", "entailment"),
                ("c0a", "f0", "contradiction"),
                ("c1a", "f0", "entailment"),
                ("f0", "c1a", "contradiction"),
            ),
            True,
            False,
        ),
        (queue(("c0a", "f0"), ("c0a", "f0", "entailment"), ("c1a", "f0"), ("c1a", "f0", "neutral")), False, True),
        (lambda t: t.inscribes.update(W1=Inscribed("f0", "entailment"), W2=Inscribed("f0", "entailment")), False, True),
        (lambda t: t.inscribes.update(W1=Inscribed("f0"), W2=Inscribed("f0")), False, True),
        (
            lambda t: t.inscribes.update(W1=Inscribed("f0", "contradiction"), W2=Inscribed("f0", "contradiction")),
            True,
            False,
        ),
        (
            lambda t: t.inscribes.update(
                W1=Inscribed(suspects=[Suspect("c0a", "f0")]), W2=Inscribed(suspects=[Suspect("c1a", "f0")])
            ),
            True,
            False,
        ),
        (
            lambda t: t.inscribes.update(W1=Inscribed("s-f0", "contradiction"), W2=Inscribed("s-f0", "contradiction")),
            False,
            True,
        ),
    ],
)
def test_case(change, positive, negative):
    assert verdict("C0", change=change, suspects=True) is positive
    assert verdict("C1", change=change, suspects=True) is negative
    assert verdict("C0", change=change) is None


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        (queue(), False),
        (queue(("f0", "s-f0")), True),
        (queue(("f0", "s-f0", "neutral")), True),
        (queue(("f0", "s-f0", "entailment")), False),
    ],
)
def test_drifted(change, passed):
    assert verdict("D0", change=change, suspects=True) is passed


def test_deletion_is_about_live_hits_only():
    assert verdict("R6", [hit("f1", tombstone=True)]) is True
    assert verdict("R6", [*filler, hit("f1")]) is False


def test_resurrection_is_attempted_with_a_trace_only_and_a_purge_is_a_column():
    def warned(transcript):
        transcript.inscribes.update(
            W3=Inscribed(warnings=[("tombstoned", "f1")]), W4=Inscribed(warnings=[("tombstoned", None)])
        )

    assert verdict("W3", change=warned) is None
    assert verdict("W3", change=warned, trace=True) is True and verdict("W3", trace=True) is False
    assert "W4" not in [task.id for task in graded(warned, trace=True).tasks]
    assert (
        column("deletion", "purged_rewrite_warned", warned) == 1.0
        and column("deletion", "resurrection_warned", warned) == 1.0
    )


def test_a_trace_leaks_where_the_tombstone_shows_the_answer():
    def trace(text):
        return lambda t: t.recalls.update(R6=Recalled([hit(None, text, tombstone=True)]))

    assert column("deletion", "marker_leak", trace("it STICKS"), trace=True) == 1.0
    assert (
        column("deletion", "marker_leak", trace("gone"), trace=True) == 0.0
        and column("deletion", "trace", trace("gone"), trace=True) == 1.0
    )
    assert column("deletion", "trace", trace("gone")) is None


def test_families_use_attempted_tasks_and_success_uses_all_posed():
    flat, able = graded().receipt, graded(**ALL).receipt
    assert flat["tasks"] == able["tasks"] == 13
    assert flat["attempted"] == 7 and able["attempted"] == 12  # the lineage has no reply in either
    deletion = {
        name: next(f for f in receipt["families"] if f["family"] == "deletion")
        for name, receipt in (("flat", flat), ("able", able))
    }
    assert (deletion["flat"]["posed"], deletion["flat"]["tasks"], deletion["flat"]["pass_rate"]) == (3, 2, 1.0)
    assert (deletion["able"]["tasks"], deletion["able"]["pass_rate"]) == (3, 2 / 3)
    na = {f["family"]: f.get("na") for f in flat["families"]}
    assert (
        na["drift"] == "no suspect nomination" and na["authority"] == "no endorsement rung" and na["retrieval"] is None
    )
    assert [f["family"] for f in flat["families"]][5:7] == ["rationale", "temporal"]


def test_signal_counts_a_readable_note_and_not_a_declined_one():
    def show(declined=False, text="pump uses 3 bar"):
        return lambda t: t.recalls.update(R1=Recalled([hit("x", "x" * 48), hit("f0", text)], declined))

    assert graded(show()).receipt["signal_score"] == pytest.approx(100 * (4 / 16) / 2)  # two questions: R1 and P1
    assert (
        graded(show(declined=True)).receipt["signal_score"]
        == graded(show(text="pump uses six b")).receipt["signal_score"]
        == 0
    )
    assert graded(show(declined=True)).receipt["signal_share"] == 0.25
    assert column("retrieval", "hedge", show(declined=True)) == 1.0


def test_standing_text_is_billed_over_twenty_questions_and_a_dump_once():
    def standing(transcript):
        transcript.standing_tokens = 4000

    def dumped(transcript):
        standing(transcript)
        transcript.recalls["P1"] = Recalled([hit("f1", "x" * 800)], dump=True)

    assert graded(standing).receipt["tokens_billed"] == 200 and graded(dumped).receipt["tokens_billed"] == 100


@pytest.mark.parametrize(("billed", "points"), [(0, 100), (200, 100), (3000, 0), (400_000, 0), (775, 50)])
def test_token_score(billed, points):
    assert token_score(billed) == pytest.approx(points, abs=0.1)


def test_flags_name_what_was_declared_and_never_shown():
    assert graded().receipt["flags"] == []
    flags = graded(lambda t: t.lineages.update(L1=["g1"]), verdict=True, write_check=True, **ALL).receipt["flags"]
    assert [flag.split()[0] for flag in flags] == ["trace", "verdict", "suspects", "history", "write_check"]


def naive_separation(up, down):
    best = 0.0
    for t in {*up, *down}:
        found = sum(s >= t for s in up) / len(up) if up else 0.0
        kept = sum(s < t for s in down) / len(down) if down else 0.0
        best = max(best, (found + kept) / 2)
    return best


scores = st.lists(st.integers(0, 6).map(lambda n: n / 6), max_size=12)


@settings(deadline=None)  # other work on the machine is no failure
@given(scores, scores)
def test_separation_is_the_best_threshold_of_all_tried_one_by_one(up, down):
    assert separation(up, down) == pytest.approx(naive_separation(up, down))


@settings(deadline=None)  # other work on the machine is no failure
@given(st.randoms(use_true_random=False))
def test_the_order_of_replies_is_free(rng: random.Random):
    script = mini()
    transcript = replay(script, arms.make("tfidf", script))
    before = grade(script, transcript).receipt
    for held in ("recalls", "inscribes"):
        items = list(getattr(transcript, held).items())
        rng.shuffle(items)
        setattr(transcript, held, dict(items))
    assert grade(script, transcript).receipt == before


def ranked(**more):
    ops = [
        *copy.deepcopy(OPS),
        *({"op": "inscribe", "record": record(key, f"twin {key}"), "mode": "import"} for key in "abc"),
        {"op": "endorse", "key": "a", "by": "user"},
        {"op": "recall", "id": "R8", "query": "twin", "k": 10},
    ]
    probe = {
        "id": "R8",
        "family": "authority",
        "expect": "ranked",
        "winner": "a",
        "losers": ["b", "c"],
        **more,
        "layer": 2,
        "scenario": "approve_vs_confirm",
        "needs": ["endorse_user"],
    }
    return make_script(SPEC, ops, [*copy.deepcopy(PROBES), probe])


@pytest.mark.parametrize(
    ("keys", "more", "passed"),
    [
        ("a", {}, True),
        ("abc", {}, True),
        ("acb", {}, True),
        ("acb", {"order": True}, False),
        ("abc", {"order": True}, True),
        ("ac", {"order": True}, True),
        ("ba", {}, False),
        ("b", {}, False),
        ("", {}, False),
        ("xxxxxa", {}, False),
        ("ac", {"losers": ["c"], "retired": ["b"]}, True),
        ("acb", {"losers": ["c"], "retired": ["b"]}, False),
    ],
)
def test_ranked(keys, more, passed):
    script = ranked(**more)
    transcript = silent(script, endorse_user=True)
    transcript.recalls["R8"] = Recalled([hit(key) for key in keys])
    receipt = grade(script, transcript).receipt
    assert ("R8" not in receipt["failed"]) is passed
    authority = receipt["families"][-1]
    assert authority["columns"]["s_approve_vs_confirm"] == passed and authority["columns"]["na_share"] == 0
    assert (
        receipt["family_points"] == grade(mini(), silent(mini())).receipt["family_points"]
    )  # authority is never added


def test_ranked_needs_the_rung_it_names_and_a_dump_is_no_ranking():
    script = ranked()
    transcript = silent(script, endorse_assistant=True)
    transcript.recalls["R8"] = Recalled([hit("a"), hit("b")])
    assert next(t.passed for t in grade(script, transcript).tasks if t.id == "R8") is None
    transcript = silent(script, endorse_user=True)
    transcript.recalls["R8"] = Recalled([hit("a"), hit("b")], dump=True)
    assert "R8" in grade(script, transcript).receipt["failed"]

import gzip
import json

import pytest
from drift_mini import OPS, PROBES, SPEC, mini
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab.drift import arms
from kiokulab.drift.ingest import replay
from kiokulab.drift.judge import grade
from kiokulab.drift.script import (
    digest_of,
    fnv1a,
    load_script,
    load_transcript,
    make_script,
    parse_transcript,
    tokens,
    transcript_value,
)
from kiokulab.errors import InputError


def file_of(tmp_path, value, name="world.json"):
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def whole():
    return json.loads(mini().text())


def test_digest_is_fnv_1a_of_the_compact_json():
    assert (
        fnv1a(b"") == 0xCBF29CE484222325 and fnv1a(b"foobar") == 0x85944171F73967E8
    )  # published test vectors of FNV-1a
    assert (
        digest_of({"size": 1}, [], []) == f"{fnv1a(b'[{' + bytes([34]) + b'size' + bytes([34]) + b':1},[],[]]'):016x}"
    )


def test_digest_does_not_hang_on_the_order_of_fields_in_a_file():
    turned = [dict(reversed(op.items())) for op in OPS]
    assert make_script(SPEC, turned, PROBES).digest == mini().digest


def test_plain_and_gzipped_file_are_the_same_script(tmp_path):
    plain = file_of(tmp_path, mini().text())
    packed = tmp_path / "world.json.gz"
    packed.write_bytes(gzip.compress(mini().text().encode()))
    assert load_script(plain).digest == load_script(packed).digest == mini().digest


@pytest.mark.parametrize("cut", [0, 1, 57, 2000, -1])
def test_truncated_json_is_refused_with_file_and_position(tmp_path, cut):
    path = file_of(tmp_path, mini().text()[:cut])
    with pytest.raises(InputError, match=r"world\.json:\d+:\d+: not JSON"):
        load_script(path)


def test_truncated_gzip_is_refused(tmp_path):
    path = tmp_path / "world.json.gz"
    path.write_bytes(gzip.compress(mini().text().encode())[:-20])
    with pytest.raises(InputError, match="not a whole gzip file"):
        load_script(path)


def test_missing_file_and_bytes_that_are_not_utf8_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_script(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"spec": "\xe9"}')
    with pytest.raises(InputError, match="not UTF-8"):
        load_script(tmp_path / "latin.json")


def test_endless_nesting_is_refused(tmp_path):
    with pytest.raises(InputError, match="not usable JSON"):
        load_script(file_of(tmp_path, "[" * 200_000))


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(digest="0" * 16),
        lambda value: value["ops"][7].update(query="another question"),
        lambda value: value["probes"].pop(),
        lambda value: value["spec"].update(k=9),
    ],
)
def test_changed_content_is_refused_by_the_digest(tmp_path, change):
    value = whole()
    change(value)
    with pytest.raises(InputError, match="digest") as refused:
        load_script(file_of(tmp_path, value))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "position"),
    [
        (lambda v: v["ops"][7].update(op="dream"), r"ops\[7\]: unknown op"),
        (lambda v: v["ops"].__setitem__(7, 3), r"ops\[7\]: unknown op"),
        (lambda v: v["ops"][0]["record"].pop("title"), r"ops\[0\]\.record: the field 'title' is missing"),
        (lambda v: v["ops"][0]["record"].update(mood="bad"), r"ops\[0\]\.record: unknown field"),
        (lambda v: v["ops"][0]["record"].update(created_at=1.5), r"ops\[0\]\.record\.created_at: not a valid value"),
        (lambda v: v["ops"][0]["record"].update(key="a\x00b"), r"ops\[0\]\.record\.key: not a valid value"),
        (lambda v: v["ops"][0]["record"].update(title="\ud800"), "lone surrogate"),
        (lambda v: v["ops"][3].update(to="f9"), r"ops\[3\]\.to: the note 'f9' was not written before"),
        (lambda v: v["ops"][1]["record"].update(key="s-f0"), r"ops\[1\]: the note 's-f0' is written twice"),
        (lambda v: v["ops"][8].update(id="R1"), r"ops\[8\]: the id 'R1' is used twice"),
        (lambda v: v["ops"].pop(7), r"probes\[0\]: a hole: no operation asks for 'R1'"),
        (lambda v: v["probes"].pop(0), "a hole: 'R1' is asked and never graded"),
        (lambda v: v["probes"][0].update(expect="guess"), r"probes\[0\]: unknown expectation"),
        (lambda v: v["probes"][0].update(family="drift"), r"probes\[0\]\.family: not a valid value"),
        (lambda v: v["probes"][0].update(stale="nobody"), r"probes\[0\]\.stale: a hole"),
        (lambda v: v["probes"][1]["answers"].pop(), r"probes\[1\]: 'answers' and 'gold' differ"),
        (lambda v: v["probes"][7].update(tier=True), r"probes\[7\]\.tier"),
        (lambda v: v["spec"].update(edition=1), "edition 1"),
        (lambda v: v["spec"].pop("k"), "spec: the field 'k' is missing"),
    ],
)
def test_holes_and_unknown_words_are_refused_with_position(change, position):
    value = whole()
    change(value)
    with pytest.raises(InputError, match=position):
        make_script(value["spec"], value["ops"], value["probes"])


def test_a_name_that_stands_twice_in_one_object_is_refused(tmp_path):
    text = mini().text().replace('"id": "R1",', '"id": "R1", "id": "R1",', 1)
    with pytest.raises(InputError, match="stands twice"):
        load_script(file_of(tmp_path, text))


def replies(*more, **fields):
    script = mini()
    value = transcript_value(replay(script, arms.make("grep", script)))
    value["replies"] += more
    return value | {"timing": {"recall": {"count": 1, "total_ms": 2.0}}} | fields


def test_a_transcript_survives_the_file(tmp_path):
    script = mini()
    for name in ("grep", "tfidf", "oracle", "whole"):
        made = replay(script, arms.make(name, script))
        path = file_of(tmp_path, transcript_value(made), f"{name}.json")
        assert grade(script, load_transcript(path)) == grade(script, made)


@pytest.mark.parametrize("score", ["NaN", "Infinity", "-Infinity", "1e999", '"0.5"', "true"])
def test_a_score_that_is_no_number_is_refused_with_position(tmp_path, score):
    text = json.dumps(replies()).replace('"score": 1.0', f'"score": {score}', 1)
    assert score in text
    with pytest.raises(InputError, match=r"t\.json: replies\[\d+\]\.result\.hits\[\d+\]\.score: not a valid value"):
        load_transcript(file_of(tmp_path, text, "t.json"))


@pytest.mark.parametrize(
    "reply",
    [
        {"reply": "dance", "id": "R1"},
        {"reply": "recall", "id": "R1"},
        {"reply": "recall", "id": 1, "result": {"hits": []}},
        {"reply": "recall", "id": "R1", "result": {"hits": [{}]}},
        {"reply": "recall", "id": "R1", "result": {"hits": [{"text": None}]}},
        {"reply": "recall", "id": "R1", "result": {"hits": [{"text": "a", "created_at": 1.0}]}},
        {"reply": "recall", "id": "R1", "result": {"hits": {}}},
        {"reply": "recall", "id": "R1", "result": {"hits": [], "dump": "yes"}},
        {"reply": "lineage", "id": "L1", "keys": [1]},
        {"reply": "suspects", "id": "S", "pairs": [{"a": "x"}]},
        {"reply": "inscribe", "id": "W1", "result": {"warnings": [{}]}},
        7,
    ],
)
def test_a_misshapen_reply_is_refused(reply):
    with pytest.raises(InputError, match=r"replies\[\d+\]"):
        parse_transcript(replies(reply))


@pytest.mark.parametrize(
    "fields",
    [
        {"capabilities": {"link": 1}},
        {"standing_tokens": -1},
        {"standing_tokens": 1.5},
        {"arm": None},
        {"timing": {"recall": {"count": -1, "total_ms": 1}}},
        {"replies": None},
        {"capabilities": []},
    ],
)
def test_a_misshapen_transcript_is_refused(fields):
    with pytest.raises(InputError):
        parse_transcript(replies(**fields))


def test_odd_things_that_cannot_touch_a_grade_are_counted():
    script = mini()
    plain = grade(script, parse_transcript(replies()))
    odd = parse_transcript(
        replies(
            {"reply": "recall", "id": "R1", "result": {"hits": []}},
            {"reply": "recall", "id": "R999", "result": {"hits": []}},
            {"reply": "inscribe", "id": "R1", "result": {"suspects": [{"a": "c0a", "b": "f0"}]}},
            note="more than the format asks",
        )
    )
    graded = grade(script, odd)
    assert graded.receipt == plain.receipt
    assert sorted(graded.problems.values()) == [1, 2]


def test_a_key_with_control_characters_names_no_note_and_is_counted():
    value = replies()
    first = next(reply for reply in value["replies"] if reply["id"] == "R1")
    first["result"]["hits"] = [{"text": "pump uses 3 bar", "key": "f0\x00"}, {"text": "pump uses 3 bar", "key": "f0\n"}]
    graded = grade(mini(), parse_transcript(value))
    assert "R1" in graded.receipt["failed"] and sum(graded.problems.values()) == 2


def test_a_hit_of_five_megabytes_is_billed_in_full():
    value = replies()
    first = next(reply for reply in value["replies"] if reply["id"] == "R1")
    first["result"]["hits"] = [{"text": "3 bar " + "\u202e<b>" * 1_250_000, "key": "f0"}]
    graded = grade(mini(), parse_transcript(value))
    assert (
        "R1" not in graded.receipt["failed"]
        and graded.receipt["tokens_billed"] > 600_000
        and graded.receipt["token_score"] == 0
    )


def test_a_lone_surrogate_in_a_hit_is_text_like_any_other():
    value = replies()
    first = next(reply for reply in value["replies"] if reply["id"] == "R1")
    first["result"]["hits"] = [{"text": "\ud83d 3 bar", "key": "f0"}]
    graded = grade(mini(), parse_transcript(json.loads(json.dumps(value))))
    assert "R1" not in graded.receipt["failed"]


@settings(deadline=None)  # other work on the machine is no failure
@given(st.text(max_size=40))
def test_tokens_are_a_quarter_of_the_characters_rounded_up(text):
    assert 4 * tokens(text) - 3 <= len(text) <= 4 * tokens(text) if text else tokens(text) == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)  # other work on the machine is no failure
@given(
    value=json_values,
    place=st.integers(0, 20),
    name=st.sampled_from(["op", "id", "record", "key", "from", "query", "k", "window"]),
)
def test_any_value_anywhere_is_refused_or_accepted_and_never_crashes(value, place, name):
    script = whole()
    script["ops"][place][name] = value
    try:
        make_script(script["spec"], script["ops"], script["probes"])
    except InputError:
        pass


@settings(deadline=None)  # other work on the machine is no failure
@given(value=json_values, place=st.integers(0, 8), name=st.sampled_from(["reply", "id", "result", "pairs", "keys"]))
def test_any_reply_is_refused_or_graded_and_never_crashes(value, place, name):
    transcript = replies()
    transcript["replies"][place][name] = value
    try:
        grade(mini(), parse_transcript(transcript))
    except InputError:
        pass

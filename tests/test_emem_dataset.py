"""The emem dataset: aliases, physical lines, hard errors, provenance, converters."""

import json

import pytest

from kiokulab.emem import dataset
from kiokulab.errors import InputError

ROW = {"id": "a", "content": "c", "query": "q", "expected_answer": "e"}


def write(tmp_path, text, name="items.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "aliases",
    [
        {"question_id": "a", "context": "c", "question": "q", "answer": "e"},
        {"qid": "a", "text": "c", "query": "q", "expected": "e"},
        {"id": "a", "memory": "c", "query": "q", "expected_answer": "e", "unknown": [1]},
    ],
)
def test_every_alias_is_read(tmp_path, aliases):
    (item,) = dataset.load(write(tmp_path, json.dumps(aliases))).items
    assert (item.id, item.content, item.query, item.expected_answer) == ("a", "c", "q", "e")


def test_lines_are_physical_and_comments_count(tmp_path):
    path = write(tmp_path, "# head\r\n\r\n" + json.dumps(ROW) + "\r\n{broken\n")
    with pytest.raises(InputError, match=r"items\.jsonl:4: dataset line 4"):
        dataset.load(path)


def test_line_separators_inside_text_do_not_split_a_line(tmp_path):
    row = json.dumps(ROW | {"content": "one\u2028two\x0bthree\x85four"}, ensure_ascii=False).replace("\\u000b", "\x0b")
    path = write(tmp_path, "# c\n" + row.replace("\x0b", "\\u000b") + "\n")
    (item,) = dataset.load(path).items
    assert item.line == 2 and "\u2028two" in item.content


@pytest.mark.parametrize(
    "name,line,message",
    [
        ("missing field", {"id": "a", "content": "c", "query": "q"}, "missing field `expected_answer`"),
        ("integer answer", ROW | {"expected_answer": 5}, "must be a string, not int"),
        ("null content", ROW | {"content": None}, "must be a string, not NoneType"),
        ("blank id", ROW | {"id": " \u3000"}, "empty `id`"),
        ("two aliases", ROW | {"answer": "e"}, "given twice, as expected_answer and answer"),
        ("a list", [1], "an item is a JSON object"),
        ("update is a number", ROW | {"update": 3}, "`update` must be a string"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path, name, line, message):
    path = write(tmp_path, json.dumps(ROW) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(InputError, match="dataset line 2") as error:
        dataset.load(path)
    assert message in str(error.value) and error.value.exit_code == 2


def test_a_field_given_twice_under_one_name_is_refused(tmp_path):
    with pytest.raises(InputError, match="`id` is given twice"):
        dataset.load(write(tmp_path, '{"id":"a","id":"b","content":"c","query":"q","expected_answer":"e"}'))


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"\n\n"])
def test_no_items_is_an_error(tmp_path, content):
    with pytest.raises(InputError, match="dataset contained no items"):
        dataset.load(write(tmp_path, content))


def test_not_utf8_names_the_line(tmp_path):
    with pytest.raises(InputError, match="dataset line 1: not UTF-8"):
        dataset.load(write(tmp_path, b'{"id":"\xff"}\n'))


def test_an_absent_file_says_so(tmp_path):
    with pytest.raises(InputError, match="read dataset .*none.jsonl"):
        dataset.load(tmp_path / "none.jsonl")


def test_provenance_by_name_and_by_content_are_two_things(tmp_path):
    text = json.dumps(ROW)
    sample = dataset.load(write(tmp_path, text, "sample-longmemeval.jsonl"))
    other = dataset.load(write(tmp_path, text, "copy.jsonl"))
    assert (sample.provenance_by_name, other.provenance_by_name) == ("sample", "full")
    assert sample.provenance_by_content == other.provenance_by_content == "unknown"


def test_ids_that_collapse_to_one_path_are_named(tmp_path):
    rows = "\n".join(json.dumps(ROW | {"id": identity}) for identity in ("a-b", "a_b", "記"))
    found = dataset.load(write(tmp_path, rows))
    assert found.collisions == {"/memories/membench/a_b.md": ["a-b", "a_b"]}
    assert found.items[2].path == "/memories/membench/_.md"


def test_our_sample_loads_and_has_true_negatives(repository):
    items = dataset.load(repository / "data/emem/v0.1/items.jsonl").items
    assert 16 <= len(items) <= 24
    assert {item.contradicts for item in items if item.conflicts_with} == {True, False}
    assert sum(item.update is not None for item in items) >= 3


def test_items_survive_a_round_trip(tmp_path, repository):
    items = dataset.load(repository / "data/emem/v0.1/items.jsonl").items
    again = dataset.load(write(tmp_path, dataset.to_jsonl(list(items)))).items
    strip = [{**vars(item), "line": 0} for item in items]
    assert [{**vars(item), "line": 0} for item in again] == strip


def test_longmemeval_records_become_items_without_their_labels():
    record = {
        "question_id": "q1",
        "question": "How many?",
        "answer": 3,
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [[{"role": "user", "content": "three cats", "has_answer": True}]],
        "haystack_session_ids": ["answer_1"],
    }
    (item,) = dataset.from_longmemeval([record])
    assert item.expected_answer == "3" and "three cats" in item.content
    assert "has_answer" not in item.content and "answer_1" not in item.content
    with pytest.raises(InputError, match="abstention"):
        dataset.from_longmemeval([record | {"question_id": "q1_abs"}])
    with pytest.raises(InputError, match=r"records\[0\].*1 dates for 0 sessions"):
        dataset.from_longmemeval([record | {"haystack_sessions": []}])


def test_memoryagentbench_records_become_one_item_a_question():
    items = dataset.from_memoryagentbench([{"context": "x", "questions": ["a?", "b?"], "answers": [["1", "one"], "2"]}])
    assert [(item.id, item.query, item.expected_answer) for item in items] == [("0-0", "a?", "1"), ("0-1", "b?", "2")]
    with pytest.raises(InputError, match="2 questions for 1 answers"):
        dataset.from_memoryagentbench([{"context": "x", "questions": ["a?", "b?"], "answers": ["1"]}])

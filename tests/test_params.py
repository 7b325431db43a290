"""Parameters: every way to give them wrongly has a message with its place."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kiokulab.errors import InputError
from kiokulab.params import UNDECIDING, KiokuParams, edition_digest, read_profile, track_module, typed


@pytest.mark.parametrize(
    "content", [b"", b"# only a comment\n", b"\n\n", b"---\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf# comment\r\n"]
)
def test_an_empty_profile_has_no_values(tmp_path, content):
    path = tmp_path / "p.yml"
    path.write_bytes(content)
    assert read_profile(path) == ({}, {})


def test_a_byte_order_mark_and_windows_line_ends_are_harmless(tmp_path):
    path = tmp_path / "p.yml"
    path.write_bytes(b"\xef\xbb\xbf# c\r\nroute: all\r\npersonas: 2  # two\r\n")
    assert read_profile(path) == ({"route": "all", "personas": 2}, {"route": f"{path}:2", "personas": f"{path}:3"})


@pytest.mark.parametrize(
    "content, line, says",
    [
        (b"- a\n- b\n", 1, "sequence"),
        (b"just text\n", 1, "scalar"),
        (b"a: 1\nb: [1\n", 3, "not YAML"),
        (b"seed: 1\nseed: 2\n", 2, "given twice"),
        (b"seed: 1\nroute: \xff\n", 2, "UTF-8"),
        (b"a: !!python/object:os.system x\n", 1, "not YAML"),
        (b"? [a]\n: 1\n", 1, "plain word"),
        (b"a: 1\n---\nb: 2\n", 2, "not YAML"),
    ],
)
def test_a_bad_profile_is_named_with_its_line(tmp_path, content, line, says):
    path = tmp_path / "p.yml"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_profile(path)
    assert error.value.where == f"{path}:{line}" and says in str(error.value)


@pytest.mark.parametrize(
    "values",
    [
        {"personas": "2"},
        {"personas": True},
        {"personas": 2.5},
        {"personas": -1},
        {"floor": math.nan},
        {"floor": math.inf},
        {"floor": 0.0},
        {"route": "RAW"},
        {"seed": None},
        {"beside": "x"},
        {"judge": "guess"},
        {"embedder": "word2vec"},
        {"track": "../x"},
        {"k": 0},
        {"settings": {"x"}},
    ],
)
def test_a_wrong_value_is_named_with_its_place(values):
    (name,) = values
    with pytest.raises(InputError) as error:
        KiokuParams.checked(values, {name: "mine.yml:4"})
    assert error.value.where == "mine.yml:4" and name in str(error.value)


def test_an_unknown_name_says_what_was_meant():
    with pytest.raises(InputError, match="Did you mean 'personas'"):
        KiokuParams.checked({"persona": 3}, {"persona": "x.yml:1"})


def test_a_notebooks_variables_are_taken_by_name_and_nothing_else():
    namespace = {"personas": 3, "route": "all", "In": [], "math": math, "_": 1}
    assert KiokuParams.from_namespace(namespace) == KiokuParams(personas=3, route="all")
    with pytest.raises(InputError, match="parameter personas"):
        KiokuParams.from_namespace({"personas": "three"})


def test_what_does_not_decide_the_result_is_not_part_of_it():
    by_model = KiokuParams(judge="llm:m").deciding()
    assert not set(by_model) & UNDECIDING and set(by_model) | UNDECIDING == set(KiokuParams.model_fields)


def test_how_many_pairs_a_model_is_measured_on_is_nothing_to_a_run_judged_by_rules():
    assert KiokuParams(judge_set_pairs=5).deciding() == KiokuParams().deciding()
    assert KiokuParams(judge="llm:m", judge_set_pairs=5).deciding() != KiokuParams(judge="llm:m").deciding()


def test_every_parameter_is_described():
    assert all(field.description for field in KiokuParams.model_fields.values())


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("seed", "007", 7),
        ("system", "1e-3", "1e-3"),
        ("system", "007", "007"),
        ("floor", "1e-3", 0.001),
        ("settings", "{infer: false}", {"infer": False}),
    ],
)
def test_options_have_the_type_of_their_field(name, text, value):
    assert typed(KiokuParams, name, text) == value


@pytest.mark.parametrize(
    "name, text",
    [("seed", "1e3"), ("seed", "١"), ("personas", ""), ("floor", "x"), ("settings", "{a"), ("k", "9" * 30)],
)
def test_options_of_another_type_are_refused(name, text):
    with pytest.raises(InputError, match=f"option --{name}"):
        typed(KiokuParams, name, text)


@given(st.text(max_size=60))
def test_no_text_is_more_than_bad_input(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("p") / "p.yml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        values, places = read_profile(path)
        KiokuParams.checked(values, places)
    except InputError as error:
        assert error.where


@given(st.floats() | st.integers() | st.text() | st.none() | st.booleans())
def test_a_seed_is_a_whole_number_or_refused(value):
    good = type(value) is int and value >= 0
    try:
        assert KiokuParams.checked({"seed": value}).seed == value and good
    except InputError:
        assert not good


def test_the_shipped_profile_gives_the_defaults(repository):
    values, places = read_profile(repository / "params" / "kioku.yml")
    assert KiokuParams.checked(values, places) == KiokuParams()
    assert yaml.safe_load((repository / "params" / "kioku.yml").read_text()) == values


def test_an_editions_digest_is_over_all_its_files(tmp_path):
    (tmp_path / "edition.json").write_text("{}")
    (tmp_path / "en-01.json").write_text("{}")
    before = edition_digest("kioku", str(tmp_path))
    (tmp_path / "en-01.json").write_text("{} ")
    assert edition_digest("kioku", str(tmp_path)) != before


def test_an_unknown_track_or_edition_is_named(tmp_path):
    with pytest.raises(InputError, match="no track"):
        track_module("nothing")
    with pytest.raises(InputError, match="no edition 'v9'"):
        edition_digest("kioku", "v9")

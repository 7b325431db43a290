import shutil

import pytest
from verdict_mini import record

from kiokulab.errors import InputError
from kiokulab.verdict import TYPES, official

EVALUATE, GENERATE = "src/evaluation/evaluate_qa.py", "src/generation/run_generation.py"


@pytest.fixture
def checkout(repository, tmp_path):
    """A checkout that may be changed."""
    return shutil.copytree(repository / "tests/fixtures/verdict/stand_in", tmp_path / "stand_in")


def change(checkout, file, old, new):
    path = checkout / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_functions_come_out_without_importing_the_files(checkout):
    found = official.load(checkout)
    assert found.judge_models["gpt-4o"] == "gpt-4o-2024-08-06"
    assert set(found.files) == {EVALUATE, GENERATE} and all(len(sha) == 64 for sha in found.files.values())
    assert found.commit == "not a git checkout" or len(found.commit) == 40
    assert len(found.warnings) == 7  # the stand-in's words are not the official ones, and that is said of every rubric


@pytest.mark.parametrize("kind", TYPES)
def test_every_abs_id_gets_the_abstention_rubric_whatever_its_type(kind, checkout):
    anscheck = official.load(checkout).anscheck
    assert anscheck(kind, "q", "a", "r", abstention=True).startswith("ABSTENTION")
    plain = {
        "temporal-reasoning": "TEMPORAL",
        "knowledge-update": "UPDATE",
        "single-session-preference": "PREFERENCE",
    }.get(kind, "PLAIN")
    assert anscheck(kind, "q", "a", "r {0} {x}").startswith(plain)


IMPURE = {
    "opens_a_file": (EVALUATE, "    return prompt", "    open('/tmp/x', 'w')\n    return prompt", "uses the name open"),
    "imports": (EVALUATE, "    return prompt", "    import os\n    return prompt", "holds a Import"),
    "reaches_for_a_class": (EVALUATE, "    return prompt", "    return prompt.__class__", "reaches for __class__"),
    "default_argument_calls": (EVALUATE, "abstention=False)", "abstention=open('x'))", "uses the name open"),
    "generator_frame": (
        GENERATE,
        "    chunks = []\n",
        "    chunks = (c for c in []).gi_frame\n",
        "reaches for gi_frame",
    ),
    "calls_eval": (GENERATE, "    chunks = []\n", "    chunks = eval('[]')\n", "uses the name eval"),
    "global": (GENERATE, "    chunks = []\n", "    global chunks\n    chunks = []\n", "holds a Global"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_an_impure_function_is_refused_with_its_line(name, checkout):
    file, old, new, message = IMPURE[name]
    change(checkout, file, old, new)
    with pytest.raises(InputError, match=message) as caught:
        official.load(checkout)
    assert file.rsplit("/", 1)[1] in str(caught.value)


def test_the_json_of_the_function_is_two_functions_and_not_the_module(checkout):
    change(checkout, GENERATE, "    chunks = []\n", "    chunks = []\n    json.codecs.open('/nowhere/x', 'w')\n")
    with pytest.raises(AttributeError):
        official.load(checkout).prepare(record(), "orig-session", 5, False, "json", True, None, "openai", 10, "none")


CHANGED = {
    "other_arguments": (EVALUATE, "question, answer, response", "question, gold, response", "takes"),
    "gone": (EVALUATE, "def get_anscheck_prompt", "def get_prompt", "0 functions"),
    "decorated": (GENERATE, "def prepare_prompt", "@print\ndef prepare_prompt", "takes"),
    "not_python": (GENERATE, "def prepare_prompt(", "def prepare_prompt((", "not Python"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_repository_is_refused(name, checkout):
    file, old, new, message = CHANGED[name]
    change(checkout, file, old, new)
    with pytest.raises(InputError, match=message):
        official.load(checkout)


def test_a_missing_checkout_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="LONGMEMEVAL_REPO"):
        official.load(tmp_path)


def test_the_repositorys_own_model_call_is_never_made_in_secret(checkout):
    change(checkout, GENERATE, "    chunks = []\n", "    chunks = []\n    chat_completions_with_backoff(con_client)\n")
    with pytest.raises(InputError, match="model call"):
        official.load(checkout).prepare(record(), "orig-session", 5, False, "json", True, None, "openai", 10, "none")

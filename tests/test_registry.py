"""Names, near misses, what a system declares, and environments: all before anything is installed."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kiokulab import systems
from kiokulab.errors import InputError
from kiokulab.systems import environments
from kiokulab.systems.base import SystemFailure

SYSTEMS = Path(__file__).parent / "fixtures" / "systems"
TOY = f"{SYSTEMS / 'well_behaved.py'}:WellBehaved"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of systems instead of the real one."""
    monkeypatch.setattr(systems, "FOLDER", tmp_path)
    systems.adapters.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    systems.adapters.cache_clear()


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["mem0-verbatim", "Mem0-Verbatim", "mem0_verbatim", "MEM0 VERBATIM", "mem0verbatim"])
def test_case_and_joining_do_not_matter(typed):
    assert systems.resolve(typed) == systems.Resolution("mem0-verbatim")


@pytest.mark.parametrize("typed", ["mem0-verbatum", "mem0-vebatim", "mem0-verbatin"])
def test_a_near_miss_resolves_and_says_so(typed):
    found = systems.resolve(typed)
    assert found.name == "mem0-verbatim" and typed in found.note and "mem0-verbatim" in found.note


def test_a_name_between_two_systems_is_not_guessed():
    with pytest.raises(InputError, match="unknown system 'memo-verbatim'"):  # mem0-verbatim, or memos-verbatim
        systems.resolve("memo-verbatim")


def test_a_near_miss_of_a_system_that_is_not_built_says_both():
    with pytest.raises(InputError, match="'everos' is not built yet.*'everoz' was taken as 'everos'"):
        systems.resolve("everoz")


def test_every_system_that_is_not_built_says_why():
    assert all(len(why) > 20 for why in systems.NOT_BUILT.values())


@pytest.mark.parametrize("typed", sorted(set(systems.NOT_BUILT) - set(systems.adapters())))
def test_known_names_say_that_they_are_not_built(typed):
    with pytest.raises(InputError, match=f"{typed!r} is not built yet") as caught:
        systems.resolve(typed.upper())
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("typed", ["", "-", "chroma", "me", "mem", "x" * 10_000, "\x00", "日本語"])
def test_unknown_names_list_the_known_ones(typed):
    with pytest.raises(InputError, match="unknown system|not built yet") as caught:
        systems.resolve(typed)
    assert "mem0-verbatim" in str(caught.value) and len(str(caught.value)) < 1000


def test_two_near_matches_are_no_clear_match(folder):
    (folder / "x.py").write_text("SYSTEMS = {'store-alpha': 'A', 'store-alphi': 'B'}")
    with pytest.raises(InputError, match="unknown system 'store-alph'"):
        systems.resolve("store-alph")


# --- files ------------------------------------------------------------------------------------------------------------


def test_adapters_are_found_without_being_imported(folder):
    (folder / "x.py").write_text(
        "SYSTEMS: dict[str, str] = {'x-one': 'One', 'x-two': 'Two'}\nraise RuntimeError('imported')\n"
    )
    (folder / "x.lock").write_text("x==1\n")
    (folder / "helper.py").write_text("raise RuntimeError('imported')\n")
    assert systems.names() == ["x-one", "x-two"]
    assert systems.adapter("x_one").environment == "x"


@pytest.mark.parametrize(
    "text", ["SYSTEMS = dict(x='X')", "SYSTEMS = {'x': X}", "SYSTEMS = {'x': 1}", "SYSTEMS = ['x']"]
)
def test_a_systems_table_that_is_no_literal_is_refused_with_its_place(folder, text):
    (folder / "x.py").write_text("\n" + text)
    with pytest.raises(InputError, match=r"x\.py:2: SYSTEMS must be a literal"):
        systems.names()


def test_a_name_that_two_files_declare_is_refused(folder):
    (folder / "x.py").write_text("SYSTEMS = {'same': 'X'}")
    (folder / "y.py").write_text("SYSTEMS = {'same': 'Y'}")
    with pytest.raises(InputError, match="declared twice"):
        systems.names()


def test_a_class_given_by_its_file_runs_in_this_process(tmp_path):
    assert systems.resolve(TOY).name == TOY
    with systems.connect(TOY, space="en-01/raw", workdir=tmp_path) as memory:
        assert memory.dump() == []
        assert memory.system.space == "en-01-raw"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("no/such/file.py:X", "there is no file no/such/file.py"),
        (f"{SYSTEMS / 'well_behaved.py'}:Nothing", "has no class 'Nothing'. It has WellBehaved"),
    ],
)
def test_a_wrong_file_or_class_is_bad_input(typed, says):
    with pytest.raises(InputError, match=says):
        systems.resolve(typed)


def test_a_file_that_is_not_python_is_bad_input(tmp_path):
    (tmp_path / "x.py").write_text("class X:\n  def (")
    with pytest.raises(InputError, match=r"x\.py:2: not Python"):
        systems.resolve(f"{tmp_path / 'x.py'}:X")


# --- declarations -----------------------------------------------------------------------------------------------------


def test_describe_installs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("KIOKULAB_ENVS", str(tmp_path / "none"))
    found = systems.describe("mem0-verbatim")
    assert found["version"] == "2.2.1" and found["installed"] is False and found["environment"] == "mem0"
    assert len(found["lock_digest"]) == len(found["source_digest"]) == 64
    assert not (tmp_path / "none").exists()


def test_every_built_system_can_be_described():
    for name in systems.names():
        found = systems.describe(name)
        assert found["name"] == name
        assert found["feeds"] in ("session", "pair", "utterance")
        assert found["dates"] in ("native", "clock", "text", "none")
        assert found["keeps"] in ("all", "some", "none")
        assert systems.adapter(name).file.with_suffix(".md").exists(), "an adapter has a note beside it"


def test_settings_go_over_the_defaults_and_unknown_ones_are_bad_input():
    assert systems.describe(TOY, {"greeting": "hi"})["settings"] == {"greeting": "hi"}
    with pytest.raises(InputError, match="unknown setting 'x'"):
        systems.describe(TOY, {"x": 1})


def test_locks_name_versions_and_no_index():
    for lock in systems.FOLDER.glob("*.lock"):
        lines = [line for line in lock.read_text().splitlines() if not line.startswith("# say: ")]
        assert lines and all("==" in line and "://" not in line and not line.startswith("-") for line in lines)


def test_a_system_with_a_clock_has_time_machine_in_its_lock():
    for name in systems.names():
        found = systems.describe(name)
        if found["dates"] == "clock":
            assert systems.locked_version(systems.adapter(name).lock, "time-machine")


def test_the_registry_needs_the_standard_library_only():
    script = (
        "import sys; before = set(sys.modules)\n"
        "import kiokulab.systems, kiokulab.systems.base, kiokulab.worker, kiokulab.clock\n"
        "import kiokulab.systems.environments, kiokulab.systems.process\n"
        "kiokulab.systems.resolve('mem0-verbatim')\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'kiokulab'}))"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


# --- environments -----------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A system `tiny` with a lock of no packages, and a folder for environments."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setenv("KIOKULAB_ENVS", str(tmp_path / "envs"))
    (tmp_path / "tiny.lock").write_text("")
    return tmp_path


def test_an_environment_is_made_once_and_again_when_its_lock_changes(tiny):
    said: list[str] = []
    assert not environments.installed("tiny")
    python = environments.ensure("tiny", said.append)
    assert subprocess.run([python, "-c", "print('runs')"], capture_output=True, text=True).stdout == "runs\n"
    assert environments.installed("tiny") and "0 packages from tiny.lock" in said[0]
    environments.ensure("tiny", said.append)
    assert sum("Making" in line for line in said) == 1
    (tiny / "tiny.lock").write_text("\n")
    assert not environments.installed("tiny")


def test_an_environment_that_was_cut_off_is_made_again(tiny):
    python = environments.ensure("tiny", print)
    (tiny / "envs" / "tiny" / "kiokulab.stamp").unlink()
    assert not environments.installed("tiny")
    environments.ensure("tiny", print)
    assert environments.installed("tiny") and python.exists()


def test_two_at_once_make_it_once(tiny):
    said: list[str] = []
    threads = [threading.Thread(target=environments.ensure, args=("tiny", said.append)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("Making" in line for line in said) == 1


def test_pip_is_used_where_uv_is_not(tiny, monkeypatch):
    monkeypatch.setattr(environments, "find_uv", lambda: None)
    environments.ensure("tiny", print)
    assert "-m venv" in (tiny / "envs" / "tiny.log").read_text()


def test_an_environment_that_cannot_be_made_is_bad_input_with_the_end_of_the_log(tiny, monkeypatch):
    (tiny / "tiny.lock").write_text("not a requirement==\n")
    with pytest.raises(InputError, match="(?s)could not be made; the log ends so:.*Nothing was started"):
        environments.ensure("tiny", print)
    assert not environments.installed("tiny")


def test_a_lock_that_is_held_is_said_at_once(tmp_path):
    with environments.only_one(tmp_path / "lock", "the thing"):
        with pytest.raises(SystemFailure, match="the thing is in use"):
            with environments.only_one(tmp_path / "lock", "the thing"):
                pass

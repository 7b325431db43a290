"""`make systems`: what it shows is what the adapters declare and what lies on disk, and it fits a terminal."""

import json

import pytest

from kiokulab import systems
from kiokulab.__main__ import main
from kiokulab.errors import InputError
from kiokulab.systems import catalogue, environments

TOY = """
from kiokulab.systems.base import Memory, System
SYSTEMS = {"toy": "Toy"}
class Toy(System):
    name, feeds, dates, licence, needs = "toy", "pair", "clock", "Zlib", "a spoon"
    package = "toy-memory"
    capabilities, forgets = frozenset({"forget"}), ("ids",)
    settings = {"depth": 3}
    def ingest(self, item, when): pass
    def dump(self): return []
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder of systems with nothing in it but the three files of one system."""
    folder, envs = tmp_path / "systems", tmp_path / "envs"
    folder.mkdir()
    monkeypatch.setattr(systems, "FOLDER", folder)
    monkeypatch.setattr(environments, "FOLDER", folder)
    monkeypatch.setenv("KIOKULAB_ENVS", str(envs))
    monkeypatch.setattr(systems, "load_class", _load(folder / "toy.py"))
    systems.adapters.cache_clear()
    (folder / "toy.py").write_text(TOY)
    (folder / "toy.lock").write_text("time-machine==1.0\ntoy-memory==0.9\n")
    (folder / "toy.md").write_text("# toy\n")
    yield folder
    monkeypatch.undo()
    systems.adapters.cache_clear()


def _load(file):
    def load(where):
        space: dict = {}
        exec(file.read_text(), space)
        return space[where.class_name]

    return load


def test_adding_a_toy_system_touches_its_three_files_and_shows_every_column(toy):
    row = catalogue.row_of("toy")
    shown = {
        key: row[key]
        for key in (
            "system",
            "version",
            "installed",
            "fed by",
            "clock",
            "model",
            "dump",
            "forget",
            "licence",
            "capabilities",
            "note",
        )
    }
    assert shown == {
        "system": "toy", "version": "0.9", "installed": "no", "fed by": "pair", "clock": "time-machine", "model": "none", "dump": "yes",
        "forget": "ids", "licence": "Zlib", "capabilities": "forget", "note": str(toy / "toy.md"),
    }  # fmt: skip
    assert row["bytes"] is None and "needs a spoon" in catalogue.table([row]) and "depth=3" in catalogue.detail("toy")
    assert sorted(path.name for path in toy.iterdir()) == ["toy.lock", "toy.md", "toy.py"]


def test_the_size_is_that_of_the_files_and_is_measured_again_when_the_environment_changes(toy):
    place = environments.root() / "toy"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").write_bytes(b"x" * 100_000)
    (place / "kiokulab.stamp").write_text(environments._wanted(toy / "toy.lock"))
    assert catalogue.state_of("toy") == "yes"
    first = catalogue.size_of("toy")
    assert 100_000 <= first < 200_000
    (place / "more").write_bytes(b"x" * 1_000_000)
    assert catalogue.size_of("toy") == first, "the same stamp: the same environment"
    (place / "kiokulab.stamp").write_text("another lock\n")
    assert catalogue.state_of("toy") == "old" and catalogue.size_of("toy") >= first + 1_000_000
    (place / "kiokulab.stamp").unlink()
    assert catalogue.state_of("toy") == "old" and catalogue.size_of("toy") is None, (
        "cut off: its size would be that of a part"
    )


@pytest.mark.parametrize("width", [100, 120, 160, 200, 300])
def test_the_table_of_the_real_systems_fits_the_terminal(width):
    rows = [catalogue.row_of(name) for name in systems.names()]
    text = catalogue.table(rows, width) + "\n" + catalogue.not_built(width)
    longest = max(map(len, text.splitlines()))
    assert longest <= max(width, 120)
    for name in (*systems.names(), *systems.NOT_BUILT):
        assert any(line.split(" ")[0] == name for line in text.splitlines()), name
    assert ("what each can do" in text) == (width < 180), "where there is room, all columns stand in one row"


def test_what_the_table_says_of_the_real_systems():
    rows = {name: catalogue.row_of(name) for name in systems.names()}
    assert (
        rows["mem0"]["forget"] == "ids,all"
        and rows["mem0"]["clock"] == "time-machine"
        and rows["mem0"]["licence"] == "Apache-2.0"
    )
    assert rows["byterover"]["licence"] == "Elastic-2.0" and rows["byterover"]["forget"] == "no"
    assert (
        rows["sepiace"]["dump"] == "no"
        and "cannot" in rows["sepiace"]["listing"]
        or "no call" in rows["sepiace"]["listing"]
    )
    assert rows["vector"]["installed"] == "built in" and rows["vector"]["bytes"] is None


def test_every_system_that_is_not_the_kits_own_says_its_licence():
    foreign = [where for name in systems.names() if (where := systems.adapter(name)).file.stem != "baselines"]
    silent = {where.file.stem for where in foreign if not systems.made(where).licence}
    assert silent <= {"cognee", "hindsight"}, (
        "their table says 'not declared' until a line `licence = ...` is in the adapter"
    )


def test_detail_of_a_system_that_is_not_built_gives_the_reason_and_ends_well(capsys):
    for name in (name for name in systems.NOT_BUILT if name not in systems.adapters()):
        assert main(["systems", "--system", name.upper()]) == 0
        said = capsys.readouterr().out
        assert "not built" in said and said.split()[0] == f"{name}:"


def test_an_unknown_system_is_bad_input():
    with pytest.raises(InputError, match="unknown system"):
        catalogue.detail("no-such-memory-at-all")


def test_the_command_takes_the_width_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["systems"]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["systems"]) == 0
    assert "what each can do" in capsys.readouterr().out and "what each can do" not in wide
    assert json.dumps(wide).isascii()

"""Fixtures that every test file may use. (Anybody may add one; keep each to a few lines.)"""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def shared():
    """shared("emem/sample.jsonl") -> Path of real data that is read where present and never committed; else skip.
    KIOKULAB_SHARED names the folder; the default lies beside the repository."""
    folder = Path(os.environ.get("KIOKULAB_SHARED", REPOSITORY.parent / "shared"))

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"{name} is not present under {folder.name}/ (real data is not part of the repository)")
        return path

    return find


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy track of tests/fixtures/toy, writing to a folder of its own. Gives that folder."""
    place = REPOSITORY / "tests" / "fixtures" / "toy"
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setenv("KIOKULAB_TOY_COUNT", str(tmp_path / "count.txt"))
    return tmp_path


@pytest.fixture(scope="session")
def system_environment():
    """system_environment("langmem") makes a memory system's own environment where KIOKULAB_TEST_SYSTEMS names it (comma
    list, or all); a `light` one is also taken where it is already there. Else skip."""
    from kiokulab.systems import environments

    named = os.environ.get("KIOKULAB_TEST_SYSTEMS", "").split(",")

    def need(name: str, light: bool = False) -> None:
        if name in named or "all" in named:
            environments.ensure(name)
        elif not (light and environments.installed(name)):
            pytest.skip(f"KIOKULAB_TEST_SYSTEMS does not name {name}, whose environment these tests need")

    return need

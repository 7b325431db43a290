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

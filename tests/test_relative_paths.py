"""`make kioku SYSTEM=mine.py:Latest EDITION=outputs/editions/…`: make runs in the checkout, its notebooks in
notebooks/<track>."""

import shutil

import pytest

from kiokulab import systems
from kiokulab.errors import InputError
from kiokulab.kioku import generate
from kiokulab.params import edition_folder


@pytest.fixture
def in_a_notebook(repository, monkeypatch):
    monkeypatch.chdir(repository / "notebooks" / "kioku")
    return repository


def test_a_system_by_a_path_from_the_checkout_is_found_in_a_notebook(in_a_notebook):
    name = "tests/fixtures/systems/well_behaved.py:WellBehaved"
    assert systems.resolve(name).name == name
    assert systems.adapter(name).file == in_a_notebook / "tests/fixtures/systems/well_behaved.py"


def test_an_edition_by_a_path_from_the_checkout_is_found_in_a_notebook(in_a_notebook):
    assert (
        edition_folder("kioku", "data/kioku/v1")
        == in_a_notebook / "data/kioku/v1"
        == generate.edition_folder("data/kioku/v1").resolve()
    )


def test_the_working_folder_comes_first(in_a_notebook, tmp_path, monkeypatch):
    shutil.copytree(in_a_notebook / "data/kioku/v1", tmp_path / "data/kioku/mine")
    monkeypatch.chdir(tmp_path)
    assert edition_folder("kioku", "data/kioku/mine") == tmp_path / "data/kioku/mine"
    with pytest.raises(InputError, match="there is no file"):
        systems.resolve("data/kioku/mine/none.py:X")

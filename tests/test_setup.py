"""Set-up files agree with one another, and notebooks are as they must be in git."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from kiokulab.params import KiokuParams
from kiokulab.run import declared_parameters


def names(requirements):
    return {re.split(r"[=<>!~\[; ]", requirement)[0].lower() for requirement in requirements}


def asked(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    return project["dependencies"], project["optional-dependencies"]


def test_environment_and_pyproject_hold_the_same_set(repository):
    main, extras = asked(repository)
    dependencies = yaml.safe_load((repository / "environment.yml").read_text())["dependencies"]
    plain = [entry for entry in dependencies if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    assert names(plain) | names(pip) == names(main) | names(sum(extras.values(), [])) | {"python", "pip"}
    assert "torch==2.13.0" in pip and "torch==2.13.0" in extras["embeddings"]
    assert not names(plain) & names(pip)


def test_each_line_of_the_environment_says_who_uses_it(repository):
    lines = (repository / "environment.yml").read_text().split("dependencies:\n")[1].splitlines()
    for line in lines:
        if re.search(r"- (python|pip\b)", line):
            continue
        assert re.search(r"#\s*\S+", line), line


def test_the_lock_pins_all_that_pyproject_asks_for(repository):
    main, extras = asked(repository)
    lines = (repository / "requirements.lock").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*==\S+", line) for line in lines)
    assert names(main) | names(extras["test"]) | names(extras["dask"]) <= names(lines)
    assert "torch" not in names(lines)
    more = [
        line
        for line in (repository / "requirements-embeddings.lock").read_text().splitlines()
        if line and line[0] != "#"
    ]
    assert names(extras["embeddings"]) <= names(more) and "torch==2.13.0" in more
    assert all("==" in line for line in more) and not names(more) & names(lines)


def notebooks(repository):
    return sorted((repository / "notebooks").rglob("*.ipynb")) + sorted(
        (repository / "tests" / "fixtures").rglob("*.ipynb")
    )


def test_notebooks_in_git_are_stripped(repository):
    for path in notebooks(repository):
        if ".ipynb_checkpoints" in path.parts:
            continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for number, cell in enumerate(notebook["cells"], 1):
            assert not cell.get("outputs"), f"{path} cell {number} has outputs"
            assert cell.get("execution_count") is None, f"{path} cell {number} has an execution count"
        assert "papermill" not in notebook["metadata"] and "kiokulab" not in notebook["metadata"], path


def test_each_notebook_has_one_parameters_cell_with_a_type_and_a_comment_a_line(repository):
    found = sorted((repository / "notebooks" / "kioku").glob("[0-9]-*.ipynb"))
    assert len(found) == 4
    for path in found:
        declared = declared_parameters(path)
        assert set(declared) <= set(KiokuParams.model_fields), path
        (source,) = [
            "".join(cell["source"])
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
            if "parameters" in cell["metadata"].get("tags", [])
        ]
        for name, line in declared.items():
            text = source.splitlines()[line - 1]
            assert re.match(rf"{name}: [\w\[\], ]+ = .+ # \S", text), f"{path}: {text}"
        values = {}
        exec(source, values)
        defaults = KiokuParams()
        assert all(values[name] == getattr(defaults, name) for name in declared), path


def test_first_cell_of_a_notebook_tells_and_the_last_finishes(repository):
    for path in sorted((repository / "notebooks" / "kioku").glob("[0-9]-*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert cells[0]["cell_type"] == "markdown", path
        last = [cell for cell in cells if cell["cell_type"] == "code"][-1]
        assert "receipts.finish(step)" in "".join(last["source"]), path


def make(repository, *words, **environment):
    import os

    return subprocess.run(
        ["make", "-C", str(repository), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MAKEFLAGS": "", **environment},
    )


def test_make_alone_shows_what_there_is_to_do(repository):
    result = make(repository)
    assert result.returncode == 0
    for goal in (
        "kioku",
        "test",
        "verify",
        "dataset",
        "contract",
        "systems",
        "reproduce",
        "bench",
        "notebook",
        "clean",
    ):
        assert f"make {goal}" in result.stdout


@pytest.fixture
def active(monkeypatch):
    """`python` of make is this one, so that no environment is made."""
    import os

    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.setenv("USE_ACTIVE_ENV", "1")


@pytest.mark.parametrize(
    "name", ["no such; touch HACKED", "a'b", 'a"b', "$(touch HACKED)", "`touch HACKED`", "--help", "-k"]
)
def test_a_system_name_is_never_run_by_a_shell(repository, active, name, tmp_path):
    result = make(repository, "kioku", "SYSTEM=" + name.replace("$", "$$"))
    assert result.returncode == 2 and "unknown system" in result.stderr, result.stderr
    assert "Error 2" in result.stderr  # the kit's own exit code; make itself ends with 2 whatever failed
    assert not (repository / "HACKED").exists()


@pytest.mark.parametrize(
    "words, says",
    [
        (["kioku", "SYSTM=vector"], "unknown variable SYSTM"),
        (["kioku", "PERSONAS=two"], "'two' is not a whole number"),
        (["kioku", "PROFILE=live"], "needs a budget"),
        (["kioku", "JUDGE=llm:x"], "needs a budget"),
        (["verify"], "which run?"),
        (["verify", "RUN=/nowhere at all"], "no receipt.json"),
        (["contract"], "which system?"),
        (["kioku", "EXTRAS=everything"], "EXTRAS may be"),
    ],
)
def test_bad_make_variables_are_named_and_nothing_starts(repository, active, words, says):
    result = make(repository, *words)
    assert result.returncode == 2 and says in result.stderr + result.stdout


def test_nothing_committed_names_this_machine(repository):
    mine = [
        "Makefile",
        "pyproject.toml",
        "requirements.lock",
        "environment.yml",
        ".ci/run",
        "params/kioku.yml",
        "params/README.md",
    ]
    for name in mine:
        text = (repository / name).read_text()
        assert (
            "index-url" not in text
            and "find-links" not in text
            and not re.search(r"(?<![\w.])/(home|root|work|opt)/", text)
        ), name

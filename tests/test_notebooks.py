"""The notebooks as sources: stripped, typed parameters, short cells with words before them; and that they run by plain
papermill."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from kiokulab.kioku import STEPS
from kiokulab.params import KiokuParams

FOLDER = Path(__file__).resolve().parents[1] / "notebooks" / "kioku"
NOTEBOOKS = {step: nbformat.read(FOLDER / f"{step}.ipynb", as_version=4) for step in STEPS}


def code(step):
    return [cell for cell in NOTEBOOKS[step].cells if cell.cell_type == "code"]


@pytest.mark.parametrize("step", STEPS)
def test_outputs_are_stripped_and_the_kernel_is_named_python3(step):
    notebook = NOTEBOOKS[step]
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, f"{step} cell {number}: strip its outputs"
    assert notebook.metadata.kernelspec.name == "python3" and "papermill" not in notebook.metadata
    nbformat.validate(notebook)


@pytest.mark.parametrize("step", STEPS)
def test_one_typed_parameters_cell_comes_first_and_is_the_same_everywhere(step):
    tagged = [cell for cell in code(step) if "parameters" in cell.metadata.get("tags", [])]
    assert tagged == code(step)[:1] and tagged[0].source == code(STEPS[0])[0].source
    nodes = ast.parse(tagged[0].source).body
    assert all(isinstance(node, ast.AnnAssign) for node in nodes)
    assert all("  # " in line for line in tagged[0].source.splitlines()), "each parameter has a trailing comment"
    values = {node.target.id: ast.literal_eval(node.value) for node in nodes}
    assert values == {name: getattr(KiokuParams(), name) for name in values}
    deciding = set(KiokuParams().deciding()) - {"track"}
    assert deciding <= set(values), "what decides the result can be set in the notebook"


@pytest.mark.parametrize("step", STEPS)
def test_papermill_reads_every_parameter(step, caplog):
    from papermill import inspect_notebook

    found = inspect_notebook(str(FOLDER / f"{step}.ipynb"))
    names = {node.target.id for node in ast.parse(code(step)[0].source).body}
    assert set(found) == names and all(found[name]["help"] for name in names) and "Unable to parse" not in caplog.text


@pytest.mark.parametrize("step", STEPS)
def test_cells_are_short_and_words_come_before_code(step):
    cells = NOTEBOOKS[step].cells
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    for before, cell in zip(cells, cells[1:]):
        if cell.cell_type == "code":
            assert before.cell_type == "markdown", cell.source
            if "parameters" not in cell.metadata.get("tags", []):
                assert len(cell.source.splitlines()) <= 10, cell.source
            assert max(map(len, cell.source.splitlines())) <= 140


@pytest.mark.parametrize("step", STEPS)
def test_versions_first_and_receipt_last(step):
    cells = code(step)
    assert "version(name)" in cells[1].source and f'receipts.begin("{step}"' in cells[2].source
    assert NOTEBOOKS[step].cells[-1].source == "receipts.finish(step)"
    assert sum("receipts.finish" in cell.source for cell in cells) == 1


def test_the_last_notebook_prints_the_canonical_figures():
    assert any("print(analyze.printed(" in cell.source for cell in code("4-analyze"))


@pytest.mark.timeout(300)
def test_plain_papermill_runs_all_four_and_the_run_verifies(tmp_path):
    """Without our runner: the notebook's own cells leave a run whose figures can be derived again."""
    from kiokulab.kioku import analyze

    environment = {**os.environ, "KIOKULAB_OUTPUTS": str(tmp_path / "outputs"), "PYTHONWARNINGS": "ignore"}
    for step in STEPS:
        command = [
            sys.executable,
            "-m",
            "papermill",
            str(FOLDER / f"{step}.ipynb"),
            str(tmp_path / f"{step}.ipynb"),
            "--no-progress-bar",
            "-f",
            str(FOLDER.parents[1] / "params" / "kioku.yml"),
            "-p",
            "personas",
            "2",
            "-p",
            "system",
            "vector",
            "-p",
            "bootstrap",
            "100",
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "unknown parameter" not in done.stderr
    folder = next((tmp_path / "outputs").glob("kioku/*/vector/*"))
    metrics = json.loads((folder / "metrics.json").read_bytes())
    assert metrics == json.loads(json.dumps(analyze.rederive(folder))) and metrics["units"]["finished"] == 2
    executed = nbformat.read(tmp_path / "4-analyze.ipynb", as_version=4)
    shown = "".join(o.get("text", "") for cell in executed.cells if cell.cell_type == "code" for o in cell.outputs)
    assert analyze.printed(metrics) in shown
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    assert (folder / "report.html").stat().st_size > 10_000 and len(list((folder / "figures").glob("*.png"))) == 3


def names_taken_from_the_kit(path):
    """(module, attribute) for every `module.attribute` in a notebook whose module is imported from the kit."""
    cells = json.loads(path.read_text())["cells"]
    trees = [
        ast.parse(re.sub(r"(?m)^[%!].*$", "", "".join(cell["source"]))) for cell in cells if cell["cell_type"] == "code"
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kiokulab")
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield *modules[node.value.id], node.attr


def test_every_name_that_a_notebook_takes_from_the_kit_is_there(repository):
    taken = {name for path in (repository / "notebooks").rglob("*.ipynb") for name in names_taken_from_the_kit(path)}
    assert len(taken) > 80
    missing = []
    for module, name, attribute in sorted(taken):
        try:
            owner = importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError:
            owner = getattr(importlib.import_module(module), name)
        if not hasattr(owner, attribute) and not isinstance(owner, type):
            missing.append(f"{module}.{name}.{attribute}")
    assert not missing

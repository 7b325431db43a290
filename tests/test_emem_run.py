"""The emem track through the command line: a report, a check, and what a bad responder or a bad line ends in."""

import json
import os
import subprocess
import sys

import pytest

from kiokulab.emem import responder
from kiokulab.serving import serve


def run(tmp_path, *arguments):
    environment = {**os.environ, "KIOKULAB_OUTPUTS": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-m", "kiokulab", *arguments], env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.mark.timeout(300)
def test_a_responder_at_a_url_is_scored_verified_and_done(tmp_path, shared):
    sample = str(shared("emem/sample-longmemeval.jsonl"))
    with serve(responder.build(responder.FileStore(), key_seed=bytes(32))) as url:
        done = run(tmp_path, "run", "emem", "--url", url, "--dataset", sample)
        assert done.returncode == 0, done.stderr
        (folder,) = (tmp_path / "emem/v0.1/responder").iterdir()
        card = json.loads((folder / "membench-live.json").read_text())
        assert (
            card["scorecard"]["longmemeval_topline"] == 0.68
            and card["dataset_provenance"] == "sample"
            and card["url"] == url
        )
        assert "0.6800" in done.stdout and "report.html" in done.stdout
        assert run(tmp_path, "verify", str(folder)).returncode == 0
        again = run(tmp_path, "run", "emem", "--url", url, "--dataset", sample)
    assert "nothing to do" in again.stdout
    text = (folder / "judgements.jsonl").read_text()
    (folder / "judgements.jsonl").write_text(text.replace('"correct":false', '"correct":true', 1))
    broken = run(tmp_path, "verify", str(folder))
    assert broken.returncode == 6 and "judgements.jsonl" in broken.stderr


@pytest.mark.timeout(300)
def test_a_responder_that_is_not_there_leaves_no_score(tmp_path):
    done = run(tmp_path, "run", "emem", "--url", "http://127.0.0.1:9")
    assert (
        done.returncode == 3
        and "memory_create" in done.stderr + done.stdout
        or "POST /mcp" in done.stderr + done.stdout
    )
    assert not list(tmp_path.rglob("metrics.json")) and not list(tmp_path.rglob("membench-live.json"))


@pytest.mark.timeout(300)
def test_a_bad_line_ends_with_two_and_its_place(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"id":"a","content":"c","query":"q","expected_answer":"e"}\n{"id":"b"}\n')
    done = run(tmp_path / "out", "run", "emem", "--system", "reference-lexical", "--dataset", str(path))
    assert done.returncode == 2 and "items.jsonl:2" in done.stderr + done.stdout


def test_the_command_line_knows_the_parameters_of_every_track():
    from kiokulab.__main__ import OPTIONS
    from kiokulab.params import UNDECIDING, params_class

    for track in ("kioku", "drift", "emem", "verdict"):
        missing = set(params_class(track).model_fields) - set(OPTIONS) - UNDECIDING - {"track"}
        assert not missing, f"{track}: add {missing} to OPTIONS, and to the export line of the Makefile"


@pytest.mark.timeout(300)
def test_a_system_that_needs_a_model_is_asked_the_four_axes_and_is_plumbing(tmp_path, repository):
    system = f"{repository}/tests/fixtures/systems/asks_a_model.py:AsksAModel"
    done = run(tmp_path, "run", "emem", "--system", system)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (path for path in tmp_path.glob("emem/v0.1/*/*") if path.parent.name != "reference-lexical")
    assert (
        json.loads((folder / "metrics.json").read_text())["plumbing"] is True
        and f"[{folder.parent.name}]" in done.stdout
    )
    assert (
        json.loads((folder / "receipt.json").read_text())["cost"]["plumbing"] is True
        and (folder / "calls.sqlite").is_file()
    )
    assert "no result" in (folder / "report.html").read_text()
    assert run(tmp_path, "verify", str(folder)).returncode == 0

"""The four notebooks under the runner, on one small world."""

import json
import os
import subprocess
import sys

import pytest


def kiokulab(*arguments, outputs, repository):
    environment = os.environ | {"KIOKULAB_OUTPUTS": str(outputs)}
    return subprocess.run(
        [sys.executable, "-m", "kiokulab", *arguments], capture_output=True, text=True, cwd=repository, env=environment
    )


@pytest.mark.timeout(300)
def test_a_run_ends_in_a_report_is_verified_and_is_not_done_twice(tmp_path, repository):
    profile = tmp_path / "small.yml"
    profile.write_text("language: ja\nsize: 30\nbootstrap: 50\n")
    call = ["run", "drift", "--profile", str(profile), "--system", "mute"]
    done = kiokulab(*call, outputs=tmp_path / "out", repository=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "out/drift/v0.1/mute").iterdir()
    found = json.loads((folder / "metrics.json").read_text())
    assert (found["arm"], found["score"], found["units"]["finished"]) == ("mute", 300, 1) and (
        folder / "report.html"
    ).is_file()
    assert "mute" in done.stdout and "300" in done.stdout
    checked = kiokulab("verify", str(folder), outputs=tmp_path / "out", repository=repository)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = kiokulab(*call, outputs=tmp_path / "out", repository=repository)
    assert again.returncode == 0 and "nothing to do" in again.stdout


def test_bad_input_ends_with_two_before_anything_starts(tmp_path, repository):
    profile = tmp_path / "bad.yml"
    for text, word in (
        ("script: none.json\n", "no such file"),
        ("size: 19.5\n", "size"),
        ("shape: odd\n", "shape"),
        ("colour: red\n", "colour"),
    ):
        profile.write_text(text)
        done = kiokulab(
            "run",
            "drift",
            "--profile",
            str(profile),
            "--system",
            "mute",
            outputs=tmp_path / "out",
            repository=repository,
        )
        assert done.returncode == 2 and word in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(300)
def test_a_system_that_needs_a_model_is_replayed_too_and_is_plumbing(tmp_path, repository):
    profile = tmp_path / "small.yml"
    profile.write_text("language: en\nsize: 30\nbootstrap: 50\n")
    system = f"{repository}/tests/fixtures/systems/asks_a_model.py:AsksAModel"
    call = ["run", "drift", "--profile", str(profile), "--system", system]
    done = kiokulab(*call, outputs=tmp_path / "out", repository=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("calls.sqlite") if "units" not in path.parts)
    found = json.loads((folder / "metrics.json").read_text())
    assert found["plumbing"] is True and "no published row" in found["comparable"][0]
    assert f"[{found['arm']}]" in done.stdout
    checked = kiokulab("verify", str(folder), outputs=tmp_path / "out", repository=repository)
    assert checked.returncode == 0, checked.stdout + checked.stderr

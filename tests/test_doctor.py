"""Faults that are planted on a machine, and that `make doctor` finds, each with the command that mends it."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kiokulab import doctor
from kiokulab.__main__ import main
from kiokulab.doctor import BAD, OK, OPTIONAL, Finding
from kiokulab.systems import environments


def found(check, root, *states):
    """Findings of one check, as {name: finding}; of the given states alone."""
    return {one.name: one for one in check(Path(root)) if not states or one.state in states}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small checkout of its own, with environments, outputs and a temporary folder of its own."""
    for name in ("envs", "outputs", "tmp", ".cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("KIOKULAB_ENVS", str(tmp_path / "envs"))
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.delenv("KIOKULAB_CACHE", raising=False)
    monkeypatch.setattr(doctor.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "requirements.lock").write_text("")
    return tmp_path


def test_this_machine_is_looked_at_without_a_surprise(repository):
    findings = doctor.checks(repository)
    assert not [one for one in findings if "could not be looked at" in one.text], findings
    assert {"Python", "checkout", "packages", "font", "git", "outputs", "cache", "locks"} <= {
        one.name for one in findings
    }
    assert all(one.mend for one in findings if one.state != OK), "what is not well has a command"


def test_a_package_that_is_missing_or_of_another_version(checkout):
    (checkout / "requirements.lock").write_text("no-such-package-at-all==1.0\npydantic==0.1\n")
    rows = [one.text for one in doctor.packages(checkout) if one.state == BAD]
    assert "no-such-package-at-all" in rows[0] and "and not 0.1" in rows[1]


def test_a_checkout_that_was_moved(checkout, monkeypatch):
    assert found(doctor.checkout, checkout)["checkout"].state == BAD, "the code that runs is not this checkout's"
    monkeypatch.setattr(doctor, "__file__", str(checkout / "lib" / "kiokulab" / "doctor.py"))
    monkeypatch.setattr(doctor, "_editable", lambda: Path("/somewhere/else"))
    moved = found(doctor.checkout, checkout)["checkout"]
    assert moved.state == BAD and "/somewhere/else" in moved.text and "rm -rf .venv" in moved.mend
    monkeypatch.setattr(doctor, "_editable", lambda: checkout)
    assert found(doctor.checkout, checkout)["checkout"].state == OK
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "pyvenv.cfg").write_text("command = /usr/bin/python3 -m venv /old/place/.venv\n")
    monkeypatch.setattr(sys, "prefix", str(checkout / ".venv"))
    assert "/old/place/.venv" in found(doctor.checkout, checkout)["checkout"].text


def test_an_installation_that_is_not_editable_points_nowhere(monkeypatch):
    class Installed:
        def __init__(self, text):
            self.text = text

        def read_text(self, name):
            return self.text

    for text, path in (
        (json.dumps({"url": "file:///a%20b", "dir_info": {"editable": True}}), Path("/a b")),
        (json.dumps({"url": "file:///a", "dir_info": {}}), None), (None, None), ("no json", None),
    ):  # fmt: skip
        monkeypatch.setattr(doctor.metadata, "distribution", lambda name, text=text: Installed(text))
        assert doctor._editable() == path


@pytest.mark.parametrize(
    "has, marker, state",
    [((), False, OPTIONAL), ((), True, BAD), (("torch",), False, BAD), (("torch", "sentence_transformers"), True, OK)],
)
def test_the_extra_is_wanted_only_where_it_was_asked_for(checkout, monkeypatch, has, marker, state):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object() if name in has else None)
    if marker:
        (checkout / ".venv").mkdir()
        (checkout / ".venv" / "embeddings-1-2").touch()
    (one,) = doctor.embeddings(checkout)
    assert one.state == state and (state == OK or "EXTRAS=embeddings" in one.mend)


def test_a_font_that_is_gone(checkout, monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    (one,) = doctor.fonts(checkout)
    assert one.state == BAD and "Japanese" in one.text


@pytest.fixture
def path(tmp_path, monkeypatch):
    """An empty folder as the search path; gives a function that puts a program into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name, says, code=0):
        (folder / name).write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
        (folder / name).chmod(0o755)

    return put


def test_no_git_and_no_make(checkout, path):
    assert {name for name, one in found(doctor.tools, checkout, BAD).items()} == {"git", "make"}


def test_a_git_that_does_not_read_the_checkout(checkout, monkeypatch):
    (checkout / ".git").mkdir()
    assert found(doctor.tools, checkout)["git"].state == BAD, "an empty .git has no commit"
    done = subprocess.CompletedProcess([], 128, "", "fatal: detected dubious ownership in repository")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *a, **k: done)
    assert "safe.directory" in found(doctor.tools, checkout)["git"].mend


def test_node_is_missing_too_old_or_unreadable(checkout, path):
    rows = found(doctor.node, checkout)
    assert (
        rows["node"].state == rows["npm"].state == OPTIONAL
        and "byterover" in rows["node"].text
        and "apt install nodejs npm" in rows["node"].mend
    )
    path("node", "v18.4.0"), path("npm", "9.1.0")
    rows = found(doctor.node, checkout)
    assert rows["node"].state == OPTIONAL and "20 or newer is needed" in rows["node"].text and rows["npm"].state == OK
    path("node", "Segmentation fault")
    assert found(doctor.node, checkout)["node"].state == OPTIONAL
    path("node", "v22.1.0")
    assert found(doctor.node, checkout)["node"].state == OK


def test_node_that_an_installed_system_needs_is_a_fault(checkout, path, monkeypatch):
    monkeypatch.setattr(environments, "installed", lambda name: name == "byterover")
    assert found(doctor.node, checkout)["node"].state == BAD


def test_libfaketime_is_told_of_and_not_asked_for(checkout, path, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "FAKETIME", ())
    assert found(doctor.faketime, checkout)["libfaketime"].state == OPTIONAL
    path("faketime", "x")
    assert found(doctor.faketime, checkout)["libfaketime"].state == OK


def planted(checkout, name="mem0"):
    folder = checkout / "envs" / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "kiokulab.stamp").write_text(environments._wanted(environments.lock_of(name)))
    return folder


def test_an_environment_is_whole_old_cut_off_or_without_its_python(checkout):
    assert found(doctor.environments_of_systems, checkout)["env mem0"].state == OPTIONAL
    folder = planted(checkout)
    assert found(doctor.environments_of_systems, checkout)["env mem0"] == Finding(OK, "env mem0", "mem0, mem0-verbatim")
    (folder / "kiokulab.stamp").write_text("0" * 64 + " python3.11\n")
    old = found(doctor.environments_of_systems, checkout)["env mem0"]
    assert old.state == BAD and "out of date" in old.text and old.mend == "make system-mem0"
    (folder / "kiokulab.stamp").unlink()
    assert "cut off" in found(doctor.environments_of_systems, checkout)["env mem0"].text
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to("/gone/python3.11")
    gone = found(doctor.environments_of_systems, checkout)["env mem0"]
    assert gone.state == BAD and "rm -rf" in gone.mend and "mem0" in gone.mend


def test_a_folder_of_environments_that_no_system_uses(checkout):
    (checkout / "envs" / "renamed-long-ago").mkdir()
    assert "renamed-long-ago" in found(doctor.environments_of_systems, checkout)["envs"].text


def test_a_cache_that_is_a_file_and_outputs_below_one(checkout, monkeypatch):
    (checkout / ".cache").rmdir()
    (checkout / ".cache").write_text("")
    (checkout / "file").write_text("")
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(checkout / "file" / "outputs"))
    rows = found(doctor.writable, checkout)
    assert rows["cache"].state == rows["outputs"].state == BAD and rows["envs folder"].state == OK
    assert rows["cache"].mend.startswith("rm ") and rows["cache"].mend.endswith(".cache")


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="nothing is forbidden to root")
def test_a_cache_that_may_not_be_written_to(checkout):
    (checkout / ".cache").chmod(0o500)
    assert found(doctor.writable, checkout)["cache"].state == BAD


def test_a_cache_on_a_disk_that_refuses(checkout, monkeypatch):
    real = doctor.tempfile.TemporaryFile

    def refuse(dir=None, **rest):
        if Path(dir).name == ".cache":
            raise OSError(30, "Read-only file system")
        return real(dir=dir, **rest)

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    rows = found(doctor.writable, checkout)
    assert rows["cache"].state == BAD and "Read-only" in rows["cache"].text and rows["outputs"].state == OK


def test_a_lock_that_is_held_is_named_with_its_process_and_one_that_is_left_over_is_not(checkout):
    run = checkout / "outputs" / "kioku" / "v0.1" / "vector" / "0123456789ab"
    run.mkdir(parents=True)
    (run / ".lock").touch()
    assert found(doctor.locks, checkout)["locks"].state == OK
    with open(run / ".lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held = found(doctor.locks, checkout)["locks"]
    assert held.state == OPTIONAL and "0123456789ab" in held.text
    if Path("/proc/locks").exists():
        assert str(os.getpid()) in held.text


def test_an_old_index_lock_of_git(checkout):
    (checkout / ".git").mkdir()
    lock = checkout / ".git" / "index.lock"
    lock.touch()
    assert "git lock" not in found(doctor.locks, checkout), "a git command may be running"
    os.utime(lock, (time.time() - 7200,) * 2)
    assert found(doctor.locks, checkout)["git lock"].state == BAD


def test_what_killed_runs_left_behind(checkout):
    left = checkout / "tmp" / "kiokulab-abc"
    left.mkdir()
    assert not found(doctor.scratch, checkout), "it may be of a run that goes on"
    os.utime(left, (time.time() - 7 * 3600,) * 2)
    assert str(left) in found(doctor.scratch, checkout)["temporary"].mend


def test_a_check_that_breaks_is_a_finding_and_the_others_are_made(checkout, monkeypatch):
    def broken(root):
        raise RuntimeError("the disk burns")

    monkeypatch.setattr(doctor, "CHECKS", (broken, doctor.machine))
    rows = doctor.checks(checkout)
    assert rows[0].state == BAD and "the disk burns" in rows[0].text and len(rows) == 3
    assert "1 to mend" in doctor.shown(rows)


def test_the_exit_code_says_whether_something_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "checks", lambda root: [Finding(OK, "a", "b"), Finding(OPTIONAL, "c", "d", "do this")])
    assert main(["doctor"]) == 0 and "mend: do this" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "checks", lambda root: [Finding(BAD, "a", "b", "do that")])
    assert main(["doctor"]) == 2 and "1 to mend" in capsys.readouterr().out

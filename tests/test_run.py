"""The runner: its own verdict on notebooks, resume, and what a kill leaves. The toy track stands in for a real one."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from kiokulab import receipts, run
from kiokulab.errors import Died, InputError

FIXTURES = Path(__file__).parent / "fixtures"


def params(**values):
    from kiokulab_toy import ToyParams

    return ToyParams(**values)


def run_with(tmp_path, fixture, **values):
    """One run of system alpha where step 2 is the fixture."""
    folder = tmp_path / "notebooks"
    shutil.copytree(FIXTURES / "toy" / "notebooks", folder, dirs_exist_ok=True)
    shutil.copy(FIXTURES / "notebooks" / f"{fixture}.ipynb", folder / "2-ingest.ipynb")
    timeout = values.pop("step_timeout_s", 60)
    (one,) = run.run_track(params(**values), ["alpha"], notebooks=folder, step_timeout_s=timeout, out=lambda line: None)
    return one


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "kiokulab", *words], capture_output=True, text=True, timeout=120, **options
    )


def processes_of(mark: str) -> list[psutil.Process]:
    """Processes whose environment names `mark`: the runner's children of this test and of no other."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and mark in process.environ().values()
            ):
                found.append(process)
        except psutil.Error:
            pass
    return found


def busy_kernels(mark: str) -> dict[psutil.Process, list[psutil.Process]]:
    """The kernels of a run that have units at work, each with the fork servers under it; one that ends meanwhile is
    left out."""
    found = {}
    for process in processes_of(mark):
        try:
            parent = process.parent()
            if (
                parent
                and "forkserver" in " ".join(process.cmdline())
                and "forkserver" not in " ".join(parent.cmdline())
            ):
                found.setdefault(parent, []).append(process)
        except psutil.Error:
            pass
    return found


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def nothing_left(mark: str, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while processes_of(mark) and time.monotonic() < end:
        time.sleep(0.1)
    return not processes_of(mark)


def test_a_run_ends_finished_verified_and_has_nothing_to_do_again(toy):
    first = run.run_track(params(), ["alpha", "beta"], out=lambda line: None)
    assert [one.error for one in first] == [None, None]
    for one in first:
        receipt = receipts.verify(one.folder)
        assert receipt.status == "finished" and [step.exit for step in receipt.steps] == [0, 0, 0, 0]
        proof = receipts.read_proof(one.folder, "4-analyze")
        assert len(proof.beside) == 1 and proof.beside[0].split("/")[0] != one.name
    before = {path: path.read_bytes() for path in Path(toy).rglob("*") if path.is_file()}
    again = run.run_track(params(), ["alpha", "beta"], out=lambda line: None)
    assert not any(one.todo for one in again)
    assert before == {path: path.read_bytes() for path in Path(toy).rglob("*") if path.is_file()}
    # the source of a notebook is never written to, and each executed copy is stamped with its proof
    notebook = json.loads((first[0].folder / "3-judge.ipynb").read_bytes())
    assert notebook["metadata"]["kiokulab"]["previous"] == receipts.read_proof(first[0].folder, "2-ingest").digest
    assert "the first of its chain" in receipts.output_text(
        json.loads((first[0].folder / "1-generate.ipynb").read_bytes())
    )


@pytest.mark.parametrize(
    "fixture, says",
    [
        ("sysexit0", "was not run"),
        ("thread_exception", "ZeroDivisionError"),
        ("failing_shell_command", "exit code 3"),
        ("failing_magic", "no_such_magic|CellExecutionError"),
        ("lost_async_task", "nobody awaits me"),
        ("cell_raises", "ZeroDivisionError"),
        ("no_finish", "left no proof"),
        ("changes_a_file_after_finish", "changed after step"),
    ],
)
def test_a_step_that_papermill_calls_completed_is_not_done(toy, fixture, says):
    one = run_with(toy, fixture)
    assert one.error is not None and one.error.exit_code in (1, 5)
    assert any(word in str(one.error) for word in says.split("|")), str(one.error)
    assert receipts.read_receipt(one.folder).status in ("failed", "kernel_died")
    assert receipts.read_proof(one.folder, "1-generate") and not receipts.read_proof(one.folder, "2-ingest")
    assert not (one.folder / "judgements.jsonl").exists()  # nothing went on after it


def test_an_error_of_the_kit_in_a_cell_keeps_its_exit_code_and_place(toy):
    one = run_with(toy, "input_error_in_a_cell")
    assert one.error.exit_code == 2 and "store.txt:3" in str(one.error)


def test_a_killed_kernel_ends_the_run(toy, monkeypatch):
    monkeypatch.setenv("KIOKULAB_TEST_MARK", str(toy))
    one = run_with(toy, "kernel_dies_in_cell_2")
    assert isinstance(one.error, Died) and one.error.exit_code == 5
    receipt = receipts.read_receipt(one.folder)
    assert receipt.status == "kernel_died" and "2-ingest" in receipt.reason
    assert nothing_left(str(toy))
    fixed = run.run_track(params(), ["alpha"], out=lambda line: None)[0]
    assert fixed.todo == ["2-ingest", "3-judge", "4-analyze"] and fixed.error is None
    receipts.verify(fixed.folder)


def test_a_kernel_that_hangs_is_given_up(toy):
    one = run_with(toy, "kernel_hangs", step_timeout_s=3)
    assert isinstance(one.error, Died) and "not done after 3 s" in str(one.error)


def test_what_a_cell_leaves_running_goes_with_its_kernel(toy, monkeypatch):
    monkeypatch.setenv("KIOKULAB_TEST_MARK", str(toy))
    assert run_with(toy, "leaves_a_process").error is None
    assert nothing_left(str(toy))


def test_a_runner_that_is_held_up_loses_no_output_of_its_kernel(toy):
    hold = f"for n in 1 2 3 4 5 6 7 8; do sleep 1; kill -STOP {os.getpid()}; sleep 2; kill -CONT {os.getpid()}; done"
    with subprocess.Popen(["sh", "-c", hold], start_new_session=True) as holder:
        try:
            one = run_with(toy, "ten_thousand_flushes", step_timeout_s=90)
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGCONT)
    assert one.error is None
    printed = receipts.output_text(json.loads((one.folder / "2-ingest.ipynb").read_bytes()))
    assert all(f"\n{n}\n" in printed for n in range(1, 10_000)) and "\ndone\n" in printed


def test_ten_thousand_flushes_and_then_done(toy):
    # about lost output; a busy machine may take its time
    one = run_with(toy, "ten_thousand_flushes", step_timeout_s=600)
    assert one.error is None
    printed = receipts.output_text(json.loads((one.folder / "2-ingest.ipynb").read_bytes()))
    assert "\ndone\n" in printed and "9999" in printed


@pytest.mark.parametrize(
    "fixture, says",
    [
        ("no_parameters_tag", "no cell tagged 'parameters'"),
        ("two_parameters_tags", "2 cells"),
        ("parameters_not_first", "not the first code cell"),
        ("unknown_parameter", "persnoas"),
    ],
)
def test_a_notebook_with_a_wrong_parameters_cell_starts_nothing(toy, fixture, says):
    with pytest.raises(InputError, match=says):
        run_with(toy, fixture)
    assert not (toy / "outputs").exists()


def test_changed_parameters_make_a_new_folder_and_changed_jobs_do_not(toy):
    base = params()
    assert receipts.run_folder(base) == receipts.run_folder(params(jobs=7, beside=["x"], engine="dask"))
    assert receipts.run_folder(base) != receipts.run_folder(params(personas=5))
    assert receipts.run_folder(base) != receipts.run_folder(params(seed=2))
    assert receipts.run_folder(base) != receipts.run_folder(params(system="beta"))


def test_a_failed_unit_ends_with_three_is_named_and_is_retried_alone(toy, monkeypatch):
    flag = toy / "flag"
    flag.write_text("u-01/raw")
    monkeypatch.setenv("KIOKULAB_TOY_FAIL", str(flag))
    result = command("run", "toy", "--system", "alpha")
    assert result.returncode == 3 and "u-01/raw" in result.stderr and "the flag says fail" in result.stderr
    flag.unlink()
    assert command("run", "toy", "--system", "alpha").returncode == 0
    done = Counter((toy / "count.txt").read_text().splitlines())
    assert done["alpha ingest u-00/raw"] == 1 and done["alpha ingest u-01/raw"] == 1


def test_a_tampered_file_makes_its_step_and_the_later_ones_be_done_again(toy):
    one = run.run_track(params(), ["alpha"], out=lambda line: None)[0]
    rows = (one.folder / "memories.jsonl").read_bytes()
    (one.folder / "memories.jsonl").write_bytes(rows.replace(b"abc", b"abd", 1))
    lines = []
    again = run.run_track(params(), ["alpha"], out=lines.append)[0]
    assert again.todo == ["2-ingest", "3-judge", "4-analyze"] and any(
        "memories.jsonl is not what was written" in line for line in lines
    )
    assert (one.folder / "memories.jsonl").read_bytes() == rows


def test_two_commands_do_not_work_in_one_folder(toy):
    folder = receipts.run_folder(params())
    with run.locked(folder):
        run._own_lock(folder, "token")
        with pytest.raises(InputError, match=f"process {os.getpid()}"):
            run.run_track(params(), ["alpha"], out=lambda line: None)
    assert not (folder / receipts.LOCK).exists()
    (folder / receipts.LOCK).write_text("999999 gone\n")  # a killed command's: nobody holds it
    assert run.run_track(params(), ["alpha"], out=lambda line: None)[0].error is None


# --- kills ------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(toy, monkeypatch):
    """A profile whose units take a while, and the metrics of an undisturbed run of it."""
    (toy / "slow.yml").write_text("pause_s: 0.3\npersonas: 6\n")
    monkeypatch.setenv("KIOKULAB_TEST_MARK", str(toy))
    return toy


def start(slow):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kiokulab",
            "run",
            "toy",
            "--system",
            "alpha",
            "--profile",
            str(slow / "slow.yml"),
            "--jobs",
            "2",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a suite in the background passes on that it is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def check_end(slow):
    """The same command ends well, with the metrics of an undisturbed run, no unit twice among those that had ended."""
    result = command("run", "toy", "--system", "alpha", "--profile", str(slow / "slow.yml"))
    assert result.returncode == 0, result.stderr
    folder = receipts.run_folder(params(pause_s=0.3, personas=6))
    receipts.verify(folder)
    assert json.loads((folder / "metrics.json").read_bytes())["metrics"]["letters"]["k"] == 3 * (1 + 2 + 3 + 4 + 5 + 6)
    rows = [json.loads(line)["unit"] for line in (folder / "memories.jsonl").read_text().splitlines()]
    assert rows == [f"u-{n:02d}/raw" for n in range(6)]
    assert nothing_left(str(slow))
    return folder


@pytest.mark.parametrize("turn", range(3))
def test_killing_the_runner_loses_and_leaves_nothing(slow, turn):
    moment = random.Random(turn).uniform(1.5, 5.5)
    process = start(slow)
    time.sleep(moment)
    paths = [path for path in (slow / "outputs").rglob("units/*/*.json") if path.name.count(".") == 1]
    finished = [(path.parent.name[2:], path.stem.replace("@", "/")) for path in paths]
    process.kill()
    process.communicate()
    assert nothing_left(str(slow)), (
        f"left after a kill at {moment:.2f} s: {[p.cmdline() for p in processes_of(str(slow))]}"
    )
    before = Counter((slow / "count.txt").read_text().splitlines()) if (slow / "count.txt").exists() else Counter()
    check_end(slow)
    after = Counter((slow / "count.txt").read_text().splitlines())
    for step, unit in finished:
        line = next(line for line in before if line.endswith(f"{step} {unit}"))
        assert after[line] == before[line] == 1, "a unit that had ended before the kill was done again"


@pytest.mark.parametrize("turn", range(2))
def test_killing_a_kernel_ends_with_five_and_goes_on(slow, turn):
    process = start(slow)
    victim, end = None, time.monotonic() + 120
    while victim is None and time.monotonic() < end:
        victim = next((kernel for kernel in busy_kernels(str(slow)) if kernel.pid != process.pid), None)
        time.sleep(0.05)
    time.sleep(random.Random(turn).uniform(0, 0.6))
    victim.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 5, output
    assert receipts.read_receipt(receipts.run_folder(params(pause_s=0.3, personas=6))).status == "kernel_died"
    assert nothing_left(str(slow))
    check_end(slow)


def test_killing_a_worker_only_repeats_its_unit(slow):
    process = start(slow)
    victim, end = None, time.monotonic() + 120
    while victim is None and time.monotonic() < end:
        servers = [server for found in busy_kernels(str(slow)).values() for server in found]
        victim = next((child for server in servers for child in children(server)), None)
        time.sleep(0.02)
    victim.kill()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    check_end(slow)


def test_ctrl_c_leaves_a_stopped_run_that_goes_on(slow):
    process = start(slow)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert nothing_left(str(slow))
    check_end(slow)


# --- secrets, log, command line ---------------------------------------------------------------------------------


def test_a_key_in_the_environment_is_found_nowhere(toy, monkeypatch):
    key = "sk-" + "FAKE" * 8 + "1234"
    monkeypatch.setenv("OPENROUTER_API_KEY", key)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", key)
    monkeypatch.setenv("KIOKULAB_TEST_MARK", str(toy))
    (toy / "slow.yml").write_text("pause_s: 0.3\n")
    process = start(toy)
    seen = 0
    while process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            try:
                environment = child.environ()
            except psutil.Error:
                continue
            seen += 1
            assert key not in environment.values(), child.cmdline()
        time.sleep(0.1)
    output, _ = process.communicate()
    assert process.returncode == 0 and seen > 10 and key not in output
    failed = run_with(toy, "cell_raises", personas=3)
    for path in (path for path in toy.rglob("*") if path.is_file()):
        assert key.encode() not in path.read_bytes(), path
    assert failed.error is not None and key not in str(failed.error)


def test_a_log_file_stays_short_however_many_units_there_are(toy):
    (toy / "many.yml").write_text("personas: 150\n")
    result = command("run", "toy", "--profile", str(toy / "many.yml"))
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) + len(result.stderr.splitlines()) < 100


@pytest.mark.parametrize(
    "words, says",
    [
        (["--personas", "x"], "option --personas"),
        (["--system", "zeta"], "unknown system 'zeta'"),
        (["--system", ","], "no system is named"),
        (["--k", "3"], "no parameter 'k'"),
        (["--edition", "v9"], "no edition 'v9'"),
        (["--profile", "nowhere.yml"], "no parameter file"),
        (["--profile", "live"], "not there yet"),
        (["--perso", "3"], "unrecognized arguments"),
    ],
)
def test_bad_input_ends_with_two_and_starts_nothing(toy, words, says):
    result = command("run", "toy", *words)
    assert result.returncode == 2 and says in result.stderr
    assert not (toy / "outputs").exists()

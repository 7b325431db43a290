"""Fan-out: each unit in a process of its own, every row there exactly once, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiokulab import embed, units
from kiokulab.errors import InputError

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def make(n, **more):
    return [{"unit": f"u-{i}", **more} for i in range(n)]


def call(name, work, folder, **options):
    return units.run_units(f"units_that_fail:{name}", work, folder, **options)


def test_every_unit_has_a_process_of_its_own_and_rows_come_in_unit_order(tmp_path):
    folder = tmp_path / "units" / "2-x"
    outcome = call("leaves_state", list(reversed(make(6))), folder, jobs=3)
    assert outcome.finished == [f"u-{i}" for i in range(6)] and not outcome.failed and outcome.kept == 0
    rows = list(units.assemble(folder, "rows"))
    assert [(row["unit"], row["n"]) for row in rows] == [(f"u-{i}", n) for i in range(6) for n in range(3)]
    assert len({row["pid"] for row in rows}) == 6 and {row["home"] for row in rows} == {None}
    assert "hello from u-0" in (tmp_path / "logs" / "2-x" / "u-0.log").read_text()


def test_finished_units_are_not_done_again(tmp_path):
    count = tmp_path / "count"
    call("rows", make(3, count=str(count)), tmp_path / "x")
    again = call("rows", make(5, count=str(count)), tmp_path / "x")
    assert again.kept == 3 and len(again.finished) == 5
    assert Counter(count.read_text().split()) == {f"u-{i}": 1 for i in range(5)}


def test_a_unit_that_raises_is_named_and_the_others_are_there(tmp_path):
    outcome = call("raises_on_odd", make(4), tmp_path / "x", jobs=2)
    assert outcome.finished == ["u-0", "u-2"]
    assert outcome.failed == {"u-1": "ValueError: odd and more", "u-3": "ValueError: odd and more"}
    assert units.failed(tmp_path / "x") == outcome.failed
    assert "Traceback" in (tmp_path / "x" / "logs" / "x" / "u-1.log").read_text()
    call("rows", make(4), tmp_path / "x")
    assert units.failed(tmp_path / "x") == {} and len(units.finished(tmp_path / "x")) == 4


def test_a_killed_unit_is_tried_once_more(tmp_path):
    assert call("killed_once", make(1, flag=str(tmp_path / "flag")), tmp_path / "x").finished == ["u-0"]


@pytest.mark.parametrize(
    "name, reason",
    [
        ("always_killed", "died"),
        ("leaves_without_a_word", "died"),
        ("calls_exit", "SystemExit"),
        ("gives_no_dict", "TypeError"),
        ("gives_nan", "ValueError"),
    ],
)
def test_a_unit_without_a_result_is_never_an_empty_result(tmp_path, name, reason):
    outcome = call(name, make(1), tmp_path / "x")
    assert outcome.finished == [] and outcome.failed["u-0"].startswith(reason)
    assert list(units.assemble(tmp_path / "x", "rows")) == []


def gone(pid):
    """No such process, or one that only waits for its parent to take note of its end."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_unit_that_hangs_is_killed_with_its_children(tmp_path):
    outcome = call("hangs_with_a_child", make(1, pid=str(tmp_path / "pid")), tmp_path / "x", timeout_s=2)
    assert outcome.failed == {"u-0": "timeout: not done after 2 s"}
    child = int((tmp_path / "pid").read_text())
    assert gone(child)


def test_units_see_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    code = (
        "from kiokulab import units; import sys;"
        "units.run_units('units_that_fail:environment', [{'unit': 'a'}], sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], check=True, timeout=300)
    assert list(units.assemble(tmp_path / "x", "rows")) == [[]]


def test_an_import_error_of_the_function_is_raised_at_once(tmp_path):
    with pytest.raises(ModuleNotFoundError):
        units.run_units("no_such_module:f", make(1), tmp_path / "x")


def test_a_killed_caller_leaves_no_unit_running(tmp_path):
    code = (
        "from kiokulab import units; import sys;"
        "units.run_units('units_that_fail:rows', [{'unit': f'u-{i}', 'pause_s': 60} for i in range(2)], sys.argv[1], jobs=2)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")])
    end = time.monotonic() + 120
    while len(psutil.Process(caller.pid).children(recursive=True)) < 3 and time.monotonic() < end:
        time.sleep(0.1)
    below = psutil.Process(caller.pid).children(recursive=True)
    caller.kill()
    caller.wait()
    _, alive = psutil.wait_procs(below, timeout=60)
    assert all(gone(process.pid) for process in alive)


@given(st.text(max_size=30))
def test_file_names_are_safe_and_distinct(text):
    try:
        name = units.file_name(text)
    except InputError:
        return
    assert "/" not in name and not name.startswith(".") and name.replace("@", "/") == text


@pytest.mark.parametrize("bad", ["", "../x", "a//b", "a/../b", ".hidden", "a b", "a\n", "a@b"])
def test_unit_ids_that_are_no_file_names_are_refused(bad):
    with pytest.raises(InputError):
        units.file_name(bad)


def test_a_unit_given_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="twice"):
        call("rows", make(1) + make(1), tmp_path / "x")


def test_secrets_are_known_by_their_names():
    dirty = {
        "OPENAI_API_KEY": "x",
        "HF_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "DB_PASSWORD": "x",
        "PATH": "p",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert units.clean_environment(dirty) == {"PATH": "p"}


# --- Dask -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch):
    """A scheduler and two workers, each a process of its own. Gives (address, worker processes)."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50, host="127.0.0.1"
    ) as local:
        with distributed.Client(local) as client:
            pids = list(client.run(os.getpid).values())
        yield local.scheduler_address, [psutil.Process(pid) for pid in pids]


def test_on_dask_every_row_is_there_once_though_a_worker_is_killed(tmp_path, cluster):
    address, workers = cluster
    folder = tmp_path / "units" / "2-x"
    threading.Timer(3.0, lambda: os.kill(workers[0].pid, signal.SIGKILL)).start()
    outcome = call("rows", make(8, pause_s=1.0), folder, engine="dask", scheduler=address)
    assert gone(workers[0].pid)
    assert outcome.finished == [f"u-{i}" for i in range(8)] and not outcome.failed
    rows = list(units.assemble(folder, "rows"))
    assert [(row["unit"], row["n"]) for row in rows] == [(f"u-{i}", n) for i in range(8) for n in range(3)]


def test_on_dask_failures_are_named_as_on_one_machine(tmp_path, cluster):
    address, _ = cluster
    outcome = call("raises_on_odd", make(4), tmp_path / "x", engine="dask", scheduler=address)
    assert outcome.finished == ["u-0", "u-2"] and outcome.failed["u-1"] == "ValueError: odd and more"
    assert (
        call("always_killed", make(1), tmp_path / "y", engine="dask", scheduler=address)
        .failed["u-0"]
        .startswith("died")
    )
    late = call(
        "hangs_with_a_child",
        make(1, pid=str(tmp_path / "pid")),
        tmp_path / "z",
        engine="dask",
        scheduler=address,
        timeout_s=4,
    )
    assert late.failed == {"u-0": "timeout: not done after 4 s"}


@pytest.mark.parametrize(
    "scheduler, says",
    [("", "needs a scheduler"), ("tcp://127.0.0.1:9", "no Dask scheduler"), ("nonsense://", "no Dask")],
)
def test_a_dask_that_is_not_there_is_bad_input(tmp_path, scheduler, says, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(units, "CONNECT_S", 2)
    with pytest.raises(InputError, match=says):
        call("rows", make(1), tmp_path / "x", engine="dask", scheduler=scheduler)


def test_results_are_whole_lines_of_canonical_json(tmp_path):
    call("rows", make(1), tmp_path / "x")
    raw = (tmp_path / "x" / "u-0.json").read_bytes()
    assert raw.endswith(b"\n") and json.loads(raw)["rows"][0]["unit"] == "u-0"


def test_embedders_are_loaded_once_for_many_units_and_by_each_of_a_few(tmp_path):
    """In a process of its own: the fork server of this one may run already, with nothing loaded."""
    code = (
        "import sys; from kiokulab import units;"
        "made = lambda n: [{'unit': f'u{i:02d}'} for i in range(n)];"
        "units.run_units('units_that_fail:born_with', made(int(sys.argv[1])), sys.argv[2], embedders=['use'])"
    )
    for number, told in ((units.MANY, {"use": True}), (units.MANY - 1, {"use": False})):
        folder = tmp_path / str(number)
        subprocess.run([sys.executable, "-c", code, str(number), str(folder)], check=True, timeout=300)
        rows = list(units.assemble(folder, "rows"))
        assert rows == [told | {"warm": None}] * number
    assert not embed._shared  # the caller itself loads nothing

"""The line between the kit and a system's own process: what crosses it, what does not, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab import clock, systems, worker
from kiokulab.systems.base import (
    Hit,
    Ingested,
    Memory,
    Pair,
    Request,
    Results,
    Session,
    SystemFailure,
    Turn,
    Unsupported,
    Utterance,
)

SYSTEMS = Path(__file__).parent / "fixtures" / "systems"
WHEN = "2023-05-20T10:00:00+09:00"


def system(tmp_path: Path, body: str) -> str:
    """A system in a file of its own: WellBehaved with `body` as further methods."""
    file = tmp_path / "system_under_test.py"
    indented = "\n".join("    " + line for line in body.splitlines())
    file.write_text(
        f"import os, subprocess, sys, time\nsys.path.insert(0, {str(SYSTEMS)!r})\nfrom well_behaved import *\n"
        f"from kiokulab.systems.base import *\n\nclass Toy(WellBehaved):\n    pass\n{indented}\n"
    )
    return f"{file}:Toy"


def held(tmp_path: Path, body: str = "", **options):
    return systems.connect(system(tmp_path, body), space="en-01/raw", workdir=tmp_path / "unit", worker=True, **options)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return ") Z " not in stat.read_text()
    except FileNotFoundError:
        return False


def gone(*pids: int) -> bool:
    """Whether all are gone; they have some seconds for it, since a kill is not waited for by everyone."""
    for _ in range(200):
        if not any(map(lives, pids)):
            return True
        time.sleep(0.05)
    return False


# --- what crosses the line ------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    "\x00\x1b[31m\x7f",
    "lone \ud83d surrogate \udc00",
    "line\u2028end\u0085\r\n",
    '{"id": 1}',
    "<b>&amp;",
    "日本語 👩‍👩‍👧",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_survives(tmp_path, text):
    with held(tmp_path) as memory:
        assert memory.ingest(Request("r1", WHEN, text), WHEN) == Ingested(added=1)
        assert memory.dump() == [Memory("t0", text, created=WHEN)]


def test_a_text_of_ten_megabytes_survives(tmp_path):
    text = "記憶 " * 1_100_000 + "end"  # 10 MB and more in UTF-8
    with held(tmp_path) as memory:
        memory.ingest(Request("r1", WHEN, text), WHEN)
        assert memory.dump()[0].text == text


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters()),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_memories_and_items_come_back_as_they_went(meta):
    items = [
        Session("s", WHEN, (Turn("user", "a"), Turn("assistant", "b"))),
        Pair("p", WHEN, Turn("user", "a"), Turn("assistant", "")),
        Utterance("u", WHEN, Turn("user", "\ud800")),
        Request("r", WHEN, "forget", kind="forget"),
        Results([Hit("t", meta={"m": meta})], shown="t", declined=True),
        Memory("m", "t", meta={"m": meta}),
        None,
    ]
    line = json.dumps(worker.encode(items))
    assert line.isascii() and "\n" not in line
    assert worker.decode(json.loads(line)) == items


def test_only_classes_of_the_contract_are_made():
    with pytest.raises(ValueError, match="not a class of the contract"):
        worker.decode({worker.TAG: "System"})


def test_unsupported_crosses_as_unsupported(tmp_path):
    with held(tmp_path, "def reset(self): raise Unsupported('reset', 'it cannot be emptied')") as memory:
        with pytest.raises(Unsupported, match="reset: it cannot be emptied"):
            memory.reset()
        with pytest.raises(Unsupported, match="forget: the system has no forget call"):
            memory.forget({"query": "x"})


@pytest.mark.parametrize("isolated", [True, False])
def test_what_is_not_declared_is_not_called(tmp_path, isolated):
    body = "def forget(self, selector): raise RuntimeError('was called')"
    with systems.connect(system(tmp_path, body), space="a", workdir=tmp_path / "unit", worker=isolated) as memory:
        with pytest.raises(Unsupported, match="does not declare it"):
            memory.forget({"query": "x"})


@pytest.mark.parametrize("isolated", [True, False])
def test_declarations_and_warnings_can_be_read(tmp_path, isolated):
    body = "def ingest(self, item, when): return Ingested(added=0, warnings=['could not parse'])"
    place = dict(space="a", workdir=tmp_path / "unit", worker=isolated)
    with systems.connect(system(tmp_path, body), {"greeting": "hi"}, **place) as memory:
        assert (memory.feeds, memory.dates, memory.capabilities) == (
            "utterance",
            "native",
            frozenset({"search", "reset"}),
        )
        assert memory.config == {"greeting": "hi"}
        memory.ingest(Request("r", WHEN, "x"), WHEN)
        assert memory.warnings == ["could not parse"]
        with pytest.raises(AttributeError):
            memory.no_such_thing  # noqa: B018


# --- how it fails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolated", [True, False])
def test_an_error_of_the_system_is_a_failure_with_its_words(tmp_path, isolated):
    body = "def dump(self): raise KeyError('missing')"
    with systems.connect(system(tmp_path, body), space="a", workdir=tmp_path / "unit", worker=isolated) as memory:
        with pytest.raises(SystemFailure, match="dump: KeyError: 'missing'") as caught:
            memory.dump()
        assert caught.value.kind == "error"
        assert memory.search("x", 1).hits == [], "the system goes on after an error"


def test_a_result_that_is_no_json_is_a_failure(tmp_path):
    with held(tmp_path, "def dump(self): return [Memory('m', 't', meta={'score': float('nan')})]") as memory:
        with pytest.raises(SystemFailure, match="dump: ValueError"):
            memory.dump()


def test_a_call_to_exit_is_a_failure_and_not_an_end(tmp_path):
    with held(tmp_path, "def dump(self): sys.exit(0)") as memory:
        with pytest.raises(SystemFailure, match="dump: SystemExit"):
            memory.dump()


@pytest.mark.parametrize(
    ("body", "how"), [("os._exit(0)", "exit code 0"), ("os.kill(os.getpid(), 9)", "signal SIGKILL")]
)
def test_a_death_is_named_and_later_calls_say_so(tmp_path, body, how):
    with held(tmp_path, f"def dump(self): {body}") as memory:
        with pytest.raises(SystemFailure, match=how) as caught:
            memory.dump()
        assert caught.value.kind == "died"
        with pytest.raises(SystemFailure, match="the worker has ended before"):
            memory.search("x", 1)


def test_a_call_that_takes_too_long_is_ended(tmp_path):
    with held(tmp_path, "def dump(self): time.sleep(600)", timeouts={"dump": 0.5}) as memory:
        with pytest.raises(SystemFailure, match="dump: no answer within 0.5 s") as caught:
            memory.dump()
        assert caught.value.kind == "timeout" and not lives(memory.process.pid)


def test_an_adapter_that_cannot_be_imported_is_a_failure_with_its_reason(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("class Toy:\n    pass\nimport no_such_package_here\n")
    with pytest.raises(SystemFailure, match="No module named 'no_such_package_here'"):
        with systems.connect(f"{file}:Toy", space="a", workdir=tmp_path / "unit", worker=True):
            pass


def test_the_first_failure_is_told_and_the_worker_is_ended(tmp_path):
    with pytest.raises(RuntimeError, match="the caller's own"):
        with held(tmp_path, "def close(self): raise OSError('second')") as memory:
            raise RuntimeError("the caller's own")
    assert not lives(memory.process.pid)


def test_a_failing_close_is_told(tmp_path):
    with pytest.raises(SystemFailure, match="close: OSError: disk full"):
        with held(tmp_path, "def close(self): raise OSError('disk full')") as memory:
            pass
    assert not lives(memory.process.pid)


# --- isolation --------------------------------------------------------------------------------------------------


def test_the_environment_is_cleaned(tmp_path, monkeypatch):
    for name in (
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "KIOKULAB_API_KEY",
        "https_proxy",
        "HTTP_PROXY",
        "SOME_SECRET",
        "PYTHONPATH",
    ):
        monkeypatch.setenv(name, "from outside")
    body = "def dump(self): return [Memory(name, value) for name, value in sorted(os.environ.items())]"
    with held(tmp_path, body) as memory:
        seen = {row.id: row.text for row in memory.dump()}
    assert "from outside" not in seen.values()
    assert seen["OPENAI_API_KEY"] == "not-a-key" and seen["MEM0_TELEMETRY"] == "False" and seen["DO_NOT_TRACK"] == "1"
    unit = tmp_path / "unit"
    assert (seen["HOME"], seen["TMPDIR"]) == (str(unit / "home"), str(unit / "tmp"))


def test_the_kits_modules_do_not_shadow_the_systems(tmp_path):
    """Beside worker.py lie files with everyday names (files, values, text, ...): their folder is not on the path."""
    body = "def dump(self): return [Memory(str(n), path) for n, path in enumerate(sys.path)]"
    with held(tmp_path, body) as memory:
        assert str(worker.PACKAGE) not in {row.text for row in memory.dump()}


def test_two_units_on_one_store_are_refused(tmp_path):
    with held(tmp_path):
        with pytest.raises(SystemFailure, match="in use by another unit"):
            with held(tmp_path):
                pass
    with held(tmp_path):  # and afterwards it is free again
        pass


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", b"127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", None, ""]
)
def test_loopback_is_allowed(host):
    assert worker.is_loopback(host)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", b"192.0.2.1", "127.0.0.1.example.org", "127.example", "::ffff:192.0.2.1", "10.0.0.1", 7]
)
def test_beyond_loopback_is_not(host):
    assert not worker.is_loopback(host)


# --- the end ----------------------------------------------------------------------------------------------------


def test_after_the_block_nothing_lives(tmp_path):
    body = (
        "def settle(self, timeout): self.child = subprocess.Popen(['sleep', '600'])\n"
        "def usage(self): return {'pid': self.child.pid}\n"
        "capabilities = frozenset({'usage'})"
    )
    with held(tmp_path, body) as memory:
        memory.settle(1.0)
        child = memory.usage()["pid"]
        assert lives(child)
    assert gone(memory.process.pid, child)


@pytest.mark.parametrize("busy", [False, True])
def test_a_killed_parent_takes_the_worker_and_its_children_along(tmp_path, busy):
    body = (
        "def settle(self, timeout):\n    child = subprocess.Popen(['sleep', '600'])\n"
        "    open('pids', 'w').write(f'{os.getpid()} {child.pid} ')\n    if timeout > 1: time.sleep(600)"
    )
    name, wait = system(tmp_path, body), 100 if busy else 1
    script = (
        "import sys, time\nfrom kiokulab import systems\n"
        f"with systems.connect({name!r}, space='a', workdir={str(tmp_path / 'unit')!r}, worker=True) as memory:\n"
        f"    memory.settle({wait})\n    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        pids = tmp_path / "unit" / "home" / "pids"
        for _ in range(400):
            if pids.exists() and pids.read_text().endswith(" "):
                break
            time.sleep(0.05)
        worker_pid, child_pid = map(int, pids.read_text().split())
        assert lives(worker_pid) and lives(child_pid)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert gone(worker_pid, child_pid)


def test_an_interrupted_caller_does_not_read_the_old_answer(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    with held(tmp_path) as memory:
        close = memory.process.stdout.close
        memory.process.stdout = type(
            "Interrupted", (), {"readline": staticmethod(interrupt), "close": staticmethod(close)}
        )()
        with pytest.raises(KeyboardInterrupt):
            memory.dump()
        with pytest.raises(SystemFailure, match="ended before"):
            memory.dump()


# --- the clock --------------------------------------------------------------------------------------------------


def test_the_clock_is_checked_and_not_believed():
    with pytest.raises(RuntimeError, match="should show 2001-01-01"):
        clock.prove("2001-01-01T00:00:00+00:00")


def test_dates_without_a_zone_are_utc():
    assert clock.parse("2023-05-20T10:00:00").isoformat() == "2023-05-20T10:00:00+00:00"
    with pytest.raises(ValueError):
        clock.parse("20 May")


def test_a_clock_system_without_time_machine_fails_and_does_not_run_today(tmp_path):
    with pytest.raises(SystemFailure, match="no time-machine"):
        with held(tmp_path, "dates = 'clock'", when=WHEN):
            pass

"""Each deliberately broken system is caught by the check that is there for it, and a correct one passes all."""

import os
from pathlib import Path

import pytest

from kiokulab.errors import InputError
from kiokulab.systems.contract import CHECKS, FAIL, NOT_APPLICABLE, PASS, Check, line_of, run_contract, statement

SYSTEMS = Path(__file__).parent / "fixtures" / "systems"


OF_A_MODEL = ("bad JSON of the model is told of", "a model that is down is an error", "silent no-ops are counted")


def run(file: str, class_name: str = "Broken", **options) -> dict[str, Check]:
    checks = run_contract(f"{SYSTEMS / file}.py:{class_name}", **options)
    assert len(checks) == len(CHECKS), "every check is reported, whatever happens before it"
    return {check.name: check for check in checks}


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.outcome == FAIL}


def test_a_correct_system_passes_every_check():
    checks = run("well_behaved", "WellBehaved")
    outcomes = {name: check.outcome for name, check in checks.items()}
    assert {name for name, outcome in outcomes.items() if outcome != PASS} == set(OF_A_MODEL)
    assert {outcomes[name] for name in OF_A_MODEL} == {NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("file", "caught_by", "says"),
    [
        ("limit_ignored", "k results when k are asked for", "asked for 1 of 130 stored, 20 were delivered"),
        ("dump_truncated_at_20", "dump of 130 is complete", "130 statements were stored and 20 are listed"),
        ("swallows_failure", "failure raises", "no failure was raised"),
        ("leaks_between_units", "units are isolated", "what unit B was fed is listed in unit A"),
        ("forgets_on_restart", "restart keeps data", "130 memories before the restart, 0 after"),
        ("dates_are_today", "dates round-trip", "fed on 2023-05-20, dated"),
        ("calls_the_internet", "no socket beyond loopback", "attempts to leave this machine (refused)"),
        ("reset_empties_all", "reset empties only its own unit", "changed unit A"),
        ("dead_after_reset", "reset empties only its own unit", "after a reset is not stored"),
        ("declares_what_is_not_there", "capabilities are what is there", "forget is declared"),
    ],
)
def test_a_broken_system_is_caught_by_its_check(file, caught_by, says):
    checks = run(file)
    assert says in checks[caught_by].reason
    # a store that all units share cannot pass the reset check either
    assert failed(checks) <= {caught_by, "reset empties only its own unit"}, [
        line_of(check) for check in checks.values()
    ]


def test_connections_datagrams_and_look_ups_are_all_refused():
    reason = run("calls_the_internet")["no socket beyond loopback"].reason
    for attempt in (
        "getaddrinfo 192.0.2.1:443", "connect 192.0.2.2:443", "connect 2001:db8::1:443", "sendto 192.0.2.3:53",
        "getaddrinfo telemetry.invalid:443",
    ):  # fmt: skip
        assert attempt in reason


def test_prints_on_stdout_are_harmless_and_kept_in_the_log(tmp_path):
    checks = run("prints_on_stdout", folder=tmp_path)
    assert not failed(checks)
    log = (tmp_path / "a" / "worker.log").read_text()
    assert "printed at import" in log and "printed by ingest" in log


def test_a_system_that_hangs_is_ended_with_its_children(tmp_path):
    checks = run("hangs", timeouts={"dump": 3.0}, folder=tmp_path)
    assert "no answer within 3 s" in checks["dump of 130 is complete"].reason
    child = int((tmp_path / "a" / "store" / "child.pid").read_text())
    assert not _lives(child)


def test_a_system_that_dies_is_named_with_its_last_words():
    checks = run("dies")
    reason = checks["k results when k are asked for"].reason
    assert "the worker died (signal SIGABRT)" in reason and "the last words of the system" in reason
    assert checks["dump of 130 is complete"].outcome == PASS


def test_a_system_that_keeps_nothing_is_asked_nothing_about_it(tmp_path):
    file = tmp_path / "keeps_nothing.py"
    file.write_text(
        "from kiokulab.systems.base import System\n"
        "class KeepsNothing(System):\n"
        "    name, keeps = 'keeps-nothing', 'none'\n"
        "    def ingest(self, item, when): pass\n"
        "    def dump(self): return []\n"
    )
    checks = {check.name: check for check in run_contract(f"{file}:KeepsNothing")}
    assert not failed(checks)
    assert checks["dump of 130 is complete"].outcome == NOT_APPLICABLE
    assert "by design" in checks["dump of 130 is complete"].reason


@pytest.mark.parametrize(
    "class_name, caught_by, says",
    [
        ("Honest", None, ""),
        ("SwallowsBadJson", OF_A_MODEL[0], "success was reported, nothing was said, and the listing is as before"),
        ("StoresGarbage", OF_A_MODEL[0], "something was stored of an answer that cannot be read"),
        ("EmptySuccess", OF_A_MODEL[1], "ended as silent no-op: it must raise"),
        ("DeadAfterwards", OF_A_MODEL[1], "with a model again, the store takes nothing in"),
    ],
)
def test_a_model_that_goes_wrong_is_never_an_empty_success(class_name, caught_by, says):
    checks = run("reads_answers", class_name, items=3)
    assert failed(checks) == ({caught_by} if caught_by else set()), [line_of(check) for check in checks.values()]
    if caught_by:
        assert says in checks[caught_by].reason
    else:
        assert checks[OF_A_MODEL[0]].reason == "bad JSON: warning; cut off: warning"
        assert checks[OF_A_MODEL[2]].reason == "1 of 6 (wrong schema: silent no-op; prose: warning; empty: warning)"


def test_an_unknown_setting_is_bad_input():
    with pytest.raises(InputError, match="unknown setting 'tone'"):
        run("well_behaved", "WellBehaved", settings={"tone": 1})


def test_statements_have_codes_of_their_own():
    texts = [statement(number) for number in range(130)]
    for number, (code, _) in enumerate(texts):
        assert [other for other, (_, text) in enumerate(texts) if code in text] == [number]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and ") Z " in status.read_text())  # a zombie that nobody waits for is dead

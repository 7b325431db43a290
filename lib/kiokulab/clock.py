"""The simulated clock of a worker: a system that dates its memories by "now" is told when "now" is.

Standard library only at import. The clock itself is the package time-machine, which the lock of every system with
``dates = "clock"`` carries; it changes Python's own idea of time in this one process. A system that reads the time
in C, or in a process of its own, is not moved by it: `prove` shows what Python sees, and the contract test on dates
shows what the system really stored.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_traveller = None


def parse(when: str) -> datetime:
    """The moment that an ISO 8601 text names; UTC where it has no zone. Raises ValueError on anything else."""
    moment = datetime.fromisoformat(when)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def travel(when: str) -> str:
    """Set this process's clock to `when`; it goes on ticking from there. Returns the date that Python now sees (ISO).

    Raises RuntimeError where time-machine is missing or the clock did not move.
    """
    global _traveller
    try:
        import time_machine
    except ImportError:
        raise RuntimeError("the environment has no time-machine, which a system with dates='clock' needs") from None
    home()
    # UTC, so that the destination's zone is never taken for the machine's own
    _traveller = time_machine.travel(parse(when).astimezone(timezone.utc), tick=True)
    _traveller.start()
    return prove(when)


def home() -> None:
    """Put the clock back on the real time."""
    global _traveller
    if _traveller is not None:
        _traveller.stop()
        _traveller = None


def prove(when: str, tolerance: float = 120.0) -> str:
    """The date that Python sees now (ISO, UTC). Raises RuntimeError where it is `tolerance` seconds off `when`."""
    seen = datetime.now(timezone.utc)
    if abs(seen - parse(when)) >= timedelta(seconds=tolerance):
        raise RuntimeError(f"the clock shows {seen.isoformat()} and should show {when}")
    return seen.isoformat()

"""What can go wrong, and with which exit code it ends. Standard library only.

0 done; 2 bad input (nothing was started); 3 some units failed; 4 stopped by budget; 5 a kernel or worker died, or the
endpoint of models cannot be reached any more; 6 verification failed.
"""

from __future__ import annotations


class KiokuLabError(Exception):
    """Base of the kit's own errors. `str(error)` is written for the person at the terminal."""

    exit_code = 1


class InputError(KiokuLabError):
    """Bad input or parameters; nothing was started and nothing is lost.

    Parameters
    ----------
    what : what is wrong.
    where : file:line, cell or parameter name; None where there is no place.
    do : what to do about it; None where it is plain from `what`.
    """

    exit_code = 2

    def __init__(self, what: str, where: str | None = None, do: str | None = None):
        self.what, self.where, self.do = what, where, do
        super().__init__(what, where, do)  # the arguments themselves, so that it survives pickling between processes

    def __str__(self) -> str:
        return "".join([f"{self.where}: " if self.where else "", self.what, f". {self.do}" if self.do else ""])


class UnitsFailed(KiokuLabError):
    """Some units failed; the rest is there. `failed` maps the unit's id to its reason."""

    exit_code = 3

    def __init__(
        self,
        failed: dict[str, str],
        do: str = "Run the same command again: finished units are kept, failed ones are retried.",
    ):
        self.failed, self.do = dict(sorted(failed.items())), do
        super().__init__(self.failed, do)

    def __str__(self) -> str:
        lines = [f"  {unit}: {reason}" for unit, reason in self.failed.items()]
        return f"{len(self.failed)} unit(s) failed:\n" + "\n".join(lines) + f"\n{self.do}"


class BudgetReached(KiokuLabError):
    exit_code = 4


class Died(KiokuLabError):
    """A kernel or a worker ended without giving its result."""

    exit_code = 5


class UpstreamDown(Died):
    """The endpoint of models cannot be reached any more. What was answered is kept."""


class VerificationFailed(KiokuLabError):
    """A run is not what its receipt says. `places` names each difference: file, line or cell."""

    exit_code = 6

    def __init__(self, places: list[str]):
        self.places = places
        super().__init__(places)

    def __str__(self) -> str:
        return "verification failed:\n" + "\n".join(f"  {place}" for place in self.places)

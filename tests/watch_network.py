"""Which addresses a memory system and all its children name, seen from outside: its contract run under strace.

    python tests/watch_network.py hindsight byterover

The kit's own guard is a hook in Python (and in node): it sees neither a database in C nor a program that a system
starts. This does, since every connection and datagram is a system call. It needs strace (apt install strace), takes the
time of a contract run and half as much again, and ends with 1 where an address beyond loopback was named.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from ipaddress import ip_address
from pathlib import Path

CALLS = "connect,sendto,sendmsg,sendmmsg"
ADDRESS = re.compile(r'(?:inet_addr\("|inet_pton\(AF_INET6, "|sin6_addr=.*?")([0-9a-fA-F:.]+)"')


def addresses(lines):
    """Counter of (family, address) that the lines of an strace file name; the address of a Unix socket is ''."""
    found = Counter()
    for line in lines:
        if "AF_UNIX" in line:
            found["unix", ""] += 1
        for address in ADDRESS.findall(line):
            found["inet", address] += 1
    return found


def beyond(found):
    """The addresses that leave this machine, with how often they were named."""
    return {
        address: count
        for (family, address), count in sorted(found.items())
        if family == "inet" and not (ip_address(address).is_loopback or ip_address(address).is_unspecified)
    }


def watch(system):
    """(exit code of the contract, its last line, addresses)."""
    with tempfile.TemporaryDirectory() as place:
        trace = Path(place) / "trace"
        strace = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(trace)]
        done = subprocess.run(
            [*strace, sys.executable, "-m", "kiokulab", "contract", "--system", system], capture_output=True, text=True
        )
        with open(trace, errors="replace") as lines:
            return (
                done.returncode,
                (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1],
                addresses(lines),
            )


def main(systems):
    if not shutil.which("strace"):
        sys.exit("strace is not there: apt install strace")
    if not systems:
        sys.exit(__doc__)
    worst = 0
    for system in systems:
        code, last, found = watch(system)
        left = beyond(found)
        unix, inet = found["unix", ""], sum(n for (family, _), n in found.items() if family == "inet")
        print(
            f"{last} (exit {code})\n  {unix} calls named a Unix socket, {inet} an internet address; beyond loopback: {left or 'none'}",
            flush=True,
        )
        worst = max(worst, code, int(bool(left)))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

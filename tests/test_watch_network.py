"""What strace says of a program is read right: a tool that finds nothing must be able to find something."""

import shutil
import subprocess
import sys

import pytest
from watch_network import addresses, beyond

LINES = [
    '1 sendto(3, "x", 1, 0, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.3")}, 16) = 1',
    '1 connect(4, {sa_family=AF_INET6, sin6_port=htons(80), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28) = -1',
    '2 connect(4, {sa_family=AF_UNIX, sun_path="/run/x"}, 12) = 0',
    '2 connect(5, {sa_family=AF_INET, sin_port=htons(1), sin_addr=inet_addr("127.0.0.1")}, 16) = 0',
    '2 connect(5, {sa_family=AF_INET6, sin6_port=htons(1), inet_pton(AF_INET6, "::1", &sin6_addr)}, 28) = 0',
    "3 sendmsg(6, {msg_name=NULL, msg_namelen=0, msg_iov=[...]}, 0) = 2",
]


def test_addresses_beyond_this_machine_are_told_from_its_own():
    found = addresses(LINES)
    assert found["unix", ""] == 1 and sum(found.values()) == 5
    assert beyond(found) == {"192.0.2.3": 1, "2001:db8::1": 1}


def test_a_datagram_of_a_child_is_seen(tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not there: apt install strace")
    child = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.7', 9))"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", str(trace), sys.executable, "-c", parent]
    done = subprocess.run(command, capture_output=True, text=True)
    if not trace.exists() or "ptrace" in done.stderr:
        pytest.skip(f"this machine lets nobody be traced: {done.stderr[-200:]}")
    assert "192.0.2.7" in beyond(addresses(trace.read_text().splitlines()))

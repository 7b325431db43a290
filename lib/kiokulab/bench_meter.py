"""What the meter adds to a model call: the same stub asked directly and through a meter process, by turns.

The stub answers after a set time, as a model does; client, meter and stub are processes of their own. Run by
`make bench`, or alone: python -m kiokulab.bench_meter
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kiokulab import meter

IN_FLIGHT, CALLS, STUB_S, ROUNDS = 32, 320, 0.3, 4

STUB = """
import asyncio, json, socket, sys
delay = float(sys.argv[1])
answer = json.dumps({"id": "g", "model": "stub", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x" * 400}}],
                     "usage": {"prompt_tokens": 500, "completion_tokens": 100, "total_tokens": 600, "cost": 0.0001}}).encode()
frame = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n%b" % (len(answer), answer)
async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode("latin-1").lower()
            await reader.readexactly(int(head.split("content-length:")[1].split()[0]))
            await asyncio.sleep(delay)
            writer.write(frame)
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        writer.close()
async def main():
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    await asyncio.start_server(serve, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(main())
"""


async def _ask_all(url: str, offset: int) -> list[float]:
    """Seconds of each of CALLS calls, IN_FLIGHT at once, after one call for each connection to warm up."""
    import httpx

    trust = httpx.create_ssl_context()
    taken: list[float] = []
    numbers = iter(range(CALLS))

    async def line(start: int) -> None:
        # a client of one connection each: httpx's pool takes time that grows with its connections, which is not what is
        # measured
        async with httpx.AsyncClient(timeout=60, trust_env=False, verify=trust) as client:

            async def one(number: int) -> float:
                prompt = f"{offset + number} " + "what does the store hold? " * 70
                body = json.dumps({"model": "stub", "messages": [{"role": "user", "content": prompt}]})
                started = time.perf_counter()
                answer = await client.post(url, content=body, headers={"content-type": "application/json"})
                answer.raise_for_status()
                return time.perf_counter() - started

            await asyncio.sleep(STUB_S * start / IN_FLIGHT)  # spread, as calls of several units are
            await one(-start - 1)
            for number in numbers:
                taken.append(await one(number))

    await asyncio.gather(*(line(start) for start in range(IN_FLIGHT)))
    return taken


def added_latency() -> dict[str, Any]:
    """Medians in milliseconds of each round, "rounds" [(direct, metered)], and of the quietest one: "direct_ms",
    "metered_ms", "added_ms". Other work on the machine lengthens both, and the meter's share more, since its call goes
    through two processes: the quietest round is nearest to what the meter itself takes, and all rounds are printed."""
    rounds = []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-c", STUB, str(STUB_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stub,
    ):
        port = int(stub.stdout.readline())
        url = f"http://127.0.0.1:{port}/v1"
        with meter.process([f"127.0.0.1:{port}"]) as base:
            opening = meter.Opening(
                "bench", str(Path(folder) / "calls.sqlite"), "live", url, ["stub"], concurrency=IN_FLIGHT
            )
            before = os.environ.get(meter.METER)
            os.environ[meter.METER] = base
            try:
                with meter.session(opening) as session:
                    metered = f"{session.endpoint('u', 'bench')}/chat/completions"
                    for turn in range(ROUNDS + 1):
                        pair = [
                            statistics.median(asyncio.run(_ask_all(where, turn * 10_000))) * 1000
                            for where in (f"{url}/chat/completions", metered)
                        ]
                        if turn:  # the first one warms up
                            rounds.append(pair)
            finally:
                os.environ.pop(meter.METER) if before is None else os.environ.update({meter.METER: before})
        stub.stdin.close()
    direct, through = min(rounds, key=sum)
    return {
        "direct_ms": round(direct, 2),
        "metered_ms": round(through, 2),
        "added_ms": round(through - direct, 2),
        "rounds": [[round(value, 1) for value in pair] for pair in rounds],
    }


def lines() -> str:
    """The table for `make bench`."""
    found = added_latency()
    return f"meter: {IN_FLIGHT} in flight, a stub that answers after {STUB_S * 1000:g} ms: median {found['direct_ms']} ms direct, {found['metered_ms']} ms through the meter, {found['added_ms']} ms added (rounds, direct and metered: {found['rounds']})"


if __name__ == "__main__":
    print(lines())

"""What the meter adds to a model call: the same stub asked directly and through a meter process, by turns.

The stub answers after a set time, as a model does; client, meter and stub are processes of their own. Run by `make bench`,
or alone: python -m kiokulab.bench_meter
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kiokulab import meter

IN_FLIGHT, CALLS, STUB_S, ROUNDS = 32, 320, 0.3, 3

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
    except (asyncio.IncompleteReadError, ConnectionError):
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

    taken: list[float] = []
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)) as client:

        async def one(number: int, keep: bool) -> None:
            prompt = f"{offset + number} " + "what does the store hold? " * 70
            body = json.dumps({"model": "stub", "messages": [{"role": "user", "content": prompt}]})
            started = time.perf_counter()
            answer = await client.post(url, content=body, headers={"content-type": "application/json"})
            if keep:
                taken.append(time.perf_counter() - started)
            answer.raise_for_status()

        await asyncio.gather(*(one(-n - 1, False) for n in range(IN_FLIGHT)))
        numbers = iter(range(CALLS))

        async def line() -> None:
            await asyncio.sleep(STUB_S * (next(starts) / IN_FLIGHT))  # spread, as calls of several units are
            for number in numbers:
                await one(number, True)

        starts = iter(range(IN_FLIGHT))
        await asyncio.gather(*(line() for _ in range(IN_FLIGHT)))
    return taken


def added_latency() -> dict[str, float]:
    """Medians in milliseconds: {"direct_ms", "metered_ms", "added_ms"}."""
    direct, metered = [], []
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen([sys.executable, "-c", STUB, str(STUB_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        port = int(stub.stdout.readline())
        with meter.process([f"127.0.0.1:{port}"]) as base:
            opening = meter.Opening("bench", str(Path(folder) / "calls.sqlite"), "live", f"http://127.0.0.1:{port}/v1", ["stub"], concurrency=IN_FLIGHT)
            before = meter.os.environ.get(meter.METER)
            meter.os.environ[meter.METER] = base
            try:
                with meter.session(opening) as session:
                    for turn in range(ROUNDS):
                        direct += asyncio.run(_ask_all(f"http://127.0.0.1:{port}/v1/chat/completions", turn * 10_000))
                        metered += asyncio.run(_ask_all(f"{session.endpoint('u', 'bench')}/chat/completions", turn * 10_000))
            finally:
                meter.os.environ.pop(meter.METER) if before is None else meter.os.environ.update({meter.METER: before})
        stub.stdin.close()
    one, other = statistics.median(direct) * 1000, statistics.median(metered) * 1000
    return {"direct_ms": round(one, 2), "metered_ms": round(other, 2), "added_ms": round(other - one, 2)}


def lines() -> str:
    """The table for `make bench`."""
    found = added_latency()
    return (f"meter: {IN_FLIGHT} in flight, a stub that answers after {STUB_S * 1000:g} ms: median {found['direct_ms']} ms direct, {found['metered_ms']} ms through the meter, {found['added_ms']} ms added")


if __name__ == "__main__":
    print(lines())

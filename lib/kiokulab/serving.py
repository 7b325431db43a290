"""A small ASGI server on 127.0.0.1 in a thread of this process: for the meter, the reference responder and tests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

HOST = "127.0.0.1"


@contextlib.contextmanager
def serve(app: Any, port: int = 0, startup_seconds: float = 20.0) -> Iterator[str]:
    """Serve `app` until the block ends; yields its base URL (no slash at the end). Port 0 takes a free one.

    Raises RuntimeError where the server is not up after `startup_seconds`, OSError where the port is taken.
    """
    import uvicorn

    # asyncio switches Nagle's delay off only where the socket names its protocol: without it each call waits 40 ms
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True, name="kiokulab-serve")
    thread.start()
    try:
        limit = time.monotonic() + startup_seconds
        while not server.started:
            if time.monotonic() > limit or not thread.is_alive():
                raise RuntimeError("the loopback server did not start")
            time.sleep(0.005)
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()

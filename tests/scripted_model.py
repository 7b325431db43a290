"""A loopback endpoint whose language model does what a test scripts: `serve(chat)`, `chat(body)` → assistant message
(dict), or an int, which is an HTTP status. Embeddings are letter counts."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def tool_call(name, **arguments):
    """An assistant message that calls one tool."""
    return tool_calls((name, arguments))


def tool_calls(*pairs):
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(pairs)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@contextmanager
def serve(chat, model="scripted"):
    """Yields (base URL ending in /v1, list of the chat requests' bodies)."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, data, kind="application/json"):
            data = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.answer(200, {"data": [{"id": model}, {"id": "letters", "dimensions": 26}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/embeddings"):
                texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
                rows = [[0.1 + text.lower().count(chr(97 + n)) for n in range(26)] for text in texts]
                return self.answer(
                    200,
                    {
                        "data": [{"index": n, "embedding": row} for n, row in enumerate(rows)],
                        "model": "letters",
                        "usage": {"prompt_tokens": 1, "total_tokens": 1},
                    },
                )
            bodies.append(body)
            message = chat(body)
            if isinstance(message, int):
                return self.answer(message, {"error": {"message": "scripted failure"}})
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            if not body.get("stream"):
                return self.answer(
                    200,
                    {
                        "id": "x",
                        "object": "chat.completion",
                        "created": 0,
                        "model": model,
                        "usage": usage,
                        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                    },
                )
            calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls") or [])]
            parts = [
                [{"index": 0, "delta": {**message, **({"tool_calls": calls} if calls else {})}, "finish_reason": None}],
                [{"index": 0, "delta": {}, "finish_reason": finish}],
                [],
            ]
            chunks = [
                {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": part}
                for part in parts
            ]
            chunks[-1]["usage"] = usage
            self.answer(
                200,
                "".join(f"data: {line}\n\n" for line in [*map(json.dumps, chunks), "[DONE]"]).encode(),
                "text/event-stream",
            )

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()

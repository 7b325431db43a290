"""A small client of chromedriver over plain HTTP (W3C WebDriver): nothing but Debian's `chromium` and `chromium-driver`
is needed. Console messages and requests come from the driver's own logs, so that a page that calls out is caught."""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FAILED = Path(__file__).resolve().parents[2] / "build" / "browser" / "failed.png"  # what was there instead, last time
KEYS = {"tab": "\ue004", "enter": "\ue007", "space": " ", "down": "\ue015", "escape": "\ue00c"}


def missing():
    """Why there can be no browser test here, or None."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(lacking)} not installed (Debian: chromium, chromium-driver)" if lacking else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    def __init__(self, address, session):
        self.base = f"{address}/session/{session}"

    def call(self, method, path, body=None):
        return request(method, self.base + path, body)

    def open(self, url):
        self.call("POST", "/url", {"url": str(url)})

    @property
    def url(self):
        return self.call("GET", "/url")

    def all(self, css):
        return [found[ELEMENT] for found in self.call("POST", "/elements", {"using": "css selector", "value": css})]

    def one(self, css, seconds=20.0):
        """The first element, waited for."""
        end = time.monotonic() + seconds
        while not (found := self.all(css)):
            if time.monotonic() > end:
                self.screenshot(FAILED)
                raise AssertionError(f"no element {css!r} after {seconds} s at {self.url}; see {FAILED}")
            time.sleep(0.1)
        return found[0]

    def text(self, element):
        return self.call("GET", f"/element/{element}/text")

    def shown(self, element):
        return self.call("GET", f"/element/{element}/displayed")

    def click(self, element):
        self.call("POST", f"/element/{element}/click", {})

    def script(self, text, *arguments):
        return self.call("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def hover(self, element):
        move = {"type": "pointerMove", "duration": 0, "origin": {ELEMENT: element}, "x": 0, "y": 0}
        self.call(
            "POST",
            "/actions",
            {
                "actions": [
                    {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
                ]
            },
        )

    def away(self):
        move = {"type": "pointerMove", "duration": 0, "origin": "viewport", "x": 1, "y": 1}
        self.call(
            "POST",
            "/actions",
            {
                "actions": [
                    {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
                ]
            },
        )

    def press(self, *keys):
        steps = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def screenshot(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self):
        """Messages of the console that are warnings or worse, since the last call."""
        return [
            row["message"]
            for row in self.call("POST", "/se/log", {"type": "browser"})
            if row["level"] in ("WARNING", "SEVERE")
        ]

    def requests(self):
        """Addresses that pages asked for since the last call, but for file: and data:."""
        rows = [json.loads(row["message"])["message"] for row in self.call("POST", "/se/log", {"type": "performance"})]
        sent = [row["params"]["request"]["url"] for row in rows if row["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("file:", "data:", "chrome:", "about:", "blob:"))]


def request(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    sent = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sent, timeout=120) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {url}: {error.read().decode()[:600]}") from None


def fonts(place):
    """A data folder with the Japanese font of the kit's figures, so that screenshots show Japanese where no such font
    is installed."""
    with contextlib.suppress(ImportError):
        import matplotlib_fontja

        (place / "fonts").mkdir(parents=True)
        for font in Path(matplotlib_fontja.__file__).parent.rglob("*.ttf"):
            shutil.copy(font, place / "fonts")
    return str(place)


@contextlib.contextmanager
def browser(dark=False, size=(1280, 900)):
    """A headless Chromium in a profile of its own; gone when the block is left."""
    port = free_port()
    home = tempfile.TemporaryDirectory()
    service = subprocess.Popen(
        ["chromedriver", f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_DATA_HOME": fonts(Path(home.name))},
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            with contextlib.suppress(OSError, AssertionError):
                if request("GET", f"{address}/status")["ready"]:
                    break
            time.sleep(0.1)
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--window-size={size[0]},{size[1]}",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
        ]
        options = {"args": flags, "binary": shutil.which("chromium")}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = request("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        opened = Browser(address, session)
        scheme = "dark" if dark else "light"  # a headless Chromium says that it has no mouse
        opened.devtools(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}, {"name": "hover", "value": "hover"}],
        )
        try:
            yield opened
        finally:
            with contextlib.suppress(Exception):
                request("DELETE", f"{address}/session/{session}")
    finally:
        service.terminate()
        service.wait(10)
        home.cleanup()

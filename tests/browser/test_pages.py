"""The comparison, the site and the explorer in Debian's Chromium. Screenshots are kept in build/browser/, to be looked at."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import driver  # noqa: E402
import runs_made  # noqa: E402

from kiokulab import compare, site  # noqa: E402
from kiokulab.files import dumps, sha256_file, write_atomic  # noqa: E402

REPOSITORY = HERE.parents[1]
SHOTS = REPOSITORY / "build" / "browser"
pytestmark = [pytest.mark.skipif(driver.missing() is not None, reason=driver.missing() or ""), pytest.mark.timeout(600)]
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> My <b>dog</b>"


def hostile(folder):
    """A finished run whose every stored text is hostile; its receipt is written anew, as if the system had stored that."""
    rows = [json.loads(line) for line in (folder / "memories.jsonl").read_bytes().splitlines()]
    write_atomic(folder / "memories.jsonl", "".join(dumps({**row, "text": f"{row['text']} {HOSTILE}"}) + "\n" for row in rows))
    receipt = json.loads((folder / "receipt.json").read_bytes())
    for step in receipt["steps"]:
        if "memories.jsonl" in step["outputs"]:
            step["outputs"]["memories.jsonl"] = sha256_file(folder / "memories.jsonl")
    write_atomic(folder / "receipt.json", dumps(receipt) + "\n")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = runs_made.copy(tmp_path_factory.mktemp("runs"))
    hostile(runs_made.folder(root, "store-everything"))
    return root


@pytest.fixture(scope="module")
def built(runs, tmp_path_factory):
    """A site of runs that lie there whole: what is published was checked elsewhere."""
    out = tmp_path_factory.mktemp("site") / "site"
    site.build(runs / "kioku", out)
    return out


@pytest.fixture(scope="module")
def light():
    with driver.browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def dark():
    with driver.browser(dark=True) as opened:
        yield opened


def quiet(browser):
    """Nothing on the console, and no request left the files."""
    assert browser.console() == [] and browser.requests() == []


def test_pillars_show_on_hover_and_on_the_keyboard_alone(built, light):
    light.open(f"file://{built}/index.html")
    light.away()
    bars, tips = light.all("ol.bars > li"), light.all("ol.bars .parts")
    assert len(bars) == len(tips) == 4 and not any(light.shown(tip) for tip in tips)
    light.hover(bars[1])
    assert [light.shown(tip) for tip in tips] == [False, True, False, False]
    assert all(word in light.text(tips[1]) for word in ("Remember", "Replace", "Forget", "Tidy"))
    light.screenshot(SHOTS / "index-hover.png")
    light.away()
    assert not any(light.shown(tip) for tip in tips)
    light.script("document.querySelector('h2 a').focus()")
    for n in range(4):
        light.press("tab")
        assert [light.shown(tip) for tip in tips] == [i == n for i in range(4)]
        said = light.script("const e = document.activeElement; return document.getElementById(e.getAttribute('aria-describedby')).textContent")
        assert "Remember" in said
    light.screenshot(SHOTS / "index-keyboard.png")
    quiet(light)


def test_bars_are_readable_in_black_and_white(built, light):
    """Without colours the four parts still differ: each has a pattern of its own and its figure beside it."""
    light.open(f"file://{built}/index.html")
    patterns = light.script("return ['p0','p1','p2','p3'].map(c => getComputedStyle(document.querySelector('.bar.' + c)).backgroundImage)")
    assert len(set(patterns)) == 4
    light.script("document.documentElement.style.filter = 'grayscale(1)'")
    light.hover(light.all("ol.bars > li")[1])
    light.screenshot(SHOTS / "index-grey.png")


def test_from_a_figure_to_the_ledger_in_three_clicks(built, light):
    light.open(f"file://{built}/kioku.html")
    light.screenshot(SHOTS / "track.png")
    light.click(light.one("a[href*='store-everything'][href$='old_version_kept.html']"))
    light.screenshot(SHOTS / "list.png")
    light.click(light.one("td a[href*='#f']"))
    assert "#f" in light.url
    light.screenshot(SHOTS / "case.png")
    fact = light.url.rpartition("#")[2]
    light.click(light.one(f"#{fact} .ledger a"))
    assert light.url.endswith(f"-ledger.html#f-{fact}") and light.shown(light.one(":target"))
    light.screenshot(SHOTS / "ledger.png")
    quiet(light)


def test_dark_pages_are_dark_and_all_kinds_of_page_are_quiet(built, dark):
    run = next(built.glob("runs/*store-everything*"))
    for page in ("index.html", "kioku.html", "kioku/store-everything.html", *(f"{run.relative_to(built)}/{n}.html" for n in ("index", "recall", "noise", "en-01", "ja-01", "ja-01-ledger"))):
        dark.open(f"file://{built}/{page}")
        back = dark.script("return getComputedStyle(document.querySelector('main')).backgroundColor")
        assert back == "rgb(22, 24, 27)", page
        assert dark.script("return document.documentElement.scrollWidth <= window.innerWidth + 1"), f"{page} is wider than the window"
        quiet(dark)
    dark.screenshot(SHOTS / "ledger-dark.png")


def test_a_hostile_memory_is_shown_as_text(built, light):
    run = next(built.glob("runs/*store-everything*"))
    light.open(f"file://{run}/en-01.html")
    assert light.script("return document.title") != "owned"
    assert light.script("return document.querySelectorAll('script, img[src=x], .memory b').length") == 0
    assert "<script>document.title='owned'</script>" in light.text(light.one(".step.memory"))
    light.screenshot(SHOTS / "hostile.png")
    quiet(light)


def test_the_comparison_page(runs, light):
    compare.write(runs, runs / "compare", resamples=100)
    light.open(f"file://{runs}/compare/compare.html")
    light.screenshot(SHOTS / "compare.png")
    light.click(light.one("a[href$='report.html']"))
    assert light.url.endswith("report.html")
    quiet(light)


# --- the explorer in JupyterLab -----------------------------------------------------------------------------------


@contextlib.contextmanager
def lab(runs, place):
    """JupyterLab on a copy of the explorer whose first parameter is the runs' folder."""
    notebook = json.loads((REPOSITORY / "notebooks" / "explore.ipynb").read_bytes())
    cell = next(c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", []))
    source = "".join(cell["source"])
    cell["source"] = source.replace('root: str = ""', f"root: str = {str(runs)!r}")
    (place / "explore.ipynb").write_text(json.dumps(notebook))
    port = driver.free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--IdentityProvider.token=", "--ServerApp.password=", "--allow-root", f"--ServerApp.root_dir={place}",
               "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--ServerApp.disable_check_xsrf=True"]
    server = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=open(place / "lab.log", "wb"), env={**os.environ, "JUPYTER_CONFIG_DIR": str(place / "config")})
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/api", timeout=2)
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def choose(browser, label, text):
    """Choose in the widget dropdown labelled `label` the first option that contains `text`."""
    done = browser.script("""
        const box = [...document.querySelectorAll('.widget-dropdown')].find(b => b.querySelector('label')?.textContent.trim() === arguments[0]);
        const select = box.querySelector('select');
        const option = [...select.options].find(o => o.textContent.includes(arguments[1]));
        if (!option) return [...select.options].map(o => o.textContent).join('|');
        select.value = option.value; select.dispatchEvent(new Event('change', {bubbles: true})); return true;""", label, text)
    assert done is True, f"{label}: no option with {text!r}: {done}"


def wait(condition, seconds=60, what=""):
    end = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < end, f"not after {seconds} s: {what}"
        time.sleep(0.2)
    return got


def test_the_explorer_in_jupyterlab(runs, tmp_path):
    with lab(runs, tmp_path) as address, driver.browser(size=(1500, 1100)) as b:
        b.open(f"{address}/lab/tree/explore.ipynb?reset")
        b.one(".jp-Notebook .jp-Cell", 120)
        wait(lambda: b.script("return !!document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=\"idle\"]')"), 120, "the kernel is idle")
        b.script("document.querySelector('.jp-Notebook .jp-Cell').click()")
        b.click(b.one("[data-command='notebook:restart-run-all']"))
        with contextlib.suppress(AssertionError):
            b.click(b.one(".jp-Dialog-button.jp-mod-accept", 10))
        b.one(".widget-select select", 180)
        wait(lambda: b.script("return document.querySelectorAll('.widget-select select option').length"), 60, "the list is filled")

        def panel():
            return b.script("return [...document.querySelectorAll('.widget-html-content')].map(e => e.innerText).join('\\n')")

        choose(b, "Run", "store-everything")
        choose(b, "Metric", "old_version_kept")
        wait(lambda: "old version kept" in panel() and "Verdict and why" in panel(), 60, "a case is shown")
        said = panel()
        assert all(word in said for word in ("Stored memory", "Utterance", "Ledger", "states f"))
        b.script("document.querySelector('.widget-select').scrollIntoView()")
        b.screenshot(SHOTS / "explorer.png")
        assert b.script("return document.title") != "owned" and "<script>document.title='owned'</script>" in said
        b.script("[...document.querySelectorAll('.widget-toggle-button')].find(e => e.textContent.trim() === 'ja').click()")
        wait(lambda: b.script("return [...document.querySelectorAll('.widget-select select option')].every(o => o.textContent.startsWith('ja-'))"), 60, "Japanese alone is listed")
        choose(b, "Beside it", "replace-similar")
        wait(lambda: b.script("return document.querySelectorAll('.sides > section').length >= 2"), 60, "two systems side by side")
        b.screenshot(SHOTS / "explorer-two.png")

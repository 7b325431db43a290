"""The comparison, the site and the explorer in Debian's Chromium. Screenshots are kept in build/browser/, to be looked
at."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import driver  # noqa: E402
import runs_made  # noqa: E402

from kiokulab import compare, explore, review, site  # noqa: E402
from kiokulab.files import dumps, sha256_file, write_atomic  # noqa: E402

REPOSITORY = HERE.parents[1]
SHOTS = REPOSITORY / "build" / "browser"
pytestmark = [pytest.mark.skipif(driver.missing() is not None, reason=driver.missing() or ""), pytest.mark.timeout(600)]
STARTED = (  # a cell of the notebook waits, runs or has run
    "return [...document.querySelectorAll('.jp-InputPrompt')].some(prompt => /\\[[*\\d]+\\]/.test(prompt.textContent))"
)
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> My <b>dog</b>"


def hostile(folder):
    """A finished run whose every stored text is hostile; its receipt is written anew, as if the system had stored
    that."""
    rows = [json.loads(line) for line in (folder / "memories.jsonl").read_bytes().splitlines()]
    write_atomic(
        folder / "memories.jsonl", "".join(dumps({**row, "text": f"{row['text']} {HOSTILE}"}) + "\n" for row in rows)
    )
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
        said = light.script(
            "const e = document.activeElement; return document.getElementById(e.getAttribute('aria-describedby')).textContent"
        )
        assert "Remember" in said
    light.screenshot(SHOTS / "index-keyboard.png")
    quiet(light)


def test_bars_are_readable_in_black_and_white(built, light):
    """Without colours the four parts still differ: each has a pattern of its own and its figure beside it."""
    light.open(f"file://{built}/index.html")
    patterns = light.script(
        "return ['p0','p1','p2','p3'].map(c => getComputedStyle(document.querySelector('.bar.' + c)).backgroundImage)"
    )
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
    for page in (
        "index.html",
        "kioku.html",
        "kioku/store-everything.html",
        *(f"{run.relative_to(built)}/{n}.html" for n in ("index", "recall", "noise", "en-01", "ja-01", "ja-01-ledger")),
    ):
        dark.open(f"file://{built}/{page}")
        back = dark.script("return getComputedStyle(document.querySelector('main')).backgroundColor")
        assert back == "rgb(22, 24, 27)", page
        assert dark.script("return document.documentElement.scrollWidth <= window.innerWidth + 1"), (
            f"{page} is wider than the window"
        )
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


# --- notebooks with widgets, in JupyterLab and as pages by Voila --------------------------------------------------


def with_parameters(name, place, values):
    """A copy of a notebook in `place` whose parameters have other values."""
    notebook = json.loads((REPOSITORY / "notebooks" / name).read_bytes())
    cell = next(c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", []))
    lines = "".join(cell["source"]).splitlines()
    assert {line.split(":")[0] for line in lines} >= set(values)
    cell["source"] = "\n".join(
        f"{line.split(' = ')[0]} = {values[line.split(':')[0]]!r}" if line.split(":")[0] in values else line
        for line in lines
    )
    (place / name).write_text(json.dumps(notebook))
    return place / name


@contextlib.contextmanager
def served(notebook, how):
    """A notebook in JupyterLab ("lab") or by Voila, opened as `make explore` opens it but for the token; yields its
    address."""
    place, port = notebook.parent, driver.free_port()
    more = {
        "lab": [
            "--no-browser",
            f"--port={port}",
            "--IdentityProvider.token=",
            "--ServerApp.password=",
            "--allow-root",
            f"--ServerApp.root_dir={place}",
            "--LabApp.news_url=",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--ServerApp.disable_check_xsrf=True",
        ],
        "voila": ["--no-browser", f"--port={port}"],
    }[how]
    # no question about news in front of what is looked at
    disabled = place / "config" / "labconfig" / "page_config.json"
    disabled.parent.mkdir(parents=True)
    disabled.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
    with open(place / "server.log", "wb") as log:
        command = [part for part in explore.command(notebook, voila=how == "voila") if "token" not in part]
        server = subprocess.Popen(
            [*command, *more],
            cwd=place,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**explore.surroundings(), "JUPYTER_CONFIG_DIR": str(place / "config")},
        )
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}" + (f"/lab/tree/{notebook.name}?reset" if how == "lab" else "/")
    finally:
        server.terminate()
        server.wait(20)


def run_all(b):
    """Run, Run All Cells. (The button that restarts the kernel first was taken before: where a kernel starts slowly,
    JupyterLab sometimes loses it at the restart, and every cell waits for ever.)"""
    for _ in range(4):
        menu = next(found for found in b.all(".lm-MenuBar-item") if b.text(found) == "Run")
        b.click(menu)
        b.click(b.one(".lm-Menu-item[data-command='runmenu:run-all']"))
        with contextlib.suppress(AssertionError):
            return wait(lambda: b.script(STARTED), 15, "a cell is run")
    raise AssertionError("JupyterLab runs no cell")


def ready(b, address, how, until=".widget-select select option"):
    """Open the page, run all cells where that is the reader's part, and wait for the widgets."""
    b.open(address)
    if how == "lab":
        b.one(".jp-Notebook .jp-Cell", 120)
        wait(
            lambda: b.script(
                "return !!document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=\"idle\"]')"
            ),
            120,
            "the kernel is idle",
        )
        b.script("document.querySelector('.jp-Notebook .jp-Cell').click()")
        run_all(b)
        with contextlib.suppress(AssertionError):  # room for the page itself
            b.click(b.one("[data-id='filebrowser'].lm-mod-current", 2))
    b.one(until, 180)


def shot(b, name):
    """A screenshot with the explorer's upper edge at the top of the window."""
    b.script("document.querySelector('.widget-dropdown').scrollIntoView()")
    time.sleep(0.4)
    b.screenshot(SHOTS / name)


def panel(b):
    return b.script("return [...document.querySelectorAll('.widget-html-content')].map(e => e.innerText).join('\\n')")


def press(b, text):
    assert b.script(
        """const e = [...document.querySelectorAll('.widget-toggle-button, .widget-button')].find(e => e.textContent.trim() === arguments[0]);
        if (e) e.click(); return !!e""",
        text,
    ), f"no button {text!r}"


def choose(browser, label, text):
    """Choose in the widget dropdown labelled `label` the first option that contains `text`."""
    done = browser.script(
        """
        const box = [...document.querySelectorAll('.widget-dropdown')].find(b => b.querySelector('label')?.textContent.trim() === arguments[0]);
        const select = box.querySelector('select');
        const option = [...select.options].find(o => o.textContent.replaceAll("\u00a0", " ").includes(arguments[1]));
        if (!option) return [...select.options].map(o => o.textContent).join('|');
        select.value = option.value; select.dispatchEvent(new Event('change', {bubbles: true})); return true;""",
        label,
        text,
    )
    assert done is True, f"{label}: no option with {text!r}: {done}"


def wait(condition, seconds=60, what=""):
    end = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < end, f"not after {seconds} s: {what}"
        time.sleep(0.2)
    return got


@pytest.mark.parametrize("how", ["voila", "lab"])
def test_the_explorer(runs, tmp_path, how):
    """Store-everything, "old version kept", a case, its utterance, its ledger fact, back to another item; Japanese; two
    systems."""
    notebook = with_parameters("explore.ipynb", tmp_path, {"root": str(runs)})
    with served(notebook, how) as address, driver.browser(size=(1500, 1100)) as b:
        ready(b, address, how)
        choose(b, "Run", "store-everything")
        choose(b, "Metric", "old version kept")
        wait(lambda: "✗ old version kept" in panel(b) and "Verdict and why" in panel(b), 60, "a case is shown")
        said = panel(b)
        assert (
            all(word in said for word in ("Stored memory", "Utterance", "Ledger", "states f"))
            and "The figure: 40 of 40" in said
        )
        assert b.script("return document.title") != "owned" and "<script>document.title='owned'</script>" in said
        shot(b, f"explorer-{how}.png")
        choose(b, "Look at", "utterance s")
        wait(lambda: "Its session" in panel(b), 60, "the utterance in its session")
        assert b.script(
            "return document.querySelectorAll('.walk .step.here').length"
        ) == 1 and "Facts it states or is about" in panel(b)
        shot(b, f"explorer-{how}-utterance.png")
        choose(b, "Look at", "ledger f")
        wait(
            lambda: b.script("return document.querySelectorAll('.walk tr.here').length") == 2,
            60,
            "both versions of the fact in the ledger",
        )
        shot(b, f"explorer-{how}-ledger.png")
        choose(b, "Back to", "recall")
        wait(
            lambda: "as it should be" in panel(b) and "Number" in panel(b) and "recall" in panel(b),
            60,
            "the same fact's item of another metric",
        )
        choose(b, "Metric", "old version kept")
        press(b, "ja")
        wait(
            lambda: b.script(
                "return [...document.querySelectorAll('.widget-select select option')].every(o => o.textContent.startsWith('ja-'))"
            ),
            60,
            "Japanese alone is listed",
        )
        choose(b, "Beside it", "replace-similar")
        wait(
            lambda: b.script("return document.querySelectorAll('.sides > section').length >= 2"),
            60,
            "two systems side by side",
        )
        shot(b, f"explorer-{how}-two.png")
        if how == "voila":
            assert not b.script(
                "return document.querySelectorAll('.jp-InputArea-editor, .jp-Cell-inputWrapper pre').length"
            ), "a page shows no code"
            outside = [url for url in b.requests() if not url.startswith((address, address.replace("http", "ws", 1)))]
            assert outside == []


# --- human review -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["voila", "lab"])
def test_a_person_reviews_a_session(tmp_path, how):
    edition = Path(shutil.copytree(REPOSITORY / "data" / "kioku" / "v0.1", tmp_path / "v0.1"))
    notebook = with_parameters("review.ipynb", tmp_path, {"edition": str(edition), "who": "Ada"})
    with served(notebook, how) as address, driver.browser(size=(1500, 1100)) as b:
        ready(b, address, how, until=".walk.review")
        assert "0 of 300 sessions" in panel(b)
        choose(b, "Persona", "ja-01")
        wait(lambda: "ja-01/s01" in panel(b) and "Ledger" in panel(b), 60, "a Japanese session beside its ledger")
        assert b.script("return document.querySelectorAll('.walk.review :lang(ja)').length") > 20
        press(b, "unnatural")
        press(b, "right")
        b.script("""const e = document.querySelector('.widget-textarea textarea'); e.value = '敬語が不自然';
            for (const name of ['input', 'change']) e.dispatchEvent(new Event(name, {bubbles: true}))""")
        time.sleep(0.5)
        press(b, "Save")
        wait(
            lambda: "1 of 300 sessions" in panel(b) and "敬語が不自然" in panel(b),
            60,
            "the review is counted and shown",
        )
        shot(b, f"review-{how}.png")
        press(b, "Next not reviewed")
        wait(lambda: "ja-01/s02" in panel(b), 60, "the next session")
    (row,) = review.read(edition)
    assert (row["who"], row["item"], row["natural"], row["right"], row["note"]) == (
        "Ada",
        "ja-01/s01",
        False,
        True,
        "敬語が不自然",
    )

"""Published runs: how a run is published and opened again, the static site of them all, and the README's table.

A published run is a small folder outputs/published/<track>/<edition>/<system>/<run-id>/: `run.tar.xz` is the run whole
and unchanged, so that `make verify` can check every byte of it; beside it lie receipt.json, metrics.json and the last
executed notebook, to be read where they are. `opened` gives the whole run's folder back.

The site needs nothing but its own files: no script, no request, works from file://. Every figure of a kioku leaderboard
leads in two clicks to its case (verdict, memory, utterance, ledger), and in a third to the conversation or ledger in
whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kiokulab import compare
from kiokulab.errors import InputError, VerificationFailed
from kiokulab.files import sha256_file, write_atomic
from kiokulab.page import environment, plain
from kiokulab.receipts import Receipt, read_receipt, verify

ARCHIVE = "run.tar.xz"
BESIDE = ("receipt.json", "receipt.sig", "metrics.json", "4-analyze.ipynb")
LARGEST = 1_500_000  # bytes of one published run
TABLE = ("<!-- table:{} -->", "<!-- /table:{} -->")


# --- publishing ---------------------------------------------------------------------------------------------------


def publish(folder: str | Path, published: str | Path) -> Path:
    """Copy a finished run, verified before and after, into `published`; returns where it lies. Published again, the
    same run is the same bytes. Raises InputError for a run that is not finished, is plumbing or is too large,
    VerificationFailed for one whose files differ from its receipt."""
    folder = opened(folder)
    receipt = verify(folder)
    if receipt.status != "finished":
        raise InputError(
            f"the run is {receipt.status}: {receipt.reason}", str(folder), "Only a finished run is published"
        )
    if receipt.cost.plumbing:
        raise InputError(
            "the run is plumbing: its system was fed by the built-in model", str(folder), "Its figures are no result"
        )
    target = Path(published) / receipt.track / receipt.edition / folder.parent.name / receipt.run
    data = _archive(folder)
    size = len(data) + sum((folder / name).stat().st_size for name in BESIDE if (folder / name).is_file())
    if size > LARGEST:
        raise InputError(
            f"the run would take {size:,} bytes, and {LARGEST:,} is the most",
            str(folder),
            "Publish a smaller run of it: PERSONAS=, SIZE=, or systems one by one",
        )
    if target.exists():
        shutil.rmtree(target)
    write_atomic(target / ARCHIVE, data)
    for name in BESIDE:
        if (folder / name).is_file():
            write_atomic(target / name, (folder / name).read_bytes())
    verify(opened(target))
    return target


def _archive(folder: Path) -> bytes:
    """The folder as an xz'd tar whose bytes depend on names and contents alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
            one = tarfile.TarInfo(path.relative_to(folder).as_posix())
            one.size, one.mode = path.stat().st_size, 0o644
            with open(path, "rb") as file:
                tar.addfile(one, file)
    return lzma.compress(out.getvalue(), preset=9)


def opened(folder: str | Path) -> Path:
    """The folder of a run with all its files: `folder` itself, or, where it holds a published archive, that archive
    taken apart in the cache. VerificationFailed where the archive cannot be read, or a file beside it is not the one
    inside."""
    folder = Path(folder)
    if not (folder / ARCHIVE).is_file():
        return folder
    sha = sha256_file(folder / ARCHIVE)
    target = _cache() / "published" / f"{folder.name}-{sha[:12]}"
    if not target.is_dir():
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with tarfile.open(folder / ARCHIVE, "r:xz") as tar:
                tar.extractall(part, filter="data")
            os.replace(part, target)
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            shutil.rmtree(part, ignore_errors=True)
            if not target.is_dir():  # another process may have been first
                raise VerificationFailed(
                    [f"{folder / ARCHIVE}: cannot be taken apart ({type(error).__name__}: {error})"]
                ) from None
    others = [p.name for p in folder.iterdir() if p.name != ARCHIVE]
    wrong = [
        name
        for name in others
        if not (target / name).is_file() or (target / name).read_bytes() != (folder / name).read_bytes()
    ]
    if wrong:
        raise VerificationFailed([f"{folder / name}: not the file that is in {ARCHIVE}" for name in sorted(wrong)])
    return target


def _cache() -> Path:
    from kiokulab.params import root

    return Path(os.environ.get("KIOKULAB_CACHE") or root() / ".cache")


def published_runs(published: str | Path) -> list[Path]:
    """Folders of the published runs, in order of name."""
    return sorted(path.parent for path in Path(published).rglob("receipt.json"))


# --- the README's table -------------------------------------------------------------------------------------------


def readme_table(published: str | Path, track: str = "kioku", *, every: bool = False) -> str:
    """The README's table of a track as markdown, from the published runs of its default edition and parameters; ""
    where there is none. Runs of other editions, personas or judges are on the site, and in no row of this unless
    `every` run is asked for."""
    from kiokulab.kioku import analyze

    rows = []
    for folder in published_runs(published):
        receipt = read_receipt(folder)
        if receipt is None or receipt.track != track or track != "kioku" or not (every or _default(receipt)):
            continue
        found = json.loads((folder / "metrics.json").read_bytes())
        part = found["by_route"].get("raw")
        if part is not None:
            index = part["index"]
            value = (
                "n/a"
                if index["value"] is None
                else f"**{index['value']:.1f}**"
                + ("" if index["low"] is None else f"<br>{index['low']:.1f} to {index['high']:.1f}")
            )
            cells = [
                f"{analyze.shown(n, f)}<br>{f['k']}/{f['n']}" if f["rate"] is not None else "n/a"
                for n in analyze.METRICS
                for f in [part["metrics"][n]]
            ]
            rows.append(
                (
                    -(index["value"] or 0),
                    receipt.system,
                    f"| {_cell(receipt.system)} | {value} | " + " | ".join(cells) + " |",
                )
            )
    if not rows:
        return ""
    heads = ["System", "Index", *[analyze.TITLES[n] for n in analyze.METRICS]]
    return "\n".join(
        ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1), *[text for *_, text in sorted(rows)]]
    )


def _default(receipt: Receipt) -> bool:
    """Whether a run has its track's default parameters, but for its system, that system's settings and the routes."""
    from kiokulab.params import params_class

    usual = params_class(receipt.track)().model_dump()
    free = (compare.FREE | {"jobs", "beside", "run_dir"}) - {"edition"}
    return all(value == usual.get(name, value) for name, value in receipt.parameters.items() if name not in free)


def _cell(text: str) -> str:
    return plain(text, 60).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def with_table(readme: str, table: str, track: str = "kioku") -> str:
    """The README's text with `table` between its two marks. InputError where the marks are not there."""
    start, end = (mark.format(track) for mark in TABLE)
    if readme.count(start) != 1 or readme.count(end) != 1 or readme.index(start) > readme.index(end):
        raise InputError(f"the README has not one pair of marks {start} and {end}", "README.md")
    head, rest = readme.split(start)
    return head + start + "\n" + (table + "\n" if table else "") + end + rest.split(end)[1]


# --- the site -----------------------------------------------------------------------------------------------------


def build(published: str | Path, out: str | Path) -> list[str]:
    """Write the site of all runs in `published` to `out` (emptied first) and return its pages. InputError where nothing
    is published, or `out` holds something that is not a site; VerificationFailed where a run is not what its receipt
    says."""
    published, out = Path(published), Path(out)
    folders = published_runs(published)
    if not folders:
        raise InputError(
            "nothing is published yet", str(published), "make publish RUN=outputs/kioku/v0.1/vector/<run-id>"
        )
    if out.exists() and any(out.iterdir()) and not (out / "index.html").is_file():
        raise InputError("the folder holds something that is not a site", str(out), "Move it away first")
    shutil.rmtree(out, ignore_errors=True)
    site = _Site(out)
    site.make(published, [opened(folder) for folder in folders])
    return sorted(site.pages)


class _Site:
    """The pages in work."""

    def __init__(self, out: Path):
        self.out, self.pages = out, []

    def page(
        self, path: str, title: str, body: str, *, lead: str = "", trail: Sequence[tuple[str, str | None]] = ()
    ) -> None:
        from kiokulab import page as shared

        extra = (shared.HERE / "case.css").read_text(encoding="utf-8") + (shared.HERE / "site.css").read_text(
            encoding="utf-8"
        )
        text = (
            environment()
            .get_template("site.html")
            .render(title=plain(title, 200), body=body, lead=lead, trail=trail, css=compare.css() + extra)
        )
        write_atomic(self.out / path, text)
        self.pages.append(path)

    def make(self, published: Path, folders: Sequence[Path]) -> None:
        runs = [(folder, read_receipt(folder)) for folder in folders]
        runs.sort(
            key=lambda pair: (
                compare.TRACKS.index(pair[1].track) if pair[1].track in compare.TRACKS else 9,
                pair[1].edition,
                pair[1].system,
                pair[1].run,
            )
        )
        found = compare.compare(published)
        for folder, receipt in runs:
            self.run(folder, receipt)
        for track in dict.fromkeys(receipt.track for _, receipt in runs):
            self.track(track, found)
        for track, system in sorted({(r.track, r.system) for _, r in runs}):
            self.system(track, system, [r for _, r in runs if (r.track, r.system) == (track, system)], found)
        self.index(runs, found)

    # pages

    def index(self, runs: Sequence[tuple[Path, Receipt]], found: Mapping[str, Any]) -> None:
        parts = []
        for track in dict.fromkeys(r.track for _, r in runs):
            tables = [t for t in found["tables"] if t["track"] == track]
            parts.append(
                f'<h2><a href="{track}.html">{compare.escaped(track)}</a></h2><p>{compare.escaped(compare.question(track))}</p>'
            )
            parts += [
                ("" if len(tables) == 1 else f"<h3>{compare.escaped(t['title'])}</h3>") + compare.part("bars", table=t)
                for t in tables
            ]
        parts.append(
            "<h2>All published runs</h2><ul class='cols'>"
            + "".join(
                f'<li><a href="{_run_path(r)}/index.html">{compare.escaped(r.system)}</a> <small>{compare.escaped(f"{r.track} {r.edition} {r.run[:6]}")}</small></li>'
                for _, r in runs
            )
            + "</ul>"
        )
        parts.append(
            "<h2>How to read this</h2><p>Every figure stands with how many of how many and its 95 % interval. A figure of a table is a link: to the list of what it counted, "
            "from there to one case, with its verdict and why, what is stored, what was said and what is true; and from there to the whole conversation. "
            "Every run here can be checked again from its files alone: <code>make verify RUN=outputs/published/…</code>.</p>"
        )
        self.page(
            "index.html",
            "Kioku Lab: published runs",
            "".join(parts),
            lead="Which memory systems remember, replace and forget as they should. Point at a bar, or reach it with the tab key, to see its parts.",
        )

    def track(self, track: str, found: Mapping[str, Any]) -> None:
        tables = [t for t in found["tables"] if t["track"] == track]
        out = [row for row in found["left_out"] if row["run"].startswith(track + "/")]
        body = "".join(
            f"<h2>{compare.escaped(t['title'])}</h2>{compare.table_html(t, _link('', t['route']))}{self.picture(t)}"
            for t in tables
        )
        self.page(
            f"{track}.html",
            f"{track}: all published runs",
            body + ("<h2>Left out</h2>" + compare.part("left_out", left_out=out) if out else ""),
            lead=compare.question(track),
            trail=[("Kioku Lab", "index.html"), (track, None)],
        )

    @staticmethod
    def picture(table: Mapping[str, Any]) -> str:
        from kiokulab.page import image

        return (
            ""
            if table["refused"]
            else f"<figure>{image(compare.picture(table), compare.alt(table))}<figcaption>The same as a picture, for print.</figcaption></figure>"
        )

    def system(self, track: str, system: str, receipts: Sequence[Receipt], found: Mapping[str, Any]) -> None:
        parts = []
        note = _note(system)
        for r in receipts:
            up, place = "../", _run_path(r)
            name = f"{r.track}/{r.edition}/{r.system}/{r.run}"
            mine = [(t, row) for t in found["tables"] for row in t["rows"] if row["run"] == name]
            parts.append(
                f'<h2><a href="{up}{place}/index.html">{compare.escaped(f"{r.edition}, run {r.run}")}</a></h2>'
            )
            for t, row in mine:
                if not t["refused"]:
                    parts.append(
                        compare.part(
                            "leaderboard", table={**t, "rows": [row], "groups": []}, link=_link(up, t["route"])
                        )
                    )
            parts += [
                f"<p>Left out of the tables: {compare.escaped(row['reason'])}</p>"
                for row in found["left_out"]
                if row["run"] == name
            ]
        if note:
            import mistune

            from kiokulab.notebooks import clean

            parts.append(
                f"<h2>Note of its adapter</h2>{clean(str(mistune.create_markdown(escape=True, plugins=['table'])(note)))}"
            )
        self.page(
            f"{track}/{_slug(system)}.html",
            f"{system} on {track}",
            "".join(parts),
            trail=[("Kioku Lab", "../index.html"), (track, f"../{track}.html"), (system, None)],
        )

    def run(self, folder: Path, receipt: Receipt) -> None:
        place, up = _run_path(receipt), "../../"
        trail = [
            ("Kioku Lab", f"{up}index.html"),
            (receipt.track, f"{up}{receipt.track}.html"),
            (receipt.system, f"{up}{receipt.track}/{_slug(receipt.system)}.html"),
        ]
        notebooks = self.notebooks(folder, receipt, place, trail)
        by_route = self.cases(folder, receipt, place, trail)
        facts = [
            (
                "System",
                f"{receipt.system} {(receipt.versions.system if receipt.versions else {}).get('version') or ''}",
            ),
            ("Edition", f"{receipt.edition}, sha256 {receipt.edition_digest}"),
            *_reviewed(receipt),
            ("Status", receipt.status + (f": {receipt.reason}" if receipt.reason else "")),
            ("Parameters", _listed(receipt.parameters)),
            (
                "Judge",
                _listed({k: v for k, v in (receipt.judge or {}).items() if k != "measured"})
                or "none: arithmetic over known keys",
            ),
            (
                "Kit",
                f"{receipt.versions.kit}, commit {receipt.versions.git_commit}{' with changes' if receipt.versions.git_dirty else ''}, Python {receipt.versions.python}"
                if receipt.versions
                else "",
            ),
            ("Cost", f"{receipt.cost.calls} model calls, billed {receipt.cost.billed_usd}; {receipt.cost.note}"),
            ("Seal", receipt.seal),
        ]
        body = (
            "<dl>"
            + "".join(f"<dt>{compare.escaped(n)}</dt><dd>{compare.escaped(plain(v, 1500))}</dd>" for n, v in facts)
            + "</dl>"
        )
        body += "<h2>What each figure counted</h2>"
        for route, lists in by_route.items():
            body += (
                f"<h3>Route {compare.escaped(route)}, {compare.escaped(compare.ROUTES.get(route, route))}</h3>"
                if route
                else ""
            )
            body += (
                "<ul class='cols'>"
                + "".join(
                    f'<li><a href="{href}">{compare.escaped(name)}</a> <small style="display:inline">{compare.escaped(said)}</small></li>'
                    for name, href, said in lists
                )
                + "</ul>"
            )
        body += (
            "<h2>The executed notebooks</h2><ul>"
            + "".join(f'<li><a href="{name}.html">{compare.escaped(name)}</a></li>' for name in notebooks)
            + "</ul>"
        )
        rows = [
            {
                "step": s.step,
                "proof": s.digest[:16],
                "seconds": f"{s.seconds:.1f}",
                "wrote": ", ".join(f"{p} {sha[:8]}" for p, sha in s.outputs.items() if "/" not in p),
            }
            for s in receipt.steps
        ]
        from kiokulab.page import table

        self.page(
            f"{place}/index.html",
            f"{receipt.system}, run {receipt.run}",
            body + "<h2>Steps</h2>" + table(rows, 400),
            trail=[*trail, (receipt.run, None)],
        )

    def notebooks(self, folder: Path, receipt: Receipt, place: str, trail: Sequence) -> list[str]:
        from kiokulab.notebooks import to_html

        made = []
        for step in receipt.steps:
            path = folder / f"{step.step}.ipynb"
            if path.is_file():
                self.page(
                    f"{place}/{step.step}.html",
                    f"{receipt.system}: {step.step}",
                    to_html(json.loads(path.read_bytes())),
                    trail=[*trail, (receipt.run, "index.html"), (step.step, None)],
                )
                made.append(step.step)
        return made

    def cases(
        self, folder: Path, receipt: Receipt, place: str, trail: Sequence
    ) -> dict[str, list[tuple[str, str, str]]]:
        """A page a route and metric with what it counted, and (kioku) a page a route and persona with every case, and
        one with the conversation and the ledger. Returns {route: [(metric, page, figure)]}."""
        from kiokulab.explore import KINDS, Explorer

        whole = Explorer(folder)
        here = [*trail, (receipt.run, "index.html")]
        kioku = receipt.track == "kioku"
        template = environment().get_template("lists.html").make_module({"href": _case_href})
        found: dict[str, list[tuple[str, str, str]]] = {}
        for route in whole.routes:
            x, lists, end = whole.at(route), found.setdefault(route, []), _suffix(route)
            # what counted nothing has a page that says so
            for metric in dict.fromkeys([*(KINDS if kioku else ()), *x.metrics]):
                rows, kinds = x.items(metric, "everything"), x.kinds(metric)
                rows = sorted(rows, key=lambda r: (r["good"] is True, r["good"] is None))[:600]
                body = template.items(
                    rows=rows, kinds=kinds, all=len(x.items(metric, "everything")), kioku=kioku, end=end
                )
                name, f = metric.replace("_", " "), x.figure(metric)
                self.page(
                    f"{place}/{_slug(metric)}{end}.html",
                    f"{receipt.system}: {name}{_on(route)}",
                    str(body),
                    trail=[*here, (name, None)],
                )
                lists.append(
                    (
                        name,
                        f"{_slug(metric)}{end}.html",
                        f"{f['k']} of {f['n']}" + (f", {f['not_judged']} not judged" if f["not_judged"] else ""),
                    )
                )
            if kioku:
                for person in x.personas.values():
                    self.persona(x, person, place, here, receipt)
        for person in whole.personas.values() if kioku else ():
            if f"{person.id}/{whole.route}" in whole.units:
                ledger = str(
                    template.ledger(
                        person=person, sessions=_sessions(whole, person), page=f"{person.id}{_suffix(whole.route)}.html"
                    )
                )
                self.page(
                    f"{place}/{person.id}-ledger.html",
                    f"{person.id}: ledger and conversation",
                    ledger,
                    trail=[*here, (person.id, f"{person.id}{_suffix(whole.route)}.html"), ("ledger", None)],
                )
        return found

    def persona(self, x: Any, person: Any, place: str, here: Sequence, receipt: Receipt) -> None:
        from kiokulab.explore import case_html

        unit, end = f"{person.id}/{x.route}", _suffix(x.route)
        if unit not in x.units:
            return

        def link(kind: str, key: str) -> str:
            return f"{person.id}-ledger.html#{'u' if kind == 'utterance' else 'f'}-{key}"

        cases = [(f, x.of_fact(unit, f.id)) for f in person.facts]
        others = [
            (route, f"{person.id}{_suffix(route)}.html")
            for route in x.routes
            if route != x.route and f"{person.id}/{route}" in x.units
        ]
        body = str(
            environment()
            .get_template("lists.html")
            .make_module({})
            .facts(
                facts=[
                    (f, items, case_html(x, min(items, key=lambda i: i["good"] is not False)["id"], link))
                    for f, items in cases
                    if items
                ],
                person=person,
                route=x.route,
                others=others,
            )
        )
        self.page(
            f"{place}/{person.id}{end}.html",
            f"{receipt.system}: {person.id}, fact by fact{_on(x.route)}",
            body,
            trail=[*here, (person.id, None)],
        )


def _listed(values: Mapping[str, Any]) -> str:
    """'edition v0.1, k 30, ...': what is empty is left out."""
    return ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value not in ("", None, [], {})
    )


def _suffix(route: str) -> str:
    """How pages of a route end: those of the raw conversation, and of tracks without routes, have the plain name."""
    return "" if route in ("", "raw") else f"-{route}"


def _on(route: str) -> str:
    return "" if not route else f", route {route}"


def _reviewed(receipt: Receipt) -> list[tuple[str, str]]:
    """How much of the run's edition people have reviewed, where the edition lies here and is the one that was run."""
    from kiokulab import review

    if receipt.track != "kioku":
        return []
    try:
        reviews = review.Reviews(receipt.edition)
        return [
            (
                "Reviewed by people",
                review.said(receipt.edition)
                if reviews.digest == receipt.edition_digest
                else "not known: the edition that lies here is another one",
            )
        ]
    except InputError as error:
        return [("Reviewed by people", f"not known ({error.what})")]


def _sessions(x: Any, person: Any) -> list[tuple[str, str, list[dict]]]:
    turns = x._turns_of(person.id)
    return [(s.id, s.date[:10], [u for u in turns if u["session"] == s.id]) for s in person.sessions]


def _case_href(item: Mapping[str, Any]) -> str | None:
    """Where a kioku item's case is: its persona's page of its route, at its fact; a noise or language item has its own
    block in the list."""
    return (
        f"{item['persona']}{_suffix(item['unit'].partition('/')[2])}.html#{item['fact']}"
        if item["metric"] not in ("noise", "language_mismatch")
        else None
    )


def _run_path(receipt: Receipt) -> str:
    return f"runs/{receipt.track}-{_slug(receipt.edition)}-{_slug(receipt.system)}-{receipt.run}"


def _slug(text: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).strip(".-")[:60]
    return kept if kept == text else f"{kept}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _link(up: str, route: str) -> Callable[[Mapping[str, Any], str | None], str | None]:
    def link(row: Mapping[str, Any], name: str | None = None) -> str | None:
        track, edition, rest = row["run"].split("/", 2)
        system, run = rest.rsplit("/", 1)
        place = f"{up}runs/{track}-{_slug(edition)}-{_slug(system)}-{run}"
        if name is None:
            return f"{place}/index.html"
        # of characters, or of all lists together: the run's page has them
        sums = {
            "compression",
            "success",
            "overall",
            "abstention",
        }
        return f"{place}/{'index' if name in sums else _slug(name) + _suffix(route)}.html"

    return link


def _note(system: str) -> str:
    from kiokulab import systems

    try:
        path = systems.adapter(system).file.with_suffix(".md")
    except (InputError, KeyError):
        return ""
    return path.read_text(encoding="utf-8") if path.is_file() else ""

"""What `make systems` shows: rows from the registry, and the rows as text that fits a terminal. Standard library only.

Nothing is installed and nothing is started for it; the only thing looked at on disk is `.envs/`.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kiokulab import systems
from kiokulab.errors import InputError
from kiokulab.files import write_atomic
from kiokulab.systems import environments
from kiokulab.systems.base import System

CLOCKS = {  # how a date reaches the system, and what moves "now" for it
    "native": "native", "clock": "time-machine", "text": "dated line", "none": "none",
}  # fmt: skip
CLOCKS_SAID = {
    "native": "the call takes the date", "clock": "the worker's own clock is set by time-machine", "text": "a dated line stands in front of the text",
    "none": "it is told no date",
}  # fmt: skip


def size_of(environment: str) -> int | None:
    """Bytes that an environment takes on disk; None where it is not there or was cut off. The figure is kept beside the
    environment, since a walk through 50,000 files takes seconds."""
    folder = environments.root() / environment
    stamp, kept = folder / "kiokulab.stamp", environments.root() / f"{environment}.size"
    try:
        made = stamp.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        known, _, size = kept.read_text(encoding="utf-8").rpartition("\n")
        if known == made:
            return int(size)
    except (OSError, ValueError):
        pass
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:  # gone meanwhile
                pass
    try:
        write_atomic(kept, f"{made}\n{total}")
    except OSError:  # the folder may not be written to: the walk is made again next time
        pass
    return total


def state_of(environment: str | None) -> str:
    """One of "built in" for the kit's own process, "yes", "no" (made on first use), or "old" (made from another lock,
    or cut off: made again on next use)."""
    if environment is None:
        return "built in"
    if environments.installed(environment):
        return "yes"
    return "old" if (environments.root() / environment).exists() else "no"


def row_of(name: str) -> dict[str, Any]:
    """All that is known of a built system without starting it. Keys: those of `COLUMNS`, and class, package, settings,
    feeds, dates, keeps, embeddings, note, needs, listing, environment, missing."""
    where, described = systems.adapter(name), systems.describe(name)
    made = systems.made(where)
    forget = "forget" in described["capabilities"]
    return {
        "system": name,
        "version": described["version"] or "",
        "installed": state_of(where.environment),
        "bytes": size_of(where.environment) if where.environment else None,
        "size": "",
        "fed by": described["feeds"],
        "clock": CLOCKS[described["dates"]],
        "model": described["model"],
        "dump": "no" if made.listing else "yes",
        "forget": ",".join(made.forgets) if forget else "no",
        "licence": made.licence or ("MIT (the kit)" if not where.lock else "not declared"),
        "capabilities": ", ".join(described["capabilities"]) or "none beyond ingest and dump",
        "note": _note(where.file),
        **{
            key: described[key]
            for key in ("package", "settings", "feeds", "dates", "keeps", "embeddings", "environment")
        },
        **{key: getattr(made, key) for key in ("needs", "listing")},
        "missing": made.missing(),
        "class": f"{where.file.name}:{where.class_name}",
    }


def _note(file: Path) -> str:
    note = file.with_suffix(".md")
    if not note.exists():
        return "none"
    try:
        return str(note.relative_to(Path.cwd()))
    except ValueError:
        return str(note)


def note_of_not_built(name: str) -> str | None:
    """Path of the note that says why a known system is not built; None where there is none of its own."""
    found = _note(systems.FOLDER / f"{name}.py")
    return None if found == "none" else found


# --- as text ------------------------------------------------------------------------------------------------------

COLUMNS = ("system", "version", "installed", "size", "fed by", "clock", "model", "dump", "forget", "licence")
WIDE = (*COLUMNS, "capabilities", "note")


def megabytes(size: int | None) -> str:
    """A size in MB of a million bytes; a dash where there is none."""
    return "-" if size is None else f"{size / 1e6:,.0f} MB"


def _lay(rows: Sequence[dict[str, Any]], columns: Sequence[str], gap: int = 2) -> list[str]:
    widths = [max(len(column), *(len(row[column]) for row in rows)) for column in columns]
    lines = [(" " * gap).join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
             for texts in (columns, *([row[column] for column in columns] for row in rows))]  # fmt: skip
    return lines


def _wrapped(label: str, text: str, width: int, indent: int) -> str:
    """`label`, then `text` beside it, broken at `width`; paths stay whole."""
    return textwrap.fill(
        text,
        max(width, indent + 30),
        initial_indent=label.ljust(indent),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def table(rows: Sequence[dict[str, Any]], width: int = 120) -> str:
    """The rows as a table no wider than `width` where that can be: what is long goes to a second block where it does
    not fit."""
    rows = [{**row, "size": megabytes(row["bytes"]), "version": row["version"].split(",")[0]} for row in rows]
    for columns in (WIDE, COLUMNS):
        lines = _lay(rows, columns)
        if max(map(len, lines)) <= width or columns is COLUMNS:
            break
    parts = ["\n".join(lines)]
    indent = max(len(row["system"]) for row in rows) + 2
    if columns is COLUMNS:
        parts.append("\n".join(["what each can do beyond ingest and dump, and its note", *(
            _wrapped(row["system"], f"{row['capabilities']}; {row['note']}", width, indent) for row in rows)]))  # fmt: skip
    asked = [row for row in rows if row["missing"] or row["needs"] or row["listing"]]
    if asked:
        parts.append("\n".join(["what some need, or cannot show", *(
            _wrapped(row["system"], "; ".join(filter(None, (
                row["missing"] or (f"needs {row['needs']}" if row["needs"] else ""), f"no dump: {row['listing']}" if row["listing"] else "",
            ))), width, indent) for row in asked)]))  # fmt: skip
    return "\n\n".join(parts)


def not_built(width: int = 120) -> str:
    """The known systems that have no adapter, each with the reason and its note."""
    names = [name for name in systems.NOT_BUILT if name not in systems.adapters()]
    if not names:
        return ""
    indent = max(map(len, names)) + 2
    lines = []
    for name in names:
        note = note_of_not_built(name)
        lines.append(_wrapped(name, systems.NOT_BUILT[name] + (f"; {note}" if note else ""), width, indent))
    return "\n".join(["not built", *lines])


def detail(text: str, width: int = 120) -> str:
    """Everything about one system, built or not. Raises InputError for a name that nobody knows."""
    try:
        found = systems.resolve(text)
    except InputError:
        name = systems.not_built_name(text)
        if name is None:
            raise
        note = note_of_not_built(name)
        return "\n".join(
            [
                f"{name}: not built",
                _wrapped("why", systems.NOT_BUILT[name], width, 14),
                *([f"{'note'.ljust(14)}{note}"] if note else []),
            ]
        )
    row = row_of(found.name)
    installed = {"built in": "runs in the kit's own process", "yes": f".envs/{row['environment']}, {megabytes(row['bytes'])}",
                 "no": f"no: made on first use, or by make system-{found.name}",
                 "old": f"made from another lock, or cut off: made again on next use, or by make system-{found.name}"}[row["installed"]]  # fmt: skip
    settings = ", ".join(f"{key}={value!r}" for key, value in row["settings"].items())
    lines = [
        ("version", row["version"] + (f" ({row['package']})" if row["package"] else "")),
        ("licence", row["licence"]),
        ("installed", installed),
        ("needs", row["missing"] or row["needs"] or "nothing beside it"),
        ("fed by", row["feeds"]),
        ("clock", f"{row['clock']}: {CLOCKS_SAID[row['dates']]}"),
        ("model", f"{row['model']}; {'asks for vectors' if row['embeddings'] else 'asks for no vectors'}"),
        ("capabilities", row["capabilities"]),
        ("dump", f"no: {row['listing']}" if row["listing"] else "yes"),
        (
            "forget",
            "by " + ", ".join(row["forget"].split(",")) if row["forget"] != "no" else "no: " + _why_not("forget"),
        ),
        ("keeps", f"{row['keeps']} of what it is fed"),
        ("settings", settings or "none"),
        ("adapter", row["class"]),
        ("note", row["note"]),
    ]
    head = [found.note] if found.note else []
    return "\n".join([*head, row["system"], *(_wrapped(label, value, width, 14) for label, value in lines)])


def _why_not(op: str) -> str:
    """The reason that the contract itself gives for an operation that is not there."""
    from kiokulab.systems.base import Unsupported

    try:
        getattr(System(), op)({})
    except Unsupported as error:
        return error.reason
    return "not declared"

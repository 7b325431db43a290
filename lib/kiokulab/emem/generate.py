"""Step 1: the items, checked and written down."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from kiokulab.emem.dataset import Dataset, Item, load
from kiokulab.emem.params import EmemParams
from kiokulab.errors import InputError
from kiokulab.files import read_jsonl, sha256_file, write_jsonl
from kiokulab.params import edition_folder


def source(params: EmemParams) -> Path:
    """The dataset file of a run: the user's, or the edition's items (whose digest edition.json must name)."""
    if params.dataset:
        return Path(params.dataset).expanduser()
    import json

    folder = edition_folder(params.track, params.edition)
    path = folder / "items.jsonl"
    if json.loads((folder / "edition.json").read_bytes())["files"].get("items.jsonl") != sha256_file(path):
        raise InputError(
            "items.jsonl is not what edition.json says",
            str(path),
            "An edition is frozen: restore the file, or make a new edition",
        )
    return path


def run(folder: Path, params: EmemParams) -> list[dict[str, Any]]:
    """Write dataset.jsonl: one head row (kind "source") and one row an item. Returns a row a group of items."""
    data = load(source(params))
    head = {
        "kind": "source",
        "source": data.source,
        "sha256": data.sha256,
        "provenance_by_name": data.provenance_by_name,
        "provenance_by_content": data.provenance_by_content
        if params.dataset
        else f"the kit's own edition {params.edition}",
        "collisions": data.collisions,
    }
    write_jsonl(folder / "dataset.jsonl", [head, *({"kind": "item", **asdict(item)} for item in data.items)])
    groups = {
        "items": len(data.items),
        "with an update": sum(i.update is not None and i.update_answer is not None for i in data.items),
        "with a companion that conflicts": sum(i.conflicts_with is not None and i.contradicts for i in data.items),
        "with a companion that only rewords (true negative)": sum(
            i.conflicts_with is not None and not i.contradicts for i in data.items
        ),
        "ids that share a path with another": sum(map(len, data.collisions.values())),
    }
    return [{"what": what, "count": count} for what, count in groups.items()]


def read(folder: Path) -> tuple[Dataset, dict[str, Any]]:
    """The dataset of a run, from its dataset.jsonl, and the head row."""
    head, *rows = read_jsonl(folder / "dataset.jsonl")
    items = tuple(Item(**{k: v for k, v in row.items() if k != "kind"}) for row in rows)
    return Dataset(
        items, head["source"], head["sha256"], head["provenance_by_name"], head["provenance_by_content"]
    ), head

"""A script of a dozen notes with one probe of every expectation, small enough to grade by hand, and replies to it."""

from __future__ import annotations

import copy

from kiokulab.drift.script import CAPABILITIES, Hit, Recalled, Script, Transcript, make_script

BASE = 1_788_220_800
SPEC = {
    "size": 2,
    "seed": 1,
    "k": 10,
    "chains": 1,
    "chain_len": 3,
    "pollution": 0.1,
    "spread_days": 60,
    "window_days": 5,
    "base_ts": BASE,
    "edition": 2,
    "notes": 9,
    "edges": 1,
}


def record(
    key: str, title: str, body: str = "A body.", kind: str = "Decision", refs: tuple[str, ...] = (), at: int = BASE
) -> dict:
    return {
        "key": key,
        "kind": kind,
        "title": title,
        "body": body,
        "code_refs": list(refs),
        "created_at": at,
        "open": False,
    }


def write(key: str, title: str, name: str | None = None, **more) -> dict:
    return {
        "op": "inscribe",
        **({"id": name} if name else {}),
        "record": record(key, title, **more),
        "mode": "write" if name else "import",
    }


def ask(name: str, query: str, **more) -> dict:
    return {"op": "recall", "id": name, "query": query, "k": 10, **more}


WINDOW = {"after": BASE - 86_400, "before": BASE + 86_400}
OPS = [
    write("s-f0", "pump uses 4 bar"),
    write("f0", "pump uses 3 bar", refs=("src/pump.rs",)),
    write("f1", "valve must never stick", kind="Principle", refs=("src/pump.rs", "src/valve.rs")),
    {"op": "link", "from": "f0", "to": "f1", "verb": "because"},
    write("g0", "gauge reads 1 unit"),
    {"op": "supersede", "old": "g0", "new": record("g1", "gauge reads 2 units")},
    {"op": "settle"},
    ask("R1", "pump bar"),
    ask("R2", "ghost"),
    ask("R3", "gauge"),
    {"op": "lineage", "id": "L1", "key": "g1"},
    {"op": "recall_path", "id": "P1", "path": "src/pump.rs", "k": 10},
    ask("R4", "why pump"),
    ask("R5", "pump then", window=WINDOW),
    write("c0a", "pump does not use 3 bar", "W1"),
    write("c1a", "pump really uses 3 bar", "W2"),
    {"op": "settle"},
    {"op": "suspects", "id": "S"},
    {"op": "release", "key": "f1", "reason": "over"},
    ask("R6", "valve"),
    write("z-f1", "valve must never stick", "W3"),
    {"op": "purge", "key": "f0"},
    ask("R7", "pump"),
    write("z-f0", "pump uses 3 bar", "W4"),
]
PROBES = [
    {
        "id": "R1",
        "family": "retrieval",
        "expect": "gold",
        "gold": "f0",
        "phrasing": "lexical",
        "stale": "s-f0",
        "answer": "3 BAR",
    },
    {
        "id": "P1",
        "family": "retrieval",
        "expect": "bound",
        "path": "src/pump.rs",
        "gold": ["f0", "f1"],
        "answers": ["3 bar", "stick"],
    },
    {"id": "R2", "family": "abstention", "expect": "control"},
    {"id": "R3", "family": "currency", "expect": "current", "head": "g1", "retired": ["g0"], "answer": "2 units"},
    {"id": "L1", "family": "currency", "expect": "lineage", "head": "g1", "retired": ["g0"]},
    {
        "id": "R4",
        "family": "rationale",
        "expect": "linked",
        "gold": "f1",
        "anchor": "f0",
        "verb": "because",
        "answer": "stick",
    },
    {"id": "R5", "family": "temporal", "expect": "windowed", "gold": "f0", "window": WINDOW, "answer": "3 bar"},
    {
        "id": "C0",
        "family": "contradiction",
        "expect": "case",
        "gold": "f0",
        "planted": ["c0a"],
        "witness": "c0a",
        "tier": 2,
        "shape": "negation",
        "positive": True,
    },
    {
        "id": "C1",
        "family": "contradiction",
        "expect": "case",
        "gold": "f0",
        "planted": ["c1a"],
        "witness": "c1a",
        "tier": 2,
        "shape": "paraphrase",
        "positive": False,
    },
    {"id": "D0", "family": "drift", "expect": "drifted", "gold": "f0", "stale": "s-f0"},
    {"id": "R6", "family": "deletion", "expect": "absent", "victim": "f1", "released": True, "answer": "stick"},
    {"id": "W3", "family": "deletion", "expect": "resurrect", "victim": "f1", "released": True},
    {"id": "R7", "family": "deletion", "expect": "absent", "victim": "f0", "released": False, "answer": "3 bar"},
    {"id": "W4", "family": "deletion", "expect": "resurrect", "victim": "f0", "released": False},
]


def mini(**spec) -> Script:
    return make_script(SPEC | spec, copy.deepcopy(OPS), copy.deepcopy(PROBES), name="mini")


def silent(script: Script, **capabilities: bool) -> Transcript:
    """A transcript in which every question was answered by nothing."""
    return Transcript(
        "silent",
        script.digest,
        {name: capabilities.get(name, False) for name in CAPABILITIES},
        recalls={op["id"]: Recalled() for op in script.ops if op["op"] in ("recall", "recall_path")},
    )


def hit(key: str | None, text: str = "pump uses 3 bar", **more) -> Hit:
    return Hit(text, key, **more)

"""Scripts and transcripts of KnowledgeDrift's edition v2: records, digest, loaders that refuse.

A script is what is done to a memory and what is asked of it; a transcript is what the memory replied. Both are read
as hostile input: whatever is wrong is refused with file and position before anything is graded, or, where a grade
cannot be touched by it, counted as a problem of the transcript.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiokulab.errors import InputError

FAMILIES = (
    "retrieval",
    "abstention",
    "currency",
    "contradiction",
    "deletion",
    "rationale",
    "temporal",
    "drift",
    "authority",
)
PLAIN_FAMILIES = tuple(name for name in FAMILIES if name != "authority")
KINDS = ("Decision", "Caution", "Principle", "Problem", "Insight")
CAPABILITIES = (
    "link",
    "history",
    "trace",
    "suspects",
    "temporal",
    "verdict",
    "write_check",
    "endorse_retrieval",
    "endorse_assistant",
    "endorse_user",
    "endorse_supervisor",
)
HINTS = ("contradiction", "entailment", "neutral")


def tokens(text: str) -> int:
    """What a text is billed: a quarter of its characters, rounded up.

    The rule is the public benchmark's. It undercounts Japanese, where a character is closer to one token: worlds of
    different languages must not be compared by tokens."""
    return -(-len(text) // 4)


# --- field tables -------------------------------------------------------------------------------------------------
# (name, check, required). The order is the order of the digest; an optional field that is absent stays absent.


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return _whole(value) and value > 0


def _number(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _key(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def _keys(value: Any) -> bool:
    return isinstance(value, list) and all(map(_key, value))


def _one_of(*names: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in names


def _time_or_null(value: Any) -> bool:
    return value is None or _whole(value)


def _window(value: Any) -> bool:
    return isinstance(value, dict) and set(value) <= {"after", "before"} and all(map(_whole, value.values()))


def _dict(value: Any) -> bool:
    return isinstance(value, dict)


Fields = tuple[tuple[str, Callable[[Any], bool], bool], ...]

SPEC: Fields = (
    ("size", _positive, True),
    ("seed", _whole, True),
    ("k", _positive, True),
    ("chains", _whole, True),
    ("chain_len", _whole, True),
    ("pollution", _number, True),
    ("pollution_shape", _one_of("stale", "twin", "late"), False),
    ("spread_days", _whole, True),
    ("window_days", _whole, True),
    ("base_ts", _whole, True),
    ("authority", _flag, False),
    ("edition", _whole, False),
    ("notes", _whole, True),
    ("edges", _whole, True),
)
RECORD: Fields = (
    ("key", _key, True),
    ("kind", _one_of(*KINDS), True),
    ("title", _text, True),
    ("body", _text, True),
    ("code_refs", _texts, True),
    ("created_at", _time_or_null, True),
    ("open", _flag, True),
)
OPS: dict[str, Fields] = {
    "inscribe": (("id", _key, False), ("record", _dict, True), ("mode", _one_of("import", "write"), True)),
    "link": (("from", _key, True), ("to", _key, True), ("verb", _text, True)),
    "supersede": (("old", _key, True), ("new", _dict, True)),
    "release": (("key", _key, True), ("reason", _text, True)),
    "purge": (("key", _key, True),),
    "endorse": (("key", _key, True), ("by", _one_of("retrieval", "assistant", "user", "supervisor"), True)),
    "settle": (),
    "recall": (("id", _key, True), ("query", _text, True), ("k", _positive, True), ("window", _window, False)),
    "recall_path": (("id", _key, True), ("path", _text, True), ("k", _positive, True)),
    "suspects": (("id", _key, True),),
    "lineage": (("id", _key, True), ("key", _key, True)),
}
EXPECTS: dict[str, tuple[str, Fields]] = {
    "gold": (
        "retrieval",
        (
            ("gold", _key, True),
            ("phrasing", _one_of("lexical", "paraphrase", "oblique", "crossed"), True),
            ("stale", _key, False),
            ("answer", _text, False),
        ),
    ),
    "bound": ("retrieval", (("path", _text, True), ("gold", _keys, True), ("answers", _texts, False))),
    "control": ("abstention", (("natural", _flag, False),)),
    "current": ("currency", (("head", _key, True), ("retired", _keys, True), ("answer", _text, False))),
    "lineage": ("currency", (("head", _key, True), ("retired", _keys, True))),
    "linked": (
        "rationale",
        (("gold", _key, True), ("anchor", _key, True), ("verb", _text, True), ("answer", _text, False)),
    ),
    "windowed": ("temporal", (("gold", _key, True), ("window", _window, True), ("answer", _text, False))),
    "case": (
        "contradiction",
        (
            ("gold", _key, True),
            ("planted", _keys, True),
            ("witness", _key, True),
            ("tier", lambda value: _whole(value) and value in (1, 2, 3), True),
            ("shape", _text, True),
            ("positive", _flag, True),
        ),
    ),
    "drifted": ("drift", (("gold", _key, True), ("stale", _key, True))),
    "absent": ("deletion", (("victim", _key, True), ("released", _flag, True), ("answer", _text, False))),
    "resurrect": ("deletion", (("victim", _key, True), ("released", _flag, True))),
    "ranked": (
        "authority",
        (
            ("winner", _key, True),
            ("losers", _keys, True),
            ("retired", _keys, False),
            ("order", _flag, False),
            ("layer", lambda value: _whole(value) and value in (1, 2, 3, 4), True),
            ("scenario", _text, True),
            ("needs", _texts, False),
        ),
    ),
}
ANSWERED_BY = {
    "lineage": ("lineage",),
    "resurrect": ("inscribe",),
    "bound": ("recall_path", "recall"),
}  # others: a recall


def _refuse(where: str, what: str) -> InputError:
    return InputError(what, where, "The file was damaged or made by another edition; get it again")


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _take(value: Any, fields: Fields, where: str, tags: tuple[str, ...] = ()) -> dict:
    """The object with exactly the known fields in the order of the digest; anything else is refused."""
    if not isinstance(value, dict):
        raise _refuse(where, f"must be an object, not {type(value).__name__}")
    result = {tag: value[tag] for tag in tags}
    for name, check, required in fields:
        if name not in value:
            if required:
                raise _refuse(where, f"the field {name!r} is missing")
            continue
        if not check(value[name]):
            raise _refuse(f"{where}.{name}", f"not a valid value: {_short(value[name])}")
        result[name] = value[name]
    if unknown := sorted(set(value) - set(result)):
        raise _refuse(where, f"unknown field {_short(unknown[0])}")
    return result


# --- script -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A checked script. `ops` and `probes` are plain dicts with the fields of the public format, in its order.

    ``name`` is for people (a file name); ``language`` is ours and no part of the digest ("" = not said).
    """

    spec: dict
    ops: list[dict]
    probes: list[dict]
    digest: str
    name: str = ""
    language: str = ""

    def text(self) -> str:
        """The script file: pretty JSON with two spaces, no newline at the end, as the public files are."""
        whole = {"spec": self.spec, "digest": self.digest, "ops": self.ops, "probes": self.probes}
        return json.dumps(whole, ensure_ascii=False, indent=2)


def fnv1a(data: bytes) -> int:
    """64-bit FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def digest_of(spec: dict, ops: list[dict], probes: list[dict]) -> str:
    """16 hex digits: FNV-1a over the compact JSON of [spec, ops, probes] in the format's field order."""
    return f"{fnv1a(json.dumps([spec, ops, probes], ensure_ascii=False, separators=(',', ':')).encode()):016x}"


def make_script(
    spec: dict,
    ops: list[dict],
    probes: list[dict],
    *,
    name: str = "",
    language: str = "",
    digest: str | None = None,
    where: str = "script",
) -> Script:
    """Check and complete a script. With `digest` given, a different one is refused. Raises InputError with position."""
    spec = _take(spec, SPEC, f"{where}: spec")
    if spec.get("edition", 1) != 2:
        raise InputError(
            f"edition {spec.get('edition', 1)} of the benchmark; only edition 2 is graded here",
            f"{where}: spec.edition",
        )
    if not isinstance(ops, list) or not isinstance(probes, list):
        raise _refuse(where, "'ops' and 'probes' must be lists")
    clean_ops = [_op(value, f"{where}: ops[{n}]") for n, value in enumerate(ops)]
    clean_probes = [_probe(value, f"{where}: probes[{n}]") for n, value in enumerate(probes)]
    try:
        found = digest_of(spec, clean_ops, clean_probes)
    except UnicodeEncodeError as error:
        raise _refuse(where, f"a lone surrogate in the text ({_short(error.object[error.start])}): not UTF-8") from None
    if digest is not None and digest != found:
        raise InputError(
            f"the digest says {_short(digest)} but the content's is {found}",
            f"{where}: digest",
            "The content was changed after it was frozen; get the file again",
        )
    _check_holes(clean_ops, clean_probes, where)
    return Script(spec, clean_ops, clean_probes, found, name=name, language=language)


def _op(value: Any, where: str) -> dict:
    kind = value.get("op") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in OPS:
        raise _refuse(where, f"unknown op {_short(kind)}")
    op = _take(value, OPS[kind], where, ("op",))
    for part in ("record", "new"):
        if part in op:
            op[part] = _take(op[part], RECORD, f"{where}.{part}")
    return op


def _probe(value: Any, where: str) -> dict:
    expect = value.get("expect") if isinstance(value, dict) else None
    if not isinstance(expect, str) or expect not in EXPECTS:
        raise _refuse(where, f"unknown expectation {_short(expect)}")
    family, fields = EXPECTS[expect]
    head: Fields = (("id", _key, True), ("family", _one_of(family), True), ("expect", _text, True))
    probe = _take(value, head + fields, where)
    if expect == "bound" and "answers" in probe and len(probe["answers"]) != len(probe["gold"]):
        raise _refuse(where, "'answers' and 'gold' differ in length")
    return probe


def _check_holes(ops: list[dict], probes: list[dict], where: str) -> None:
    """Every key is written before it is used, every question is asked once, and every question asked is graded."""
    written: set[str] = set()
    asked: dict[str, str] = {}
    for n, op in enumerate(ops):
        place = f"{where}: ops[{n}]"
        for name in ("from", "to", "old", "key"):
            if name in op and op[name] not in written:
                raise _refuse(f"{place}.{name}", f"the note {_short(op[name])} was not written before this")
        record = op.get("record") or op.get("new")
        if record:
            if record["key"] in written:
                raise _refuse(place, f"the note {_short(record['key'])} is written twice")
            written.add(record["key"])
        if "id" in op:
            if op["id"] in asked:
                raise _refuse(place, f"the id {_short(op['id'])} is used twice")
            asked[op["id"]] = op["op"]
    graded: set[str] = set()
    for n, probe in enumerate(probes):
        place = f"{where}: probes[{n}]"
        if probe["id"] in graded:
            raise _refuse(place, f"the id {_short(probe['id'])} is used twice")
        graded.add(probe["id"])
        expect = probe["expect"]
        if expect not in ("case", "drifted"):
            if asked.get(probe["id"]) not in ANSWERED_BY.get(expect, ("recall",)):
                raise _refuse(place, f"a hole: no operation asks for {_short(probe['id'])}")
        for name in ("gold", "stale", "head", "anchor", "witness", "victim", "winner", "retired", "planted", "losers"):
            for key in [probe[name]] if isinstance(probe.get(name), str) else probe.get(name, []):
                if key not in written:
                    raise _refuse(f"{place}.{name}", f"a hole: the note {_short(key)} is never written")
    for name, kind in asked.items():
        if kind in ("recall", "recall_path", "lineage") and name not in graded:
            raise _refuse(where, f"a hole: {_short(name)} is asked and never graded")


# --- files --------------------------------------------------------------------------------------------------------


def _pairs(pairs: list[tuple[str, Any]]) -> dict:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {_short(next(name for name in names if names.count(name) > 1))} stands twice in one object"
        )
    return result


def read_json(path: str | Path) -> Any:
    """The JSON of a plain or gzipped file (told by its first bytes, not its name). InputError with file and
    position."""
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return json.loads(data.decode("utf-8"), object_pairs_hook=_pairs)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", str(path)) from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"not a whole gzip file ({error})", str(path), "The file was cut off; get it again") from None
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", f"{path}: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON ({error.msg})",
            f"{path}:{error.lineno}:{error.colno}",
            "The file was cut off or changed; get it again",
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not usable JSON ({error})", str(path)) from None


def load_script(path: str | Path, language: str = "") -> Script:
    """Read, check and complete a script file (plain or .gz). Raises InputError with file and position."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise _refuse(str(path), "a script must be one JSON object")
    for name in ("spec", "digest", "ops", "probes"):
        if name not in value:
            raise _refuse(str(path), f"the field {name!r} is missing")
    if unknown := sorted(set(value) - {"spec", "digest", "ops", "probes"}):
        raise _refuse(str(path), f"unknown field {_short(unknown[0])}")
    stem = Path(path).name.removesuffix(".gz").removesuffix(".json")
    return make_script(
        value["spec"],
        value["ops"],
        value["probes"],
        digest=value["digest"],
        name=stem,
        language=language,
        where=str(path),
    )


# --- transcript ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Hit:
    """One thing that a memory showed. `text` is what the reader sees and is billed for."""

    text: str
    key: str | None = None
    score: float | None = None
    created_at: int | None = None
    tombstone: bool = False
    neighbors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Recalled:
    """A reply to a question. `declined`: the memory itself says that it does not know; `dump`: it shows all it
    holds."""

    hits: list[Hit] = field(default_factory=list)
    declined: bool = False
    dump: bool = False


@dataclass(slots=True)
class Suspect:
    """Two notes that the memory thinks at odds; `hint` is one of HINTS, or None where it does not say."""

    a: str
    b: str
    hint: str | None = None


@dataclass(slots=True)
class Inscribed:
    """What a write came back with. `warnings` are (reason, key or None)."""

    matched: str | None = None
    nli_label: str | None = None
    warnings: list[tuple[str, str | None]] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)


@dataclass
class Transcript:
    """What a memory replied to one script. Replies are held by kind and id."""

    arm: str
    script_digest: str
    capabilities: dict[str, bool]
    standing_tokens: int = 0
    settle_note: str | None = None
    recalls: dict[str, Recalled] = field(default_factory=dict)
    inscribes: dict[str, Inscribed] = field(default_factory=dict)
    suspects: dict[str, list[Suspect] | None] = field(default_factory=dict)
    lineages: dict[str, list[str] | None] = field(default_factory=dict)
    timing: dict[str, dict[str, float]] = field(default_factory=dict)
    problems: dict[str, int] = field(default_factory=dict)

    def problem(self, kind: str) -> None:
        self.problems[kind] = self.problems.get(kind, 0) + 1


def _optional(value: Any, name: str, check: Callable[[Any], bool], where: str, default: Any = None) -> Any:
    found = value.get(name)
    if found is None:
        return default
    if not check(found):
        raise _refuse(f"{where}.{name}", f"not a valid value: {_short(found)}")
    return found


def _needed(value: Any, name: str, check: Callable[[Any], bool], where: str) -> Any:
    if not isinstance(value, dict):
        raise _refuse(where, f"must be an object, not {type(value).__name__}")
    if name not in value:
        raise _refuse(where, f"the field {name!r} is missing")
    if not check(value[name]):
        raise _refuse(f"{where}.{name}", f"not a valid value: {_short(value[name])}")
    return value[name]


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _recalled(value: Any, where: str, transcript: Transcript) -> Recalled:
    hits = []
    for n, item in enumerate(_needed(value, "hits", _list, where)):
        place = f"{where}.hits[{n}]"
        key = _optional(_dict_of(item, place), "key", _text, place)
        if key is not None and not _key(key):
            transcript.problem("keys that are empty or hold control characters")
        hits.append(
            Hit(
                _needed(item, "text", _text, place),
                key,
                _optional(item, "score", _number, place),
                _optional(item, "created_at", _whole, place),
                _optional(item, "tombstone", _flag, place, False),
                _optional(item, "neighbors", _texts, place, []),
            )
        )
    return Recalled(
        hits, _optional(value, "declined", _flag, where, False), _optional(value, "dump", _flag, where, False)
    )


def _dict_of(value: Any, where: str) -> dict:
    if not isinstance(value, dict):
        raise _refuse(where, f"must be an object, not {type(value).__name__}")
    return value


def _suspect_list(values: list, where: str) -> list[Suspect]:
    return [
        Suspect(
            _needed(item, "a", _text, f"{where}[{n}]"),
            _needed(item, "b", _text, f"{where}[{n}]"),
            _optional(item, "hint", _text, f"{where}[{n}]"),
        )
        for n, item in enumerate(values)
    ]


def _inscribed(value: Any, where: str) -> Inscribed:
    _dict_of(value, where)
    warnings = [
        (
            _needed(item, "reason", _text, f"{where}.warnings[{n}]"),
            _optional(item, "key", _text, f"{where}.warnings[{n}]"),
        )
        for n, item in enumerate(_optional(value, "warnings", _list, where, []))
    ]
    return Inscribed(
        _optional(value, "matched", _text, where),
        _optional(value, "nli_label", _text, where),
        warnings,
        _suspect_list(_optional(value, "suspects", _list, where, []), f"{where}.suspects"),
    )


def parse_transcript(value: Any, where: str = "transcript") -> Transcript:
    """A checked transcript from its JSON value.

    Raises InputError (with position) for a wrong type, a missing field or a number that is not finite. Counted in
    `problems`, because they cannot change a grade: a second reply with an id already answered (the first is taken,
    as the public rule has it), a capability that nobody knows, and keys with control characters (they name no note).
    Fields that nobody knows are left out of account, so that adapters may note more than the format asks.
    """
    _dict_of(value, where)
    declared = _needed(value, "capabilities", _dict, where)
    for name, flag in declared.items():
        if not _flag(flag):
            raise _refuse(f"{where}: capabilities", f"{_short(name)} must be true or false, not {_short(flag)}")
    result = Transcript(
        _needed(value, "arm", _text, where),
        _needed(value, "script_digest", _text, where),
        {name: declared.get(name, False) for name in CAPABILITIES},
        _optional(value, "standing_tokens", lambda found: _whole(found) and found >= 0, where, 0),
        _optional(value, "settle_note", _text, where),
    )
    for name in declared:
        if name not in CAPABILITIES:
            result.problem("capabilities that nobody knows")
    for n, reply in enumerate(_needed(value, "replies", _list, where)):
        place = f"{where}: replies[{n}]"
        kind, name = _needed(reply, "reply", _text, place), _needed(reply, "id", _text, place)
        if kind == "recall":
            held, parsed = result.recalls, _recalled(_needed(reply, "result", _dict, place), f"{place}.result", result)
        elif kind == "inscribe":
            held, parsed = result.inscribes, _inscribed(_needed(reply, "result", _dict, place), f"{place}.result")
        elif kind == "suspects":
            pairs = _optional(reply, "pairs", _list, place)
            held, parsed = result.suspects, None if pairs is None else _suspect_list(pairs, f"{place}.pairs")
        elif kind == "lineage":
            held, parsed = result.lineages, _optional(reply, "keys", _texts, place)
        else:
            raise _refuse(place, f"unknown kind of reply {_short(kind)}")
        if name in held:
            result.problem("second replies with an id already answered (the first one counts)")
        else:
            held[name] = parsed
    for op, timed in _optional(value, "timing", _dict, where, {}).items():
        place = f"{where}: timing.{_short(op)}"
        count = _needed(timed, "count", lambda found: _whole(found) and found >= 0, place)
        total = _needed(timed, "total_ms", lambda found: _number(found) and found >= 0, place)
        result.timing[op] = {"count": count, "total_ms": float(total)}
    return result


def load_transcript(path: str | Path) -> Transcript:
    """Read and check a transcript file in the public format (plain or .gz). Raises InputError with file and
    position."""
    return parse_transcript(read_json(path), str(path))


def transcript_value(transcript: Transcript) -> dict:
    """The JSON value of a transcript in the public format; replies stand by kind, in the order in which they were
    given."""
    replies: list[dict] = []
    for name, pairs in transcript.suspects.items():
        replies.append(
            {
                "reply": "suspects",
                "id": name,
                **({} if pairs is None else {"pairs": [_suspect_value(s) for s in pairs]}),
            }
        )
    for name, recalled in transcript.recalls.items():
        replies.append({"reply": "recall", "id": name, "result": _recalled_value(recalled)})
    for name, keys in transcript.lineages.items():
        replies.append({"reply": "lineage", "id": name, **({} if keys is None else {"keys": keys})})
    for name, written in transcript.inscribes.items():
        result: dict[str, Any] = {}
        if written.matched is not None:
            result["matched"] = written.matched
        if written.nli_label is not None:
            result["nli_label"] = written.nli_label
        if written.warnings:
            result["warnings"] = [
                {"reason": reason, **({} if key is None else {"key": key})} for reason, key in written.warnings
            ]
        if written.suspects:
            result["suspects"] = [_suspect_value(suspect) for suspect in written.suspects]
        replies.append({"reply": "inscribe", "id": name, "result": result})
    note = {} if not transcript.settle_note else {"settle_note": transcript.settle_note}
    return {
        "arm": transcript.arm,
        "capabilities": transcript.capabilities,
        "standing_tokens": transcript.standing_tokens,
        "script_digest": transcript.script_digest,
        **note,
        "replies": replies,
        "timing": transcript.timing,
    }


def _suspect_value(suspect: Suspect) -> dict:
    return {"a": suspect.a, "b": suspect.b, **({} if suspect.hint is None else {"hint": suspect.hint})}


def _recalled_value(recalled: Recalled) -> dict:
    hits = []
    for hit in recalled.hits:
        value: dict[str, Any] = {"text": hit.text}
        for name in ("key", "score", "created_at"):
            if getattr(hit, name) is not None:
                value[name] = getattr(hit, name)
        if hit.tombstone:
            value["tombstone"] = True
        if hit.neighbors:
            value["neighbors"] = hit.neighbors
        hits.append(value)
    return {
        "hits": hits,
        **({"declined": True} if recalled.declined else {}),
        **({"dump": True} if recalled.dump else {}),
    }

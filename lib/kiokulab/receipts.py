"""What a run leaves, and how it is checked again.

Each step ends with a proof, `steps/<step>.json`: the digests of what it read and wrote, and the digest of the proof
before it. `receipt.json` sums them up; the executed notebooks carry a stamp of it. `verify` recomputes all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import importlib
import json
import os
import platform
import re
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kiokulab import __version__
from kiokulab.errors import InputError, KiokuLabError, VerificationFailed
from kiokulab.files import digest, dumps, sha256_file, write_atomic
from kiokulab.params import Params, edition_digest, edition_folder, outputs_root, root, track_module

RECEIPT, SIGNATURE, LOCK = "receipt.json", "receipt.sig", ".lock"
# what steps write at the top of a run folder; anything else there is a person's and is left alone
WRITTEN = {
    "dataset.jsonl",
    "memories.jsonl",
    "contexts.jsonl",
    "events.jsonl",
    "calls.sqlite",
    "judge-calls.sqlite",
    "judgements.jsonl",
    "metrics.json",
    "answers.jsonl",
    "answer-events.jsonl",
    "latency.json",
    "comparison.json",
    "figures",
    "report.html",
    "system.html",
    "membench-live.json",
    "transcript.json",
}
BLOCKS = 20_000  # a file with more lines than this is digested in blocks of several lines
SECRETS = re.compile(
    rb"\bsk-[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{30,}|\bghp_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Versions(_Document):
    kit: str = Field(description="version of kiokulab")
    git_commit: str | None = Field(description="commit of the checkout; null outside a git checkout")
    git_dirty: bool | None = Field(description="whether tracked files differed from that commit; null outside git")
    python: str = Field(description="version of Python")
    platform: str = Field(description="operating system and processor kind")
    lock: str | None = Field(description="sha256 of requirements.lock; null where there is none")
    system: dict[str, Any] = Field(description="the memory system: name, version, lock_digest, source_digest")
    models: list[str] = Field(
        default=[], description="models as they named themselves in their answers; empty: no model was called"
    )


class Times(_Document):
    started: str = Field(description="UTC, ISO 8601")
    finished: str = Field(description="UTC, ISO 8601")
    seconds: float = Field(description="wall time of the step, from its first cell to its last")


class StepProof(_Document):
    """`steps/<step>.json`: written by the last cell of a step, and only there."""

    schema_: Literal["kiokulab.step/1"] = Field(default="kiokulab.step/1", alias="schema")
    step: str = Field(description="'2-ingest'")
    run: str = Field(description="the run's id, 12 hex digits of the digest of everything that decides the result")
    parameters: dict[str, Any] = Field(description="the parameters that decide the result")
    edition: str = Field(description="sha256 over the edition's files")
    rules_version: int = Field(description="the track's rules; bumped whenever a number could change")
    versions: Versions
    inputs: dict[str, str] = Field(
        description="file of an earlier step -> sha256 (calls.sqlite: over its rows in order)"
    )
    outputs: dict[str, str] = Field(description="file that this step wrote -> sha256")
    lines: dict[str, str] = Field(
        description="text file -> 8 hex digits of sha256 for each line (or block of lines), so that a changed line can be named"
    )
    failed_units: dict[str, str] = Field(description="unit -> reason; they are retried by the next command")
    beside: list[str] = Field(default=[], description="runs shown next to this one, '<system>/<run-id>'")
    parent: str | None = Field(
        default=None,
        description="run whose step this is, '<system>/<run-id>', where it was taken over and not done again",
    )
    previous: str | None = Field(description="digest of the proof before this one; null for the first step")
    digest: str = Field(description="sha256 of the canonical JSON of all fields but `digest` and `times`")
    times: Times = Field(description="wall times; not part of the digest, so that two undisturbed runs can be compared")


class NotebookRecord(_Document):
    sha256: str = Field(description="digest of the executed notebook's canonical JSON without its stamp")
    cells: list[str] = Field(description="8 hex digits of sha256 for each cell, so that a changed cell can be named")


class StepSummary(_Document):
    step: str
    digest: str = Field(description="the proof's digest; it holds the digest of the proof before it")
    proof: str = Field(description="sha256 of the proof file's bytes")
    inputs: dict[str, str] = Field(description="file -> sha256")
    outputs: dict[str, str] = Field(description="file -> sha256")
    failed_units: dict[str, str]
    exit: int | None = Field(description="exit code of the step under the runner; null where it was run by hand")
    seconds: float
    notebook: NotebookRecord | None = Field(description="the executed notebook; null where it was run by hand")


class Cost(_Document):
    calls: int = Field(description="questions asked of models; one that was tried again counts once")
    attempts: int = Field(default=0, description="attempts, those that failed included")
    answered: int = Field(default=0, description="questions that were answered")
    prompt_tokens: int = Field(default=0, description="tokens read, of all attempts that said so")
    completion_tokens: int = Field(default=0, description="tokens written, of all attempts that said so")
    billed_usd: str | None = Field(
        description="dollars that the endpoint says it charged, exact; null = it said nothing"
    )
    list_usd: str | None = Field(
        description="the same attempts at list price, without cache discounts; null = no list price is known"
    )
    plumbing: bool = Field(
        default=False, description="true: the system was fed by the built-in model, so its figures are no result"
    )
    prompts: dict[str, str] = Field(
        default={}, description="prompt file -> sha256 of its text, of the kit's own questions to models"
    )
    note: str = Field(description="what is not in the sums")


class Receipt(_Document):
    """`receipt.json`: what a run is, what it read, wrote, cost, and how it ended."""

    schema_: Literal["kiokulab.receipt/1"] = Field(default="kiokulab.receipt/1", alias="schema")
    run: str = Field(description="the run's id")
    track: str
    edition: str = Field(description="name of the edition")
    edition_digest: str = Field(description="sha256 over the edition's files")
    system: str = Field(description="name of the memory system")
    status: Literal["running", "finished", "units_failed", "failed", "kernel_died", "stopped"] = Field(
        description="how the run stands; anything but finished has a reason"
    )
    reason: str | None = Field(description="why it is not finished; null when it is")
    parent: str | None = Field(
        default=None,
        description="run whose first steps this one took over, '<system>/<run-id>'; null where it did all itself",
    )
    parameters: dict[str, Any] = Field(description="the parameters that decide the result")
    versions: Versions | None = Field(description="of the last step that ended; null before the first one did")
    steps: list[StepSummary] = Field(description="the steps that ended, in order")
    judge: dict[str, Any] | None = Field(
        description="who judged, and its agreement with the labelled set; null before 3-judge"
    )
    not_judged: dict[str, int] | None = Field(
        description="metric -> items the judge gave no answer on; null before 4-analyze"
    )
    cost: Cost
    seal: str = Field(description="sha256 of the canonical JSON of all other fields")


@dataclass
class Step:
    """A step in work, from `begin` to `finish`."""

    name: str
    params: Params
    folder: Path
    identity: dict[str, Any]
    started: float = field(default_factory=time.time)
    faults: list[str] = field(default_factory=list)


# --- identity and place -----------------------------------------------------------------------------------------


def identity(params: Params) -> dict[str, Any]:
    """Everything that decides the result, as plain JSON; its digest is the run's id."""
    track = track_module(params.track)
    described = _describe(track, params.system)
    system = {key: described.get(key) for key in ("name", "version", "lock_digest", "source_digest")}
    return {
        "parameters": {**params.deciding(), "system": system["name"]},
        "edition": edition_digest(params.track, params.edition),
        "system": system,
        "rules_version": track.RULES_VERSION,
    }


def run_id(params: Params) -> str:
    """12 hex digits that name the run."""
    return _run_id(identity(params))


def run_folder(params: Params) -> Path:
    """`outputs/<track>/<edition>/<system>/<run-id>`, or `run_dir` where that is given."""
    return _run_folder(params, identity(params))


def _run_id(what: dict[str, Any]) -> str:
    # the edition's path is where it lies, not what it is: its digest stands for it
    parameters = {name: value for name, value in what["parameters"].items() if name != "edition"}
    return digest({**what, "parameters": parameters})[:12]


def _run_folder(params: Params, what: dict[str, Any]) -> Path:
    if params.run_dir:
        return Path(params.run_dir).resolve()
    edition = edition_folder(params.track, params.edition).name
    return outputs_root() / params.track / edition / _slug(what["system"]["name"]) / _run_id(what)


def _describe(track: Any, system: str) -> dict[str, Any]:
    if hasattr(track, "describe_system"):
        return track.describe_system(system)
    systems = importlib.import_module("kiokulab.systems")
    return systems.describe(systems.resolve(system).name)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).name if "/" in name else name).strip("-.") or "system"


# --- the notebook's two calls -----------------------------------------------------------------------------------


def begin(name: str, params: Params) -> Step:
    """Start step `name`: its run folder, with the proofs of this step and the later ones taken away.

    Raises InputError where the step before is not done or one of its files is not what its proof says.
    """
    steps = track_module(params.track).STEPS
    if name not in steps:
        raise InputError(f"track {params.track} has no step {name!r}", None, f"Its steps: {', '.join(steps)}")
    what = identity(params)
    folder = _run_folder(params, what)
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in steps[: steps.index(name)]:
        proof = read_proof(folder, earlier)
        if proof is None or proof.run != _run_id(what):
            raise InputError(
                f"step {earlier} is not done in this run",
                str(folder),
                f"Run the notebook {earlier} first, with the same parameters",
            )
        for path, known in proof.outputs.items():
            if "/" not in path and _digest_of(folder / path) != known:
                raise InputError(
                    f"{path} is not what step {earlier} wrote", str(folder / path), f"Run the notebook {earlier} again"
                )
    _clear(folder, steps, name)
    step = Step(name, params, folder, what)
    _watch(step)
    write_receipt(folder, params, what, status="running", reason=f"step {name} has begun")
    return step


def _clear(folder: Path, steps: tuple[str, ...], name: str) -> None:
    """Take away what step `name` and the later ones left, units and logs excepted: those are where a stopped run goes
    on."""
    kept = {path for earlier in steps[: steps.index(name)] for path in read_proof(folder, earlier).outputs}
    gone = [path for path in _all_files(folder) if path.split("/")[0] in WRITTEN and path not in kept]
    for later in steps[steps.index(name) :]:
        proof = read_proof(folder, later)
        gone += [path for path in proof.outputs if not path.startswith(("units/", "logs/"))] if proof else []
        gone += [f"steps/{later}.json"] + ([f"{later}.ipynb"] if later != name else [])
    gone += [path for path in _all_files(folder) if path.endswith(".part")]  # a write that was cut off
    for path in gone:
        (folder / path).unlink(missing_ok=True)


def _watch(step: Step) -> None:
    """Note what goes wrong beside the cells and would leave no trace in a notebook's verdict: an exception in a thread
    or a task that nobody awaits, a shell line that fails."""
    before = threading.excepthook

    def in_thread(hook: Any) -> None:
        step.faults.append(
            f"thread {hook.thread.name if hook.thread else '?'}: {hook.exc_type.__name__}: {hook.exc_value}"
        )
        before(hook)

    threading.excepthook = in_thread
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return

    def after_cell(result: Any) -> None:
        if code := shell.user_ns.pop("_exit_code", 0):
            step.faults.append(f"a shell line ended with exit code {code}")

    shell.events.register("post_run_cell", after_cell)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return

    def in_task(loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        step.faults.append(f"task: {type(error).__name__}: {error}" if error else f"task: {context.get('message')}")
        loop.default_exception_handler(context)

    loop.set_exception_handler(in_task)


def finish(step: Step) -> None:
    """End a step: write its proof, bring receipt.json up to date, and show the receipt. The last call of a notebook.

    Raises KiokuLabError where something failed beside the cells since `begin`: the step is then not done.
    """
    if step.faults:
        raise KiokuLabError(
            f"step {step.name} is not done, something failed beside its cells: {'; '.join(step.faults)}"
        )
    track, folder = track_module(step.params.track), step.folder
    earlier = [read_proof(folder, name) for name in track.STEPS[: track.STEPS.index(step.name)]]
    inputs = {path: known for proof in earlier for path, known in proof.outputs.items() if not path.startswith("logs/")}
    claimed = {path for proof in earlier for path in proof.outputs}
    outputs = {
        path: _digest_of(folder / path) for path in _files(folder, track.STEPS, step.name) if path not in claimed
    }
    from kiokulab.units import failed

    finished = time.time()
    body = {
        "schema": "kiokulab.step/1",
        "step": step.name,
        "run": _run_id(step.identity),
        "parameters": step.identity["parameters"],
        "edition": step.identity["edition"],
        "rules_version": step.identity["rules_version"],
        "versions": {**_versions(step.identity["system"]).model_dump(mode="json"), "models": _models(folder)},
        "inputs": inputs,
        "outputs": outputs,
        "lines": {path: marks for path in outputs if (marks := _line_marks(folder / path))},
        "failed_units": failed(folder / "units" / step.name),
        "beside": [_beside_name(path) for path in step.params.beside],
        "previous": earlier[-1].digest if earlier else None,
    }
    times = {"started": _utc(step.started), "finished": _utc(finished), "seconds": round(finished - step.started, 3)}
    write_atomic(folder / "steps" / f"{step.name}.json", dumps({**body, "digest": digest(body), "times": times}) + "\n")
    last = step.name == track.STEPS[-1]
    receipt = write_receipt(
        folder,
        step.params,
        step.identity,
        status=None if last else "running",
        reason=None if last else f"step {step.name} has ended",
    )
    _show(receipt, step.name)


# --- the receipt ------------------------------------------------------------------------------------------------


def read_proof(folder: Path, step: str) -> StepProof | None:
    """A step's proof; None where there is none. A proof that cannot be read counts as none: the step is then done
    again."""
    try:
        return StepProof.model_validate_json((Path(folder) / "steps" / f"{step}.json").read_bytes())
    except (OSError, ValidationError, ValueError):
        return None


def read_receipt(folder: str | os.PathLike) -> Receipt | None:
    """receipt.json; None where there is none or it cannot be read."""
    try:
        return Receipt.model_validate_json((Path(folder) / RECEIPT).read_bytes())
    except (OSError, ValidationError, ValueError):
        return None


def write_receipt(
    folder: Path,
    params: Params,
    what: dict[str, Any],
    *,
    status: str | None,
    reason: str | None,
    exits: dict[str, int] | None = None,
    notebooks: dict[str, NotebookRecord] | None = None,
) -> Receipt:
    """Write receipt.json from the proofs that are there, what the receipt held before, and what the runner adds.

    `status` None means: finished, or units_failed where units are missing.
    """
    track, before = track_module(params.track), read_receipt(folder)
    known = {step.step: step for step in before.steps} if before else {}
    summaries, judge, missing, parent = [], None, {}, None
    for name in track.STEPS:
        proof = read_proof(folder, name)
        if proof is None:
            break
        old = known.get(name) if known.get(name) and known[name].digest == proof.digest else None
        summaries.append(
            StepSummary(
                step=name,
                digest=proof.digest,
                proof=sha256_file(folder / "steps" / f"{name}.json"),
                inputs=proof.inputs,
                outputs=proof.outputs,
                failed_units=proof.failed_units,
                seconds=proof.times.seconds,
                exit=(exits or {}).get(name, old.exit if old else None),
                notebook=(notebooks or {}).get(name, old.notebook if old else None),
            )
        )
        missing |= {f"{name} {unit}": why for unit, why in proof.failed_units.items()}
        versions, parent = proof.versions, parent or proof.parent
    if status is None:
        status, reason = (
            ("units_failed", f"{len(missing)} unit(s) failed: {', '.join(missing)}") if missing else ("finished", None)
        )
    judge = _judge(folder) if len(summaries) >= 3 else None
    body = {
        "schema": "kiokulab.receipt/1",
        "run": _run_id(what),
        "track": params.track,
        "edition": edition_folder(params.track, params.edition).name,
        "edition_digest": what["edition"],
        "system": what["system"]["name"],
        "status": status,
        "reason": reason,
        "parent": parent,
        "parameters": what["parameters"],
        "versions": versions.model_dump(mode="json") if summaries else None,
        "steps": [summary.model_dump(mode="json") for summary in summaries],
        "judge": judge,
        "not_judged": _not_judged(folder) if len(summaries) == len(track.STEPS) else None,
        "cost": _cost(folder, params),
    }
    body["seal"] = digest(body)
    write_atomic(folder / RECEIPT, dumps(body) + "\n")
    (folder / SIGNATURE).unlink(missing_ok=True)  # it was over the receipt before this one
    return Receipt.model_validate(body)


def sign(folder: Path, key_file: str) -> None:
    """Sign receipt.json with the Ed25519 key in `key_file` (PEM): receipt.sig, over the receipt's RFC 8785 JSON."""
    import rfc8785
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(Path(key_file).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"the signing key cannot be read ({type(error).__name__})",
            "$KIOKULAB_SIGNING_KEY",
            "It is an Ed25519 key in PEM, without a password",
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("the signing key is not an Ed25519 key", "$KIOKULAB_SIGNING_KEY")
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    message = rfc8785.dumps(json.loads((folder / RECEIPT).read_bytes()))
    row = {
        "algorithm": "Ed25519 over RFC 8785 JSON of receipt.json",
        "public_key": public.hex(),
        "signature": key.sign(message).hex(),
    }
    write_atomic(folder / SIGNATURE, dumps(row) + "\n")


def stamp(source: dict[str, Any], folder: Path, step: str) -> tuple[str, NotebookRecord]:
    """An executed notebook (nbformat 4 JSON) as the text to store, stamped with the step's proof, and its record."""
    proof = read_proof(folder, step)
    notebook = json.loads(json.dumps(source))
    notebook.get("metadata", {}).pop("kiokulab", None)
    record = NotebookRecord(
        sha256=_sha(notebook_text(notebook)), cells=[_sha(dumps(cell))[:8] for cell in notebook["cells"]]
    )
    if proof is not None:
        notebook["metadata"]["kiokulab"] = _stamp_of(proof.run, step, proof.digest, proof.previous, record.sha256)
    return notebook_text(notebook), record


def notebook_text(notebook: dict[str, Any]) -> str:
    """The one serialisation in which executed notebooks are stored."""
    text = json.dumps(notebook, ensure_ascii=False, sort_keys=True, indent=1)
    return "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text) + "\n"


def _stamp_of(run: str, step: str, proof: str, previous: str | None, notebook: str) -> dict[str, Any]:
    return {
        "schema": "kiokulab.stamp/1",
        "run": run,
        "step": step,
        "proof": proof,
        "previous": previous,
        "notebook": notebook,
    }


# --- verification -----------------------------------------------------------------------------------------------


def verify(folder: str | os.PathLike) -> Receipt:
    """Check a run again from its files alone. Returns its receipt; raises VerificationFailed naming each place that
    differs (file, line or cell), and InputError where the folder holds no run."""
    folder = Path(folder)
    if not (folder / RECEIPT).is_file():
        raise InputError(
            "there is no receipt.json here, so this is not a run",
            str(folder),
            "RUN= is a folder outputs/<track>/<edition>/<system>/<run-id>",
        )
    places: list[str] = []
    receipt = _check_receipt(folder, places)
    if receipt is None:
        raise VerificationFailed(places)
    steps = track_module(receipt.track).STEPS
    known = _check_proofs(folder, receipt, steps, places)
    _check_files(folder, receipt, steps, known, places)
    for summary in receipt.steps:
        if summary.notebook is not None:
            _check_notebook(folder, receipt, summary, places)
    if receipt.status not in ("finished", "units_failed"):
        places.append(f"{RECEIPT}: the run is not finished: {receipt.status}, {receipt.reason}")
    elif [summary.step for summary in receipt.steps] != list(steps):
        places.append(f"{RECEIPT}: status {receipt.status}, but not all steps are there")
    elif not places:  # with changed files every figure would differ as well; the first place is the useful one
        _check_figures(folder, receipt, steps[-1], places)
    _check_secrets(folder, places)
    if places:
        raise VerificationFailed(places)
    return receipt


def _canonical_row(folder: Path, name: str, places: list[str]) -> dict[str, Any] | None:
    raw = (folder / name).read_bytes()
    try:
        row = json.loads(raw)
        if raw != (dumps(row) + "\n").encode("utf-8"):
            places.append(f"{name}: not the bytes that were written (spacing, order or escapes differ)")
        return row
    except ValueError as error:
        places.append(f"{name}: not JSON ({error})")
        return None


def _check_receipt(folder: Path, places: list[str]) -> Receipt | None:
    row = _canonical_row(folder, RECEIPT, places)
    if row is None:
        return None
    try:
        receipt = Receipt.model_validate(row)
    except ValidationError as error:
        places.append(f"{RECEIPT}: {'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}")
        return None
    if digest({name: value for name, value in row.items() if name != "seal"}) != receipt.seal:
        places.append(f"{RECEIPT}: its seal does not fit its content")
    if (folder / SIGNATURE).exists():
        _check_signature(folder, row, places)
    try:
        track_module(receipt.track)
    except InputError as error:
        places.append(f"{RECEIPT}: {error}")
        return None
    return receipt


def _check_signature(folder: Path, row: dict[str, Any], places: list[str]) -> None:
    import rfc8785
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = _canonical_row(folder, SIGNATURE, places)
    try:
        if signature["algorithm"] != "Ed25519 over RFC 8785 JSON of receipt.json":
            raise ValueError("unknown algorithm")
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        key.verify(bytes.fromhex(signature["signature"]), rfc8785.dumps(row))
    except (InvalidSignature, KeyError, TypeError, ValueError, rfc8785.CanonicalizationError) as error:
        places.append(f"{SIGNATURE}: the signature does not fit {RECEIPT} ({type(error).__name__})")


def _check_proofs(folder: Path, receipt: Receipt, steps: tuple[str, ...], places: list[str]) -> dict[str, StepProof]:
    proofs: dict[str, StepProof] = {}
    previous = None
    for summary in receipt.steps:
        name = f"steps/{summary.step}.json"
        if not (folder / name).is_file():
            places.append(f"{name}: missing")
            continue
        row = _canonical_row(folder, name, places)
        if sha256_file(folder / name) != summary.proof:
            places.append(f"{name}: changed since the receipt was written")
        try:
            proof = StepProof.model_validate(row)
        except ValidationError as error:
            places.append(f"{name}: {error.errors()[0]['msg']}")
            continue
        if digest({key: value for key, value in row.items() if key not in ("digest", "times")}) != proof.digest:
            places.append(f"{name}: its digest does not fit its content")
        if proof.previous != previous:
            places.append(f"{name}: the chain is broken: it does not follow the proof before it")
        if (proof.digest, proof.inputs, proof.outputs, proof.run) != (
            summary.digest,
            summary.inputs,
            summary.outputs,
            receipt.run,
        ):
            places.append(f"{name}: not the proof that {RECEIPT} names")
        previous = proof.digest
        proofs[summary.step] = proof
    return proofs


def _check_files(
    folder: Path, receipt: Receipt, steps: tuple[str, ...], proofs: dict[str, StepProof], places: list[str]
) -> None:
    known = {path: (sha, summary.step) for summary in receipt.steps for path, sha in summary.outputs.items()}
    for path, (sha, step) in known.items():
        file = folder / path
        if not file.is_file() or file.is_symlink():
            places.append(f"{path}: missing")
        elif _digest_of(file) != sha:
            marks = proofs[step].lines.get(path) if step in proofs else None
            places.append(_changed_line(file, path, marks))
    for summary in receipt.steps:
        for path, sha in summary.inputs.items():
            if known.get(path, (None,))[0] != sha:
                places.append(f"{path}: step {summary.step} read another content than was written")
    ours = {
        RECEIPT,
        SIGNATURE,
        *(f"steps/{name}.json" for name in proofs),
        *(f"{s.step}.ipynb" for s in receipt.steps if s.notebook),
    }
    for path in sorted(_all_files(folder)):
        if path not in known and path not in ours:
            places.append(f"{path}: not part of the run")


def _changed_line(file: Path, path: str, marks: str | None) -> str:
    if marks is None:
        return f"{path}: changed"
    size, rest = marks.split(":")
    old = [rest[i : i + 8] for i in range(0, len(rest), 8)]
    new = [mark for mark in _marks_of(file, int(size))]
    at = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    first, last = at * int(size) + 1, (at + 1) * int(size)
    if len(new) < len(old) and at == len(new):
        return f"{path}:{first}: the file ends here, lines are missing"
    return f"{path}:{first}: changed" if int(size) == 1 else f"{path}:{first}-{last}: changed"


def _check_notebook(folder: Path, receipt: Receipt, summary: StepSummary, places: list[str]) -> None:
    name, known = f"{summary.step}.ipynb", summary.notebook
    if not (folder / name).is_file():
        places.append(f"{name}: missing")
        return
    raw = (folder / name).read_bytes()
    try:
        notebook = json.loads(raw)
        cells = notebook["cells"]
        text = notebook_text(notebook)
        stamped = notebook["metadata"].pop("kiokulab", None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        places.append(f"{name}: not a notebook ({type(error).__name__}: {error})")
        return
    marks = [_sha(dumps(cell))[:8] for cell in cells]
    if marks != known.cells:
        at = next((i for i, (a, b) in enumerate(zip(marks, known.cells)) if a != b), min(len(marks), len(known.cells)))
        places.append(f"{name}: cell {at + 1}: changed")
    elif _sha(notebook_text(notebook)) != known.sha256:
        places.append(f"{name}: its metadata were changed")
    elif raw != text.encode("utf-8"):
        places.append(f"{name}: not the bytes that were written (spacing, order or escapes differ)")
    previous = next((s.digest for s in reversed(receipt.steps[: receipt.steps.index(summary)])), None)
    if stamped != _stamp_of(receipt.run, summary.step, summary.digest, previous, known.sha256):
        places.append(f"{name}: its stamp is not this run's receipt")
    for number in not_run(notebook):
        places.append(f"{name}: cell {number}: it has no execution count, so it was not run")


def not_run(notebook: dict[str, Any]) -> list[int]:
    """Numbers (from 1) of code cells with a source that were not run. Pure."""
    return [
        number
        for number, cell in enumerate(notebook["cells"], 1)
        if cell["cell_type"] == "code" and "".join(cell["source"]).strip() and cell.get("execution_count") is None
    ]


def output_text(notebook: dict[str, Any]) -> str:
    """All plain text that the notebook's cells printed or showed. Pure."""
    parts = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            parts.append("".join(output.get("text", "")))
            parts.append("".join(output.get("data", {}).get("text/plain", "")))
    return "\n".join(parts)


def _check_figures(folder: Path, receipt: Receipt, last: str, places: list[str]) -> None:
    analyze = importlib.import_module(f"{track_module(receipt.track).__name__}.analyze")
    metrics = json.loads((folder / "metrics.json").read_bytes())
    try:
        derived = json.loads(dumps(analyze.rederive(folder)))
    except (KeyError, TypeError, ValueError, OSError, InputError) as error:
        places.append(f"metrics.json: cannot be derived again from the judgements ({type(error).__name__}: {error})")
        return
    difference = _first_difference(metrics, derived)
    if difference:
        places.append(f"metrics.json: {difference} when derived again from the judgements")
    record = next(summary.notebook for summary in receipt.steps if summary.step == last)
    if record is not None:
        shown = output_text(json.loads((folder / f"{last}.ipynb").read_bytes()))
        printed = analyze.printed(metrics)
        if printed.strip() not in shown:
            line = next(
                (line for line in printed.strip().splitlines() if line not in shown), printed.strip().splitlines()[0]
            )
            places.append(
                f"{last}.ipynb: the figures it prints are not those of metrics.json; missing: {line.strip()!r}"
            )


def _first_difference(a: Any, b: Any, at: str = "") -> str | None:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            path = f"{at}.{key}" if at else str(key)
            if key not in a or key not in b:
                return f"{path} is {'missing' if key not in a else 'not there'}"
            if found := _first_difference(a[key], b[key], path):
                return found
        return None
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next(
            (found for i, (x, y) in enumerate(zip(a, b)) if (found := _first_difference(x, y, f"{at}[{i}]"))), None
        )
    return None if a == b and type(a) is type(b) else f"{at} is {a!r}, but {b!r}"


def _check_secrets(folder: Path, places: list[str]) -> None:
    keys = {
        value.encode() for name, value in os.environ.items() if name.upper().endswith("_API_KEY") and len(value) >= 8
    }
    for path in sorted(_all_files(folder)):
        content = (folder / path).read_bytes()
        for secret in [match.group() for match in SECRETS.finditer(content)] + [key for key in keys if key in content]:
            line = content[: content.find(secret)].count(b"\n") + 1
            places.append(f"{path}:{line}: holds something that looks like a secret")
            break


# --- small things -----------------------------------------------------------------------------------------------


def _all_files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if (path.is_file() or path.is_symlink())]


def _files(folder: Path, steps: tuple[str, ...], step: str) -> list[str]:
    """Files that `step` can have written: all but the receipt, the proofs, the executed notebooks, the lock, and the
    units and logs of other steps."""
    ours = {RECEIPT, SIGNATURE, LOCK, *(f"{name}.ipynb" for name in steps)}
    others = tuple(
        f"{kind}/{name}{end}" for kind in ("units", "logs") for name in steps if name != step for end in ("/", ".")
    )
    return sorted(
        path
        for path in _all_files(folder)
        if path not in ours and not path.startswith(("steps/", *others)) and not path.endswith(".part")
    )


def _digest_of(path: Path) -> str | None:
    if not path.is_file():
        return None
    return sqlite_digest(path) if path.suffix == ".sqlite" else sha256_file(path)


def sqlite_digest(path: Path) -> str:
    """sha256 over a database's tables and their rows in order; two files with the same rows have the same digest."""
    result = hashlib.sha256()
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for name, sql in database.execute(
            "select name, sql from sqlite_master where type = 'table' order by name"
        ).fetchall():
            result.update(dumps([name, sql]).encode())
            for row in database.execute(f'select * from "{name}" order by rowid'):
                result.update(dumps([value.hex() if isinstance(value, bytes) else value for value in row]).encode())
    return result.hexdigest()


def _line_marks(path: Path) -> str | None:
    if path.suffix not in {".jsonl", ".html", ".log", ".csv", ".md", ".txt"} or not path.stat().st_size:
        return None
    with open(path, "rb") as file:
        lines = sum(1 for _ in file)
    size = -(-lines // BLOCKS)
    return f"{size}:" + "".join(_marks_of(path, size))


def _marks_of(path: Path, size: int) -> list[str]:
    marks, block, n = [], hashlib.sha256(), 0
    with open(path, "rb") as file:
        for line in file:
            block.update(line)
            n += 1
            if n % size == 0:
                marks.append(block.hexdigest()[:8])
                block = hashlib.sha256()
    if n % size:
        marks.append(block.hexdigest()[:8])
    return marks


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _beside_name(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def _versions(system: dict[str, Any]) -> Versions:
    commit, dirty = None, None
    try:
        git = ["git", "-C", str(root())]
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()
        status = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True, timeout=20
        )
        dirty = bool(status.stdout.strip())
    except (OSError, subprocess.SubprocessError):
        pass  # no git, or not a checkout: the receipt says null
    lock = root() / "requirements.lock"
    return Versions(
        kit=__version__,
        git_commit=commit,
        git_dirty=dirty,
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        lock=sha256_file(lock) if lock.is_file() else None,
        system=system,
    )


def _judge(folder: Path) -> dict[str, Any] | None:
    try:
        with open(folder / "judgements.jsonl", "rb") as file:
            row = next((json.loads(line) for line in file if b'"kind":"judge"' in line), None)
    except OSError:
        return None
    return {key: row.get(key) for key in ("name", "version", "measured")} if row else None


def _models(folder: Path) -> list[str]:
    from kiokulab import metering

    return metering.cost_of(folder)["models"]


def _cost(folder: Path, params: Params) -> dict[str, Any]:
    from kiokulab import metering

    found = metering.cost_of(folder)
    found.pop("models")
    prompts = getattr(track_module(params.track), "prompts", None)
    asked = metering.concerns(params) and bool(metering.models_of("3-judge", params))
    return {**found, "plumbing": metering.is_plumbing(params), "prompts": prompts(params) if prompts and asked else {}}


def _not_judged(folder: Path) -> dict[str, int] | None:
    try:
        metrics = json.loads((folder / "metrics.json").read_bytes())["metrics"]
    except (OSError, KeyError, ValueError):
        return None
    return {
        name: value["not_judged"]
        for name, value in sorted(metrics.items())
        if value and value.get("not_judged") is not None
    }


def _show(receipt: Receipt, step: str) -> None:
    """The receipt as a table, in a notebook and outside one."""
    summary = next(s for s in receipt.steps if s.step == step)
    proof_before = next((s.digest for s in reversed(receipt.steps) if s.step < step), None)
    rows = {
        "run": f"{receipt.track} {receipt.edition} {receipt.system} {receipt.run}",
        "step": f"{step}: {receipt.status}" + (f" ({receipt.reason})" if receipt.reason else ""),
        "proof": summary.digest[:16] + (f", after {proof_before[:16]}" if proof_before else ", the first of its chain"),
        "read": f"{len(summary.inputs)} files",
        "wrote": ", ".join(f"{path} {sha[:8]}" for path, sha in summary.outputs.items() if "/" not in path)
        or f"{len(summary.outputs)} files",
        "units failed": ", ".join(summary.failed_units) or "none",
        "versions": f"kiokulab {receipt.versions.kit}, Python {receipt.versions.python}, {receipt.system} {receipt.versions.system.get('version')}",
        "cost": f"{receipt.cost.calls} calls, {receipt.cost.billed_usd or 'unknown'} USD: {receipt.cost.note}",
    }
    plain = "\n".join(f"{name:<13} {value}" for name, value in rows.items())
    if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
        print(plain)
        return
    from IPython.display import display

    table = "".join(
        f"<tr><th style='text-align:left'>{html.escape(n)}</th><td>{html.escape(v)}</td></tr>" for n, v in rows.items()
    )
    display({"text/plain": plain, "text/html": f"<table>{table}</table>"}, raw=True)

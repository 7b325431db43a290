"""A finished run once more: replayed from its recorded model calls, or judged by another judge."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kiokulab import metering, receipts, run
from kiokulab.errors import InputError, VerificationFailed
from kiokulab.files import digest, dumps, write_atomic
from kiokulab.params import Params, params_class, track_module


def params_of(folder: Path, data: str = "") -> Params:
    """The parameters that a finished run was made with. `data`: a file that the run read and its receipt names by
    sha256 alone. Raises InputError where the folder holds no finished run."""
    receipt = receipts.read_receipt(folder)
    if receipt is None:
        raise InputError(
            "there is no receipt.json here, so this is not a run",
            str(folder),
            "RUN= is a folder outputs/<track>/<edition>/<system>/<run-id>",
        )
    if receipt.status not in ("finished", "units_failed"):
        raise InputError(
            f"the run is not finished: {receipt.status}, {receipt.reason}", str(folder), "Run its command again first"
        )
    cls = params_class(receipt.track)
    return cls.restored(receipt.parameters, data) if hasattr(cls, "restored") else cls.checked(receipt.parameters)


def replay(folder: Path, out: Any = None, data: str = "") -> str:
    """Run all steps of a run again in a folder of its own: model calls are answered by its record, in call order per
    unit and role, and nothing else answers. Returns a line for the terminal.

    Raises VerificationFailed with the request's difference where something is asked that was not recorded, and with the
    first figure that differs where metrics.json is not the same bytes; what a failed replay made is kept and named.
    """
    folder = Path(folder).resolve()
    base = params_of(folder, data)
    made = Path(tempfile.mkdtemp(prefix="kiokulab-replay-"))
    with ExitStack() as stack:
        for name, value in (("KIOKULAB_OUTPUTS", str(made)), (metering.REPLAY, str(folder))):
            stack.enter_context(run._in_environment(name, value))
        (done,) = run.run_track(base, [base.system], out=out)
    if done.error is not None:
        raise (
            done.error
            if isinstance(done.error, VerificationFailed)
            else VerificationFailed([f"the replay in {done.folder} did not end well: {done.error}"])
        )
    old, new = ((place / "metrics.json").read_bytes() for place in (folder, done.folder))
    if old != new:
        where = receipts._first_difference(json.loads(old), json.loads(new)) or "its bytes differ"
        raise VerificationFailed([f"metrics.json: {where} when replayed (the replay is in {done.folder})"])
    cost = metering.cost_of(folder)
    shutil.rmtree(made, ignore_errors=True)
    return f"replayed: {folder}: {cost['calls']} recorded model calls, same metrics.json, byte for byte"


def judge(folder: Path, changes: dict[str, Any], data: str = "") -> run.Run:
    """A sibling of the run in `folder` that takes its ingestion over and judges it by `changes` (judge, answerer,
    grader; reader, panel). Returns the run; its errors are in `.error`. Raises InputError where the sibling would be
    the run itself."""
    folder = Path(folder).resolve()
    base = params_of(folder, data)
    if receipts.read_receipt(folder).status != "finished":
        raise InputError(
            "some units of the run failed",
            str(folder),
            "Run its command again first: a sibling takes over what is whole",
        )
    params = type(base).checked({**base.model_dump(), **changes})
    what = receipts.identity(params)
    target = receipts._run_folder(params, what)
    if target == folder:
        raise InputError(
            "that is how the run was judged already", f"RUN={folder}", "Give another JUDGE, ANSWERER or GRADER"
        )
    for name in ("system", "edition", "rules_version"):
        known = receipts.read_proof(folder, "2-ingest")
        was = {
            "system": {key: known.versions.system.get(key) for key in what["system"]},
            "edition": known.edition,
            "rules_version": known.rules_version,
        }[name]
        if was != what[name]:
            raise InputError(
                f"the run was made with another {name} than is here now",
                str(folder),
                "Ingest again: the parts would not belong together",
            )
    track = track_module(params.track)
    if receipts.read_proof(target, "2-ingest") is None:
        _adopt(folder, target, params, what, track.STEPS[:2])
    (done,) = run.run_track(params, [params.system])
    return done


def _adopt(parent: Path, target: Path, params: Params, what: dict[str, Any], steps: tuple[str, ...]) -> None:
    """Copy what `steps` of `parent` left into `target`, under proofs of the new run that name their parent."""
    with run.locked(target):
        previous, notebooks = None, {}
        for step in steps:
            proof = receipts.read_proof(parent, step)
            for path, known in proof.outputs.items():
                if receipts._digest_of(parent / path) != known:
                    raise InputError(
                        f"{path} is not what step {step} wrote", str(parent / path), "make verify RUN=... says more"
                    )
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(parent / path, target / path)
            body = json.loads((parent / "steps" / f"{step}.json").read_bytes())
            times = body.pop("times")
            body.pop("digest")
            body |= {
                "run": receipts._run_id(what),
                "parameters": what["parameters"],
                "previous": previous,
                "parent": receipts._beside_name(str(parent)),
            }
            previous = digest(body)
            write_atomic(target / "steps" / f"{step}.json", dumps({**body, "digest": previous, "times": times}) + "\n")
            text, notebooks[step] = receipts.stamp(json.loads((parent / f"{step}.ipynb").read_bytes()), target, step)
            write_atomic(target / f"{step}.ipynb", text)
        receipts.write_receipt(
            target,
            params,
            what,
            status="running",
            reason=f"steps {', '.join(steps)} are those of {parent.name}",
            exits=dict.fromkeys(steps, 0),
            notebooks=notebooks,
        )

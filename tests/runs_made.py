"""Small finished runs of the kioku track for the tests of what comes after a run, made by the steps' own functions and
without notebooks, once a test session."""

import atexit
import functools
import importlib
import os
import shutil
import tempfile
from pathlib import Path

from kiokulab import receipts
from kiokulab.params import params_class

BASE = {"personas": 4, "bootstrap": 200, "jobs": 2}


def make(root, system, track="kioku", **parameters):
    """One run under `root`, all four steps; returns its folder."""
    before = os.environ.get("KIOKULAB_OUTPUTS")
    os.environ["KIOKULAB_OUTPUTS"] = str(root)
    try:
        params = params_class(track).checked(
            {**(BASE if track == "kioku" else {"jobs": 2}), "track": track, "system": system, **parameters}
        )
        for name in ("1-generate", "2-ingest", "3-judge", "4-analyze"):
            step = receipts.begin(name, params)
            importlib.import_module(f"kiokulab.{track}.{name[2:]}").run(step.folder, step.params)
            receipts.finish(step)
        return step.folder
    finally:
        if before is None:
            del os.environ["KIOKULAB_OUTPUTS"]
        else:
            os.environ["KIOKULAB_OUTPUTS"] = before


@functools.cache
def standard():
    """outputs/ with oracle, null, store-everything and replace-similar on four personas: read it, never write to it."""
    root = Path(tempfile.mkdtemp(prefix="kiokulab-runs-")).resolve()
    atexit.register(shutil.rmtree, root, True)
    for system in ("oracle", "null", "store-everything", "replace-similar"):
        make(root, system)
    return root


def copy(tmp_path):
    """A copy of `standard` that a test may change."""
    target = tmp_path / "outputs"
    shutil.copytree(standard(), target)
    return target


def folder(root, system):
    return next((Path(root) / "kioku" / "v0.1" / system).iterdir())

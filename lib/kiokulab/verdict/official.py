"""The official prompts, taken at run time from a checkout of the official repository that the user names.

Nothing of that repository is in this kit. Two functions are read as source, checked to be nothing but string
formatting, and run in a namespace that holds only what they need. Running code of a checkout is the user's decision;
the check keeps it to what the prompts need.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kiokulab.errors import InputError

ANSCHECK_ARGUMENTS = ["task", "question", "answer", "response", "abstention"]
PREPARE_ARGUMENTS = [
    "entry",
    "retriever_type",
    "topk_context",
    "useronly",
    "history_format",
    "cot",
    "tokenizer",
    "tokenizer_backend",
    "max_retrieval_length",
    "merge_key_expansion_into_value",
    "con",
    "con_client",
    "con_model",
]
# sha256[:16] of each judge prompt rendered with empty texts, in every commit of the repository that was seen
EXPECTED = {
    "single-session-user": "3b1faed14fec979a",
    "single-session-assistant": "3b1faed14fec979a",
    "multi-session": "3b1faed14fec979a",
    "temporal-reasoning": "69b0629119e7d092",
    "knowledge-update": "9056498ebe285893",
    "single-session-preference": "76344c0aacfb4a88",
    "abstention": "9e42b15205bb87f5",
}
BUILTINS = {
    "zip": zip,
    "enumerate": enumerate,
    "len": len,
    "type": type,
    "int": int,
    "print": lambda *a, **k: None,
    "str": str,
    "list": list,
    "dict": dict,
    "range": range,
    "isinstance": isinstance,
    "sorted": sorted,
    "min": min,
    "max": max,
    "reversed": reversed,
    "set": set,
    "tuple": tuple,
    "bool": bool,
    "NotImplementedError": NotImplementedError,
    "AssertionError": AssertionError,
    "ValueError": ValueError,
}
# attributes that lead out of plain values: private ones, and what generators, frames, tracebacks and code objects offer
INTROSPECTION = ("_", "gi_", "cr_", "ag_", "f_", "tb_", "co_", "mro")
FORBIDDEN = (
    ast.Import,
    ast.ImportFrom,
    ast.Global,
    ast.Nonlocal,
    ast.ClassDef,
    ast.AsyncFunctionDef,
    ast.Await,
    ast.With,
    ast.AsyncWith,
)


@dataclass
class Official:
    """The two functions, the judge model's full name, and where they came from. `warnings` is printed in the report."""

    anscheck: Callable[..., str]
    prepare: Callable[..., str]
    judge_models: dict[str, str]
    commit: str
    files: dict[str, str]
    fingerprints: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def _function(tree: ast.Module, name: str, arguments: list[str], where: str) -> ast.FunctionDef:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if len(found) != 1:
        raise InputError(f"{len(found)} functions {name} at the top level, one is needed", where)
    names = [argument.arg for argument in found[0].args.args]
    if names != arguments or found[0].args.vararg or found[0].args.kwarg or found[0].decorator_list:
        raise InputError(
            f"{name} takes ({', '.join(names)}), not what this kit knows",
            where,
            "The repository has changed; the kit must be looked at first",
        )
    return found[0]


def _refuse_impure(node: ast.FunctionDef, allowed: set[str], where: str) -> None:
    """Raise InputError where the function could do more than format text: imports, dunder attributes, unknown names."""
    bound = {argument.arg for argument in node.args.args}
    bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)} | {
        a.arg for n in ast.walk(node) if isinstance(n, (ast.Lambda, ast.FunctionDef)) for a in n.args.args
    }
    for inner in ast.walk(node):
        place = f"{where}:{getattr(inner, 'lineno', node.lineno)}"
        if isinstance(inner, FORBIDDEN):
            raise InputError(
                f"{node.name} holds a {type(inner).__name__}", place, "Only string formatting is run from a checkout"
            )
        if isinstance(inner, ast.Attribute) and inner.attr.startswith(INTROSPECTION):
            raise InputError(
                f"{node.name} reaches for {inner.attr}", place, "Only string formatting is run from a checkout"
            )
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id not in bound | allowed:
            raise InputError(
                f"{node.name} uses the name {inner.id}", place, "Only string formatting is run from a checkout"
            )


def _compile(node: ast.FunctionDef, names: dict[str, Any], where: str) -> Callable[..., str]:
    module = ast.fix_missing_locations(ast.Module(body=[node], type_ignores=[]))
    namespace: dict[str, Any] = {
        "__builtins__": {k: v for k, v in names.items() if k in BUILTINS},
        **{k: v for k, v in names.items() if k not in BUILTINS},
    }
    exec(compile(module, where, "exec"), namespace)  # noqa: S102 (checked above; see the module's head)
    return namespace[node.name]


def fingerprints(anscheck: Callable[..., str]) -> dict[str, str]:
    """sha256[:16] of each judge prompt rendered with empty texts."""
    short = lambda text: hashlib.sha256(text.encode()).hexdigest()[:16]
    return {task: short(anscheck(task, "", "", "", abstention=False)) for task in EXPECTED if task != "abstention"} | {
        "abstention": short(anscheck("multi-session", "", "", "", abstention=True))
    }


def load(repository: str | Path, metered: Callable[..., Any] | None = None) -> Official:
    """Read the two functions from a checkout. `metered` stands in for the repository's own model call, which is only
    needed where a note per session is written (`con`). Raises InputError naming file and line."""
    root = Path(repository).expanduser()
    paths = {"evaluate": root / "src/evaluation/evaluate_qa.py", "generate": root / "src/generation/run_generation.py"}
    trees, files = {}, {}
    for key, path in paths.items():
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot be read ({error.strerror})",
                str(path),
                "LONGMEMEVAL_REPO is a checkout of the official repository",
            ) from None
        files[str(path.relative_to(root))] = hashlib.sha256(text.encode()).hexdigest()
        try:
            trees[key] = ast.parse(text)
        except SyntaxError as error:
            raise InputError(f"not Python ({error.msg})", f"{path}:{error.lineno}") from None
    check = _function(trees["evaluate"], "get_anscheck_prompt", ANSCHECK_ARGUMENTS, str(paths["evaluate"]))
    _refuse_impure(check, {"NotImplementedError"}, str(paths["evaluate"]))
    prepare = _function(trees["generate"], "prepare_prompt", PREPARE_ARGUMENTS, str(paths["generate"]))
    # of json no more than this: the module itself would lead to `json.codecs.open`
    extra = {
        "json": SimpleNamespace(dumps=json.dumps, loads=json.loads),
        "chat_completions_with_backoff": metered or _no_call,
    }
    _refuse_impure(prepare, {*BUILTINS, *extra}, str(paths["generate"]))
    zoo = next(
        (
            node.value
            for node in trees["evaluate"].body
            if isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == "model_zoo" for t in node.targets)
        ),
        None,
    )
    try:
        models = (
            {
                short: full[0] if isinstance(full, (tuple, list)) else full
                for short, full in ast.literal_eval(zoo).items()
            }
            if zoo
            else {}
        )
    except (ValueError, AttributeError):
        models = {}
    anscheck = _compile(check, {"NotImplementedError": NotImplementedError}, str(paths["evaluate"]))
    found = Official(
        anscheck,
        _compile(prepare, {**BUILTINS, **extra}, str(paths["generate"])),
        models,
        _commit(root),
        files,
        fingerprints(anscheck),
    )
    for task, expected in EXPECTED.items():
        if found.fingerprints[task] != expected:
            found.warnings.append(
                f"the {task} prompt is not the known one: {found.fingerprints[task]}, known {expected}"
            )
    return found


def _no_call(*_: Any, **__: Any) -> Any:
    raise InputError("the official prompt function asked for a model call that this run does not make")


def _commit(root: Path) -> str:
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "not a git checkout"

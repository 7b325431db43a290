"""Parameters of the verdict track, and what a system's name means in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from kiokulab.errors import InputError
from kiokulab.files import digest, sha256_file
from kiokulab.params import Params, kit_system, own_system, root

# Releases that are known by their sha256: the cleaned one of September 2025. Oracle's digest is published nowhere
# that we found.
KNOWN = {
    "d6f21ea9d60a0d56f34a05b609c79c88a451d2ae03597821ea3d5a9678c3a442": "LongMemEval-S, cleaned release",
    "9d79e5524794a2e6900a3aa9cb7d9152c5a3e8319c9a87c25494ba1eacee495f": "LongMemEval-M, cleaned release",
    "73bd0062c6a8116430698d7f9a4aa2c7a1a3fdbfe76fcacb110f90876df2227f": "23 genuine questions, partly re-assembled: not an official file",
}
EXTRACTIVE = "extractive"  # the built-in model
NO_PROMPTS = "none used: no model reads or judges"
MODEL = r"llm:\S+"
SHIPPED = root() / "data" / "verdict" / "disputed.yml"
HERE = Path(__file__).resolve().parent
# of this track: they keep nothing between questions, so that all questions may share one process
BASELINES = {
    "full-context": "the whole history in the reader's prompt",
    "plain-rag": "the sessions most similar to the question by the kit's embedder",
    "bm25": "the sessions that BM25 ranks first",
    "oracle-sessions": "exactly the sessions labelled as holding the answer: what a perfect search would give",
}


class VerdictParams(Params):
    """Parameters of the verdict track (LongMemEval under MemVerdict's rules)."""

    track: str = Field(default="verdict", pattern=r"^[a-z][a-z0-9_]*$", description="name of the track")
    system: str = Field(
        default="plain-rag",
        min_length=1,
        description="full-context, plain-rag, bm25, oracle-sessions, or a memory system of the kit",
    )
    data: str = Field(default="", description="path of a LongMemEval file to use instead of the edition's questions")
    label: str = Field(
        default="",
        description="what a file is whose sha256 is not a known release; an unknown file without a label is refused",
    )
    questions: int = Field(
        default=30, ge=0, description="size of the stratified sample; 0, or more than there are = all questions"
    )
    ids: str = Field(
        default="", description="path of a file with one question_id a line, to mirror somebody else's sample"
    )
    top_sessions: int = Field(default=10, ge=1, description="sessions that plain-rag and bm25 pass to the reader")
    k: int = Field(default=30, ge=1, description="results asked of a memory system's search")
    embedder: str = Field(
        default="use",
        pattern=r"^(use|use-denoise|hash|st:.+)$",
        description="embedder of plain-rag, of systems and of the extractive reader",
    )
    reader: str = Field(
        default="extractive",
        pattern=rf"^(extractive|{MODEL})$",
        description="who answers: extractive (no model), or llm:<model>",
    )
    judge: str = Field(
        default="rules", pattern=rf"^(rules|{MODEL})$", description="who grades: rules (no model), or llm:<model>"
    )
    panel: str = Field(
        default="",
        pattern=rf"^({MODEL}(,{MODEL})*)?$",
        description="further judges, llm:<model>,llm:<model>,... ; they decide by majority",
    )
    official_repo: str = Field(
        default="",
        validate_default=True,
        description="checkout of the official repository with its prompts; empty = $LONGMEMEVAL_REPO, else the kit's own prompts",
    )
    stepwise: bool = Field(default=True, description="whether the reader is asked to go step by step, for histories")
    facts_stepwise: bool = Field(
        default=True, description="the same for facts of a memory system; MemVerdict does not say which it uses"
    )
    disputed: str = Field(
        default="shipped",
        description="YAML list of questions with disputed gold answers; shipped = data/verdict/disputed.yml, empty = none",
    )
    internal_model: str = Field(
        default="extractive",
        min_length=1,
        description="language model that a memory system calls: extractive (built in, plumbing), or a name at the endpoint",
    )
    endpoint: str = Field(
        default="https://openrouter.ai/api/v1", description="base URL of the OpenAI-compatible endpoint of live runs"
    )
    budget_usd: float = Field(
        default=0.0, ge=0, description="dollars that a live run may cost; 0 = none given, and a live run asks for one"
    )
    concurrency: int = Field(default=8, ge=1, description="model calls under way at once")
    bootstrap: int = Field(default=2000, ge=0, description="bootstrap samples of the task average's interval")
    unit_timeout_s: int = Field(
        default=7200,
        ge=1,
        description="seconds for one question; MemVerdict allows two hours, and what takes longer is wrong",
    )

    @field_validator("data", "ids", "disputed", "official_repo")
    @classmethod
    def _absolute(cls, value: str, info: ValidationInfo) -> str:
        """Paths are taken from where the command is run: the notebooks' processes run elsewhere."""
        if info.field_name == "official_repo":
            value = value or os.environ.get("LONGMEMEVAL_REPO", "")
        return value if value in ("", "shipped") else str(Path(value).expanduser().resolve())

    def deciding(self) -> dict[str, Any]:
        """As in `Params`; files stand for themselves by their content, and the time limit and the isolation decide
        too."""
        values = super().deciding()
        for name, path in (("data", self.data), ("ids", self.ids), ("disputed", self.disputed_file)):
            if path and not Path(path).is_file():
                raise InputError(
                    "there is no such file",
                    f"parameter {name} = {path}",
                    "make data-longmemeval says how to get the official file" if name == "data" else None,
                )
            values[name] = _content(Path(path)) if path else ""
        if self.data and not self.label and values["data"] not in KNOWN:
            raise InputError(
                f"unknown file (sha256 {values['data']})",
                f"parameter data = {self.data}",
                "Name what it is with LABEL=..., or use the cleaned release",
            )
        return {
            **values,
            "unit_timeout_s": self.unit_timeout_s,
            "isolation": isolation(self.system),
            "official_repo": "",
            "prompts": prompts_digest(self.official_repo) if self.asks_models else NO_PROMPTS,
        }

    @classmethod
    def restored(cls, parameters: Mapping[str, Any], data: str = "") -> "VerdictParams":
        """The parameters of a finished run from its receipt, which names files by their sha256. `data`: path of the
        file of questions, where the run had one of its own. Raises InputError where a file is needed that nobody gave,
        or another one was."""
        values = {name: value for name, value in parameters.items() if name in cls.model_fields}
        if values["data"]:
            if not data:
                raise InputError(
                    f"the run asked questions of a file of its own (sha256 {values['data']})",
                    "DATA",
                    "Give its path: DATA=longmemeval_s_cleaned.json",
                )
            if _content(Path(data)) != values["data"]:
                raise InputError(f"this is not the file of the run (sha256 {values['data']})", f"DATA={data}")
            values["data"] = data
        if values["ids"]:
            raise InputError(
                "the run's questions were named by a file of ids, which its receipt holds the digest of alone", "ids"
            )
        if values["disputed"]:
            if _content(SHIPPED) != values["disputed"]:
                raise InputError("the run had a list of disputed questions that is not the shipped one", "disputed")
            values["disputed"] = "shipped"
        return cls.checked(values)

    @property
    def asks_models(self) -> bool:
        """Whether a reader or a judge is a model: only then is a prompt used."""
        return self.reader != "extractive" or self.judge != "rules" or bool(self.panel)

    @property
    def disputed_file(self) -> str:
        return str(SHIPPED) if self.disputed == "shipped" else self.disputed


_digests: dict[tuple[str, int, int], str] = {}


def _content(path: Path) -> str:
    """sha256 of a file, read once while it stays the same: the official file has 277 MB, and four steps ask."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _digests:
        _digests[key] = sha256_file(path)
    return _digests[key]


def isolation(system: str) -> str:
    """How questions are kept apart, for the receipt."""
    return (
        "one process for all questions: the baseline keeps nothing"
        if _plain(system) in BASELINES
        else "one process and one store a question"
    )


def prompts_digest(repository: str) -> str:
    """What stands for the prompts in a run's identity: the two official files, or the kit's own prompt file."""
    found = prompt_files(repository)
    if not repository:
        return f"own {next(iter(found.values()))[:16]}"
    return f"official {digest(list(found.values()))[:16]}"


def prompt_files(repository: str) -> dict[str, str]:
    """File of prompts -> sha256: the kit's own, or the two of a checkout of the official repository."""
    if not repository:
        return {"prompts-v1.yml": sha256_file(HERE / "prompts-v1.yml")}
    files = [
        Path(repository).expanduser() / name
        for name in ("src/evaluation/evaluate_qa.py", "src/generation/run_generation.py")
    ]
    for path in files:
        if not path.is_file():
            raise InputError(
                "there is no such file", str(path), "LONGMEMEVAL_REPO is a checkout of the official repository"
            )
    return {path.name: sha256_file(path) for path in files}


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def describe_system(name: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything about a system that decides a result: a baseline of this track, or a system of the kit."""
    if _plain(name) in BASELINES:
        from kiokulab import __version__
        from kiokulab.verdict.baselines import version

        return own_system(_plain(name), version(_plain(name)) or __version__, HERE / "baselines.py") | {
            "feeds": "the whole history",
            "dates": "native",
            "model": "none",
            "embeddings": False,
            "capabilities": [],
        }
    return kit_system(name, settings, beside=f"baselines of this track: {', '.join(BASELINES)}")

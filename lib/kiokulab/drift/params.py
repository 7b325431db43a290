"""Parameters of the drift track, and what a system's name means in it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from kiokulab.errors import InputError
from kiokulab.files import sha256_file
from kiokulab.params import ModelParams, kit_system, own_system, root

TRANSCRIPT = "transcript"  # the name of the system whose replies a file brings
ARM_NAMES = (
    "oracle",
    "mute",
    "chance",
    "curated",
    "whole",
    "grep",
    "tfidf",
    "vector",
)  # as in arms.py, without importing it


class DriftParams(ModelParams):
    """Parameters of the drift track (KnowledgeDrift)."""

    track: str = Field(default="drift", pattern=r"^[a-z][a-z0-9_]*$", description="name of the track")
    system: str = Field(
        default="tfidf",
        min_length=1,
        description="an arm (" + ", ".join(ARM_NAMES) + "), a memory system, or transcript",
    )
    language: Literal["all", "en", "ja"] = Field(default="all", description="language of the worlds: all, en or ja")
    size: int = Field(
        default=0, ge=0, le=20_000, description="tested facts of a generated world; 0 = the edition's frozen worlds"
    )
    world_seed: int = Field(default=1, ge=0, description="seed of a generated world")
    shape: Literal["stale", "twin", "late"] = Field(
        default="stale", description="how stale copies look in a generated world"
    )
    authority: bool = Field(default=False, description="whether a generated world poses the authority family too")
    script: str = Field(
        default="", description="path of a script file (.json or .json.gz) to run instead of the edition's worlds"
    )
    transcript: str = Field(
        default="", description="path of a transcript file to grade; system must be 'transcript', and script be given"
    )
    embedder: str = Field(
        default="use",
        pattern=r"^(use|use-denoise|hash|st:.+)$",
        description="embedder: use, use-denoise, st:<folder or name>",
    )
    bootstrap: int = Field(default=2000, ge=0, description="bootstrap samples of an interval")

    @field_validator("script", "transcript")
    @classmethod
    def _where_it_lies(cls, value: str) -> str:
        """The file's absolute path: a notebook runs in another folder than the command. A relative path is looked for
        where the command is run, then in the checkout."""
        if not value:
            return value
        for path in (Path(value).expanduser(), root() / value):
            if path.is_file():
                return str(path.resolve())
        raise ValueError("There is no such file")

    def deciding(self) -> dict[str, Any]:
        """As in `Params`; a file stands for itself by its content, not by where it lies, and a transcript that this
        system does not answer from (an anchor beside it) decides nothing."""
        values = super().deciding()
        # it decides nothing then, and an arm beside a live run is the arm of any other run
        if system_model(self) is None:
            del values["model"], values["endpoint"]
        answering = self.system.strip().lower() == TRANSCRIPT
        if not answering:
            values["transcript"] = ""
        elif bool(self.script) != bool(self.transcript):
            missing = "script" if self.transcript else "transcript"
            raise InputError(f"a transcript is graded by its script, and no {missing} is given", f"parameter {missing}")
        for name in ("script", "transcript"):
            if values[name]:
                values[name] = sha256_file(values[name])
        if values["script"]:
            _check(self.script, values["script"], self.transcript if answering else "", values["transcript"])
        return values


@cache
def _check(script: str, script_sha256: str, transcript: str, transcript_sha256: str) -> None:
    """Read the files as the steps will, so that a bad one is told before anything starts; once a process and
    content."""
    from kiokulab.drift.script import load_script, load_transcript

    world = load_script(script)
    if transcript and (answered := load_transcript(transcript).script_digest) != world.digest:
        raise InputError(
            f"the transcript answers the script {ascii(answered)[:40]}, but this one is {world.digest}",
            transcript,
            "Give the script that it was made with",
        )


def default_systems(params: DriftParams) -> tuple[str, ...]:
    """What is run where no system is named: all arms, or the transcript that is given beside the anchors."""
    from kiokulab.drift import ANCHORS, DEFAULT_SYSTEMS

    return (TRANSCRIPT, *ANCHORS) if params.transcript else DEFAULT_SYSTEMS


def system_model(params: DriftParams) -> str | None:
    """The language model that the run's memory system calls; None where it calls none."""
    return params.model if describe_system(params.system).get("model") == "required" else None


def describe_system(name: str) -> dict[str, Any]:
    """Everything about a system that decides a result: an arm of this track, a system of the kit, or `transcript`.

    An arm goes before a system of the kit of the same name (oracle, vector): it knows the twelve operations."""
    typed = name.strip().lower()
    if typed in ARM_NAMES or typed == TRANSCRIPT:
        from kiokulab import __version__

        source = Path(__file__).with_name("arms.py" if typed in ARM_NAMES else "judge.py")
        return own_system(typed, __version__ if typed in ARM_NAMES else None, source)
    return kit_system(name, beside=f"arms of this track: {', '.join(ARM_NAMES)}, transcript")

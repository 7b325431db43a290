"""Parameters: one flat set that the four notebooks of a track share, where they come from, and where a run lies.

A parameter either decides the result, and then it is part of the run's identity, or it does not (`UNDECIDING`), and
then the same run is found again whatever its value. No secret is ever a parameter: notebooks print parameters.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kiokulab.errors import InputError
from kiokulab.files import digest, sha256_file

UNDECIDING = frozenset(
    {"jobs", "engine", "scheduler", "beside", "run_dir", "unit_timeout_s", "budget_usd", "concurrency"}
)


class Params(BaseModel):
    """What every track has. Types are strict: `"7"` is not a number, `true` is not 1, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    track: str = Field(default="kioku", pattern=r"^[a-z][a-z0-9_]*$", description="name of the track")
    edition: str = Field(
        default="v0.1", min_length=1, description="edition's name under data/<track>/, or a path to its folder"
    )
    system: str = Field(
        default="store-everything", min_length=1, description="name of the memory system, or path/to/file.py:Class"
    )
    settings: dict[str, Any] = Field(default={}, description="overrides of the adapter's own settings, by name")
    seed: int = Field(default=1, ge=0, description="seed of everything that draws: bootstrap, samples")
    unit_timeout_s: int = Field(
        default=3600, ge=1, description="seconds after which one unit is stopped and counted as failed"
    )
    jobs: int = Field(default=0, ge=0, description="units at a time; 0 = the number of cores")
    engine: Literal["local", "dask"] = Field(
        default="local", description="where units run: this machine, or a Dask cluster"
    )
    scheduler: str = Field(default="", description="address of the Dask scheduler, tcp://host:port; empty without Dask")
    beside: list[str] = Field(default=[], description="folders of other runs that 4-analyze shows next to this one")
    run_dir: str = Field(
        default="", description="the run folder; empty = derived from everything that decides the result"
    )

    @classmethod
    def from_namespace(cls, namespace: Mapping[str, Any]) -> "Params":
        """The parameters among a notebook's variables (`globals()`): every variable named like a field.

        Raises InputError with the parameter's name where one has the wrong type, is NaN or is out of range.
        """
        return cls.checked({name: namespace[name] for name in cls.model_fields if name in namespace})

    @classmethod
    def checked(cls, values: Mapping[str, Any], where: Mapping[str, str] | None = None) -> "Params":
        """`values` as a parameter set. `where` maps a name to the place (file:line, option) that a message shall
        name."""
        where = where or {}
        for name in values:
            if name not in cls.model_fields:
                near = _nearest(str(name), cls.model_fields)
                raise InputError(
                    f"unknown parameter {name!r}",
                    where.get(name),
                    (f"Did you mean {near!r}? " if near else "") + f"Known: {', '.join(cls.model_fields)}",
                )
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            field = cls.model_fields[name]
            got = values.get(name)
            raise InputError(
                f"parameter {name!r} = {_short(got)} ({type(got).__name__}): {first['msg'][0].lower()}{first['msg'][1:]}",
                where.get(name, f"parameter {name}"),
                f"{name}: {field.description}" if field.description else None,
            ) from None

    def deciding(self) -> dict[str, Any]:
        """The parameters that decide the result, as plain JSON."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in UNDECIDING}


class ModelParams(Params):
    """What a track has whose memory systems may ask a language model."""

    model: str = Field(
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


class KiokuParams(ModelParams):
    """Parameters of the kioku track (KiokuBench)."""

    personas: int = Field(
        default=0, ge=0, description="how many personas; 0 = all, n = the first n taken alternately from the languages"
    )
    route: Literal["raw", "requests", "signaled", "all"] = Field(
        default="raw", description="what the system is fed: the conversation, or requests"
    )
    routing: Literal["none", "forget"] = Field(
        default="none", description="whether a forget request goes to the system's own forget call"
    )
    judge: str = Field(
        default="rules",
        pattern=r"^(rules|llm:.+|panel:.+)$",
        description="who decides whether a memory states a fact: rules, llm:<model>, or panel:[<model>, <model>, <model>]",
    )
    answerer: str = Field(
        default="extractive",
        pattern=r"^(extractive|llm:.+)$",
        description="who answers the check questions: extractive, or llm:<model>",
    )
    grader: str = Field(
        default="rules", pattern=r"^(rules|llm:.+)$", description="who grades the answers: rules, or llm:<model>"
    )
    judge_set_pairs: int = Field(
        default=0,
        ge=0,
        description="labelled pairs a language that a model as judge is measured on, mixed as the set is; 0 = all, as for rules",
    )
    embedder: str = Field(
        default="use",
        pattern=r"^(use|use-denoise|hash|st:.+)$",
        description="embedder: use, use-denoise, st:<folder or name>",
    )
    k: int = Field(default=30, ge=1, description="results asked of a search")
    budget_tokens: int = Field(default=1000, ge=1, description="tokens of context that the answerer may read")
    floor: float = Field(default=0.01, gt=0, le=1, description="lowest value of a pillar in the index")
    bootstrap: int = Field(default=2000, ge=0, description="bootstrap samples of an interval")

    def deciding(self) -> dict[str, Any]:
        """As in `Params`. Rules are always measured on all pairs: their number is then nothing that decides."""
        values = super().deciding()
        if self.judge == "rules":
            del values["judge_set_pairs"]
        return values


# --- tracks and places ------------------------------------------------------------------------------------------


def track_module(name: str) -> ModuleType:
    """The track's package: `kiokulab.<name>`, or an installed package `kiokulab_<name>` (a track of one's own).

    It has TRACK, STEPS, RULES_VERSION, DEFAULT_SYSTEMS and ANCHORS, and may have PARAMS (its parameter class),
    NOTEBOOKS (folder of its notebooks), DATA (folder of its editions) and `describe_system(name)`.
    """
    for module in (f"kiokulab.{name}", f"kiokulab_{name}"):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
        else:
            if hasattr(found, "STEPS"):
                return found
    raise InputError(f"there is no track {name!r}", "parameter track", "Tracks that are built: kioku")


def params_class(track: str) -> type[Params]:
    """The track's parameter class."""
    return getattr(track_module(track), "PARAMS", KiokuParams)


def root() -> Path:
    """The kit's checkout: where notebooks/, params/ and data/ lie."""
    return Path(__file__).resolve().parents[2]


def outputs_root() -> Path:
    """Where run folders go: $KIOKULAB_OUTPUTS, else outputs/ of the checkout."""
    return Path(os.environ.get("KIOKULAB_OUTPUTS") or root() / "outputs").resolve()


def notebooks_of(track: str) -> Path:
    """The folder of the track's notebooks."""
    return Path(getattr(track_module(track), "NOTEBOOKS", root() / "notebooks" / track))


def edition_folder(track: str, edition: str) -> Path:
    """The folder of an edition given by name or by path. Raises InputError with the list where there is none."""
    data = Path(getattr(track_module(track), "DATA", root() / "data" / track))
    named = data / edition
    # a notebook runs in another folder than `make`
    for folder in (
        named,
        Path(edition).expanduser(),
        root() / edition,
    ):
        if (folder / "edition.json").is_file():
            return folder.resolve()
    there = sorted(path.parent.name for path in data.glob("*/edition.json"))
    raise InputError(
        f"there is no edition {edition!r} (no edition.json in {named} or {edition})",
        "parameter edition",
        f"Editions here: {', '.join(there) or 'none yet'}. Make one: make dataset SEED=7 PERSONAS=100",
    )


def edition_digest(track: str, edition: str) -> str:
    """sha256 over names and bytes of all JSON files of the edition, as they lie on the disk now."""
    folder = edition_folder(track, edition)
    files = sorted(
        path for path in folder.iterdir() if path.suffix in {".json", ".jsonl"} and path.name != "reviews.jsonl"
    )
    return digest({path.name: sha256_file(path) for path in files})


# --- where parameters come from ---------------------------------------------------------------------------------


def read_profile(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, str]]:
    """A YAML profile as (values, place of each name as 'file:line'). An empty or comment-only file has no values.

    A byte order mark and CRLF line ends are harmless. Raises InputError with file:line for a file that is not there,
    not UTF-8, not YAML, not a mapping at the top, or that names a parameter twice.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"the parameter file cannot be read ({error.strerror})", str(path)) from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError("not UTF-8 text", f"{path}:{line}", "Save the file as UTF-8") from None
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return {}, {}
        if not isinstance(node, yaml.MappingNode):
            raise InputError(
                f"the top of the file is a {node.id}, not 'name: value' lines", f"{path}:{node.start_mark.line + 1}"
            )
        values, places = {}, {}
        for key, value in node.value:
            name, place = key.value, f"{path}:{key.start_mark.line + 1}"
            if key.id != "scalar":
                raise InputError("a parameter's name must be a plain word", place)
            if name in values:
                raise InputError(f"parameter {name!r} is given twice", place, f"First at {places[name]}")
            values[name], places[name] = loader.construct_object(value, deep=True), place
        return values, places
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"not YAML ({problem})", f"{path}:{mark.line + 1}" if mark else str(path)) from None
    finally:
        if loader is not None:
            loader.dispose()


def typed(cls: type[Params], name: str, text: str) -> Any:
    """A command-line string as the type of the field `name`; strings stay as they were typed (`007`, `1e-3`).

    Raises InputError naming the option.
    """
    kind = cls.model_fields[name].annotation
    option = f"option --{name.replace('_', '-')}"
    if kind is int:
        if re.fullmatch(r"[+-]?\d{1,18}", text.strip(), re.ASCII):
            return int(text)
        raise InputError(f"{text!r} is not a whole number", option)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise InputError(f"{text!r} is not a number", option) from None
    if kind is str or getattr(kind, "__origin__", None) is Literal:
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"{text!r} is not YAML", option) from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _nearest(name: str, known: Any) -> str | None:
    import difflib

    near = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return near[0] if near else None


# --- systems, as a track knows them -------------------------------------------------------------------------------------


def own_system(name: str, version: str | None, source: Path) -> dict[str, Any]:
    """What a track says of an arm, a baseline or a responder that it brings itself, by the names of `systems.describe`.
    `source` is the file whose change makes it another one."""
    return {
        "name": name,
        "version": version,
        "lock_digest": None,
        "source_digest": sha256_file(source),
        "environment": None,
        "installed": True,
        "settings": {},
    }


def kit_system(name: str, settings: Mapping[str, Any] | None = None, *, beside: str) -> dict[str, Any]:
    """`systems.describe` of a typed name. Raises InputError for an unknown one, which also names what the track has
    `beside` the systems of the kit."""
    systems = importlib.import_module("kiokulab.systems")
    try:
        return systems.describe(systems.resolve(name).name, settings)
    except InputError as error:
        raise InputError(f"{error.what} ({beside})", error.where, error.do) from None

"""Parameters of the emem track, and what a system's name means in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kiokulab.errors import InputError
from kiokulab.files import sha256_file
from kiokulab.params import ModelParams, kit_system, own_system

REFERENCE = {
    "reference-lexical": "our reference responder without a search model: the client's lexical fallback is what ranks",
    "reference-search": "our reference responder with the kit's embedder behind /v1/memory/search",
}
EXTERNAL = "responder"  # a responder that somebody else runs, at `url`


class EmemParams(ModelParams):
    """Parameters of the emem track (emem-membench)."""

    track: str = Field(default="emem", pattern=r"^[a-z][a-z0-9_]*$", description="name of the track")
    system: str = Field(
        default="reference-lexical",
        min_length=1,
        description="reference-lexical, reference-search, responder (at url), or a memory system behind the bridge",
    )
    dataset: str = Field(
        default="", description="path of a dataset in JSON lines to use instead of the edition's items"
    )
    url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="base URL of a running responder; used by system 'responder' alone",
    )
    tools: Literal["bare", "emem"] = Field(
        default="bare", description="tool names: memory_create (bare) or emem_memory_create (emem)"
    )
    embedder: str = Field(
        default="use",
        pattern=r"^(use|use-denoise|hash|st:.+)$",
        description="embedder of reference-search and of systems that ask for one",
    )
    timeout_s: float = Field(default=120.0, gt=0, description="seconds that one request may take")
    pinned_key: str = Field(
        default="",
        pattern=r"^[a-z2-7]*$",
        description="public key (base32) the receipt must be signed with; empty: not pinned",
    )

    def deciding(self) -> dict[str, Any]:
        """As in `Params`; a dataset stands for itself by its content, not by where it lies."""
        values = super().deciding()
        # it decides nothing then, and an arm beside a live run is the arm of any other run
        if system_model(self) is None:
            del values["model"], values["endpoint"]
        if self.system == EXTERNAL and not self.url:
            raise InputError("system 'responder' needs a url", "parameter url", "make emem URL=http://127.0.0.1:5051")
        if self.system != EXTERNAL:
            values["url"] = ""  # the other systems answer from this machine, also beside a run at a URL
        if self.dataset:
            path = Path(self.dataset).expanduser()
            if not path.is_file():
                raise InputError(
                    "there is no such file", f"parameter dataset = {self.dataset}", "Give the path of a JSON-lines file"
                )
            values["dataset"] = sha256_file(path)
            # upstream decides "sample" or "full" by the file's name, so the name decides a printed field too
            values["dataset_is_named_sample"] = str(path).endswith("sample-longmemeval.jsonl")
        return values


def system_model(params: EmemParams) -> str | None:
    """The language model that the run's memory system calls; None where it calls none."""
    return params.model if describe_system(params.system).get("model") == "required" else None


def describe_system(name: str) -> dict[str, Any]:
    """Everything about a system that decides a result: one of ours, somebody's responder, or a system of the kit."""
    typed = name.strip().lower().replace("_", "-")
    if typed in REFERENCE or typed == EXTERNAL:
        from kiokulab import __version__

        source = Path(__file__).with_name("responder.py" if typed in REFERENCE else "client.py")
        return own_system(typed, __version__ if typed in REFERENCE else None, source)
    return kit_system(name, beside=f"of this track: {', '.join(REFERENCE)}, {EXTERNAL}")

"""Any memory system of the kit behind the responder's wire API, so that the four axes are asked of it too.

A memory system has no files. What a path holds is what the store gained when that path was written, as two dumps show
it; a memory that no write accounts for (made later by the system itself) is listed under a path of its own. What a
system cannot do is answered as a responder without it would (no search model, no scan), and the run says N/A with the
reason; it is never counted as a wrong answer by this bridge.
"""

from __future__ import annotations

import re
from typing import Any

from kiokulab.emem import NAMESPACE
from kiokulab.emem.responder import cid_of
from kiokulab.systems.base import Request, Unsupported

WHEN = "2026-01-01T00:00:00+00:00"  # one fixed date: the track has none


class SystemStore:
    """A `responder.Store` over a connected system. `reasons` collects what was not to be had: operation -> reason."""

    def __init__(self, system: Any, capabilities: frozenset[str], settle_seconds: float = 600.0):
        self.system, self.capabilities, self.settle_seconds = system, capabilities, settle_seconds
        self.written: dict[str, list[str]] = {}  # path -> ids of the memories that its writes added
        self.reasons: dict[str, str] = {}
        self._count = 0

    def _memories(self) -> dict[str, str]:
        return {memory.id: memory.text for memory in self.system.dump() if memory.layer in ("live", "derived")}

    def create(self, path: str, text: str) -> None:
        before = self._memories()
        self._count += 1
        if "write" in self.capabilities:
            self.system.write(path, text)
        else:
            self.system.ingest(Request(f"w{self._count:05d}", WHEN, text), WHEN)
        self.system.settle(self.settle_seconds)
        self.written[path] = self.written.get(path, []) + [
            identity for identity in self._memories() if identity not in before
        ]

    def _files(self) -> dict[str, str]:
        memories, files, claimed = self._memories(), {}, set()
        for path, identities in self.written.items():
            held = [memories[identity] for identity in identities if identity in memories]
            claimed.update(identities)
            files[path] = "\n".join(held)
        for identity, text in memories.items():
            if identity not in claimed:
                files[f"{NAMESPACE}/own_{re.sub('[^A-Za-z0-9]', '_', identity)}.md"] = text
        return files

    def read(self, path: str) -> str | None:
        return self._files().get(path)

    def paths(self, prefix: str) -> list[str]:
        return sorted(path for path in self._files() if path.startswith(prefix))

    def cid(self, path: str) -> str:
        return cid_of(self._files()[path])

    def search(self, query: str, k: int, prefix: str, lexical: bool) -> list[tuple[str, float, str]] | None:
        if "search" not in self.capabilities:
            self.reasons["search"] = "the system has no search call; the client's lexical fallback was used"
            return None
        places = {identity: path for path, identities in self.written.items() for identity in identities}
        hits = self.system.search(query, k, WHEN).hits
        return [
            (
                places.get(hit.id, f"{NAMESPACE}/own_{re.sub('[^A-Za-z0-9]', '_', hit.id or 'hit')}.md"),
                hit.score or 0.0,
                hit.text,
            )
            for hit in hits
        ]

    def contradictions(self) -> list[dict[str, Any]] | None:
        if "contradictions" in self.capabilities:
            return self.system.contradictions()
        self.reasons["contradictions"] = (
            "the system lists no contradictions; two texts kept apart count, as in the original"
        )
        return None


def check_usable(system: Any) -> None:
    """Raise Unsupported where the four axes cannot be asked at all: the store cannot be listed."""
    try:
        system.dump()
    except Unsupported as error:
        raise Unsupported("emem", f"needs a store that can be listed ({error.reason})") from None

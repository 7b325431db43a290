"""Supermemory, the hosted service, as its SDK 5 speaks to it. What was tried and what was not: supermemory.md."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from typing import Any
from urllib.parse import quote

from kiokulab.systems.base import Hit, Ingested, Item, Memory, Results, Session, System, SystemFailure

SYSTEMS = {"supermemory": "Supermemory"}

KEY, KEY_FILE = "SUPERMEMORY_API_KEY", "SUPERMEMORY_ACCESS_FILE"
PAGE = 100


class Supermemory(System):
    """Each session is one document, which the service makes memories of; they are listed with what became of them."""

    name = "supermemory"
    licence = "hosted service"
    needs = "an account and its key"
    feeds = "session"
    dates = "native"
    keeps = "some"
    capabilities = frozenset({"search", "forget", "reset"})
    settings = {
        "base_url": "https://api.supermemory.ai",
        "dreaming": "instant",  # the service's default, dynamic, groups documents and may take minutes longer
        "search_mode": "hybrid",
        "threshold": 0.3,
        "poll_s": 1.0,
        "document_timeout_s": 600,
    }

    def version(self) -> str:
        return "hosted, API of SDK 5.0.1"  # the service has no version

    def open(self, space: str, workdir: str, endpoint: str | None = None) -> None:
        super().open(space, workdir, endpoint)
        from kiokulab.systems.environments import secret

        key = secret(KEY, KEY_FILE)
        if not key:
            raise SystemFailure(
                f"Supermemory needs an account: {KEY_FILE} does not name a file with its key, and {KEY} is not set",
                "not_installed",
            )
        import httpx

        self.client = httpx.Client(
            base_url=self.config["base_url"], headers={"Authorization": f"Bearer {key}"}, timeout=120, trust_env=False
        )
        # a name that no other run has: what it left at the service would be found there
        place = os.path.join(workdir, "namespace.json")
        if not os.path.exists(place):
            with open(place, "w", encoding="utf-8") as file:
                json.dump({"namespace": f"kiokulab-{space}-{secrets.token_hex(6)}", "documents": []}, file)
        with open(place, encoding="utf-8") as file:
            kept = json.load(file)
        self.place, self.namespace, self.documents = place, kept["namespace"], kept["documents"]
        self.waiting: list[str] = []

    def close(self) -> None:
        self.client.close()

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, missing: bool = False, **params: Any
    ) -> dict[str, Any]:
        """One request; its answer. Busy servers (429, 503) are asked again. Raises SystemFailure for every other
        failure; with `missing`, 404 gives an empty answer."""
        import httpx

        url = f"/ns/{quote(self.namespace, safe='')}{path}"
        for attempt in range(6):
            try:
                answer = self.client.request(method, url, json=body, params=params or None)
            except httpx.HTTPError as error:
                raise SystemFailure(f"{method} {path}: {type(error).__name__}: {error}") from None
            if answer.status_code not in (429, 503) or attempt == 5:
                break
            try:
                wait = float(answer.headers.get("Retry-After", 2**attempt))
            except ValueError:  # a date
                wait = 2**attempt
            time.sleep(min(wait, 60))
        if missing and answer.status_code == 404:
            return {}
        if answer.status_code >= 300:
            raise SystemFailure(f"{method} {path}: HTTP {answer.status_code}: {answer.text[:300]}")
        try:
            said = answer.json() if answer.content else {}
        except ValueError:
            raise SystemFailure(f"{method} {path}: the answer is no JSON: {answer.text[:200]}") from None
        if not isinstance(said, dict):
            raise SystemFailure(f"{method} {path}: the answer is no object")
        return said

    # writing
    def reset(self) -> None:
        self._ask("DELETE", "", missing=True)
        self.documents, self.waiting = [], []

    def ingest(self, item: Item, when: str) -> Ingested:
        text = "\n".join(f"{turn.role}: {turn.text}" for turn in item.turns) if isinstance(item, Session) else item.text
        id = hashlib.sha256(json.dumps([item.id, len(self.documents)]).encode()).hexdigest()[:24]
        body = {"content": text, "id": id, "date": when, "taskType": "memory", "dreaming": self.config["dreaming"]}
        self._ask("POST", "/document", body)
        self.documents.append(id)
        self.waiting.append(id)
        with open(self.place, "w", encoding="utf-8") as file:
            json.dump({"namespace": self.namespace, "documents": self.documents}, file)
        self.settle(self.config["document_timeout_s"])  # the next session may only come when this one is in
        return Ingested()

    def settle(self, timeout: float) -> None:
        """Both the document and what the service calls dreaming over it must be done: searches before that find
        less."""
        ended = time.monotonic() + timeout
        for id in list(self.waiting):
            while True:
                system = self._ask("GET", f"/document/{quote(id, safe='')}").get("system") or {}
                if system.get("status") == "failed":
                    raise SystemFailure(f"the service could not take document {id}")
                if system.get("status") == "done" and system.get("dreamingStatus") == "done":
                    break
                if time.monotonic() > ended:
                    raise SystemFailure(
                        f"document {id} is {system.get('status')}, dreaming {system.get('dreamingStatus')}, after {timeout:g} s",
                        "not_ready",
                    )
                time.sleep(self.config["poll_s"])
            self.waiting.remove(id)

    def forget(self, selector: dict[str, Any]) -> int | None:
        if selector.get("all"):
            count = len(self._live())
            self.reset()
            return count
        if "query" in selector:
            said = self._ask("DELETE", "/memories/semantic", {"query": selector["query"], "dryRun": False})
        else:
            said = self._ask("DELETE", "/memories", {"ids": list(selector["ids"])})
        if said.get("errors"):  # HTTP 200 does not mean that all of them are gone
            raise SystemFailure(f"{len(said['errors'])} memories were not forgotten: {str(said['errors'][0])[:200]}")
        return said.get("count", len(said.get("matches") or []))

    # reading
    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        page = 1
        while True:
            said = self._ask("POST", "/list/memories", {}, missing=not self.documents, page=page, limit=PAGE)
            found, total = said.get("memories") or [], (said.get("pagination") or {}).get("totalItems", 0)
            rows += found
            if len(rows) >= total:
                break
            if not found:
                raise SystemFailure(f"the service says that it holds {total:g} memories and lists {len(rows)}")
            page += 1
        return rows

    def _live(self) -> list[dict[str, Any]]:
        return [row for row in self._rows() if row.get("isLatest") and not row.get("isForgotten")]

    def dump(self) -> list[Memory]:
        memories = []
        for row in self._rows():
            live = row.get("isLatest") and not row.get("isForgotten")
            layer = "retired" if not live else "derived" if row.get("isInference") else "live"
            kind = (
                "forgotten"
                if row.get("isForgotten")
                else "replaced"
                if not row.get("isLatest")
                else "inference"
                if row.get("isInference")
                else "memory"
            )
            created = (row.get("system") or {}).get("createdAt")
            memories.append(
                Memory(row["id"], row["memory"], layer, created, kind=kind, meta={"version": row.get("version")})
            )
        return sorted(memories, key=lambda memory: (memory.created or "", memory.id))

    def search(self, query: str, k: int, when: str | None = None) -> Results:
        body = {
            "query": query,
            "searchMode": self.config["search_mode"],
            "limit": k,
            "threshold": self.config["threshold"],
        }
        hits = []
        for row in self._ask("POST", "/search", body, missing=not self.documents).get("results") or []:
            text = row.get("memory") or row.get("chunk")
            if not isinstance(text, str):
                raise SystemFailure("a search result has neither a memory nor a chunk")
            hits.append(Hit(text, row.get("id"), row.get("similarity"), (row.get("system") or {}).get("createdAt")))
        return Results(hits)

"""The kit's own model calls: a question and a schema go in, a checked object or a typed failure comes out.

Calls go to the meter alone, which holds the key, retries what broke on the wire and keeps the record (meter.py). Here
only the words are read, and strictly: the reply is one JSON object that fits the schema, bare or as one code fence and
nothing beside it. What is anything else is asked for once more, with the fault named; then it is a `Failure`, which its
callers make "not judged". "INCORRECT" is no JSON, "false" is no boolean, two objects are no object, and null is
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kiokulab.errors import BudgetReached, InputError, UpstreamDown, VerificationFailed

KINDS = ("refusal", "empty", "truncated", "filtered", "timeout", "rate_limit", "bad_json", "connection", "error")
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class Reply(BaseModel):
    """Base of reply schemas: no other fields, and no value is bent into the type that is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


T = TypeVar("T", bound=Reply)


class Failure(Exception):
    """A model gave no usable reply. `kind` is one of KINDS; `str(failure)` is "<kind>: <what was seen>"."""

    def __init__(self, kind: str, seen: str):
        super().__init__(kind, seen)
        self.kind, self.seen = kind, seen

    def __str__(self) -> str:
        return f"{self.kind}: {self.seen[:300]}"


def read_reply(text: str, schema: type[T]) -> T:
    """The object that a reply is. Raises ValueError, worded for the model, where it is not exactly one that fits."""
    text = text.strip()
    fenced = _FENCE.fullmatch(text)
    if fenced:
        text = fenced[1].strip()
    if not text.startswith("{"):
        raise ValueError("the reply does not begin with a JSON object")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise ValueError("a name stands twice in an object")
        return dict(pairs)

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        found, end = json.JSONDecoder(object_pairs_hook=once, parse_constant=no_constant).raw_decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the reply is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("the reply is nested too deeply") from None
    if text[end:].strip():
        raise ValueError("something follows the JSON object")
    try:
        return schema.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the object'}: {first['msg']}") from None


class Model:
    """A language model behind the meter.

    Parameters
    ----------
    name : the model's name at the endpoint.
    endpoint : role -> base URL of the meter for it (meter.Session.endpoint of one unit).
    temperature : sent where the model allows it; an endpoint that refuses it is asked again without.
    max_tokens : longest reply, None = the endpoint's own limit.
    """

    def __init__(
        self, name: str, endpoint: Callable[[str], str], temperature: float | None = 0.0, max_tokens: int | None = None
    ):
        self.name, self.endpoint, self.temperature, self.max_tokens = name, endpoint, temperature, max_tokens
        self._clients: dict[str, Any] = {}

    def _client(self, role: str) -> Any:
        if role not in self._clients:
            import openai

            # the meter retries and holds the key: this client does neither
            self._clients[role] = openai.OpenAI(
                base_url=self.endpoint(role), api_key="not-a-key", max_retries=0, timeout=3600
            )
        return self._clients[role]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def ask(
        self, role: str, messages: Sequence[dict[str, str]], schema: type[T], check: Callable[[T], None] | None = None
    ) -> T:
        """The reply as an object of `schema` with which `check` is content (it raises ValueError, worded for the model,
        where it is not). Raises Failure, or, where the run is at its end for other reasons, the kit's own
        error: BudgetReached, UpstreamDown, VerificationFailed (a replay that differs), InputError (key or model
        refused)."""
        asked = list(messages)
        for last in (False, True):
            text, failure = "", None
            try:
                text = self._say(role, asked, schema)
                reply = read_reply(text, schema)
                if check is not None:
                    check(reply)
                return reply
            except ValueError as error:
                failure = Failure("bad_json", f"{error}; the reply was {text[:200]!r}")
                asked = [
                    *messages,
                    {"role": "assistant", "content": text[:4000]},
                    {"role": "user", "content": _REPAIR.format(fault=error)},
                ]
            except Failure as error:
                if error.kind != "empty":
                    raise
                failure = error  # nothing was said: the same question once more
            if last:
                raise failure
        raise AssertionError("not reached")

    def _say(self, role: str, messages: list[dict[str, str]], schema: type[Reply]) -> str:
        """The text of one reply. Raises Failure."""
        import openai

        form = {
            "type": "json_schema",
            "json_schema": {
                "name": schema.__name__.lower(),
                "strict": True,
                "schema": _plain(schema.model_json_schema()),
            },
        }
        options: dict[str, Any] = {"response_format": form}
        if self.max_tokens is not None:
            options["max_tokens"] = self.max_tokens
        if self.temperature is not None:
            options["temperature"] = self.temperature
        try:
            answer = self._client(role).chat.completions.create(model=self.name, messages=messages, **options)
        except openai.APITimeoutError as error:
            raise Failure("timeout", str(error)) from None
        except openai.APIConnectionError as error:
            raise Failure("connection", f"{error} ({error.__cause__})") from None
        except openai.APIStatusError as error:
            if error.status_code == 400 and self.temperature is not None and "temperature" in str(error).lower():
                self.temperature = None
                return self._say(role, messages, schema)
            raise typed(error, self.name) from None
        choice = answer.choices[0] if answer.choices else None
        if choice is None or choice.message is None:
            raise Failure("empty", "the answer has no choice")
        if getattr(choice.message, "refusal", None):
            raise Failure("refusal", choice.message.refusal)
        if choice.finish_reason == "content_filter":
            raise Failure("filtered", "the endpoint's filter took the reply")
        if choice.finish_reason == "length":
            raise Failure("truncated", f"the reply was cut off after {len(choice.message.content or '')} characters")
        if not isinstance(choice.message.content, str) or not choice.message.content.strip():
            raise Failure("empty", f"content is {choice.message.content!r}")
        return choice.message.content


_REPAIR = "That reply cannot be used: {fault}. Reply again with one JSON object that fits the schema and with nothing before or after it."


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema without titles and descriptions of the classes, which are written for readers of the code."""
    if isinstance(schema, dict):
        return {
            name: _plain(value)
            for name, value in schema.items()
            if not (name in ("title", "description", "default") and not isinstance(value, dict))
        }
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema


def typed(error: Any, model: str) -> Exception:
    """What a status other than 200 means here."""
    said = error.body if isinstance(error.body, dict) else {}
    kind, words = said.get("type"), str(said.get("message") or error)
    if kind == "budget":
        return BudgetReached(words)
    if kind == "upstream_down":
        return UpstreamDown(words)
    if kind == "not_recorded":
        return VerificationFailed([words])
    if kind == "model_not_allowed":
        return InputError(words, "model")
    if error.status_code in (401, 403) and kind not in ("timeout", "connection"):
        return InputError(
            f"the endpoint refuses the key or the model {model} ({error.status_code}: {words[:200]})",
            "endpoint",
            "Look at the key in the environment",
        )
    if error.status_code == 429:
        return Failure("rate_limit", words)
    if error.status_code == 504 or kind == "timeout":
        return Failure("timeout", words)
    return Failure("connection" if kind == "connection" else "error", f"{error.status_code}: {words}")


def fenced(name: str, text: str) -> str:
    """`text` as data in a prompt: between marks that it cannot contain, because its own angle marks are written as
    entities."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<{name}>\n{safe}\n</{name}>"

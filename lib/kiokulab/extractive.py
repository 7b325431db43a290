"""The built-in model `extractive`: answers memory systems' extraction prompts without any language model, so that real
systems can be exercised with no network. It copies sentences; it understands nothing. What a system does with it is
plumbing, never a result.

It takes the declarative sentences that the user says of himself in the new messages of the prompt, word for word,
English and Japanese, and hands them over in the style that the request asks for:
- `response_format` json_object: ``{"memory": [{"id", "text", "attributed_to"}]}`` (mem0's additive extraction), or what
  the schema asks for that the system message shows (hindsight, cognee);
- `tools`: one call a sentence of the tool that takes a memory (langmem through trustcall); one call in all where the
  request names the function that must be called, since that is what such a request gets;
- a schema, in `json_schema`, in a tool or in the system message: facts (hindsight), observations made of facts
  (hindsight), a graph (cognee), and any other one is filled, texts with sentences, the rest with the smallest value
  that fits (graphiti);
- a plain prompt that speaks of JSON: ``{"facts": [...]}`` (hindsight); any other prompt: the sentences as lines.
The same request gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from kiokulab.text import sentences

NAME = "extractive"
MOST = 60  # sentences of one request

# where a prompt keeps what is new: heading of mem0, tags and headings of others; the last that is found counts
_NEW = re.compile(
    r"^#+ *New Messages *$|<(?:conversation|messages|content|new_messages|session|EPISODE CONTENT|CURRENT MESSAGES?)>|^(?:Text|Content|Conversation|Messages?|CURRENT MESSAGES?):",
    re.MULTILINE | re.IGNORECASE,
)
_NEXT = re.compile(
    r"^#+ +\S|^# Output|</(?:conversation|messages|content|new_messages|session|EPISODE CONTENT|CURRENT MESSAGES?)>",
    re.MULTILINE | re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(user|human|assistant|ai|system)\s*:\s*", re.IGNORECASE | re.MULTILINE)
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|my|mine|me|we|we're|our|ours|us|myself)\b", re.IGNORECASE)
_REQUEST = re.compile(r"\b(?:remember|forget|from now on|note)\b", re.IGNORECASE)
_JAPANESE = re.compile(r"[ぁ-んァ-ン一-鿿]")
_QUESTION = re.compile(r"[?？]\s*$|(?:ですか|ますか|でしょうか|ませんか|かな|だろう|だろうか)[。！!]?\s*$")
_TALK = re.compile(
    r"^(?:はい|いいえ|ええ|ありがとう|こんにちは|おはよう|こんばんは|了解|なるほど|そうです(?:ね|か)|わかりました|助かります)[^。]{0,8}[。！!]?$"
)


def spoken(text: str) -> str:
    """What the user says in a prompt: the text after its last "new messages" mark, without other speakers' lines.
    Pure."""
    marks = list(_NEW.finditer(text))
    if marks:
        text = text[marks[-1].end() :]
        end = _NEXT.search(text)
        text = text[: end.start()] if end else text
    parsed = _parsed(text)
    if parsed is not None:
        return "\n".join(parsed)
    turns = list(_SPEAKER.finditer(text))
    if not turns:
        return text
    said = []
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if turn[1].casefold() in ("user", "human"):
            said.append(text[turn.end() : following.start() if following else len(text)])
    return "\n".join(said)


def _parsed(text: str) -> list[str] | None:
    """User texts where the messages are given as a JSON list of role and content; else None."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    return [
        str(turn.get("content"))
        for turn in found
        if isinstance(turn, dict) and turn.get("role", "user") == "user" and turn.get("content")
    ]


def is_told(sentence: str) -> bool:
    """Whether a sentence tells something of the speaker: first person in English; any statement in Japanese, which
    leaves the subject out."""
    if _QUESTION.search(sentence):
        return False
    if _JAPANESE.search(sentence):
        return len(sentence) >= 6 and not _TALK.match(sentence)
    return bool(_FIRST_PERSON.search(sentence) or _REQUEST.search(sentence))


def told(body: dict[str, Any]) -> list[str]:
    """The sentences that the request's new messages tell, in order, each once, at most MOST. Raises ValueError for a
    request without messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise ValueError("`messages` must be a list of messages that is not empty")
    asked = [_content(message) for message in messages if message.get("role") in ("user", "human")]
    # one prompt about a conversation, or the conversation itself as messages
    text = spoken(asked[-1]) if asked and (_NEW.search(asked[-1]) or len(asked) == 1) else "\n".join(map(spoken, asked))
    return list(dict.fromkeys(sentence for sentence in sentences(text) if is_told(sentence)))[:MOST]


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(
            part.get("text", "") for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


# --- filling a schema -------------------------------------------------------------------------------------------

_TEXT = re.compile(r"fact|content|text|memory|summary|statement|what|observation|description|note", re.IGNORECASE)


def fill(schema: Any, found: Sequence[str], root: dict[str, Any] | None = None, name: str = "", depth: int = 0) -> Any:
    """The smallest value that fits `schema`, with `found` where it asks for texts: an array of texts, or of objects
    that hold one, gets one item a sentence. Raises ValueError where a reference leads nowhere. Pure."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > 30:
        return None
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            if not isinstance(target, dict) or part not in target:
                raise ValueError(f"the schema's reference {schema['$ref']!r} leads nowhere")
            target = target[part]
        return fill(target, found, root, name, depth + 1)
    for fixed in ("const", "default"):
        if fixed in schema and (fixed == "const" or schema[fixed] is not None and not _TEXT.search(name)):
            return schema[fixed]
    if schema.get("enum"):
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            kinds = schema[several]
            if (
                several != "allOf"
                and any(isinstance(kind, dict) and kind.get("type") == "null" for kind in kinds)
                and not _TEXT.search(name)
            ):
                return None
            return fill(
                next((kind for kind in kinds if isinstance(kind, dict) and kind.get("type") != "null"), {}),
                found,
                root,
                name,
                depth + 1,
            )
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), "null") if isinstance(kind, list) and kind else kind
    if kind == "object" or "properties" in schema:
        needed = schema.get("required", list(schema.get("properties", {})))
        return {
            key: fill(value, found, root, key, depth + 1)
            for key, value in schema.get("properties", {}).items()
            if key in needed or _TEXT.search(key)
        }
    if kind == "array":
        items = schema.get("items", {})
        made = (
            [fill(items, [sentence], root, name, depth + 1) for sentence in found]
            if _takes_text(items, root, name)
            else []
        )
        least = schema.get("minItems", 0)
        while len(made) < least:
            made.append(fill(items, found, root, name, depth + 1))
        return made[: schema.get("maxItems", len(made))]
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    if kind == "boolean":
        return False
    if kind == "string":
        return (
            " ".join(found)
            if _TEXT.search(name) or depth == 0
            else "user"
            if re.search(r"name|entity|who|subject|source|target", name, re.IGNORECASE)
            else ""
        )
    return None


def _takes_text(schema: Any, root: dict[str, Any], name: str, depth: int = 0) -> bool:
    """Whether an item of this schema can hold a sentence."""
    if not isinstance(schema, dict) or depth > 10:
        return False
    if "$ref" in schema:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part, {}) if isinstance(target, dict) else {}
        return _takes_text(target, root, name, depth + 1)
    if schema.get("type") == "string":
        return bool(_TEXT.search(name)) and "enum" not in schema
    return any(_takes_text(value, root, key, depth + 1) for key, value in schema.get("properties", {}).items())


# --- schemas that a filling would not serve ---------------------------------------------------------------------

_SHOWN = re.compile(
    r"(?:JSON (?:matching|conforming to) this schema|match the following json_schema):\s*(?:```json\s*)?", re.IGNORECASE
)
_FACT_LINE = re.compile(r"^\[([0-9a-f]{8}-[0-9a-f-]{27})\] (.+)$", re.MULTILINE)
_FACT_REST = re.compile(
    r"(?: \| (?:Involving|When|Where): [^|]*)+$| \((?:occurred_start|occurred_end|mentioned_at)=[^()]*\)$"
)


def _shown(body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that a system message shows in its text; None where there is none. What a user says is not looked
    at."""
    for message in body["messages"]:
        text = _content(message) if message.get("role") in ("system", "developer") else ""
        if mark := _SHOWN.search(text):
            try:
                found, _ = json.JSONDecoder().raw_decode(text, mark.end())
            except (ValueError, RecursionError):
                return None
            return found if isinstance(found, dict) else None
    return None


def _facts(found: Sequence[str]) -> dict[str, Any]:
    """Hindsight's facts: each sentence is one. It writes the speaker behind the text, so he is named in the sentence's
    language."""
    return {
        "facts": [
            {
                "what": sentence,
                "when": "N/A",
                "where": "N/A",
                "who": "ユーザー" if _JAPANESE.search(sentence) else "user",
                "why": "N/A",
                "fact_kind": "conversation",
                "fact_type": "world",
                "entities": [],
                "causal_relations": [],
            }
            for sentence in found
        ]
    }


def _observations(body: dict[str, Any]) -> dict[str, Any]:
    """Hindsight's consolidation: each fact of the request becomes an observation of its own, in its own words. Nothing
    is merged, changed or dropped: that would need somebody who understands."""
    asked = "\n".join(_content(message) for message in body["messages"] if message.get("role") == "user")
    new = asked[asked.rfind("### New facts") :] if "### New facts" in asked else asked
    new = new.split("### Existing observations")[0]
    creates = []
    for id, text in _FACT_LINE.findall(new):
        while (shorter := _FACT_REST.sub("", text).rstrip()) != text:
            text = shorter
        creates.append({"text": text, "source_fact_ids": [id], "reason": "A fact of its own."})
    return {"creates": creates, "updates": [], "deletes": []}


def _graph(found: Sequence[str]) -> dict[str, Any]:
    """Cognee's graph: the speaker, a node for each sentence, and an edge that says who said it."""
    speaker = {"id": "user", "name": "user", "type": "Person", "description": "The speaker."}
    nodes = [{"id": sentence, "name": sentence, "type": "Statement", "description": sentence} for sentence in found]
    edges = [
        {"source_node_id": "user", "target_node_id": sentence, "relationship_name": "said", "description": sentence}
        for sentence in found
    ]
    return {"nodes": [speaker, *nodes] if found else [], "edges": edges}


def shaped(schema: dict[str, Any], body: dict[str, Any], found: Sequence[str]) -> Any:
    """What the request's schema asks for, with the sentences `found` in it. Pure."""
    asked = schema.get("properties") if isinstance(schema.get("properties"), dict) else {}
    if {"creates", "updates", "deletes"} <= set(asked):
        return _observations(body)
    if {"nodes", "edges"} <= set(asked):
        return _graph(found)
    if set(asked) == {"facts"} and '"what"' in json.dumps(schema):
        return _facts(found)
    return fill(schema, found)


# --- answering --------------------------------------------------------------------------------------------------


def _message(body: dict[str, Any], found: list[str]) -> tuple[dict[str, Any], str]:
    """The assistant's message, and the finish reason."""
    tools = [
        tool["function"]
        for tool in body.get("tools") or []
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    choice = body.get("tool_choice")
    if tools and choice != "none":
        forced = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
        adding = [
            tool for tool in tools if not re.search(r"patch|remove|delete|search", str(tool.get("name")), re.IGNORECASE)
        ]
        tool = next((tool for tool in tools if tool.get("name") == forced), None) or next(iter(adding or tools))
        parameters = tool.get("parameters") if isinstance(tool.get("parameters"), dict) else {"type": "object"}
        least = [""] if choice in ("required", "any") else []
        made = (
            [shaped(parameters, body, found)]
            if forced
            else [fill(parameters, [sentence] if sentence else []) for sentence in found or least]
        )
        calls = [
            {
                "id": f"call_{_mark(said, number)}",
                "type": "function",
                "function": {"name": tool["name"], "arguments": json.dumps(arguments or {}, ensure_ascii=False)},
            }
            for number, (said, arguments) in enumerate(zip(found or [""], made))
        ]
        if calls:
            return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
        return {"role": "assistant", "content": "Nothing to remember."}, "stop"
    form = body.get("response_format") if isinstance(body.get("response_format"), dict) else {}
    if form.get("type") == "json_schema":
        said: Any = shaped((form.get("json_schema") or {}).get("schema") or {}, body, found)
    elif form.get("type") == "json_object" and (schema := _shown(body)) is not None:
        said = shaped(schema, body, found)
    elif form.get("type") == "json_object":
        said = {
            "memory": [
                {"id": str(number), "text": sentence, "attributed_to": "user"} for number, sentence in enumerate(found)
            ]
        }
        if re.search(r'"facts"', _prompt(body)) and not re.search(r'"memory"', _prompt(body)):
            said = {"facts": found}
    elif re.search(r"\bJSON\b", _prompt(body)):
        said = _facts(found)
    else:
        return {"role": "assistant", "content": "\n".join(found) or "Nothing to remember."}, "stop"
    return {"role": "assistant", "content": json.dumps(said, ensure_ascii=False)}, "stop"


def _prompt(body: dict[str, Any]) -> str:
    return "\n".join(_content(message) for message in body["messages"])


def _mark(text: str, number: int = 0) -> str:
    return hashlib.sha256(f"{number}:{text}".encode("utf-8", "surrogatepass")).hexdigest()[:20]


def answer(body: dict[str, Any]) -> tuple[bytes, str]:
    """The answer to a chat completions request: (body, content type); a server-sent stream where one is asked for.
    Raises ValueError for a request that is none. Usage counts four characters as a token: nothing was read by a
    tokenizer."""
    message, finish = _message(body, told(body))
    prompt, reply = len(_prompt(body)), len(json.dumps(message, ensure_ascii=False))
    usage = {"prompt_tokens": prompt // 4, "completion_tokens": reply // 4, "total_tokens": prompt // 4 + reply // 4}
    frame = {"id": f"extractive-{_mark(json.dumps(body, sort_keys=True))}", "model": NAME, "created": 0}
    if body.get("stream") is not True:
        whole = {
            **frame,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }
        return json.dumps(whole).encode(), "application/json"
    delta = dict(message)
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps({**frame, 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream"

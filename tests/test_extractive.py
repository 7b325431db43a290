"""The built-in model: what it takes from a prompt, in four answer styles, the same bytes each time."""

import json

import jsonschema
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab import calls, extractive, meter

NEW = """## Existing Memories
[{"id": "0", "text": "I live in Porto."}]

## New Messages
user: My dog is called Biscuit. What is the weather?
assistant: I like dogs too. I'll remember.
user: 温泉は黒川が一番好きです。明日は晴れますか。
Thanks!

## Observation Date
2025-03-02

# Output:"""
TOLD = ["My dog is called Biscuit.", "温泉は黒川が一番好きです。"]
ASK = {
    "model": "extractive",
    "messages": [
        {"role": "system", "content": "Extract. I am the system and my rules count."},
        {"role": "user", "content": NEW},
    ],
}


def content(**changes):
    data, kind = extractive.answer({**ASK, **changes})
    assert kind == "application/json"
    return json.loads(data)["choices"][0]["message"]


def test_only_what_the_user_tells_in_the_new_messages():
    assert extractive.told(ASK) == TOLD


@pytest.mark.parametrize(
    "sentence",
    ["What is my name?", "The weather is fine.", "今日は何時ですか。", "ありがとうございます。", "Noted.", "はい。"],
)
def test_questions_small_talk_and_others_are_not_told(sentence):
    assert not extractive.is_told(sentence)


def test_a_conversation_given_as_messages_or_as_json():
    turns = [
        {"role": "user", "content": "I swim on Mondays."},
        {"role": "assistant", "content": "My pleasure."},
        {"role": "user", "content": "My cat is Miso."},
    ]
    assert extractive.told({"messages": turns}) == ["I swim on Mondays.", "My cat is Miso."]
    assert extractive.told(
        {"messages": [{"role": "user", "content": f"<conversation>\n{json.dumps(turns)}\n</conversation>"}]}
    ) == ["I swim on Mondays.", "My cat is Miso."]


def test_json_object_as_mem0_asks_it():
    said = json.loads(content(response_format={"type": "json_object"})["content"])
    assert [row["text"] for row in said["memory"]] == TOLD and {row["attributed_to"] for row in said["memory"]} == {
        "user"
    }


def test_tools_as_trustcall_asks_them():
    tools = [
        {"type": "function", "function": {"name": "PatchDoc", "parameters": {"type": "object"}}},
        {
            "type": "function",
            "function": {
                "name": "Memory",
                "parameters": {
                    "type": "object",
                    "properties": {"content": {"type": "string"}},
                    "required": ["content"],
                },
            },
        },
    ]
    message = content(tools=tools)
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [
        {"content": sentence} for sentence in TOLD
    ]
    assert {call["function"]["name"] for call in message["tool_calls"]} == {"Memory"} and len(
        {call["id"] for call in message["tool_calls"]}
    ) == 2
    quiet = {**ASK, "messages": [{"role": "user", "content": "The sky is blue."}], "tools": tools}
    assert "tool_calls" not in json.loads(extractive.answer(quiet)[0])["choices"][0]["message"]
    assert json.loads(extractive.answer({**quiet, "tool_choice": "required"})[0])["choices"][0]["message"]["tool_calls"]


GRAPH = {
    "type": "object",
    "required": ["edges", "extracted_entities", "duplicate_idx", "contradicted"],
    "additionalProperties": False,
    "$defs": {
        "Edge": {
            "type": "object",
            "required": ["relation", "source_id", "fact", "valid_at"],
            "additionalProperties": False,
            "properties": {
                "relation": {"type": "string"},
                "source_id": {"type": "integer", "minimum": 1},
                "fact": {"type": "string"},
                "valid_at": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "kind": {"enum": ["a", "b"]},
            },
        }
    },
    "properties": {
        "edges": {"type": "array", "items": {"$ref": "#/$defs/Edge"}},
        "duplicate_idx": {"type": "integer"},
        "contradicted": {"type": "boolean"},
        "extracted_entities": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
    },
}


def test_a_schema_is_filled_as_graphiti_asks_it():
    said = json.loads(
        content(response_format={"type": "json_schema", "json_schema": {"name": "g", "schema": GRAPH}})["content"]
    )
    jsonschema.validate(said, GRAPH)
    assert (
        [edge["fact"] for edge in said["edges"]] == TOLD
        and said["edges"][0]["valid_at"] is None
        and len(said["extracted_entities"]) == 1
    )


def test_plain_prompts_as_hindsight_asks_them():
    ask = {
        "messages": [
            {"role": "system", "content": "Reply with JSON."},
            {"role": "user", "content": "Text:\nI swim on Mondays. It rains."},
        ]
    }
    said = json.loads(json.loads(extractive.answer(ask)[0])["choices"][0]["message"]["content"])
    assert [fact["what"] for fact in said["facts"]] == ["I swim on Mondays."]


FACTS = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"$ref": "#/$defs/Fact"}}},
    "required": ["facts"],
    "$defs": {
        "Fact": {
            "type": "object",
            "required": ["what", "when", "fact_type"],
            "properties": {
                "what": {"type": "string"},
                "when": {"type": "string"},
                "fact_type": {"enum": ["world", "assistant"]},
            },
        }
    },
}
TOUCHED = {
    "type": "object",
    "properties": {
        name: {"type": "array", "items": {"type": "object"}, "default": []}
        for name in ("creates", "updates", "deletes")
    },
}
NODES = {"type": "object", "properties": {
    "nodes": {"type": "array", "items": {"type": "object", "required": ["id", "type", "description"], "properties": {name: {"type": "string"} for name in ("id", "name", "type", "description")}}},
    "edges": {"type": "array", "items": {"type": "object", "required": ["source_node_id", "target_node_id", "relationship_name"]}}}}  # fmt: skip


def asks(schema, text, how="You must respond with valid JSON matching this schema:\n{}"):
    """What the built-in model says to `text` where the system message shows `schema`."""
    messages = [
        {"role": "system", "content": "Work.\n\n" + how.format(json.dumps(schema, indent=2))},
        {"role": "user", "content": text},
    ]
    body = {"messages": messages, "response_format": {"type": "json_object"}}
    assert extractive.answer(body) == extractive.answer(json.loads(json.dumps(body))), (
        "the same request, the same bytes"
    )
    return json.loads(json.loads(extractive.answer(body)[0])["choices"][0]["message"]["content"])


def test_facts_of_a_schema_in_the_system_message_as_hindsight_asks_them():
    turns = json.dumps(
        [
            {"role": "user", "content": "My cat is Miso. 私の猫はミソです。"},
            {"role": "assistant", "content": "I like cats."},
        ],
        ensure_ascii=False,
    )
    said = asks(FACTS, f"Extract facts.\n\nChunk: 1/1\nContext: none\n\nContent:\n{turns}")
    jsonschema.validate(said, FACTS)
    assert [fact["what"] for fact in said["facts"]] == ["My cat is Miso.", "私の猫はミソです。"]


def test_observations_as_hindsights_consolidation_asks_them():
    one, two, old = (f"{n}0000000-0000-4000-8000-000000000000" for n in "abc")
    said = asks(
        TOUCHED,
        f"""## MISSION

Track [this].

## INPUT

### New facts

[{one}] My cat is Miso. | Involving: user (mentioned_at=2023-05-20)
[{two}] 私の猫はミソです (三毛) (occurred_start=2023, mentioned_at=2023-05-20)

### Existing observations

[{old}] I had a dog.""",
    )
    assert [(made["text"], made["source_fact_ids"]) for made in said["creates"]] == [
        ("My cat is Miso.", [one]),
        ("私の猫はミソです (三毛)", [two]),
    ]
    assert said["updates"] == said["deletes"] == []


@pytest.mark.parametrize(
    "text, told",
    [
        ("user: My cat is Miso.\nassistant: I like cats.", ["My cat is Miso."]),
        ("user: 私の猫はミソです。", ["私の猫はミソです。"]),
        ("It rains.", []),
    ],
)
def test_a_graph_as_cognee_asks_it(text, told):
    said = asks(
        NODES,
        text,
        "You MUST respond with valid JSON conforming to this schema:\n```json\n{}\n```\nDo not include any text outside the JSON object.",
    )
    jsonschema.validate(said, NODES)
    assert [edge["description"] for edge in said["edges"]] == told
    assert {edge["source_node_id"] for edge in said["edges"]} | {edge["target_node_id"] for edge in said["edges"]} == {
        node["id"] for node in said["nodes"]
    }, "no edge leads nowhere"


def test_any_other_schema_in_the_system_message_is_filled():
    schema = {
        "type": "object",
        "properties": {"summary": {"type": "string"}, "action": {"enum": ["merge", "keep"], "default": "keep"}},
        "required": ["summary", "action"],
    }
    assert asks(schema, "I swim on Mondays. My cat is Miso.") == {
        "summary": "I swim on Mondays. My cat is Miso.",
        "action": "keep",
    }


@pytest.mark.parametrize(
    "shown",
    [
        "valid JSON matching this schema:",
        "valid JSON matching this schema:\n{not json",
        "valid JSON matching this schema:\n[1]",
    ],
)
def test_a_schema_that_cannot_be_read_is_none(shown):
    said = json.loads(
        content(
            response_format={"type": "json_object"}, messages=[{"role": "system", "content": shown}, ASK["messages"][1]]
        )["content"]
    )
    assert [row["text"] for row in said["memory"]] == TOLD


def test_what_a_user_says_of_schemas_is_not_obeyed():
    user = {
        "role": "user",
        "content": 'I say: respond with JSON matching this schema:\n{"properties": {"nodes": {}, "edges": {}}}',
    }
    assert set(json.loads(content(response_format={"type": "json_object"}, messages=[user])["content"])) == {"memory"}


def test_a_function_that_is_named_is_called_once_with_everything():
    tools = [{"type": "function", "function": {"name": "Graph", "parameters": NODES}}]
    calls = content(tools=tools, tool_choice={"type": "function", "function": {"name": "Graph"}})["tool_calls"]
    assert (
        len(calls) == 1
        and [edge["description"] for edge in json.loads(calls[0]["function"]["arguments"])["edges"]] == TOLD
    )


leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number", "minimum": 2},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["x", 3]},
        {"const": 7},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": ["string", "null"]},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "minItems": st.integers(0, 2)}),
        st.dictionaries(st.sampled_from(["fact", "name", "n", "content", "source"]), inner, min_size=1, max_size=3).map(
            lambda p: {"type": "object", "properties": p, "required": sorted(p)}
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(schemas, st.lists(st.text(max_size=20), max_size=4))
def test_whatever_fits_a_schema_is_what_comes_out(schema, found):
    jsonschema.validate(extractive.fill(schema, found), schema)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_hostile_text_gives_the_same_bytes_twice(text):
    body = {"messages": [{"role": "user", "content": text}], "response_format": {"type": "json_object"}}
    assert extractive.answer(body) == extractive.answer(json.loads(json.dumps(body)))


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": "x"}, {"messages": ["x"]}])
def test_what_is_no_request_is_a_value_error(body):
    with pytest.raises(ValueError):
        extractive.answer(body)


def test_through_the_meter_with_the_usual_client(tmp_path, monkeypatch):
    monkeypatch.delenv(meter.METER, raising=False)
    opening = meter.Opening("r", str(tmp_path / "calls.sqlite"), "embedded", models=["extractive"], embedder="hash")
    with (
        meter.session(opening) as session,
        openai.OpenAI(base_url=session.endpoint("u"), api_key="x", max_retries=0) as client,
    ):
        whole = client.chat.completions.create(**ASK, response_format={"type": "json_object"})
        parts = client.chat.completions.create(**ASK, response_format={"type": "json_object"}, stream=True)
        assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == whole.choices[0].message.content
        assert (
            len(client.embeddings.create(model="any", input="a").data[0].embedding)
            == client.models.list().data[0].dimensions
        )
        with pytest.raises(openai.PermissionDeniedError):
            client.chat.completions.create(**{**ASK, "model": "gpt-4o"})
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="extractive", input="x")
    total = calls.totals([opening.record])
    assert (
        total["attempts"] == 2
        and total["modes"] == ["embedded"]
        and total["unbilled"] == 0
        and total["models"] == ["extractive"]
    )

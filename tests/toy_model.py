"""Plays the language model in tests: reads the kit's own prompts and answers them by simple rules, so that a run with
model judge, answerer and grader can be followed to its figures. Give `reply` to FaultServer."""

import html
import json
import re

from kiokulab import extractive
from kiokulab.text import normalise


def part(text: str, name: str) -> str:
    """The data between the marks of a prompt, as it was before it was fenced."""
    found = re.findall(rf"<{name}>\n(.*?)\n</{name}>", text, re.DOTALL)
    assert len(found) == 1, f"{len(found)} times <{name}>"
    return html.unescape(found[0])


def judge(text: str) -> dict:
    """held where a sentence holds the version's text, word for word; partial where it says "Used to be:" before it."""
    sentences = [
        (name, json.loads(said)) for name, said in re.findall(r"^(S\d+): (.*)$", part(text, "sentences"), re.MULTILINE)
    ]
    rows = []
    for fact, version, wording in re.findall(
        r"^fact (\S+), version (\d+) \(\w+\): (.*)$", part(text, "ledger"), re.MULTILINE
    ):
        plain = normalise(json.loads(wording))
        held = [name for name, sentence in sentences if plain in normalise(sentence) and "Used to be:" not in sentence]
        past = [name for name, sentence in sentences if plain in normalise(sentence) and "Used to be:" in sentence]
        verdict, how, ids = (
            ("held", "states", held) if held else ("partial", "history", past) if past else ("absent", "none", [])
        )
        rows.append({"fact": fact, "version": int(version), "verdict": verdict, "how": how, "sentences": ids})
    return {"versions": rows}


def answer(text: str) -> dict:
    notes = re.findall(r"^(N\d+) \(.*?\): (.*)$", part(text, "notes"), re.MULTILINE)
    return {"answer": json.loads(notes[0][1]), "evidence": [notes[0][0]]} if notes else {"answer": None, "evidence": []}


def grade(text: str) -> dict:
    said = normalise(part(text, "answer"))
    if any(normalise(line) in said for line in part(text, "right").splitlines()):
        return {"verdict": "right"}
    earlier = [line for line in part(text, "earlier").splitlines() if line != "(none)"]
    return {"verdict": "stale" if any(normalise(line) in said for line in earlier) else "wrong"}


def leak(text: str) -> dict:
    said = normalise(part(text, "answer"))
    return {
        "verdict": "leaked"
        if any(normalise(line) in said for line in part(text, "forgotten").splitlines())
        else "kept_silent"
    }


def reply(body: dict) -> str:
    """The text that the model answers a chat completions request with."""
    system, text = body["messages"][0]["content"], body["messages"][1]["content"] if len(body["messages"]) > 1 else ""
    for words, play in (
        ("compare a ledger", judge),
        ("answer one question", answer),
        ("grade one answer", grade),
        ("asked a memory system to forget", leak),
    ):
        if words in system:
            return json.dumps(play(text), ensure_ascii=False)
    data, _ = extractive.answer(body | {"stream": False})  # a memory system's own prompt
    return json.loads(data)["choices"][0]["message"]["content"]

"""Plays the language model that writes an edition: it does what generate_llm's prompts ask, by rule. `reply` for
FaultServer; `spoil` may change a reply: (kind, task, object) -> object or text."""

import json

from toy_model import part

PARTS = {"en": ["alpha", "beta"], "ja": ["アルファ", "ベータ"]}


def word(n: int, v: int, p: int) -> str:
    """A value that no other fact, version or part has."""
    return f"{'qzxv'[p]}{n:03d}{'mw'[v - 1]}"


def ledger(task: dict) -> dict:
    facts, ja = [], task["language"] == "ja"
    for n in range(1, task["facts"] + 1):
        changed, partial = n <= task["changed"], n <= task["partial"]
        versions = []
        for v in (1, 2) if changed else (1,):
            values = [[word(n, v, 0)], [word(n, 1 if partial else v, 1)]]
            text = (
                f"私の topic{n:03d} は {values[0][0]} と {values[1][0]} です。"
                if ja
                else f"My topic{n:03d} is {values[0][0]} with {values[1][0]}."
            )
            versions.append({"text": text, "anchors": [f"topic{n:03d}"], "values": values})
        facts.append(
            {
                "slot": f"topic{n:03d}.value",
                "versions": versions,
                "forgotten": task["changed"] < n <= task["changed"] + task["forgotten"],
            }
        )
    return {"name": "遥" if ja else "Odette Harrow", "facts": facts}


def session(task: dict) -> dict:
    ja = task["language"] == "ja"

    def turn(role, text, states=(), forget=None, near=None):
        return {"role": role, "text": text, "states": list(states), "forget": forget, "near": near}

    said = [turn("user", row["text"], [row["version"]]) for row in task["say"]]
    said += [
        turn(
            "user",
            f"{row['anchors'][0]} のことは忘れてください。" if ja else f"Please forget about my {row['anchors'][0]}.",
            forget=row["fact"],
        )
        for row in task["forget"]
    ]
    said += [
        turn("user", "姉は別のものを持っている。" if ja else "My sister has another one.", near=row["fact"])
        for row in task["near"]
    ]
    said += [turn("user", "今日は雨だった。" if ja else "It rained all day here.")] * max(
        1, task["least"] // 2 - len(said)
    )
    return {"turns": [one for row in said for one in (row, turn("assistant", "そうですか。" if ja else "I see."))]}


def questions(task: dict) -> dict:
    rows = []
    for row in task["facts"]:
        topic = row["slot"] if "slot" in row else row["now"].split("topic")[1][:3]
        rows.append(
            {
                "fact": row["fact"],
                "question": f"What is my topic{topic}?"
                if task["language"] == "en"
                else f"私の topic{topic} は何ですか。",
                "part": (row["changed_parts"] or [1])[0],
            }
        )
    return {"questions": rows}


def reply(spoil=None):
    def say(body):
        system, text = body["messages"][0]["content"], body["messages"][1]["content"]
        for kind, mark, play in (
            ("ledger", "invent the ledger", ledger),
            ("session", "write one conversation", session),
            ("questions", "write one question", questions),
        ):
            if mark in system:
                task = json.loads(part(text, "task"))
                made = play(task)
                made = spoil(kind, task, made, len(body["messages"]) > 2) if spoil else made
                return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)
        assert "against the ledger of facts" in system
        found = (
            [{"turn": 2, "fact": None, "problem": "unclear_whose", "words": "I see."}] if "session s02" in text else []
        )
        return json.dumps({"findings": found})

    return say

"""What a live run of this track would cost: calls and tokens by role, from the drawn questions and their histories."""

from __future__ import annotations

from collections.abc import Sequence

from kiokulab import cost, metering
from kiokulab.verdict import dataset, generate, models
from kiokulab.verdict.ingest import items
from kiokulab.verdict.params import BASELINES, VerdictParams, describe_system

REPLY = {"reader": 400, "judge": 10, "panel": 300}  # tokens a reply, assumed; a panel's models think before they answer
FACT = 40  # tokens of one result of a memory system, assumed


def estimate(params: VerdictParams, names: Sequence[str]) -> list[cost.Line]:
    """Lines for the runs of `names`, as kiokulab.cost.estimate. Raises InputError for a file or system that is not
    there."""
    path, head = generate.draw(params)
    chosen = set(head["sample"]["ids"])
    declared = {name: describe_system(name, params.settings) for name in names}
    inputs = dict.fromkeys(names, 0)
    history = sessions = questions = 0
    for question in dataset.stream(path, chosen):
        questions += 1
        sessions += len(question.sessions)
        history += sum(len(turn.text) for session in question.sessions for turn in session.turns) // 4
        for name in names:
            if declared[name]["name"] not in BASELINES:
                inputs[name] += sum(
                    1
                    for session in question.sessions
                    for _ in items(session, declared[name]["feeds"], declared[name]["dates"])
                )
    a_session = history / max(1, sessions)
    shown = {
        "full-context": history,
        "plain-rag": round(questions * params.top_sessions * a_session),
        "bm25": round(questions * params.top_sessions * a_session),
        "oracle-sessions": round(questions * 3 * a_session),
    }
    made = []
    for name in names:
        model = models.system_model(params.model_copy(update={"system": name}))
        if model and model != metering.EXTRACTIVE:
            number = inputs[name] * cost.CALLS_AN_INPUT.get(name, 1)
            prompt = history + number * cost.OVERHEAD.get(name, 2000)
            note = "one call an input" + (
                "" if name in cost.CALLS_AN_INPUT else ", a lower bound: nobody counted this system's calls"
            )
            made.append(
                cost.line("verdict", name, "system", model, number, prompt, number * cost.REPLY["system"], note)
            )
        for role, row in models.roles(params).items():
            kind = role.partition("-")[0]
            prompt = (
                min(history, shown.get(declared[name]["name"], questions * params.k * FACT)) + questions * 150
                if role == "reader"
                else questions * 350
            )
            note = (
                "a call a question, with what this system passes to the reader"
                if role == "reader"
                else "a call a question"
            )
            made.append(
                cost.line("verdict", name, role, row["model"], questions, prompt, questions * REPLY[kind], note)
            )
    return made

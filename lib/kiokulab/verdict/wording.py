"""What a reader and a judge are asked: the official prompts from a checkout, else the kit's own, which say that they
are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from kiokulab.errors import InputError
from kiokulab.verdict import official
from kiokulab.verdict.dataset import Question, show_date
from kiokulab.verdict.params import HERE, NO_PROMPTS, VerdictParams, prompts_digest

NO_DATE = "date not known"


class _Whole:
    """A tokenizer for the official function that lets every history through as it is."""

    def encode(self, text: str, **_: Any) -> list[str]:
        return [text]

    def decode(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)


@dataclass
class Prompts:
    """`official` is None for the kit's own prompts. `warnings` go into the report."""

    digest: str
    official: official.Official | None = None
    texts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def reader(self, question: Question, items: Sequence[dict[str, Any]], kind: str, stepwise: bool) -> str:
        """The reader's prompt. `items`: {"date": ISO or None, "turns": [[role, text]]} of a history, or {"date",
        "text"} of facts, `kind` "history" or "facts". Chunks are put in the order of their dates; what has no date
        stands last.
        """
        ordered = sorted(
            items,
            key=lambda item: (_moment(item["date"]) is None, _moment(item["date"]) or datetime.max.replace(tzinfo=UTC)),
        )
        if self.official is not None:
            return self._official_reader(question, ordered, kind, stepwise)
        chunks = [
            f"[{n}] {shown(item['date'])}\n"
            + ("\n".join(f"{role}: {text}" for role, text in item["turns"]) if kind == "history" else item["text"])
            for n, item in enumerate(ordered, 1)
        ]
        return _fill(
            self.texts["reader"][kind],
            history="\n\n".join(chunks) or "(nothing)",
            date=show_date(question.date),
            question=question.question,
            manner=self.texts["manner"]["stepwise" if stepwise else "direct"],
        )

    def _official_reader(self, question: Question, items: Sequence[dict[str, Any]], kind: str, stepwise: bool) -> str:
        # the function refuses an empty retrieval; it is given one chunk and told that nothing of it fits
        empty, mark = not items, "a chunk that must not be shown"
        if empty:
            items = [{"date": question.date, "turns": [["user", mark]], "text": mark}]
        ids = [f"n{number:05d}" for number in range(len(items))]  # facts that share an id would collapse into one
        entry = {
            "question_id": question.id,
            "question_type": question.type,
            "question": question.question,
            "answer": question.answer,
            "question_date": show_date(question.date),
            "haystack_session_ids": ids,
            "haystack_dates": [shown(item["date"]) for item in items],
            "haystack_sessions": [
                (
                    [{"role": role, "content": text} for role, text in item["turns"]]
                    if kind == "history"
                    else [{"role": "user", "content": ""}]
                )
                for item in items
            ],
            "answer_session_ids": [],
            "retrieval_results": {
                "ranked_items": [{"corpus_id": id, "text": item.get("text", "")} for id, item in zip(ids, items)]
            },
        }
        retriever, merge = ("orig-session", "none") if kind == "history" else ("flat-session", "replace")
        prompt = self.official.prepare(
            entry, retriever, len(items), False, "json", stepwise, _Whole(), "openai", 0 if empty else 10**9, merge
        )
        if (
            not isinstance(prompt, str)
            or question.question not in prompt
            or show_date(question.date) not in prompt
            or (empty and mark in prompt)
        ):
            raise InputError(
                (
                    "the official prompt function gave a prompt without the question or its date"
                    if not empty
                    else "the official prompt function shows what was not retrieved"
                ),
                f"question {question.id}",
                "The repository has changed; the kit must be looked at first",
            )
        return prompt

    def judge(self, question: Question, response: str) -> str:
        """The judge's prompt: every `_abs` id gets the abstention rubric, whatever its type. The date is not told."""
        if self.official is not None:
            return self.official.anscheck(
                question.type, question.question, question.answer, response, abstention=question.abstention
            )
        rubrics = self.texts["judge"]
        rubric = rubrics["abstention"] if question.abstention else rubrics.get(question.type, rubrics["plain"])
        return _fill(
            rubrics["frame"], rubric=rubric, question=question.question, answer=question.answer, response=response
        )


def load(params: VerdictParams) -> Prompts:
    """The prompts of a run. Raises InputError for a checkout that is not what the kit knows."""
    if not params.asks_models:
        return Prompts(NO_PROMPTS)
    digest = prompts_digest(params.official_repo)
    if params.official_repo:
        found = official.load(params.official_repo)
        return Prompts(digest, found, warnings=list(found.warnings))
    texts = yaml.safe_load((HERE / "prompts-v1.yml").read_text(encoding="utf-8"))
    return Prompts(
        digest,
        texts=texts,
        warnings=[
            "the kit's own prompts, not LongMemEval's: set LONGMEMEVAL_REPO to a checkout of the official repository"
        ],
    )


def conditions(prompts: Prompts) -> dict[str, Any]:
    """What a report says about the prompts, as JSON."""
    said: dict[str, Any] = {
        "official_prompts": prompts.official is not None,
        "digest": prompts.digest,
        "warnings": prompts.warnings,
    }
    if prompts.official is not None:
        said |= {
            "commit": prompts.official.commit,
            "files": prompts.official.files,
            "fingerprints": prompts.official.fingerprints,
        }
    return said


def shown(date: str | None) -> str:
    """A date as a reader is shown it, in UTC."""
    moment = _moment(date)
    return NO_DATE if moment is None else show_date(moment.isoformat())


def _moment(date: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(date) if date else None
    except ValueError:
        return None
    return None if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def _fill(template: str, **parts: str) -> str:
    """Names in braces replaced in one pass: what was filled in is never read as a template again."""
    return re.sub(r"\{(\w+)\}", lambda found: parts[found.group(1)], template)

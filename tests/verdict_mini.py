"""Small LongMemEval records for tests, in the official shape."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any


def record(identity: str = "q1", kind: str = "single-session-user", **changes: Any) -> dict[str, Any]:
    """A record with three sessions, the second of which holds the answer. `changes` replace fields."""
    made = {
        "question_id": identity,
        "question_type": kind,
        "question": "What is the name of my parrot?",
        "answer": "Rio",
        "question_date": "2023/05/30 (Tue) 21:48",
        "haystack_session_ids": ["sharegpt_1", "answer_ab_1", "ultrachat_2"],
        "haystack_dates": ["2023/05/02 (Tue) 08:00", "2023/05/10 (Wed) 09:30", "2023/05/20 (Sat) 10:00"],
        "haystack_sessions": [
            [{"role": "assistant", "content": "How can I help with your garden?"}],
            [
                {"role": "user", "content": "My parrot Rio has learned to whistle.", "has_answer": True},
                {"role": "assistant", "content": "How lovely!", "has_answer": False},
            ],
            [
                {"role": "user", "content": "Which pan is best for crepes?"},
                {"role": "assistant", "content": "A flat one of carbon steel."},
            ],
        ],
        "answer_session_ids": ["answer_ab_1"],
    }
    return {**copy.deepcopy(made), **changes}


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    return path

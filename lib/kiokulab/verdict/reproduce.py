"""`make reproduce TRACK=verdict`: MemVerdict's arithmetic and the public judged runs, computed again.

1. The intervals that MemVerdict's page prints for its pilot, from the counts.
2. The seats of its stratified sample of 30.
3. Overall, task-averaged and abstention accuracy of two public runs of 500 judged answers, by the official
arithmetic; the
   labels lie in a folder `shared` beside the repository (or where $KIOKULAB_SHARED says) and are not part of it.
4. How far the rule grader agrees with those labels (data/verdict/rule-grader.yml).
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import yaml

from kiokulab import stats
from kiokulab.files import read_jsonl
from kiokulab.params import root
from kiokulab.verdict import grade, sample

JUDGED = "longmemeval/judged/hunk0724_{}.gpt-4o-mini.jsonl"
MANIFEST, GOLD = (
    "longmemeval/derived/longmemeval_s_500_manifest.csv",
    "longmemeval/raw/amb_longmemeval_s_queries.json.gz",
)


def part(shared: Path) -> tuple[str, list[str]]:
    """(table, differences) from the public data under `shared`: what the other tracks' parts of `make reproduce`
    give. What is not there is said, never passed over."""
    published = yaml.safe_load((root() / "data" / "published" / "memverdict.yml").read_text(encoding="utf-8"))
    lines, wrong = [], []

    def line(what: str, page: str, ours: str) -> None:
        lines.append(f"{what:<58}{page:>22}{ours:>22}")
        if page != ours:
            wrong.append(f"verdict, {what}: {ours}, published {page}")

    lines.append(f"{'':<58}{'published':>22}{'computed':>22}")
    for row in published["intervals"]:
        found = stats.wilson(row["k"], row["n"])
        line(
            f"{row['system']}: {row['k']}/{row['n']}, in percent",
            f"{row['rate']:.1f}  {row['low']:.1f} to {row['high']:.1f}",
            f"{100 * found.rate:.1f}  {100 * found.low:.1f} to {100 * found.high:.1f}",
        )
    seats = published["sample"]
    line(
        f"{seats['n']} of {sum(seats['types'].values())} questions by type",
        ", ".join(map(str, seats["seats"].values())),
        ", ".join(str(sample.quotas(seats["types"], seats["n"])[kind]) for kind in seats["seats"]),
    )
    for row in published["judged_runs"]:
        path = shared / JUDGED.format(row["run"])
        if not path.is_file() or not (shared / MANIFEST).is_file():
            lines.append(
                f"{row['run']}: not computed, {path.name} or the table of questions is not under {shared.name}/"
            )
            continue
        found = judged_run(path, shared)
        for name, value in (
            ("overall", found["overall"]["rate"]),
            ("task-averaged", found["task_averaged"]),
            ("abstention", found["abstention"]["rate"]),
        ):
            line(f"{row['run']}, {name}", f"{row[name]:.4f}", f"{value:.4f}")
    measured = yaml.safe_load((root() / "data" / "verdict" / "rule-grader.yml").read_text(encoding="utf-8"))["runs"]
    for name, row in measured.items():
        if not (shared / JUDGED.format(name)).is_file() or not (shared / GOLD).is_file():
            lines.append(f"rule grader on {name}: not measured again, the answers are not under {shared.name}/")
            continue
        found = rule_grader_on(name, shared)
        line(
            f"rule grader against the labels of {name}",
            f"{row['agree']}/{row['n']} kappa {row['kappa']:.2f}",
            f"{found['agree']}/{found['n']} kappa {found['kappa']:.2f}",
        )
    return "\n".join(lines), wrong


def types_of(shared: Path) -> dict[str, str]:
    with open(shared / MANIFEST, encoding="utf-8") as file:
        return {row["question_id"]: row["question_type"] for row in csv.DictReader(file)}


def judged_run(path: Path, shared: Path) -> dict[str, Any]:
    """Official metrics of a log of the official evaluation (question_id, autoeval_label)."""
    types = types_of(shared)
    return grade.accuracy(
        {"id": row["question_id"], "type": types[row["question_id"]], "correct": row["autoeval_label"]["label"]}
        for row in read_jsonl(path)
    )


def rule_grader_on(name: str, shared: Path) -> dict[str, Any]:
    """The rule grader on the answers of a judged run: counts of agreement with its labels."""
    types = types_of(shared)
    with gzip.open(shared / GOLD) as file:
        gold = {row["id"]: str(row["gold_answers"][0]) for row in json.load(file)}
    pairs = []
    for row in read_jsonl(shared / JUDGED.format(name)):
        identity = row["question_id"]
        found, _ = grade.rule_grade(types[identity], "_abs" in identity, gold[identity], row["hypothesis"])
        if found is not None:
            pairs.append((found, row["autoeval_label"]["label"]))
    return {
        "n": len(pairs),
        "agree": sum(a == b for a, b in pairs),
        "lenient": sum(a and not b for a, b in pairs),
        "strict": sum(b and not a for a, b in pairs),
        "kappa": round(stats.kappa(*zip(*pairs)).value, 4),
    }

"""The verdict part of `make bench`: how fast a big file is sampled, and what the kit itself costs a question.

Each line is measured in a process of its own, whose peak memory the system tells (ru_maxrss). Files are made by
`make_file`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kiokulab.verdict import TYPES
from kiokulab.verdict.dataset import show_date

BIG_MB = 277  # of variant S
LIMITS = {"stream_mb_s": 20.0, "peak_mb": 500.0, "bm25_s": 12.0, "own_ms": 10.0}
SIZES = (500, 5000)  # questions of small histories: the time must grow in proportion


def make_file(path: Path, megabytes: float = 0.0, questions: int = 500, sessions: int = 48, turns: int = 10) -> Path:
    """A file in the official shape with invented words: `questions` records, as large together as asked (0: turns of
    20 words)."""
    draw = random.Random(1)
    vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(5000)]
    letters = megabytes * 1e6 / questions / sessions / turns - 60 if megabytes else 130
    pool = [" ".join(draw.choices(vocabulary, k=max(1, round(letters / 7)))) for _ in range(400)]
    with open(path, "w", encoding="utf-8") as file:
        for n in range(questions):
            days = [f"2023-{1 + s * 11 // sessions:02d}-{1 + s % 28:02d}T10:00:00+00:00" for s in range(sessions)]
            record = {
                "question_id": f"q{n:05d}" + ("_abs" if n % 17 == 0 else ""),
                "question_type": TYPES[n % 6],
                "question": f"What about {' '.join(draw.choices(vocabulary, k=4))}?",
                "answer": draw.choice(vocabulary),
                "question_date": "2023/12/30 (Sat) 21:48",
                "haystack_session_ids": [f"x{s}" for s in range(sessions)],
                "haystack_dates": sorted(show_date(day) for day in days),
                "answer_session_ids": ["x1"],
                "haystack_sessions": [
                    [{"role": ("user", "assistant")[t % 2], "content": draw.choice(pool)} for t in range(turns)]
                    for _ in range(sessions)
                ],
            }
            file.write(("[" if n == 0 else ",\n") + json.dumps(record))
        file.write("]")
    return path


def _here(code: str, *arguments: str) -> dict[str, float]:
    """The JSON that `code` prints in a Python process of its own, with that process's seconds and peak megabytes."""
    tail = "\nimport json, resource, sys\nprint(json.dumps({**found, 'peak_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == 'darwin' else 1e3)}))"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + tail, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: {done.stderr[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "seconds": time.perf_counter() - start}


STREAM = """
import sys, time, os, pathlib, tempfile
from kiokulab.verdict import PARAMS, generate
start = time.perf_counter()
with tempfile.TemporaryDirectory() as folder:
    generate.run(pathlib.Path(folder), PARAMS(system="bm25", data=sys.argv[1], label="bench"))
took = time.perf_counter() - start
found = {"took": took, "mb": os.path.getsize(sys.argv[1]) / 1e6}
"""

# the four steps with a reader and a judge that answer at once, in this process
BM25 = """
import sys, time, pathlib, tempfile
from kiokulab.verdict import PARAMS, analyze, generate, ingest, judge

def run(steps, **changes):
    params = PARAMS(**{"system": "bm25", "label": "bench", "questions": 0, "reader": "llm:stub", "judge": "llm:stub", "bootstrap": 200, **changes})
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder) / "bm25" / "run"
        folder.mkdir(parents=True)
        times, cpu = [time.perf_counter()], time.process_time()
        for step in steps:
            step(folder, params)
            times.append(time.perf_counter())
            if step is own[-1]:
                cpu = time.process_time() - cpu
        return [b - a for a, b in zip(times, times[1:])], sum(1 for _ in open(folder / "answers.jsonl")), cpu

own = [generate.run, ingest.run, lambda folder, params: judge.run(folder, params, lambda unit, role, prompt: "yes")]
run(own, questions=2)  # so that what is loaded once is not counted as a question's time
steps, n, cpu = run([*own, analyze.run], data=sys.argv[1])
found = {"n": n, "steps": steps, "cpu": cpu}
"""


def lines(only_small: bool = False) -> list[str]:
    """The table's lines. Without the 23 genuine questions beside the repository, the second part runs on the kit's
    own sample."""
    from kiokulab.params import root
    from kiokulab.reproduce import shared_folder

    said = []
    with tempfile.TemporaryDirectory(prefix="kiokulab-bench-") as place:
        big = make_file(Path(place) / "big.json", 30 if only_small else BIG_MB)
        found = _here(STREAM, str(big))
        said.append(
            f"sampling 30 of 500 questions from {found['mb']:.0f} MB: {found['took']:.1f} s for sha256, checking every record and taking 30; {found['mb'] / found['took']:.0f} MB/s "
            f"(at least {LIMITS['stream_mb_s']:.0f}), peak {found['peak_mb']:.0f} MB (at most {LIMITS['peak_mb']:.0f})"
        )
        big.unlink()
        genuine = shared_folder() / "longmemeval/derived/longmemeval_sample_23.json"
        data = genuine if genuine.is_file() else root() / "data/verdict/v0.1/questions.json"
        found = _here(BM25, str(data))
        own = 1000 * sum(found["steps"][:3]) / found["n"]
        said.append(
            f"bm25, {found['n']} {'genuine' if data == genuine else 'invented'} questions, answers at once, all four steps in one process: {found['seconds']:.1f} s (under {LIMITS['bm25_s']:.0f}), "
            f"peak {found['peak_mb']:.0f} MB (at most {LIMITS['peak_mb']:.0f}), {own:.1f} ms a question without figures and report ({1000 * found['cpu'] / found['n']:.1f} ms of processor time; at most {LIMITS['own_ms']:.0f})"
        )
        for questions in (50, 200) if only_small else SIZES:
            small = make_file(Path(place) / "small.json", 0, questions, 6, 4)
            found = _here(BM25, str(small))
            said.append(
                f"bm25, {found['n']:,} questions of 6 short sessions: {sum(found['steps']):.1f} s, {1000 * sum(found['steps'][:3]) / found['n']:.2f} ms a question, peak {found['peak_mb']:.0f} MB"
            )
    return said


if __name__ == "__main__":
    print("\n".join(lines()))

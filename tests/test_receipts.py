"""Verification: one changed byte anywhere is found, and the place is named."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from kiokulab import receipts, run
from kiokulab.errors import InputError, VerificationFailed
from kiokulab.files import dumps


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished toy run, made once for this file."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        place = Path(__file__).parent / "fixtures" / "toy"
        patch.syspath_prepend(str(place))
        patch.setenv("PYTHONPATH", str(place))
        patch.setenv("KIOKULAB_OUTPUTS", str(folder))
        from kiokulab_toy import ToyParams

        (one,) = run.run_track(ToyParams(), ["alpha"], out=lambda line: None)
        assert one.error is None
        receipts.verify(one.folder)
        yield one.folder


@pytest.fixture
def copy(finished, tmp_path, monkeypatch):
    """A copy of it, to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def places(folder):
    with pytest.raises(VerificationFailed) as error:
        receipts.verify(folder)
    assert error.value.exit_code == 6
    return error.value.places


def test_one_flipped_byte_in_any_file_is_found(copy):
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    assert len(files) > 20
    for path in files:
        good = path.read_bytes()
        name = path.relative_to(copy).as_posix()
        for at in {0, len(good) // 2, len(good) - 1}:
            if not good:
                path.write_bytes(b"x")
            else:
                path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            found = places(copy)
            assert any(name in place for place in found), (name, at, found)
        path.write_bytes(good)
    receipts.verify(copy)


def test_a_missing_and_an_extra_file_are_found(copy):
    (copy / "figures" / "letters.png").unlink()
    (copy / "note.txt").write_text("hello")
    assert places(copy) == ["figures/letters.png: missing", "note.txt: not part of the run"]


def test_a_changed_line_is_named(copy):
    path = copy / "judgements.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], lines[4].replace('"letters":', '"letters": '), *lines[5:]]))
    assert places(copy) == ["judgements.jsonl:5: changed"]
    path.write_text("".join([*lines[:2], lines[4], lines[3], lines[2], *lines[5:]]))
    assert places(copy) == ["judgements.jsonl:3: changed"]
    path.write_text("".join(lines[:-1]))
    assert places(copy) == [f"judgements.jsonl:{len(lines)}: the file ends here, lines are missing"]
    path.write_text("".join(lines) + lines[0])
    assert places(copy) == [f"judgements.jsonl:{len(lines) + 1}: changed"]


def test_a_changed_digit_in_an_executed_notebook_is_named_with_its_cell(copy):
    path = copy / "4-analyze.ipynb"
    text = path.read_text(encoding="utf-8")
    assert "letters 30 of 4: 7.500" in text
    path.write_text(text.replace("letters 30 of 4: 7.500", "letters 31 of 4: 7.500"), encoding="utf-8")
    (place,) = places(copy)
    number = next(n for n, cell in enumerate(json.loads(text)["cells"], 1) if "analyze.run" in "".join(cell["source"]))
    assert place == f"4-analyze.ipynb: cell {number}: changed"


def reseal(folder, **changes):
    """A forger who knows the layout: change the receipt and close its seal again."""
    row = json.loads((folder / "receipt.json").read_bytes())
    row.update(changes)
    row.pop("seal")
    (folder / "receipt.json").write_text(dumps({**row, "seal": receipts.digest(row)}) + "\n", encoding="utf-8")
    return row


def test_a_figure_that_does_not_follow_from_the_judgements_is_found_though_all_digests_fit(copy):
    metrics = json.loads((copy / "metrics.json").read_bytes())
    metrics["metrics"]["letters"]["rate"] = 9.5
    (copy / "metrics.json").write_text(dumps(metrics) + "\n")
    proof = json.loads((copy / "steps" / "4-analyze.json").read_bytes())
    proof["outputs"]["metrics.json"] = receipts.sha256_file(copy / "metrics.json")
    body = {name: value for name, value in proof.items() if name not in ("digest", "times")}
    proof["digest"] = receipts.digest(body)
    (copy / "steps" / "4-analyze.json").write_text(dumps(proof) + "\n")
    notebook, record = receipts.stamp(json.loads((copy / "4-analyze.ipynb").read_bytes()), copy, "4-analyze")
    (copy / "4-analyze.ipynb").write_text(notebook, encoding="utf-8")
    steps = json.loads((copy / "receipt.json").read_bytes())["steps"]
    steps[3].update(
        digest=proof["digest"], outputs=proof["outputs"], proof=receipts.sha256_file(copy / "steps" / "4-analyze.json")
    )
    steps[3]["notebook"] = record.model_dump()
    reseal(copy, steps=steps)
    found = places(copy)
    assert found[0].startswith("metrics.json: metrics.letters.rate is 9.5, but 7.5")
    assert "the figures it prints are not those of metrics.json" in found[1]


def test_a_step_exchanged_for_another_breaks_the_chain(copy):
    path = copy / "steps" / "3-judge.json"
    proof = json.loads(path.read_bytes())
    proof["previous"] = "0" * 64
    body = {name: value for name, value in proof.items() if name not in ("digest", "times")}
    path.write_text(dumps({**proof, "digest": receipts.digest(body)}) + "\n")
    assert any("the chain is broken" in place for place in places(copy))


def test_a_run_that_is_not_finished_does_not_verify(copy):
    reseal(copy, status="stopped", reason="the command was interrupted")
    assert any("not finished: stopped" in place for place in places(copy))


def test_a_cell_that_was_not_run_is_found(finished):
    notebook = json.loads((finished / "2-ingest.ipynb").read_bytes())
    assert receipts.not_run(notebook) == []
    code = next(n for n, cell in enumerate(notebook["cells"], 1) if cell["cell_type"] == "code")
    notebook["cells"][code - 1]["execution_count"] = None
    assert receipts.not_run(notebook) == [code]


@pytest.mark.parametrize("secret", ["sk-or-v1-0123456789abcdef0123", "value-of-a-key"])
def test_a_secret_in_a_run_is_found(copy, monkeypatch, secret):
    monkeypatch.setenv("MY_API_KEY", "value-of-a-key")
    (copy / "logs" / "2-ingest" / "u-00@raw.log").write_text(f"one\ntwo {secret}\n")
    assert "logs/2-ingest/u-00@raw.log:2: holds something that looks like a secret" in places(copy)


def test_a_folder_that_is_no_run_is_bad_input(tmp_path):
    with pytest.raises(InputError):
        receipts.verify(tmp_path)


def test_a_signature_is_checked_when_it_is_there(copy, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "key.pem").write_bytes(pem)
    receipts.sign(copy, str(tmp_path / "key.pem"))
    receipts.verify(copy)
    reseal(copy, reason="a seal that fits, but not what was signed")
    assert any("the signature does not fit" in place for place in places(copy))
    (tmp_path / "key.pem").write_text("nonsense")
    with pytest.raises(InputError):
        receipts.sign(copy, str(tmp_path / "key.pem"))


def test_two_undisturbed_runs_have_the_same_proofs_up_to_logs_and_times(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(tmp_path))
    from kiokulab_toy import ToyParams

    (one,) = run.run_track(ToyParams(), ["alpha"], out=lambda line: None)
    for step in ("1-generate", "2-ingest", "3-judge", "4-analyze"):
        first, second = receipts.read_proof(finished, step), receipts.read_proof(one.folder, step)
        assert first.outputs == second.outputs and first.inputs == second.inputs


def test_the_steps_also_run_without_notebooks_and_papermill(finished, tmp_path):
    """By hand: begin, the step, finish. The receipt says that no notebook was kept."""
    from kiokulab_toy import ToyParams, analyze, steps

    params = ToyParams(run_dir=str(tmp_path / "by-hand"))
    for name, work in [
        ("1-generate", steps.generate),
        ("2-ingest", steps.ingest),
        ("3-judge", steps.judge),
        ("4-analyze", analyze.run),
    ]:
        step = receipts.begin(name, params)
        work(step.folder, step.params)
        receipts.finish(step)
    receipt = receipts.verify(tmp_path / "by-hand")
    assert [step.notebook for step in receipt.steps] == [None] * 4 and [step.exit for step in receipt.steps] == [
        None
    ] * 4
    with pytest.raises(InputError, match="step 2-ingest is not done"):
        receipts.begin("2-ingest", params)
        receipts.begin("3-judge", params)


def test_a_step_does_not_begin_on_a_changed_file(tmp_path, finished):
    from kiokulab_toy import ToyParams

    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "memories.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="memories.jsonl is not what step 2-ingest wrote"):
        receipts.begin("3-judge", ToyParams(run_dir=str(tmp_path / "run")))


def test_the_digest_of_a_database_is_over_its_rows_and_not_its_bytes(tmp_path):
    for name, page in (("a.sqlite", 1024), ("b.sqlite", 4096)):
        with sqlite3.connect(tmp_path / name) as database:
            database.execute(f"pragma page_size = {page}")
            database.execute("create table calls (unit text, tokens integer, body blob)")
            database.executemany("insert into calls values (?, ?, ?)", [("u", n, b"x") for n in range(3)])
    a, b = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    assert a.read_bytes() != b.read_bytes() and receipts.sqlite_digest(a) == receipts.sqlite_digest(b)
    with sqlite3.connect(b) as database:
        database.execute("update calls set tokens = 9 where tokens = 1")
    assert receipts.sqlite_digest(a) != receipts.sqlite_digest(b)


def test_every_field_of_a_receipt_is_documented():
    for model in (
        receipts.Receipt,
        receipts.StepProof,
        receipts.Versions,
        receipts.Times,
        receipts.NotebookRecord,
        receipts.Cost,
    ):
        for name, field in model.model_fields.items():
            if name in ("schema_", "step", "track", "versions", "note", "cost"):
                continue
            assert field.description, f"{model.__name__}.{name}"

"""The bench's own parts, at a size at which they cost nothing. No time is asserted anywhere."""

from __future__ import annotations

import pytest

from kiokulab import bench


def test_the_judge_is_given_as_many_sentences_and_versions_as_it_says():
    versions, seconds = bench.judged(60, 20)
    assert 20 <= versions <= 22 and seconds > 0


def test_a_command_is_measured_with_folders_of_its_own(tmp_path):
    code = "import os, pathlib; pathlib.Path(os.environ['KIOKULAB_OUTPUTS']).mkdir(); b = bytearray(50_000_000); import time; time.sleep(1.2)"
    got = bench._measured(["-c", code], tmp_path / "a")
    assert (tmp_path / "a" / "outputs").exists() and got["seconds"] > 1 and got["megabytes"] > 40


def test_a_command_that_fails_ends_the_bench_with_its_last_words(tmp_path):
    with pytest.raises(SystemExit, match="it broke"):
        bench._measured(["-c", "raise RuntimeError('it broke')"], tmp_path / "a")


def test_a_size_that_takes_too_long_is_named_and_not_run(monkeypatch, tmp_path):
    monkeypatch.setenv("KIOKULAB_OUTPUTS", str(tmp_path))
    monkeypatch.setattr(bench, "_measured", lambda command, place: {"seconds": 60.0, "megabytes": 100.0})
    from kiokulab.kioku import generate

    monkeypatch.setattr(generate, "write_edition", lambda *a, **k: None)
    text = bench.personas_grow([10, 20, 1000], minutes=5)
    assert "1,000  not run: about 50 minutes" in text and (tmp_path / "bench-personas.png").exists()

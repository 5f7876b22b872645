"""The `http` backend against servers on this machine that serve all-MiniLM-L6-v2, one of them a package's."""

import base64
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from inside import resize
from workplaces import BAR, benchmarco, read_json

from pipeline import InputError, compare
from pipeline.config import BACKENDS
from pipeline.encoders import Usage, resolve
from pipeline.encoders.http import TRIES, RequestSize
from pipeline.results import Result, section_tables
from pipeline.storage import Store
from pipeline.studies.page import render_page

KEY = "sk-loopback-0123456789"
MODEL = "all-minilm-l6-v2"
CONFIG = """
name: served
data: {source: sample, queries: 30, corpus: 200}
model: {backend: http, name: all-minilm-l6-v2, batch_size: 16}
search: {top_k: 100}
evaluate: {measures: [ndcg@10, mrr@10, recall@100]}
"""
pytestmark = pytest.mark.usefixtures("short_pauses")
Run = Callable[..., Result]
Ask = Callable[..., Any]
Fault = Callable[[Any], bool]


@pytest.fixture
def run(tmp_path: Path, embedding_server: Any) -> Run:
    """Runs the config with some settings; returns the result."""
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    return partial(workplaces.run, tmp_path, f"model.url={embedding_server.url}")


def read(folder: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """The measures of a run, and its stored vectors by role, in order."""
    (measured,) = (folder / "results").glob("*/metrics.json")
    return read_json(measured)["metrics"], {
        role: np.concatenate([np.load(p) for p in sorted((folder / "indexes" / role).glob("*/rows-*.npy"))])
        for role in ("passages", "queries")
    }


def test_a_served_model_gives_the_vectors_and_measures_of_the_local_one_and_tells_the_price(
    run: Run, embedding_server: Any, local_run: Path, tmp_path: Path
) -> None:
    result = run("model.price_per_million_tokens=0.02", "model.concurrency=3")
    (ours, vectors), (theirs, expected) = read(tmp_path), read(local_run)
    assert ours == pytest.approx(theirs, abs=1e-12)
    for role in expected:
        np.testing.assert_array_equal(vectors[role], expected[role])
    counts = [*embedding_server.answered.values()]
    # those that are asked for again, a long text with its beginning, and a request of 16, three of them alone
    assert len(counts) == 230 + 8 + 2 + 16
    assert sorted(counts) == [1] * 245 + [2] * 3 + [3] * 8
    stages = {stage["stage"]: stage for stage in result.document["stages"]}
    asked = stages["passages"]["encoding"]
    assert (asked["requests"], asked["retries"], asked["concurrency"]) == (-(-128 // 16) + -(-72 // 16), 0, 3)
    assert asked["price"] == pytest.approx(asked["tokens"] * 0.02 / 1e6)
    assert asked["tokens"] > 5000
    alone = stages["queries"]["encoding"]["seconds_alone"]
    assert alone["texts"] == stages["queries"]["encoding"]["requests"] == 30
    assert 0 < alone["median"] <= alone["p95"] <= alone["p99"]
    (table,) = section_tables({"served": result.record}, "ndcg@10")["Served models"]
    names = [column.name for column in table.columns]
    assert names[:5] == ["stage", "requests", "retries", "tokens", "price"]
    assert "3 requests under way at once" in " ".join(table.notes)
    assert "what the server was asked" in render_page(compare([result.folder], "ndcg@10"))


@pytest.fixture
def real_server(root: Path) -> Iterator[str]:
    """The address of LitServe, which was not written for these tests, once it takes requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(root / "tests" / "real_server.py"), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "Application startup complete" in line:
            break
    else:
        pytest.fail("".join(said))
    yield f"http://127.0.0.1:{port}/v1"
    os.killpg(process.pid, signal.SIGKILL)
    process.stderr.close()
    process.wait()


def test_a_real_server_gives_the_vectors_and_measures_of_the_local_model(
    real_server: str, run: Run, local_run: Path, tmp_path: Path
) -> None:
    run(f"model.url={real_server}", "model.concurrency=2", "model.batch_size=null")
    (ours, vectors), (theirs, expected) = read(tmp_path), read(local_run)
    assert ours == pytest.approx(theirs, abs=1e-6)
    for role, rows in expected.items():
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)  # as the server does
        np.testing.assert_allclose(vectors[role], rows, atol=1e-6)


@pytest.fixture
def ask(embedding_server: Any, tmp_path: Path) -> Iterator[Ask]:
    """Asks the server for the vectors of texts, with some settings; `ask.usage` is what it took."""
    encoders = []

    def start(texts: list[str], role: str = "passages", **settings: Any) -> Any:
        config = BACKENDS.make(**{"backend": "http", "url": embedding_server.url, "name": MODEL, **settings})
        encoders.append(resolve(config).open(Store(tmp_path)))
        start.usage = Usage()
        return encoders[-1].encode(texts, role, start.usage, BAR)

    yield start
    for encoder in encoders:
        encoder.close()


@pytest.fixture(scope="module")
def known(local_vectors: dict[str, Any]) -> dict[str, Any]:
    """Texts, and their vectors."""
    return {text: vector.astype(np.float32) for text, vector in list(local_vectors.items())[:24]}


def refused(status: int, content: Any, **headers: str) -> Fault:
    """Answers with an error, or with what is not asked for."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.send(status, content, named) or True


def dropped(handler: Any) -> bool:
    """Ends the connection without an answer."""
    handler.close_connection = True
    return True


def slow(handler: Any) -> bool:
    """Answers nothing until the client has gone."""
    handler.connection.settimeout(30)
    assert handler.connection.recv(1) == b""
    return dropped(handler)


def dripping(handler: Any) -> bool:
    """Answers a byte at a time until the client has gone."""
    handler.send(200, b"", {"Content-Length": "1000000"})
    handler.connection.settimeout(0.02)
    while True:
        handler.wfile.write(b" ")
        with suppress(TimeoutError):
            assert handler.connection.recv(1) == b""
            return dropped(handler)


BROKEN_OFF = refused(200, b'{"data": [', Content_Length="1000", Connection="close")
OVERCOME: dict[str, list[Fault | None]] = {
    "answers that take too long": [slow, dripping],
    "429 with Retry-After": [refused(429, {"error": "slow down"}, Retry_After="0.01")],
    "Retry-After that is no number of seconds": [
        refused(429, {}, Retry_After=value)
        for value in ("nan", "inf", "-5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT")
    ],
    "503 as a web page": [refused(503, "<html>Service Unavailable</html>")],
    "a connection that drops, after an answer": [None, dropped],
    "several after another": [dropped, refused(502, "bad gateway"), refused(429, {}), BROKEN_OFF],
}


@pytest.mark.parametrize("name", OVERCOME)
def test_what_passes_is_overcome_and_every_text_is_answered_once(
    name: str, ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    faults = embedding_server.faults = list(OVERCOME[name])
    failures = sum(fault is not None for fault in faults)
    found = ask(list(known), batch_size=4, concurrency=2, timeout=1 if slow in faults else 30)
    np.testing.assert_array_equal(found, np.stack(list(known.values())))
    assert embedding_server.answered == dict.fromkeys(known, 1)
    assert ask.usage.server.retries == failures
    assert ask.usage.server.requests == len(embedding_server.requests) == 6 + failures
    assert ask.usage.texts == 24


def test_a_request_that_is_too_large_is_halved_and_those_after_it_are_smaller(
    ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    embedding_server.most_texts = 3
    embedding_server.as_lists = embedding_server.reverse = True  # the order makes no difference
    found = ask(list(known), batch_size=24, concurrency=1)
    np.testing.assert_array_equal(found, np.stack(list(known.values())))
    assert embedding_server.answered == dict.fromkeys(known, 1)
    sizes = [len(request["body"]["input"]) for request in embedding_server.requests]
    assert sizes[:4] == [24, 12, 6, 3]
    assert ask.usage.server.retries == 0


def changed(change: Callable[[list[Any]], list[Any]]) -> Fault:
    """Answers with vectors, of which something is changed."""
    return lambda handler: handler.server_of_test.send_vectors(handler, change) or True


def with_vector(vector: list[float]) -> Fault:
    return changed(lambda rows: [{**rows[0], "embedding": vector}, *rows[1:]])


REFUSED = {
    "too few vectors": (changed(lambda rows: rows[1:]), "3 vectors for 4 texts"),
    "an index twice": (changed(lambda rows: [rows[0], *rows[:-1]]), "not numbered from 0 to 3, each once"),
    "NaN": (with_vector([float("nan")] * 384), "NaN or infinity"),
    "a number that is too large": (with_vector([1e300] * 384), "NaN or infinity"),
    "no direction": (with_vector([0.0] * 384), "length 0"),
    "another dimension": (with_vector([1.0] * 8), "vectors of 8 and 384 dimensions"),
    "numbers as texts": (with_vector(["0.5"] * 384), "no vector"),
    "truth values": (with_vector([True] * 384), "no vector"),
    "a number of 400 digits": (with_vector([10**400] * 384), "no vector"),
    "JSON that is nested too deep": (refused(200, b"[" * 200_000 + b"]" * 200_000), "what cannot be read"),
    "no end": (refused(200, b" " * 600_000), "an answer of more than 500,000 bytes"),
    "a redirect": (
        refused(307, {}, Location="http://localhost:1/v1/embeddings"),
        "redirects to http://localhost:1/v1",
    ),
    "no words": (refused(404, ""), "answers 404; there is no model"),
    "a terminal's control characters": (refused(400, {"error": "\x1b[2Jgone"}), r"400: \u001b[2Jgone"),
    "a web page": (refused(200, "<html>Welcome</html>"), "no JSON of vectors. Check"),
    "other JSON": (refused(200, {"hello": 1}), "JSON without a list 'data'. Check"),
    "an error with status 200": (refused(200, {"error": {"message": "no model"}}), "list 'data': no model"),
    "details": (refused(422, {"detail": [{"msg": "bad field"}, {"loc": 1}]}), "422: bad field"),
    "an error that is no text": (refused(400, {"error": {"message": {"a": 1}}}), "answers 400. Change"),
    "a long error": (refused(400, {"message": "x" * 10_000}), f"400: {'x' * 200}.... Change"),
    "no credit": (refused(429, {"error": {"code": "insufficient_quota"}}), "insufficient_quota"),
    "a text that is too long": (
        refused(413, {"error": "inputs must have less than 512 tokens"}),
        "512 tokens",
    ),
    "bad request": (refused(400, {"error": {"message": "no such parameter"}}), "400: no such parameter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_pass_is_refused_in_one_sentence_at_once(
    name: str, ask: Ask, embedding_server: Any, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, answer_bytes=500_000)
    fault, said = REFUSED[name]
    embedding_server.faults = [fault]
    texts = list(known)[: 1 if "too long" in name else 4]
    with pytest.raises(InputError) as refusal:
        ask(texts, batch_size=4)
    assert said in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1
    assert len(embedding_server.requests) == 1


@pytest.mark.parametrize("part", [slice(None), slice(-1, None)], ids=["all", "the last"])
def test_a_server_whose_vectors_change_with_the_size_of_a_request_is_refused(
    part: slice, run: Run, embedding_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """ollama#6262: worse vectors from 16 texts on; nDCG@10 was 0.49 for 1, and nothing said so."""
    honest = embedding_server.embed

    def embed(texts: list[str]) -> Any:
        vectors = np.array(honest(texts))
        if len(texts) >= 16:
            vectors[part] += np.random.default_rng(0).normal(size=vectors[part].shape) / 20
        return vectors

    embedding_server.embed = embed
    with pytest.raises(InputError, match=r"differently in requests of 16 texts and of one.*batch_size"):
        run()
    assert run("model.batch_size=15").metrics
    run("model.changed=warn")
    assert "answers differently in requests of 16 texts and of one" in caplog.text


def test_lengths_that_change_with_the_size_of_a_request_count_unless_they_are_normalized(
    run: Run, embedding_server: Any
) -> None:
    honest = embedding_server.embed
    embedding_server.embed = lambda texts: np.array(honest(texts)) * (3 if len(texts) >= 16 else 1)
    with pytest.raises(InputError, match=r"requests of 16 texts and of one: lengths differ by a factor of 3"):
        run("model.normalize=false")
    assert run().metrics


def test_a_reranker_whose_scores_change_with_the_size_of_a_request_is_refused(
    run: Run, embedding_server: Any
) -> None:
    honest = embedding_server.embed
    embedding_server.embed = lambda texts: honest(texts)[:: 1 if len(texts) < 16 else -1]
    server = f"rerank={{backend: http, url: '{embedding_server.url}', name: {MODEL}, batch_size: SIZE}}"
    with pytest.raises(InputError, match=r"requests of 16 texts and of one: scores .*rerank\.batch_size"):
        run("model={backend: bm25}", server.replace("SIZE", "16"))
    assert run("model={backend: bm25}", server.replace("SIZE", "14")).metrics


SIZES = {
    "DashScope": (10, "batch size is invalid, it should not be larger than 10."),
    "OpenAI": (20, "Invalid 'input': input array must have 20 or fewer elements"),
    "Voyage": (12, "The request has 24 inputs which is over the limit of 12"),
    "Jina": (12, "List should have at most 12 items after validation, not 24"),
    "OpenAI's tokens": (12, "Requested 350000 tokens, max 300000 tokens per request"),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_refusal_for_size_in_a_server_s_own_words_is_halved_and_remembered(
    name: str, ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    most, said = SIZES[name]

    def limited(handler: Any) -> bool:
        if len(handler.body["input"]) > most:
            handler.send(400, {"error": {"message": said}})
            return True
        return False

    embedding_server.faults = [limited] * 99
    found = ask(list(known), batch_size=24, concurrency=1)
    np.testing.assert_array_equal(found, np.stack(list(known.values())))
    sizes = [len(request["body"]["input"]) for request in embedding_server.requests]
    assert sizes[0] == 24
    assert sum(size > most for size in sizes) <= 2


WRONG: dict[str, tuple[int, Any, str]] = {
    "Ollama's NaN": (500, {"error": "failed to encode response: json: unsupported value: NaN"}, "NaN"),
    "an empty text": (400, {"error": {"message": "input cannot be an empty string"}}, "an empty string"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_text_that_a_server_refuses_is_found_by_halving_and_named(
    name: str, ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    status, content, said = WRONG[name]
    texts = list(known)
    named = sorted(texts, key=len)[7]

    def refusing(handler: Any) -> bool:
        if named in handler.body["input"]:
            handler.send(status, content)
            return True
        return False

    embedding_server.faults = [refusing] * 99
    with pytest.raises(InputError) as refusal:
        ask(texts, batch_size=8, concurrency=1)
    assert said in str(refusal.value)
    assert f"it was asked for the text {named[:60]!r}" in str(refusal.value)
    assert len(embedding_server.requests) <= 3 + 2 * 3


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (None, "no vector for"),
        ([float("nan")] * 384, "NaN or infinity for"),
        ([0.0] * 384, "no direction, for"),
    ],
)
def test_the_text_of_a_wrong_vector_is_named(
    vector: Any, said: str, ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    text = list(known)[2]
    embedding_server.faults = [changed(lambda rows: [*rows[:2], {**rows[2], "embedding": vector}, *rows[3:]])]
    with pytest.raises(InputError) as refusal:
        ask([text] * 4, batch_size=4)
    assert f"{said} the text {text[:60]!r}" in str(refusal.value)


@pytest.mark.parametrize("cut", [None, 1024])
def test_a_bag_of_words_is_not_said_to_cut_texts(
    cut: int | None, run: Run, embedding_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The second half of the long text had the words of the first, and so the same mean."""

    @cache
    def vector_of(word: str) -> Any:
        return np.random.default_rng(list(word.encode())).normal(size=64)

    def embed(texts: list[str]) -> Any:
        rows = [np.zeros(64) for _ in texts]
        for row, text in zip(rows, texts, strict=True):
            for word in text.split()[:cut]:
                row += vector_of(word)
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)

    embedding_server.embed = embed
    run()
    assert ("cuts long texts" in caplog.text) == (cut is not None)


def test_dimensions_that_the_server_ignores_are_refused(ask: Ask, known: dict[str, Any]) -> None:
    assert ask(list(known), dimensions=32).shape == (24, 32)
    with pytest.raises(InputError, match="vectors of 384 and 400 dimensions, and 400 are expected"):
        ask(list(known), dimensions=400)


def test_a_server_that_stays_away_ends_the_run(
    ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    embedding_server.faults = [refused(500, {"error": "oops"})] * TRIES
    with pytest.raises(InputError, match=f"answers 500: oops; {TRIES} attempts failed"):
        ask(list(known)[:1])
    embedding_server.faults = [dropped] * TRIES
    with pytest.raises(InputError, match=rf"no answer from .* in {TRIES} tries"):
        ask(list(known)[:1])
    with pytest.raises(InputError, match=r"no answer from http://127.0.0.1:9/v1: .*Start the server"):
        ask(list(known)[:1], url="http://127.0.0.1:9/v1/")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Retry_After": "600"}, "2 attempts failed; it asks to wait 600 s (Retry-After). Run again later"),
        ({"x_should_retry": "false"}, "2 attempts failed. Run again later"),
    ],
)
def test_what_is_not_tried_again_is_not_said_to_be(
    ask: Ask, embedding_server: Any, known: dict[str, Any], headers: dict[str, str], said: str
) -> None:
    """The client does not retry where the server asks for a wait of more than two minutes."""
    embedding_server.faults = [refused(429, {"error": "slow down"}, **headers)] * TRIES
    with pytest.raises(InputError) as refusal:
        ask(list(known)[:1])
    assert said in str(refusal.value)
    assert len(embedding_server.requests) == 2  # the first one of all has no retries, and is sent again


def test_requests_are_cut_by_texts_and_by_tokens_that_are_estimated_from_bytes() -> None:
    size = RequestSize(texts=4, tokens=100)
    assert size.next([30] * 10) == 4
    assert size.next([150, 150, 3]) == 2  # 50 tokens each
    assert size.next([1000, 3]) == 1  # more than the budget, and alone
    size.count(600, 400)  # the server counts twice as many
    assert size.next([75, 75, 75]) == 2
    size.refused([75, 75, 75, 75])
    assert size.next([3] * 10) == 2


def test_every_run_asks_for_a_few_texts_again(
    run: Run, embedding_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = run()
    embedding_server.clear()
    assert run().metrics == first.metrics
    assert sum(embedding_server.answered.values()) == 8
    honest = embedding_server.embed
    embedding_server.embed = lambda texts: honest(texts) + np.linspace(0, 0.02, 384)
    with pytest.raises(InputError, match=r"no longer gives .*: the cosine is 0\.9\d+ at the lowest"):
        run()
    with pytest.raises(InputError, match="no longer gives"):
        run("data.corpus=150")  # rows of another artifact
    with caplog.at_level(logging.WARNING):
        run("model.changed=warn")
    assert "continuing with both" in caplog.text
    embedding_server.clear()
    run("model.changed=ignore")
    assert embedding_server.requests == []
    embedding_server.embed = lambda texts: honest(texts)[:, :100]
    with pytest.raises(InputError, match="they had 384 dimensions, and have 100"):
        run()
    assert run("model.revision=b", "data.corpus=60").document["vectors"]["dimension"] == 100
    embedding_server.embed = honest
    with pytest.raises(InputError, match="stored vectors have 100 and 384 dimensions"):
        run("model.revision=b", "data.corpus=345", "model.changed=ignore")


@pytest.mark.parametrize("after", [1, 60, 150, 205, 225])
def test_a_model_that_changes_during_a_run_is_noticed_and_nothing_of_the_shard_is_stored(
    after: int, run: Run, embedding_server: Any, tmp_path: Path
) -> None:
    honest, changed = embedding_server.embed, np.linspace(0, 0.02, 384)
    run("data.corpus=20", "data.queries=2")  # asks for the probes
    embedding_server.clear()

    def embed(texts: list[str]) -> Any:
        return honest(texts) + (changed if sum(embedding_server.answered.values()) > after else 0)

    embedding_server.embed = embed
    with pytest.raises(InputError, match="no longer gives what it gave"):
        run("model.shard_rows=50")
    for path in (tmp_path / "indexes").glob("passages/*/rows-*.npy"):
        rows = np.load(path)
        assert len(rows) in (20, 50)


def test_a_model_that_changes_during_a_run_is_only_warned_of_where_the_config_says_so(
    run: Run, embedding_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    honest = embedding_server.embed
    embedding_server.embed = lambda texts: (
        honest(texts) + (np.linspace(0, 0.02, 384) if sum(embedding_server.answered.values()) > 60 else 0)
    )
    with caplog.at_level(logging.WARNING):
        run("model.shard_rows=50", "model.changed=warn")
    assert "continuing with both" in caplog.text


without_index = changed(lambda rows: [{"embedding": row["embedding"]} for row in rows])


def in_half(server: Any, numbers_too: bool = False) -> Fault:
    """Answers with base64 of float16; and so where numbers are asked for, too."""

    def change(rows: list[Any]) -> list[Any]:
        for row in rows:
            if isinstance(row["embedding"], str) or numbers_too:
                given = row["embedding"]
                vector = (
                    np.frombuffer(base64.b64decode(given), "<f4")
                    if isinstance(given, str)
                    else np.array(given)
                )
                row["embedding"] = base64.b64encode(vector.astype("<f2").tobytes()).decode()
        return rows

    return lambda handler: server.send_vectors(handler, change) or True


@pytest.mark.parametrize("scale", [1, 1 / 6, 40])
def test_base64_of_float16_is_read_as_float16(
    scale: float, ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    """Read as float32, it would be half as many numbers."""
    embed = embedding_server.embed
    embedding_server.embed = lambda texts: scale * embed(texts)
    embedding_server.faults = [in_half(embedding_server)] * 9
    texts = list(known)[:20]
    expected = [scale * known[text] for text in texts]
    np.testing.assert_allclose(ask(texts), expected, rtol=1e-3, atol=1e-4)


def test_base64_alone_of_float16_needs_the_number_of_dimensions(
    ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    embedding_server.faults = [in_half(embedding_server, numbers_too=True)] * 9
    texts = list(known)[:20]
    with pytest.raises(InputError, match=r"their format is unknown.*Set model\.dimensions"):
        ask(texts)
    vectors = ask(texts, dimensions=384)
    np.testing.assert_allclose(vectors, [known[text] for text in texts], rtol=1e-3, atol=1e-4)


def test_a_server_that_cuts_long_texts_is_noticed_once_and_told_in_each_run(
    run: Run, embedding_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    embed = embedding_server.embed
    embedding_server.embed = lambda texts: embed([" ".join(text.split()[:200]) for text in texts])
    said = "cuts long texts, without an error: a text of 2,048 words has the vector of its first 1,024"
    for times in (1, 2):
        run()
        assert caplog.text.count(said) == times
    long_texts = [text for text in embedding_server.answered if len(text.split()) > 200]
    assert len(long_texts) == 2
    assert {embedding_server.answered[text] for text in long_texts} == {1}


def test_vectors_without_numbers_are_taken_one_at_a_time_alone(
    ask: Ask, embedding_server: Any, known: dict[str, Any]
) -> None:
    texts = list(known)[:2]
    embedding_server.faults = [without_index] * 2
    np.testing.assert_allclose(ask(texts, batch_size=1), [known[text] for text in texts], atol=1e-5)
    embedding_server.faults = [without_index]
    with pytest.raises(InputError, match=r"by `index`.*set model\.batch_size to 1"):
        ask(texts, batch_size=2)


def test_a_served_model_s_instructions_and_long_texts(ask: Ask, embedding_server: Any) -> None:
    embedding_server.embed = lambda texts: np.ones((len(texts), 4))
    ask(["one", "", "a long text"], query_instruction="find: ", max_characters=6, concurrency=1)
    ask(["one"], role="queries", query_instruction="find: ")
    sent = [text for request in embedding_server.requests for text in request["body"]["input"]]
    assert sorted(sent[:3]) == [" ", "a long", "one"]  # OpenAI refuses an empty text
    assert sent[3:] == ["find: one"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (f"model.api_key={KEY}", "unknown key 'model.api_key'"),
        (f"model.api_key_env={KEY}", "is not shown"),
        ("model.api_key_env=SECRET0123456789", "is not set"),  # a key in capitals, as names are
        (f"model.url=http://user:{KEY}@localhost/v1", "is not shown"),
        (f"model.url=http://localhost/v1?key={KEY}", "is not shown"),
    ],
)
def test_a_key_in_the_config_is_refused_and_not_repeated(
    setting: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    done = benchmarco("run", "c.yaml", "--set", setting, code=2)
    assert said in done.output
    assert "SECRET" not in done.output
    assert KEY not in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_a_key_in_the_environment_is_in_no_file_and_no_output(
    tmp_path: Path, embedding_server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    embedding_server.key = KEY
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    sets = [f"model.url={embedding_server.url}", "model.api_key_env=LOOPBACK_KEY", "data.corpus=60"]
    command = ["run", "c.yaml", *(part for each in sets for part in ("--set", each))]
    said = []
    with caplog.at_level(logging.DEBUG):
        for key, code in ((f"{KEY}-wrong", 2), (KEY, 0), (KEY, 0)):
            monkeypatch.setenv("LOOPBACK_KEY", key)
            said.append(benchmarco(*command, code=code).output)
    assert "answers 401: (not shown: the key is in it)" in said[0]
    sent = [request["headers"]["authorization"] for request in embedding_server.requests]
    assert sorted(set(sent)) == [f"Bearer {KEY}", f"Bearer {KEY}-wrong"]
    said.append(benchmarco("report", "results/served", "--html", "page.html").output)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in "".join([*said, caplog.text])


SECRET = "sk-Proj_7fQ2xLm9Zr4TbV8kWd3Ny6Hc1Gs5Ja0"


@pytest.mark.parametrize("status", [400, 500, 200, 302])
def test_no_message_has_a_key_that_a_server_sends_back(
    status: int, ask: Ask, embedding_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", SECRET)
    sent = f"{'.' * 190} {SECRET}"  # it would be cut within the key
    place = {"Location": sent} if status == 302 else {}
    embedding_server.faults = [refused(status, {"error": {"message": f"wrong: {sent}"}}, **place)] * TRIES
    with pytest.raises(InputError) as refusal:
        ask(["text"], api_key_env="LOOPBACK_KEY")
    assert "(not shown: the key is in it)" in str(refusal.value)
    assert SECRET[:3] not in str(refusal.value)


def test_an_error_that_has_nothing_of_the_key_is_shown(
    ask: Ask, embedding_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", SECRET)
    said = (
        "This model's maximum context is 8192 tokens, request 0f8fad5b-d9cb-469f-a165-7086772895 had 104857"
    )
    embedding_server.faults = [refused(409, {"error": {"message": said}})] * TRIES
    with pytest.raises(InputError, match=said):
        ask(["text"], api_key_env="LOOPBACK_KEY")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LOOPBACK_KEY", "sk-SECRET\nX-Evil: 1", "api_key_env: .*character"),
        ("LOOPBACK_KEY", "sk-SECRETé", "api_key_env: .*character"),
        ("ALL_PROXY", "socks5://127.0.0.1:9", "ALL_PROXY"),
        ("ALL_PROXY", "ftp://127.0.0.1:9", "ALL_PROXY"),
    ],
)
def test_a_key_and_a_proxy_that_no_request_can_use_are_refused(
    variable: str, value: str, said: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=said) as refusal:
        ask(["text"], api_key_env="LOOPBACK_KEY")
    assert "SECRET" not in str(refusal.value)


def test_without_a_key_none_is_sent_not_even_that_of_openai(
    ask: Ask, embedding_server: Any, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    ask(list(known)[:1])
    assert KEY not in str(embedding_server.requests)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(InputError, match="wants a key, and OPENAI_API_KEY is not set"):
        ask(list(known)[:1], url="https://api.openai.com/v1")

"""Mistakes people make: each is exit code 2, one message that says where and what to do, and nothing written.

Tables, of which mistakes.txt is the longest. Each runs in this process; one of each few also as the real
command.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from scipy.sparse import csr_array, save_npz
from typer.testing import CliRunner

from pipeline.cli import app

Apply = Callable[[Path], object]
RUN, EVALUATE = ("run", "c.yaml"), ("evaluate", "--qrels", "q.trec", "--run", "r.trec")
FILES = {
    "c.yaml": (
        "name: t\ndata: {source: beir, path: data}\nmodel: {name: all-minilm-l6-v2}\nsearch: {top_k: 1000}\n"
    ),
    "data/corpus.jsonl": '{"_id": "d1", "text": "the cat sat"}\n{"_id": "d2", "text": "a dog ran"}\n',
    "data/queries.jsonl": '{"_id": "q1", "text": "cat"}\n',
    "data/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    "flag.yaml": "name: t\ndata: {source: flag, path: flag, split: dev}\nmodel: {name: all-minilm-l6-v2}\n",
    "flag/corpus.jsonl": '{"id": "d1", "text": "the cat sat"}\n',
    "flag/dev_queries.jsonl": '{"id": "q1", "text": "cat"}\n',
    "flag/dev_qrels.jsonl": '{"qid": "q1", "docid": "d1", "relevance": 1}\n',
    "ms.yaml": "name: t\ndata: {source: msmarco, path: ms, split: dev}\nmodel: {name: all-minilm-l6-v2}\n",
    "ms/collection.tsv": "d1\tthe cat sat\nd2\ta dog ran\n",
    "ms/queries.dev.tsv": "q1\tcat\n",
    "ms/qrels.dev.tsv": "q1\t0\td1\t1\n",
    "pre.yaml": (
        "name: t\n"
        "data: {source: beir, path: data}\n"
        "model: {backend: precomputed, passages: p.npy, queries: q.npy}\n"
    ),
    "words.yaml": (
        "name: t\n"
        "data: {source: beir, path: data}\n"
        "model: {backend: precomputed, output: sparse, passages: p.npz, queries: q.npz}\n"
    ),
    "tokens.yaml": (
        "name: t\n"
        "data: {source: beir, path: data}\n"
        "model: {backend: precomputed, output: multivector, passages: p.npz, queries: q.npz}\n"
    ),
    "m.yaml": "name: t\ndata: {source: beir, path: data}\nmodel: {name: ./model}\n",
    "model/config.json": '{"model_type": "bert", "max_position_embeddings": 512}',
    "model/model.safetensors": "weights",
    "model/vocab.txt": "[UNK]",
    "q.trec": "q1 0 d1 1\nq1 0 d2 0\n",
    "r.trec": "q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\n",
}


def spoil(path: str, old: str, new: str) -> Apply:
    """In the file at `path`, `new` where `old` stood; all of it where `old` is empty."""

    def apply(folder: Path) -> None:
        content = (folder / path).read_text(encoding="utf-8")
        assert old in content
        changed = content.replace(old, new, 1) if old else new
        (folder / path).write_text(changed, encoding="utf-8")

    return apply


def config(old: str, new: str) -> Apply:
    return spoil("c.yaml", old, new)


def remove(path: str) -> Apply:
    return lambda folder: (folder / path).unlink()


def content(path: str, data: bytes) -> Apply:
    return lambda folder: (folder / path).write_bytes(data)


def array(path: str, values: object, **kind: object) -> Apply:
    return lambda folder: np.save(folder / path, np.asarray(values, **kind))


def both(*applied: Apply) -> Apply:
    return lambda folder: [apply(folder) for apply in applied]


def nothing(folder: Path) -> None:
    """The mistake is on the command line."""


VECTORS = both(array("p.npy", np.eye(2), dtype=np.float32), array("q.npy", np.eye(2)[:1], dtype=np.float32))


def words(path: str, weights: object) -> Apply:
    return lambda folder: save_npz(folder / path, csr_array(np.asarray(weights, np.float32)))


def tokens(path: str, vectors: object, ends: list[int]) -> Apply:
    return lambda folder: np.savez(folder / path, vectors=np.asarray(vectors, np.float32), ends=ends)


WORDS = both(words("p.npz", np.eye(2)), words("q.npz", np.eye(2)[:1]))
TOKENS = both(tokens("p.npz", np.eye(3), [1, 3]), tokens("q.npz", np.eye(3), [3]))


Mistake = tuple[Apply, tuple[str, ...], list[str]]
"""What is wrong, which command, and what the message must say."""


ESCAPED = {"n": "\n", "t": "\t"}


def listed(text: str) -> Iterator[Mistake]:
    """The mistakes of a table as in mistakes.txt, whose first lines say what it holds."""
    command: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith("$ "):
            words, *expected = line[2:].split(" | ")
            command = tuple(words.split(" "))
            if expected:
                yield nothing, command, expected
        elif line and not line.startswith("#"):
            path, old, new, *expected = line.split(" | ")
            old, new = (
                re.sub(r"\\(.)", lambda found: ESCAPED.get(found[1], found[1]), part) for part in (old, new)
            )
            changes = {"*": new_file(path, new), "-": remove(path)}
            yield changes.get(old) or spoil(path, old, new), command, expected


def new_file(path: str, text: str) -> Apply:
    return content(path, text.encode())


def vectors(path: str, values: object, *expected: str, **kind: object) -> Mistake:
    """A file of vectors that do not fit."""
    given = {"dtype": np.float32, **kind}
    return both(VECTORS, array(path, values, **given)), ("run", "pre.yaml"), list(expected)


CONFIG: list[Mistake] = [
    (config("1000", "0x" + "f" * 5000), RUN, ["c.yaml, line 4", "more than 64 bits"]),
    (
        config("name: t", f"name: {'t' * 300}"),
        RUN,
        ["results/ttt", "name is too long", "change"],
    ),
    (config("path: data", f"path: {'t' * 300}"), RUN, ["ttt: File name too long; give a shorter name"]),
    (config("1000", f"[{{a: [b, {'c' * 200}]}}, 1]"), RUN, ["is [{'a': ['b', 'cccc", "... (passages kept"]),
    (config("1000", f"[{'1, ' * 500}]"), RUN, ["'search.top_k' is [1, 1, ", "... (passages kept"]),
    (content("c.yaml", b"\xff\xfe"), RUN, ["c.yaml: not UTF-8 text (byte 0)", "Save it as UTF-8"]),
]

COMMAND_LINE: list[Mistake] = [
    (
        lambda folder: (folder / "file").touch(),
        (*RUN, "--output", "file"),
        ["result folder file/t", "is not a folder"],
    ),
    (
        lambda folder: [(folder / "results").mkdir(), (folder / "results/t").symlink_to(folder / "data")],
        RUN,
        ["result folder results/t: is a link to", "--output DIR"],
    ),
    (nothing, ("cache", "prune", "--size", "9" * 400 + "TB"), ["--size 999", "not a number with a unit"]),
    (nothing, (*EVALUATE, "--measures", ""), ["measure"]),
]

DATA: list[Mistake] = [
    (
        both(lambda folder: (folder / "loop").symlink_to("loop"), config("path: data", "path: ./loop")),
        RUN,
        ["data.path", "loop: no such folder"],
    ),
    (
        content("data/corpus.jsonl", b'{"_id": "d1", "text": "caf\xe9"}\n'),
        RUN,
        ["line 1", "not UTF-8"],
    ),
    *(
        (both(remove("data/corpus.jsonl"), content("data/corpus.jsonl.gz", data)), RUN, ["corpus.jsonl.gz"])
        for data in (b"no gzip", gzip.compress(b'{"_id": "d1"}' * 99)[:-9])
    ),
]

MODEL: list[Mistake] = [
    (
        both(content("x.json", b"{}"), content("model/modules.json", b'[{"type": "a.Dense", "path": ".."}]')),
        ("run", "m.yaml"),
        ["model folder", "names ../x.json", "files in the folder itself"],
    ),
    (
        both(
            lambda folder: (folder / "model/1_Pooling").mkdir(),
            content("model/1_Pooling/config.json", b'{"pooling_mode": 5}'),
        ),
        ("run", "m.yaml"),
        ["1_Pooling/config.json: 'pooling_mode' is 5", "a text or a list of texts"],
    ),
    *(
        (
            both(remove("model/vocab.txt"), spoil("m.yaml", "./model", f"./model, backend: {backend}")),
            ("run", "m.yaml"),
            ["model", "has no file with its tokenizer's vocabulary", "such as vocab.txt"],
        )
        for backend in ("flag", "openvino", "native, precision: int16", "sentence-transformers")
    ),
    (
        both(VECTORS, spoil("pre.yaml", ", queries: q.npy", "")),
        ("run", "pre.yaml"),
        ["is not given"],
    ),
    *(
        (both(VECTORS, content("p.npy", data)), ("run", "pre.yaml"), ["p.npy is not a .npy or .npz file"])
        for data in (b"not an array", b"\x93NUMPY\x01\x00\x10\x00((((((((((((((({")
    ),
    vectors("p.npy", [{"a": 1}], "p.npy is not a .npy or .npz file of vectors", "pickled", dtype=object),
    vectors("p.npy", [1, 2], "p.npy holds int64 of shape [2]", dtype=np.int64),
    vectors("p.npy", np.eye(3, 2), "p.npy has 3 rows", "2, one for each of the passages"),
    vectors("q.npy", np.eye(2), "q.npy has 2 rows", "1, one for each of the queries"),
    vectors("p.npy", np.eye(2, 3), "3 dimensions and model.queries 2"),
    vectors("p.npy", [[1, 0], [0, np.nan]], "'d2' holds NaN or infinity", "1 of 2"),
    vectors("p.npy", [[1, 0], [0, 1e300]], "make vectors from a file again", dtype=np.float64),
    vectors("p.npy", [[1, 0], [0, 3]], "'d2' has length 3", "scale them or set model.normalize to false"),
    vectors("p.npy", [[1, 0], [0, 0]], "p.npy: row 1 ('d2') is all zeros"),
]

KINDS: list[Mistake] = [
    *(
        (both(WORDS, wrong), ("run", "words.yaml"), [said])
        for wrong, said in (
            (words("p.npz", -np.eye(2)), "word 0 of 'd1' has the weight -1"),
            (words("p.npz", np.eye(3)), "p.npz has 3 rows"),
            (words("q.npz", np.eye(1)), "has 2 columns and model.queries 1"),
            (TOKENS, "p.npz is not a sparse matrix in CSR"),
            (
                spoil("words.yaml", "path: data}", "path: data}\nindex: {factory: HNSW8}"),
                "model.output 'sparse' is searched on the CPU, without a Faiss index",
            ),
        )
    ),
    *(
        (both(TOKENS, wrong), ("run", "tokens.yaml"), [said])
        for wrong, said in (
            (WORDS, "p.npz has no token vectors"),
            (tokens("p.npz", np.eye(3), [2, 2]), "the `ends` do not cut 3 token vectors into texts"),
            (tokens("p.npz", np.full((3, 3), np.nan), [1, 3]), "'d1' holds NaN or infinity"),
            (spoil("tokens.yaml", "q.npz}", "q.npz, token_precision: int8}"), "token_precision' is 'int8'"),
            (
                spoil("tokens.yaml", "path: data}", "path: data}\nindex: {factory: HNSW8}"),
                "model.output 'multivector' is searched on the CPU, without a Faiss index",
            ),
            (
                spoil("tokens.yaml", "path: data}", "path: data}\nsearch: {parameters: {nprobe: 2}}"),
                "is searched on the CPU",
            ),
        )
    ),
]

TREC: list[Mistake] = [
    (content("r.trec", b"q1 Q0 d\xff 1 1 t\n"), EVALUATE, ["r.trec, line 1"]),
    (content("r.trec", gzip.compress(b"q1 Q0 d1 1 1 t\n" * 9)[:-4]), EVALUATE, ["r.trec"]),
]

LISTED = list(listed((Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8")))
GROUPS = ("LISTED", "CONFIG", "COMMAND_LINE", "DATA", "MODEL", "KINDS", "TREC")
MISTAKES = [(group, number, *mistake) for group in GROUPS
            for number, mistake in enumerate(globals()[group])]  # fmt: skip
NAMES = [f"{group}-{number}-{' '.join(expected)[:50]}" for group, number, *_, expected in MISTAKES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a collection in each layout, configs, a run and judgments, all of them right."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def there(folder: Path) -> dict[str, int]:
    """Every file below a folder with its time, locks and folders of unfinished work aside."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in paths}


def assert_plain(
    folder: Path, before: dict[str, int], code: int, out: str, err: str, expected: list[str]
) -> None:
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    for part in expected:
        assert part in err
    uses = r"^benchmarco: model \S+(: (backend|pooling|query instruction|using) ).*\n"
    begins = r"^benchmarco: \S+: computes .*\n"
    err = re.sub(f"{uses}|{begins}", "", err, flags=re.MULTILINE)
    messages = [line for line in err.splitlines() if re.match("benchmarco: |Error: ", line)]
    assert len(messages) == 1
    assert len(err.splitlines()) <= (4 if err.startswith("Usage:") else 1)
    assert {path: time for path, time in there(folder).items() if "/indexes/data/" not in path} == before


@pytest.mark.parametrize(("group", "number", "mistake", "arguments", "expected"), MISTAKES, ids=NAMES)
def test_a_mistake_is_one_plain_message_and_nothing_is_written(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    number: int,
    mistake: Apply,
    arguments: tuple[str, ...],
    expected: list[str],
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would keep this test's stderr for ever
    mistake(folder)
    before = there(folder)
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert_plain(folder, before, done.exit_code, done.stdout, done.stderr, expected)


REAL = [each for each in MISTAKES if each[1] % 20 == 1]


@pytest.mark.parametrize(
    ("group", "number", "mistake", "arguments", "expected"), REAL, ids=[f"{g}-{n}" for g, n, *_ in REAL]
)
def test_the_real_command_says_the_same(
    folder: Path, group: str, number: int, mistake: Apply, arguments: tuple[str, ...], expected: list[str]
) -> None:
    mistake(folder)
    before = there(folder)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert_plain(folder, before, done.returncode, done.stdout, done.stderr, expected)


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 60
    assert len(REAL) >= 12
    assert len(set(NAMES)) == len(NAMES)


def test_without_a_mistake_the_same_files_are_taken(folder: Path) -> None:
    for name in ("c.yaml", "flag.yaml", "ms.yaml"):
        assert CliRunner().invoke(app, ["plan", name]).exit_code == 0
        assert CliRunner().invoke(app, ["data", name]).exit_code == 0
    VECTORS(folder)
    done = CliRunner().invoke(app, ["run", "pre.yaml"])
    assert done.exit_code == 0, done.stderr
    for given, name in ((WORDS, "words.yaml"), (TOKENS, "tokens.yaml")):
        given(folder)
        done = CliRunner().invoke(app, ["run", name])
        assert done.exit_code == 0, done.stderr
    assert CliRunner().invoke(app, list(EVALUATE)).exit_code == 0
    assert json.loads((folder / "results/t/metrics.json").read_text(encoding="utf-8"))["passages"] == 2


@pytest.mark.parametrize(
    ("path", "config"),
    [("data/corpus.jsonl", "c.yaml"), ("p.npy", "pre.yaml"), ("model/model.safetensors", "m.yaml")],
)
def test_a_given_file_that_cannot_be_read_is_bad_input(folder: Path, path: str, config: str) -> None:
    VECTORS(folder)
    (folder / path).unlink()
    (folder / path).symlink_to("/proc/self/mem")  # whose first byte is an I/O error
    done = CliRunner().invoke(app, ["run", config])
    assert done.exit_code == 2
    assert "mem: cannot be read: Input/output error. Check the file" in done.stderr.replace(path, "mem")
    assert not (folder / "indexes").exists()

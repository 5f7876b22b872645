"""Mistakes people make: each is exit code 2, one message that says where and what to do, and nothing written.

mistakes.txt has those that are a line of a file or a command; here are others. Each runs in this process; a
few also as the real command.
"""

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from inside import be_offline, keep_stderr
from scipy.sparse import csr_array, save_npz
from workplaces import benchmarco, process

from pipeline.cli import what_happened

Apply = Callable[[Path], object]
Mistake = tuple[Apply, tuple[str, ...], list[str]]
"""What is wrong, which command, and what the message must say."""
NAMED, BEIR = "model: {name: all-minilm-l6-v2}\n", "name: t\ndata: {source: beir, path: data}\n"
GIVEN = "model: {backend: precomputed, output: KIND, passages: p.npz, queries: q.npz}\n"
FILES = {
    "c.yaml": f"{BEIR}{NAMED}search: {{top_k: 1000}}\n",
    "data/corpus.jsonl": '{"_id": "d1", "text": "the cat sat"}\n{"_id": "d2", "text": "a dog ran"}\n',
    "data/queries.jsonl": '{"_id": "q1", "text": "cat"}\n',
    "data/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    "flag.yaml": f"name: t\ndata: {{source: flag, path: flag, split: dev}}\n{NAMED}",
    "flag/corpus.jsonl": '{"id": "d1", "text": "the cat sat"}\n',
    "flag/dev_queries.jsonl": '{"id": "q1", "text": "cat"}\n',
    "flag/dev_qrels.jsonl": '{"qid": "q1", "docid": "d1", "relevance": 1}\n',
    "ms.yaml": f"name: t\ndata: {{source: msmarco, path: ms, split: dev}}\n{NAMED}",
    "ms/collection.tsv": "d1\tthe cat sat\nd2\ta dog ran\n",
    "ms/queries.dev.tsv": "q1\tcat\n",
    "ms/qrels.dev.tsv": "q1\t0\td1\t1\n",
    "pre.yaml": BEIR + GIVEN.replace("npz", "npy").replace(" output: KIND,", ""),
    "words.yaml": BEIR + GIVEN.replace("KIND", "sparse"),
    "tokens.yaml": BEIR + GIVEN.replace("KIND", "multivector"),
    "m.yaml": f"{BEIR}model: {{name: ./model}}\n",
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


def remove(path: str) -> Apply:
    return lambda folder: (folder / path).unlink()


def content(path: str, data: bytes) -> Apply:
    return lambda folder: (folder / path).write_bytes(data)


def both(*applied: Apply) -> Apply:
    return lambda folder: [apply(folder) for apply in applied]


def unescaped(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])


def listed(text: str) -> Iterator[Mistake]:
    """The mistakes of a table as in mistakes.txt, whose first lines say what it holds."""
    command: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith("$ "):
            words, *expected = line[2:].split(" | ")
            command = tuple(words.split(" "))
            if expected:
                yield both(), command, expected
        elif line and not line.startswith("#"):
            path, old, new, *expected = line.split(" | ")
            old, new = (re.sub(r"\\(.)", unescaped, part) for part in (old, new))
            changes = {"*": content(path, new.encode()), "-": remove(path)}
            yield changes.get(old) or spoil(path, old, new), command, expected


def in_run(*applied: Apply, config: str = "c.yaml", said: list[str]) -> Mistake:
    return both(*applied), ("run", config), said


def array(path: str, values: object, kind: type = np.float32) -> Apply:
    return lambda folder: np.save(folder / path, np.asarray(values, kind))


def words(path: str, weights: object) -> Apply:
    return lambda folder: save_npz(folder / path, csr_array(np.asarray(weights, np.float32)))


def tokens(path: str, vectors: object, ends: list[float]) -> Apply:
    return lambda folder: np.savez(folder / path, vectors=np.asarray(vectors, np.float32), ends=ends)


VECTORS = both(array("p.npy", np.eye(2)), array("q.npy", np.eye(2)[:1]))
WORDS = both(words("p.npz", np.eye(2)), words("q.npz", np.eye(2)[:1]))
TOKENS = both(tokens("p.npz", np.eye(3), [1, 3]), tokens("q.npz", np.eye(3), [3]))
ROWS: list[tuple[str, Apply, Apply, list[str]]] = [
    ("pre", VECTORS, content("p.npy", b"not an array"), ["p.npy is not a .npy or .npz file"]),
    ("pre", VECTORS, content("p.npy", b"\x93NUMPY\x01\x00\x10\x00((((((((((((((({"), ["is not a .npy or"]),
    ("pre", VECTORS, array("p.npy", [{"a": 1}], object), ["p.npy is not a .npy or .npz file", "pickled"]),
    ("pre", VECTORS, array("p.npy", [1, 2], np.int64), ["p.npy holds int64 of shape [2]"]),
    ("pre", VECTORS, array("p.npy", np.eye(3, 2)), ["p.npy has 3 rows", "2, one for each of the passages"]),
    ("pre", VECTORS, array("q.npy", np.eye(2)), ["q.npy has 2 rows", "1, one for each of the queries"]),
    ("pre", VECTORS, array("p.npy", np.eye(2, 3)), ["3 dimensions and model.queries 2"]),
    ("pre", VECTORS, array("p.npy", [[1, 0], [0, np.nan]]), ["'d2' holds NaN or infinity", "1 of 2"]),
    ("pre", VECTORS, array("p.npy", [[1, 0], [0, 1e300]], np.float64), ["a number that float32 cannot hold"]),
    ("pre", VECTORS, array("p.npy", [[1, 0], [0, 3]]), ["'d2' has length 3", "set model.normalize to false"]),
    ("pre", VECTORS, array("p.npy", [[1, 0], [0, 0]]), ["p.npy: row 1 ('d2') is all zeros"]),
    (
        "pre",
        both(VECTORS, spoil("pre.yaml", "q.npy", "q.npy, normalize: false")),
        array("p.npy", [[1, 0], [0, 5e18]]),
        ["'d2' is longer than 4.6e+18, so that scores would overflow; 1"],
    ),
    ("pre", VECTORS, spoil("pre.yaml", ", queries: q.npy", ""), ["is not given"]),
    ("words", WORDS, words("p.npz", -np.eye(2)), ["word 0 of 'd1' has the weight -1"]),
    ("words", WORDS, words("p.npz", np.eye(3)), ["p.npz has 3 rows"]),
    ("words", WORDS, words("q.npz", np.eye(1)), ["has 2 columns and model.queries 1"]),
    ("words", WORDS, TOKENS, ["p.npz is not a sparse matrix in CSR"]),
    ("tokens", TOKENS, WORDS, ["p.npz has no token vectors"]),
    ("tokens", TOKENS, tokens("p.npz", np.eye(3), [2, 2]), ["the `ends` do not cut 3 token vectors"]),
    ("tokens", TOKENS, tokens("p.npz", np.eye(3), [1.0, 3.0]), ["the `ends` do not cut 3 token vectors"]),
    ("tokens", TOKENS, tokens("p.npz", np.eye(3), [3]), ["p.npz has 1 row"]),
    ("tokens", TOKENS, tokens("p.npz", np.eye(9), [1, 9]), ["dimensions"]),
    ("tokens", TOKENS, tokens("p.npz", np.ones(3), [1, 3]), ["p.npz has no token vectors"]),
    ("tokens", TOKENS, tokens("p.npz", np.full((3, 3), np.nan), [1, 3]), ["'d1' holds NaN or infinity"]),
]
"""A config with rows from files, what makes these right, what then makes them wrong, and what is said."""


def linked(path: str, to: str) -> Apply:
    def apply(folder: Path) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).symlink_to(to)

    return apply


LONG = "t" * 300
MISTAKES = [
    *listed((Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8")),
    *(in_run(right, wrong, config=f"{name}.yaml", said=said) for name, right, wrong, said in ROWS),
    in_run(spoil("c.yaml", "1000", "0x" + "f" * 5000), said=["c.yaml, line 4", "more than 64 bits"]),
    in_run(spoil("c.yaml", "name: t", f"name: {LONG}"), said=["results/ttt", "name is too long", "change"]),
    in_run(spoil("c.yaml", "path: data", f"path: {LONG}"), said=["ttt: File name too long; give a shorter"]),
    in_run(spoil("c.yaml", "1000", f"[{'1, ' * 500}]"), said=["is [1, 1, ", "... (passages kept"]),
    in_run(content("c.yaml", b"\xff\xfe"), said=["c.yaml: not UTF-8 text (byte 0)", "Save it as UTF-8"]),
    in_run(
        content("data/corpus.jsonl", b'{"_id": "p3", "text": "caf\xe9"}'),
        said=["corpus.jsonl, line 1: not UTF-8 text (byte 27 of the line is 0xe9)"],
    ),
    in_run(linked("results/t", "../data"), said=["result folder results/t: is a link to", "--output DIR"]),
    in_run(
        linked("loop", "loop"),
        spoil("c.yaml", "path: data", "path: ./loop"),
        said=["data.path", "loop: no such folder"],
    ),
    in_run(
        remove("data/corpus.jsonl"),
        content("data/corpus.jsonl.gz", gzip.compress(b'{"_id": "d1"}' * 99)[:-9]),
        said=["corpus.jsonl.gz"],
    ),
    *(
        in_run(
            remove("model/vocab.txt"),
            spoil("m.yaml", "./model", f"./model, backend: {backend}"),
            config="m.yaml",
            said=["model", "has an empty vocabulary", "such as vocab.txt"],
        )
        for backend in ("flag", "openvino", "native, precision: int16", "sentence-transformers")
    ),
    *(
        in_run(
            VECTORS,
            remove(path),
            linked(path, "/proc/self/mem"),  # whose first byte is an I/O error
            config=config,
            said=["cannot be read: Input/output error. Check the file"],
        )
        for path, config in (
            ("data/corpus.jsonl", "c.yaml"),
            ("p.npy", "pre.yaml"),
            ("model/model.safetensors", "m.yaml"),
        )
    ),
    (both(), ("cache", "prune", "--size", "9" * 400 + "TB"), ["--size 999", "not a number with a unit"]),
]
NAMES = [f"{number}-{' '.join(expected)[:50]}" for number, (*_, expected) in enumerate(MISTAKES)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a collection in each layout, configs, a run and judgments, all of them right."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def there(folder: Path) -> dict[str, int]:
    """Every file and folder below one, files with their times; a read collection in the cache aside."""
    cache = folder / "indexes"
    aside = {cache, cache / "data", cache / ".locks"} if any(cache.glob("data/*/manifest.json")) else set()
    return {
        str(path): path.lstat().st_mtime_ns if path.is_file() else 0
        for path in folder.rglob("*")
        if aside.isdisjoint((path, *path.parents)) or (path.parent == cache and path not in aside)
    }


def assert_plain(code: int, out: str, err: str, expected: list[str]) -> None:
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert [part for part in expected if part not in err] == []
    assert [empty for empty in ("Allowed: one of them", ": ;") if empty in err] == []
    uses = r"^benchmarco: model \S+(: (backend|pooling|query instruction|using) ).*\n"
    begins = r"^benchmarco: \S+: computes .*\n"
    caches = r"^benchmarco: new cache: .*\n"
    err = re.sub(f"{uses}|{begins}|{caches}", "", err, flags=re.MULTILINE)
    messages = [line for line in err.splitlines() if re.match("benchmarco: |Error: ", line)]
    assert len(messages) == 1
    assert len(err.splitlines()) <= (4 if err.startswith("Usage:") else 1)


@pytest.mark.parametrize(("mistake", "arguments", "expected"), MISTAKES, ids=NAMES)
def test_a_mistake_is_one_plain_message_and_nothing_is_written(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Apply,
    arguments: tuple[str, ...],
    expected: list[str],
) -> None:
    be_offline(monkeypatch)
    keep_stderr(monkeypatch)
    mistake(folder)
    before = there(folder)
    done = benchmarco(*arguments, code=2)
    assert_plain(done.exit_code, done.stdout, done.stderr, expected)
    assert there(folder) == before


def test_an_error_without_a_message_of_its_own_is_named() -> None:
    assert what_happened(OSError()) == ("OSError; what was finished is kept", 1)


def test_the_real_command_says_the_same(folder: Path) -> None:
    for mistake, arguments, expected in MISTAKES[1::70]:
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
        mistake(folder)
        done = process(folder, "-m", "pipeline", *arguments, code=2)
        assert_plain(done.returncode, done.stdout, done.stderr, expected)


def test_without_a_mistake_the_same_files_are_taken(folder: Path) -> None:
    right: list[tuple[Apply, str]] = [(both(), f"plan {name}.yaml") for name in ("c", "flag", "ms")]
    right += [(both(), f"data {name}.yaml") for name in ("c", "flag", "ms")]
    right += [(VECTORS, "run pre.yaml"), (WORDS, "run words.yaml"), (TOKENS, "run tokens.yaml")]
    for given, command in (*right, (both(), "evaluate --qrels q.trec --run r.trec")):
        given(folder)
        benchmarco(*command.split())

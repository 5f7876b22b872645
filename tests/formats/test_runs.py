import gzip
import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from inside import resize

from pipeline import InputError
from pipeline.core import Ranking
from pipeline.formats import Judgments, Run, read_qrels, read_run, repeated_pairs, write_run

RUN = b"q1 Q0 d2 1 2.5 tag\nq1 Q0 d1 2 -1e-3 tag\nq2 Q0 d2 1 7 tag\n"
ROWS = [("q1", "d2", 2.5), ("q1", "d1", pytest.approx(-1e-3)), ("q2", "d2", 7.0)]


def rows(lines: Run | Judgments) -> list[tuple[str, str, float]]:
    queries = [lines.query_ids[row].as_py() for row in lines.queries.tolist()]
    if isinstance(lines, Run):
        return list(zip(queries, lines.documents.to_pylist(), lines.scores.tolist(), strict=True))
    return list(
        zip(queries, lines.passage_ids.take(lines.passages).to_pylist(), lines.grades.tolist(), strict=True)
    )


def write(folder: Path, data: bytes, name: str = "file.trec") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data",
    [
        RUN,
        RUN.rstrip(b"\n"),
        RUN.rstrip(b"\n") + b"\t",
        RUN.replace(b"\n", b"\r\n"),
        RUN.replace(b" ", b"  \t "),
        RUN.replace(b" Q0 ", b"\vQ0\f"),
        b"\n\n  \n" + RUN.replace(b"\n", b" \n\n \t\n"),
        b"# a comment\n" + RUN.replace(b"\n", b'\n#q1 Q0 d9 1 tag\n  # indented, it\'s "quoted"\n'),
        b"\xef\xbb\xbf# a comment\n" + RUN,
        gzip.compress(RUN[:40]) + gzip.compress(RUN[40:]),
    ],
)
def test_forms_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    path = write(tmp_path, data)
    for block in (1, 30, 1 << 21):
        resize(monkeypatch, text_bytes=block)
        lines = read_run(path)
        assert rows(lines) == ROWS
        assert lines.query_ids.to_pylist() == ["q1", "q2"]
        assert lines.scores.dtype == np.float64


@pytest.mark.parametrize(
    "name", ["007", "NA", "null", "", '"a', "a,b", "'", "\\n", "é", "\U0001f600", "a#b", "1e5", "nan", "-"]
)
def test_ids_are_opaque(tmp_path: Path, name: str) -> None:
    name = name or "N/A"
    run = read_run(write(tmp_path, f"{name} Q0 x{name} 1 2 t\n7 Q0 {name} 1 2 t\n".encode()))
    assert rows(run) == [(name, f"x{name}", 2.0), ("7", name, 2.0)]
    qrels = read_qrels(write(tmp_path, f"{name} 0 {name} 3\n".encode()))
    assert rows(qrels) == [(name, name, 3)]


SCORES = {"+1.5": 1.5, "1.": 1, ".5": 0.5, "1E3": 1000, "inf": np.inf, "-Infinity": -np.inf,
          "1e400": np.inf, "1e39": 1e39, "1e-400": 0, "1.00000001": 1.00000001}  # fmt: skip


def test_scores_are_c_doubles(tmp_path: Path) -> None:
    lines = [f"q Q0 d{number} 1 {text} t\n" for number, text in enumerate(SCORES)]
    assert read_run(write(tmp_path, "".join(lines).encode())).scores.tolist() == list(SCORES.values())


@pytest.mark.parametrize(("data", "bad"), [(RUN, False), (RUN + b"q9 Q0 d1 1 high tag\n", True)])
def test_a_pipe_is_read_but_once_and_a_mistake_in_it_is_named(data: bytes, bad: bool) -> None:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    if bad:
        with pytest.raises(InputError, match="line 4: the score is 'high'"):
            read_run(f"/dev/fd/{reader}")
    else:
        assert rows(read_run(f"/dev/fd/{reader}")) == ROWS
    os.close(reader)


GOOD = b"q1 Q0 d1 1 2.5 tag\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\n \n# only a comment\n", "has no line.*query Q0 document rank score tag"),
        (GOOD + b"q1 Q0 d2 2 1.0\n", r"line 2: expected 6 fields \(query Q0.*found 5"),
        (b"# c\n\n" + GOOD + b"q1 Q0 d2 2 1.0 my tag\n", "line 4: expected 6 fields.*found 7"),
        (GOOD + b"q1 Q0 d2 2 nan tag\n", "line 2: the score is 'nan'.*a number"),
        (GOOD + b"q1 Q0 d2 2 0x10 tag\n", "line 2: the score is '0x10'"),
        (GOOD + b"q1 Q0 d\xff 2 1 tag\n", "line 2: not UTF-8"),
        ("q1 Q0 d1 1 2 tag\n".encode("utf-16"), "is no UTF-8 text"),
        (GOOD + b"#1 Q0 d1 1 2 tag\n", "line 2: begins with #, and reads as a line of data"),  # trec_eval#46
        ("q1 Q0 d\u00a01 1 2 tag\n".encode(), r"line 1: the passage's id is 'd\\xa01'"),
        (GOOD + "\u200bq1 Q0 d1 1 2 tag\n".encode(), r"line 2: the query's id is '\\u200bq1'"),
        (
            GOOD + b"\nq2 Q0 d1 1 2 t\nq1 Q0 d1 3 1 t\n",
            "line 4: duplicate document 'd1' for query 'q1', first on line 1",
        ),
        (gzip.compress(RUN)[:-12], "damaged gzip data"),
    ],
)
def test_malformed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, message: str) -> None:
    path = write(tmp_path, data)
    for block in (1, 1 << 21):
        resize(monkeypatch, text_bytes=block)
        with pytest.raises(InputError, match=f"{path}.*{message}"):
            read_run(path)


FIELDS = st.sampled_from(
    [b"q", b"Q0", b"d", b"e", b"1", b"-2", b"0.5", b"nan", b"x y", b"\xff", b"\x00", b"#", b'"']
)
GLUE = st.sampled_from(
    [b" ", b"\t", b"  ", b"\n", b"\r\n", b"\r", b"\v", b"", b"\x1f\x8b", b"\xef\xbb\xbf", b"\x85"]
)
FUZZ = st.lists(st.tuples(FIELDS, GLUE), max_size=40).map(lambda pairs: b"".join(a + b for a, b in pairs))
LINE = st.tuples(st.lists(FIELDS, min_size=3, max_size=6), st.sampled_from([b" ", b"\t", b"  "]), GLUE).map(
    lambda parts: parts[1].join(parts[0]) + parts[2] + b"\n"
)


@settings(max_examples=300)
@given(data=st.binary(max_size=80) | FUZZ | st.lists(LINE, max_size=4).map(b"".join))
def test_anything_is_read_as_split_says_or_refused(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    mark = b"\xef\xbb\xbf"
    for read, width, place in (
        (read_run, 6, (0, 2, 4)),
        (read_qrels, None, (0, -2, -1)),
    ):
        try:
            lines = read(path)
        except InputError:
            continue
        split = [line.removeprefix(mark).split() for line in data.split(b"\n")]
        split = [fields for fields in split if fields and not fields[0].startswith(b"#")]
        assert {len(fields) for fields in split} <= ({width} if width else {3, 4})
        expected = [[fields[i].decode() for i in place] for fields in split]
        found = [(query, document, float(value)) for query, document, value in expected]
        assert rows(lines) == (found if read is read_run else list(dict.fromkeys(found)))


@settings(max_examples=200)
@given(
    scores=st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=5), min_size=1, max_size=5),
    block=st.sampled_from([1, 4, 1 << 18]),
    large=st.booleans(),
)
def test_what_is_written_is_read_back(
    tmp_path: Path, scores: list[list[float]], block: int, large: bool
) -> None:
    width = max(map(len, scores))
    values = np.array([row + [-np.inf] * (width - len(row)) for row in scores], dtype=np.float32)
    values = values.reshape(len(scores), width)
    passages = np.where(
        np.arange(width) < np.array([len(row) for row in scores])[:, None], np.arange(width), -1
    )
    kind = pa.large_string() if large else pa.string()
    query_ids = pa.chunked_array([[f"{q:03}"] for q in range(len(scores))], type=kind)
    passage_ids = pa.chunked_array([["é", '"', "007"], [], ["NA", "x"]], type=kind)
    file = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        resize(patch, run_lines=block)
        write_run(file, query_ids, passage_ids, Ranking(passages, values), "tag")
    expected = []
    for line in file.getvalue().decode().splitlines():
        query, q0, document, rank, score, tag = line.split(" ")
        assert (q0, tag) == ("Q0", "tag")
        expected.append((query, document, int(rank), np.float32(score)))
    ids = passage_ids.to_pylist()
    assert expected == [
        (f"{q:03}", ids[r], r + 1, np.float32(s)) for q, row in enumerate(scores) for r, s in enumerate(row)
    ]
    if expected:
        run = read_run(write(tmp_path, file.getvalue()))
        assert run.scores.astype(np.float32).tolist() == [score for row in scores for score in row]


@pytest.mark.parametrize("tag", ["", "two words", "a\n", "\t"])
def test_tag_is_one_word(tag: str) -> None:
    ranking = Ranking(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32))
    ids = pa.chunked_array([["a"]])
    with pytest.raises(InputError, match="run tag"):
        write_run(io.BytesIO(), ids, ids, ranking, tag)


def test_equal_fingerprints_of_different_ids_are_no_duplicate() -> None:
    documents = pa.chunked_array([["a", "b", "b"]])
    prints = np.zeros(3, dtype=np.uint64)
    assert repeated_pairs(np.array([0, 0, 1], dtype=np.int32), documents, prints)[1].tolist() == []
    assert repeated_pairs(np.array([0, 1, 1], dtype=np.int32), documents, prints)[1].tolist() == [2]


@pytest.mark.parametrize(
    "line", [b"q1 Q0 %s 1 2.5 tag\n", b"%s Q0 d1 1 2.5 tag\n", b"%s 0 d1 1\n", b"q1 0 %s 1\n"]
)
def test_an_id_of_megabytes_is_refused(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path, line % (b"x" * 5_000_000))
    with pytest.raises(InputError, match=r"line 1: .* id is 'x{119}\.\.\.\. Allowed: 1 to 10,000 bytes"):
        (read_run if line.count(b" ") > 3 else read_qrels)(path)
    long = line % (b"x" * 10_000)
    assert (read_run if line.count(b" ") > 3 else read_qrels)(write(tmp_path, long)).queries.tolist() == [0]

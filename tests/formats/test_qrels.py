"""Judgment files: one set of rules and messages, for `benchmarco run` and for `evaluate`."""

import bz2
import gzip
import lzma
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from inside import resize

from pipeline import InputError, formats
from pipeline.config import SOURCES
from pipeline.data import identify
from pipeline.metrics import evaluate

ROWS = [("q1", "d2", 1), ("q1", "d1", -2), ("q2", "d2", 0)]
TREC, BEIR = b"q1 0 d2 1\nq1 0 d1 -2\nq2 0 d2 0\n", b"q1\td2\t1\nq1\td1\t-2\nq2\td2\t0\n"
HEADER = b"query-id\tcorpus-id\tscore\n"
ACCEPTED = {
    "TREC's form": TREC,
    "tabs and spaces": b"  q1 \t 0\td2  1\nq1\v0 d1\f-2\nq2 0 d2\t\t0 ",
    "any iteration, signs, zeros in front": b"q1   Q0  d2   +1\nq1   0   d1  -02\nq2 any d2 000000000000\n",
    "BEIR's form": HEADER + BEIR,
    "no header": BEIR.replace(b"\t", b" "),
    "header with underscores": b"query_id corpus_id score\n" + BEIR,
    "other names in the header": b"QID\tpid\trelevance\n" + BEIR,
    "TREC's form with a header": b"query iteration document grade\n" + TREC,
    "comments": b"# judged by us\n" + TREC.replace(b"\n", b"\n#q9 0 d9\n  # indented\n"),
    "comments around a header": b"# first\n\n" + HEADER + b"# second\n" + BEIR,
    "blank lines": b"\n \n\t\n" + TREC.replace(b"\n", b"\n\n  \n"),
    "grades with a decimal point": TREC.replace(b" 1\n", b" 1.0\n").replace(b"-2\n", b"-2.\n"),
    "byte order marks of joined files": b"".join(b"\xef\xbb\xbf" + line for line in TREC.splitlines(True)),
    "joined gzip members with marks": b"".join(
        gzip.compress(b"\xef\xbb\xbf" + line) for line in TREC.splitlines(True)
    ),
    "byte order mark": b"\xef\xbb\xbf" + TREC.rstrip(b"\n"),
    "byte order mark, header": b"\xef\xbb\xbf" + HEADER + BEIR,
    "CRLF": (HEADER + BEIR).replace(b"\n", b"\r\n"),
    "gzip in two members": gzip.compress(TREC[:9]) + gzip.compress(TREC[9:]),
    "identical judgments": TREC + b"q1 7 d1 -2\n" + TREC,
}
REFUSED = {
    "only comments": (b"# nothing\n\n# here\n", ": has no judgments"),
    "only a header": (HEADER, ": has no judgments"),
    "contradiction": (TREC + b"q1 0 d1 2\n", ", line 4: query 'q1' and passage 'd1' have grade 2, but -2 at"),
    "contradiction after a comment": (b"#\n" + BEIR + b"\nq1 d2 0\n", ", line 6: query 'q1' and passage"),
    "two fields": (b"q1 d1\n", ", line 1: expected 3 or 4 fields (query document grade or query"),
    "a field too few": (TREC + b"q3 0 d1\n", ", line 4: expected 4 fields (query iteration"),
    "a field too many": (HEADER + BEIR + b"q3 0 d1 1\n", ", line 5: expected 3 fields (query document"),
    "a word on the first line": (b"q3 0 d1 x\n" + TREC, ", line 1: the grade is 'x'"),
    "two headers": (HEADER + HEADER + BEIR, ", line 2: the grade is 'score'"),
    "no finite number": (BEIR + b"q3 d1 inf\n", ", line 4: the grade is 'inf'"),
    "a decimal comma": (BEIR + b"q3 d1 1,5\n", ", line 4: the grade is '1,5'"),
    "data behind #": (
        TREC + b"#1 0 d1 1\n",
        ", line 4: begins with #, and reads as a line of data",
    ),
    "invisible end of an id": (
        TREC + "q3 0 d1\u200b 1\n".encode(),
        ", line 4: the passage's id is 'd1\\u200b'",
    ),
    "byte order mark in an id": (
        TREC + "q3 0 d\ufeff1 1\n".encode(),
        ", line 4: the passage's id is 'd\\ufeff1'",
    ),
    "an empty iteration": (b"q1\t\td1\t1\n", ", line 1: 4 fields separated by tabs, and number 2 is empty"),
    "an empty passage": (b"q1\t0\t\t1\n", ", line 1: 4 fields separated by tabs, and number 3 is empty"),
    "an empty query": (b"\t0\td1\t1\n", ", line 1: 4 fields separated by tabs, and number 1 is empty"),
    "query ids that hold a space": (
        b"q 1\td1\t1\nq 2\td1\t1\n",
        ", line 1: 3 fields separated by tabs, and number 1 is empty or holds a space",
    ),
    "no-break space behind an id": (
        "q1\td1 \u00a0\t1\n".encode(),
        ", line 1: 3 fields separated by tabs, and number 2 is empty or holds a space",
    ),
    "passage ids that hold a space": (b"q1\t0\td 1\t1\n", ", line 1: expected 3 or 4 fields"),
    "UTF-16": (TREC.decode().encode("utf-16"), ": is no UTF-8 text"),
    "UTF-16 without its mark": (TREC.decode().encode("utf-16-le"), ": is no UTF-8 text"),
    "bzip2": (bz2.compress(TREC), ": is no UTF-8 text"),
    "xz": (lzma.compress(TREC), ": is no UTF-8 text"),
    "zip": (b"PK\x03\x04" + TREC, ": is no UTF-8 text"),
    "underscore": (BEIR + b"q3 d1 1_0\n", ", line 4: the grade is '1_0'"),
    "other digits": (BEIR + "q3 d1 \u0663\n".encode(), ", line 4: the grade is '\u0663'"),
    "too large": (BEIR + b"q3 d1 2147483648\n", ", line 4: the grade is '2147483648'"),
    "too small": (BEIR + b"q3 d1 -2147483649\n", ", line 4: the grade is '-2147483649'"),
    "thousands of digits": (BEIR + b"q3 d1 " + b"9" * 5000 + b"\n", ", line 4: the grade is '999"),
    "no-break space in an id": (
        TREC + "q3 0 d\u00a01 1\n".encode(),
        ", line 4: the passage's id is 'd\\xa01'",
    ),
    "U+3000 as a separator": ("q3\u30000 d1 1 1\n".encode(), ", line 1: the query's id is 'q3\\u30000'"),
    "not UTF-8": (TREC + b"q3 0 d\xe9 1\n", ", line 4: not UTF-8 text (byte 7 of the line is 0xe9)"),
    "a header that is not UTF-8": (
        b"requ\xeate\tdocument\tscore\n" + BEIR,
        ", line 1: not UTF-8 text (byte 5 of the line is 0xea)",
    ),
    "damaged gzip": (gzip.compress(TREC)[:-9], ": damaged gzip data"),
}
BLOCKS = (1, 12, 1 << 21)  # bytes that are read at once


def rows(found: formats.Judgments) -> list[tuple[str, str, int]]:
    queries = [found.query_ids[row].as_py() for row in found.queries.tolist()]
    return list(
        zip(queries, found.passage_ids.take(found.passages).to_pylist(), found.grades.tolist(), strict=True)
    )


@pytest.fixture
def readers(tmp_path: Path) -> list[Callable[[bytes], formats.Judgments]]:
    """For each command and layout that reads qrels: write them as its file, and read that."""
    for name in ("corpus.jsonl", "queries.jsonl", "collection.tsv", "queries.test.tsv"):
        (tmp_path / name).write_text("")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "run").write_text("q1 Q0 d2 1 1 t\n")
    path = tmp_path / "qrels" / "test.tsv"
    (tmp_path / "qrels.test.tsv").symlink_to(path)

    def by_run(source: str, data: bytes) -> formats.Judgments:
        path.write_bytes(data)
        return identify(SOURCES.make(source=source, path=str(tmp_path))).source.judgments()

    def by_evaluate(data: bytes) -> formats.Judgments:
        path.write_bytes(data)
        scored = evaluate(path, tmp_path / "run", "ndcg@10")
        assert scored.repeated == formats.read_qrels(path).repeated
        return formats.read_qrels(path)

    return [partial(by_run, "beir"), partial(by_run, "msmarco"), by_evaluate]


@pytest.mark.parametrize("kind", ACCEPTED)
def test_run_and_evaluate_read_the_same_judgments(
    monkeypatch: pytest.MonkeyPatch, readers: list[Callable[[bytes], formats.Judgments]], kind: str
) -> None:
    for block in BLOCKS:
        resize(monkeypatch, text_bytes=block)
        for read in readers:
            found = read(ACCEPTED[kind])
            assert rows(found) == ROWS
            assert found.grades.dtype == np.int64
            assert found.repeated == (4 if kind == "identical judgments" else 0)


@pytest.mark.parametrize("kind", REFUSED)
def test_run_and_evaluate_refuse_with_one_message(
    monkeypatch: pytest.MonkeyPatch, readers: list[Callable[[bytes], formats.Judgments]], kind: str
) -> None:
    data, expected = REFUSED[kind]
    messages = set()
    for block in BLOCKS:
        resize(monkeypatch, text_bytes=block)
        for read in readers:
            with pytest.raises(InputError) as error:
                read(data)
            messages.add(str(error.value).replace("qrels.test.tsv", "qrels/test.tsv"))
    (message,) = messages
    assert f"test.tsv{expected}" in message or f"test.tsv: {expected}" in message
    if "the grade is" in expected:
        assert formats.GRADE_RULE in message


def columns_of(grades: object, passages: tuple[str, ...] = ("d", "e", "d")) -> formats.Judgments:
    ids = pa.array(["q"] * len(passages)), pa.array(passages)
    return formats.make_judgments(*ids, np.asarray(grades), "table", "row", np.arange(len(passages)))


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.uint64])
def test_tables_follow_the_same_rules(kind: type) -> None:
    assert rows(columns_of(np.array([1, 2, 1], kind))) == [("q", "d", 1), ("q", "e", 2)]
    with pytest.raises(InputError, match=r"row 2: query 'q' and passage 'd' have grade 3.*but 1.* row 0"):
        columns_of(np.array([1, 2, 3], kind))
    with pytest.raises(InputError, match=r"row 2: query 'q' and passage 'd' have grade 3.*but 1.* row 0"):
        columns_of(np.array([1, 1, 3], kind), ("d", "d", "d"))
    for name, problem in (("e x", "is 'e x'"), ("", "is ''")):
        with pytest.raises(InputError, match=f"row 1: the passage's id {problem}"):
            columns_of(np.array([1, 2, 1], kind), ("d", name, "d"))


@pytest.mark.parametrize("grade", [np.nan, np.inf, 1e300, 2**31, 2.0**31, -(2**31) - 1, 2**53 + 1])
def test_a_grade_out_of_the_range_of_a_c_int_is_refused(tmp_path: Path, grade: float) -> None:
    with pytest.raises(InputError, match=r"table, row 1: the grade is .*a number from -2147483648 to"):
        columns_of([1, grade, 1])
    parquet, lines = tmp_path / "qrels.parquet", tmp_path / "qrels.jsonl"
    pa.parquet.write_table(pa.table({"q": ["a"], "p": ["b"], "grade": [grade]}), parquet)
    lines.write_text(f'{{"q": "a", "p": "b", "grade": {grade}}}\n')
    for path, place in ((parquet, "row 0"), (lines, "line 1"))[: 2 if np.isfinite(grade) else 1]:
        with pytest.raises(InputError, match=f"{path.name}, {place}: the grade is"):
            formats.read_judgments([path], "q", "p", "grade")


def test_grades_need_not_be_whole(tmp_path: Path) -> None:
    """mteb#5516, mteb#3479, trec_eval#49: means of annotators, and scores of judges."""
    files = {
        "trec": b"q1 0 a .5\nq1 0 b 2.75\nq1 0 c 1e-3\n",
        "tsv": b"query-id\tcorpus-id\tscore\nq1\ta\t0.5\nq1\tb\t+2.75\nq1\tc\t0.001\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        found = formats.read_qrels(tmp_path / name)
        assert rows(found) == [("q1", "a", 0.5), ("q1", "b", 2.75), ("q1", "c", 0.001)]
        assert found.grades.dtype == np.float64
    assert columns_of([0.5, 1, 0.5]).repeated == 1


def test_the_extreme_grades_are_read() -> None:
    assert rows(columns_of([2.0**31 - 1, -(2.0**31), 2.0**31 - 1])) == [
        ("q", "d", 2**31 - 1),
        ("q", "e", -(2**31)),
    ]


def test_ids_hold_no_white_space_and_nothing_invisible_at_an_end() -> None:
    characters = [chr(code) for code in range(0x11000) if not 0xD800 <= code <= 0xDFFF]
    invisible = {one for one in characters if unicodedata.category(one) in ("Cc", "Cf") and one.split()}
    fit = [character for character in characters if character.split() and character not in invisible]
    formats.refuse_unfit_ids(pa.array(fit), "passage", str)
    formats.refuse_unfit_ids(pa.array(["\U0001f469\u200d\U0001f52c"]), "passage", str)  # joined emoji
    for character in set(characters) - {*fit}:
        for name in ("b" + character, *([character + "b"] if character in invisible else [])):
            with pytest.raises(InputError) as error:
                formats.refuse_unfit_ids(pa.array(["a", name, ""]), "passage", str)
            assert str(error.value).startswith(f"1: the passage's id is {name!r}. Allowed: 1 to 10,000 bytes")

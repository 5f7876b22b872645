"""What a file of texts may hold; mistakes.txt has what is refused."""

import gzip
import json

import pytest
from hypothesis import given, settings, strategies as st
from inside import resize
from layouts import beir

from pipeline import InputError
from pipeline.formats import read_blocks, read_texts


@pytest.fixture
def config(tmp_path, plain):
    return beir(tmp_path / "collection", plain)


@pytest.fixture
def replace(tmp_path):
    """Replaces one line (from 1) of a file of the collection."""

    def write(name, number, line):
        path = tmp_path / "collection" / name
        lines = path.read_bytes().split(b"\n")
        lines[number - 1] = line if isinstance(line, bytes) else line.encode()
        path.write_bytes(b"\n".join(lines))

    return write


def test_what_is_refused_of_the_other_texts_alone_is_read(replace, config, loaded):
    replace("corpus.jsonl", 4, b'{"_id": "#3", "text": "a"}')
    replace("queries.jsonl", 1, b'{"_id": "q0", "title": 7, "text": "first?"}')
    made = loaded(config)
    assert "#3" in made.passages
    assert made.queries["q0"] == "first?"


def test_line_numbers_count_blank_lines_and_later_blocks(tmp_path):
    path = tmp_path / "corpus.jsonl"
    good = "".join(json.dumps({"_id": str(row), "text": "word " * 500}) + "\n" for row in range(2_000))
    path.write_text(good + "\n\n" + '{"_id": "x"}\n')
    with pytest.raises(InputError, match=r"corpus\.jsonl, line 2003: no column 'text'"):
        list(read_texts(path, "_id", "title"))


def test_blank_lines_a_byte_order_mark_and_a_very_long_line_are_read(tmp_path):
    path = tmp_path / "corpus.jsonl"
    long = "long " * 2_000_000
    lines = [f'\ufeff{{"_id": "1", "text": "{long}"}}\r\n', "\n", '{"_id": "2", "text": ""}']
    path.write_text("".join(lines), encoding="utf-8", newline="")
    batches = list(read_texts(path, "_id", "title"))
    assert [text for batch in batches for text in batch.texts.to_pylist()] == [long, ""]
    places = [batch.place(row) for batch in batches for row in range(len(batch.ids))]
    assert places == [f"{path}, line 1", f"{path}, line 3"]


def test_a_missing_header_and_a_judgment_that_comes_twice(replace, config, loaded):
    replace("qrels/test.tsv", 1, "q1\tp2\t1")
    replace("qrels/test.tsv", 7, "q0\tp1\t2\n")
    made = loaded(config)
    assert made.facts["judgments"] == 6
    assert made.facts["dropped"]["repeated_judgments"] == 1


def test_empty_texts_are_allowed_and_counted(replace, config, loaded):
    replace("corpus.jsonl", 3, b'{"_id": "p2", "title": "", "text": ""}')
    replace("corpus.jsonl", 4, b'{"_id": "p3", "title": null, "text": " \\n"}')
    replace("corpus.jsonl", 7, b'{"_id": "p6", "title": "only a title", "text": ""}')
    replace("queries.jsonl", 1, b'{"_id": "q0", "text": ""}')
    made = loaded(config)
    assert made.facts["empty_texts"] == 2
    assert made.facts["empty_queries"] == 1
    assert made.collection.passages.texts[6].as_py() == "only a title"


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.text(min_size=1), st.text(), st.none() | st.text()), min_size=1, max_size=20),
    st.booleans(),
)
def test_arrow_and_json_read_the_same(tmp_path, records, ascii_only):
    """Whatever text stands in a file, the fast reader gives what `json` gives."""
    path = tmp_path / "any.jsonl"
    objects = [{"_id": name, "text": text, "title": title, "n": 1.5} for name, text, title in records]
    lines = [json.dumps(record, ensure_ascii=ascii_only) for record in objects]
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    (batch,) = read_texts(path, "_id", "title")
    assert batch.ids.to_pylist() == [name for name, _, _ in records]
    assert batch.texts.to_pylist() == [text for _, text, _ in records]
    titles = batch.titles.to_pylist() if batch.titles is not None else [""] * len(records)
    assert titles == [title or "" for _, _, title in records]


@settings(max_examples=60)
@given(st.text(min_size=1, max_size=100).map(lambda text: b"ab" + text.encode()), st.integers(1, 50))
def test_blocks_are_the_file(tmp_path, monkeypatch, content, size):
    resize(monkeypatch, text_bytes=size)
    for name, written in (("f", content), ("packed", gzip.compress(content))):  # known by its first bytes
        (tmp_path / name).write_bytes(written)
        whole = list(read_blocks(tmp_path / name))
        joined = b"".join(block.data for block in whole)
        assert joined == content.replace(b"\n\xef\xbb\xbf", b"\n")
        numbers = [number for block in whole for number, _ in block.lines()]
        assert numbers == list(range(1, 1 + len(content.removesuffix(b"\n").split(b"\n"))))
        assert sum(block.advance for block in whole) == len(written)
        (one,) = read_blocks(tmp_path / name, whole=True)
        assert (one.first, one.rows, one.data) == (1, len(numbers), joined)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_byte_that_is_not_utf8_is_named(tmp_path, monkeypatch, size):
    resize(monkeypatch, text_bytes=size)
    path = tmp_path / "f"
    path.write_bytes("é\n\n\ufeffaé".encode() + b"\xff\nb\xff\n")
    with pytest.raises(InputError, match=r"f, line 3: not UTF-8 text \(byte 4 of the line is 0xff\)"):
        list(read_blocks(path))

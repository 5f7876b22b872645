"""MKQA as FlagEmbedding evaluates it: questions of a language, asked of the passages of Natural Questions.

`MKQA_test-data.zip` of `Shitao/bge-m3-data` has a file of JSON lines for each language, such as `de.jsonl`,
of `id`, `question` and `answers`. The passages are the corpus of `BeIR/nq`. They are judged by the answers
that they contain: see `pipeline.metrics.answers`.

Titles and texts are written in plain characters and in lower case, as FlagEmbedding's copy of them is: one
sort of hyphens, quotation marks and slashes, "..." for an ellipsis, and no control characters.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config.data import MkqaSettings
from pipeline.core.errors import InputError
from pipeline.data.sources.beir_hub import read_texts
from pipeline.data.sources.protocol import Source
from pipeline.data.sources.repos import Repo
from pipeline.formats import tables
from pipeline.formats.blocks import Block
from pipeline.formats.judgments import Judgments, judgments_by_answers
from pipeline.formats.records import Batch

if TYPE_CHECKING:
    import pyarrow as pa

ARCHIVE = "MKQA_test-data.zip"
CONTROLS = "".join(map(chr, (*range(1, 9), 14, 15, *range(17, 28), 0xAD)))  # and the soft hyphen
REWRITTEN = {
    "": CONTROLS,
    " ": "\v\f\x85",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u207b\uff0d",
    "/": "\u2044\u2215",
    '"': "\u201c\u201d\u201e\u201f",
    "'": "\u2018\u2019\u201a\u201b\u055a\ua78b\ua78c\uff07`\u00b4\u2032\u2035",
    "''": "\u2033\u2036",
    "'''": "\u2034\u2037",
    "''''": "\u2057",
    "...": "\u2026",
}
"""What is written in place of each of some characters."""
PLAIN = str.maketrans({each: plain for plain, characters in REWRITTEN.items() for each in characters})


def open_source(settings: MkqaSettings) -> Source:
    """Open the collection that settings name."""
    texts = Repo.open(settings.corpus_path, settings.corpus_revision)
    return Mkqa(texts, Repo.open(settings.path, settings.revision), settings.language)


@dataclass(frozen=True)
class Mkqa:
    """One language of MKQA: the repositories of passages and of questions."""

    texts: Repo
    questions: Repo
    language: str

    def identity(self) -> dict[str, dict[str, Any]]:
        """The commits, or the bytes of local files."""
        layout = {"layout": "mkqa"}
        questions = self.questions.identity_of(ARCHIVE) | layout | {"language": self.language}
        corpus = self.texts.identity("corpus", None) | layout
        return {"corpus": corpus, "queries": questions, "qrels": questions}

    def size(self) -> tuple[int | None, str]:
        """Bytes of the corpus' files."""
        return sum(path.stat().st_size for path in self.texts.files("corpus", None)), "B"

    def passages(self) -> Iterator[Batch]:
        """The corpus, in plain characters and lower case."""
        for batch in read_texts(self.texts.files("corpus", None)):
            titles = None if batch.titles is None else _plain(batch.titles)
            yield replace(batch, texts=_plain(batch.texts), titles=titles)

    def queries(self) -> Iterator[Batch]:
        """The questions."""
        rows = self._rows("question")
        yield rows.batch(rows.strings("id", integers=True), rows.strings("question"))

    def judgments(self) -> Judgments:
        """The answers of each question."""
        import pyarrow as pa

        rows = self._rows("answers")
        texts, parents = rows.lists("answers")
        ends = np.searchsorted(parents, np.arange(len(rows) + 1)).astype(np.int32)
        answers = pa.ListArray.from_arrays(pa.array(ends), texts)
        return judgments_by_answers(rows.strings("id", integers=True), answers, rows.origin)

    def _rows(self, column: str) -> tables.Rows:
        """The ids of the questions, and a column."""
        (path,) = self.questions.matching(ARCHIVE)
        name = f"{self.language}.jsonl"
        try:
            with zipfile.ZipFile(path) as archive:
                known = [each.removesuffix(".jsonl") for each in archive.namelist()]
                if name not in archive.namelist():
                    raise InputError(
                        f"{path}: no {name}", allowed=", ".join(sorted(known)), fix="check data.language"
                    )
                data = archive.read(name)
        except zipfile.BadZipFile as error:
            raise InputError(f"{path}: damaged ({error})", fix="fetch the file again") from None
        rows = tables.rows_of_lines(Block(path / name, 1, data, len(data)), ["id", column])
        if not len(rows):
            raise InputError(f"{path / name}: holds no question", fix="fetch the file again")
        return rows


def _plain(texts: pa.Array) -> pa.Array:
    """Texts in plain characters and lower case."""
    import pyarrow as pa

    plain = (text.translate(PLAIN).replace(" . . . ", " ... ").lower() for text in texts.to_pylist())
    return pa.array(plain, pa.string())

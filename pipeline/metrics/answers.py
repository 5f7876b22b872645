"""Judgments by answers: a passage is relevant to a question if it contains one of the question's answers.

So are the passages of open-domain question answering judged: success@k of these judgments is the Recall@k of
Karpukhin and others, *Dense Passage Retrieval*, EMNLP 2020, and of FlagEmbedding's evaluation of MKQA, whose
rules these are. Passage and answer are decomposed (Unicode's NFD) and cut into tokens: runs of letters,
digits and marks, and every other visible character by itself, in lower case. A passage contains an answer if
the answer's tokens stand in it, one after the other.

Only retrieved passages are judged, as nobody knows of all others; a measure that compares with all relevant
passages cannot be computed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Qrels, Ranking
from pipeline.metrics.measures import MEASURES
from pipeline.metrics.names import Measure

BLOCK = 10_000  # passages whose texts are held at once


def check_measures(measures: Sequence[Measure]) -> None:
    """Refuse measures that need judgments of passages that were not retrieved."""
    refused = [str(measure) for measure in measures if MEASURES[measure.name].complete]
    if refused:
        raise InputError(
            f"evaluate.measures: {', '.join(refused)} compare with all relevant passages, and this "
            "collection has answers, by which only retrieved ones are judged",
            allowed=", ".join(name for name, each in MEASURES.items() if not each.complete),
            fix="set evaluate.measures, such as [success@20, success@100]",
        )


def depth_of(measures: Sequence[Measure]) -> int | None:
    """How many ranks the measures look at; None for all."""
    cutoffs = [measure.cutoff for measure in measures]
    return None if None in cutoffs else max(cutoff or 0 for cutoff in cutoffs)


def judge_by_answers(collection: Collection, ranking: Ranking, depth: int | None = None) -> Qrels:
    """Judge the first `depth` passages of each query, None for all: 1 with an answer of the query, else 0.

    Passages are read in their order, each once, however many queries retrieved it.
    """
    assert collection.answers is not None
    tokens = _tokenizer()
    wanted = [[tokens(answer) for answer in answers] for answers in collection.answers.to_pylist()]
    first = ranking.passages[:, :depth]
    queries = np.nonzero(first >= 0)[0]
    passages = first[first >= 0]
    order = np.lexsort((queries, passages))
    queries, passages = queries[order], passages[order]
    grades = np.zeros(len(passages), np.int64)
    rows, starts = np.unique(passages, return_index=True)
    ends = np.append(starts[1:], len(passages))
    for begin in range(0, len(rows), BLOCK):
        block = slice(begin, begin + BLOCK)
        texts = collection.passages.texts.take(rows[block]).to_pylist()
        for text, start, end in zip(texts, starts[block], ends[block], strict=True):
            words = tokens(text)
            for entry in range(start, end):
                grades[entry] = any(answer in words for answer in wanted[queries[entry]])
    order = np.lexsort((passages, queries))
    return Qrels(queries[order], passages[order], grades[order])


def _tokenizer() -> Callable[[str], str]:
    """Makes of a text its tokens, joined by spaces and between two: so one text is in another by tokens."""
    import regex

    token = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", regex.IGNORECASE | regex.MULTILINE)

    def tokens(text: str) -> str:
        found = [each.lower() for each in token.findall(unicodedata.normalize("NFD", text))]
        return f" {' '.join(found)} " if found else " "

    return tokens

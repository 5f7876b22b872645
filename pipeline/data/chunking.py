"""Chunks of texts: where a text of many tokens is cut into parts that overlap.

A text may be cut at boundaries of several sorts, the best sort first: between sentences, between words, and
between any two tokens. A chunk is as long as the most tokens allow, and ends at a boundary of the best sort
that can be reached; only a sentence that is longer than a chunk is cut between words, and only such a word
inside. The next chunk begins at a boundary of the same sort as that end, at most the overlap before it, or at
the end itself if no such boundary is near enough or leaves room for something new.

Sentences end at full stops, question and exclamation marks of several scripts, with closing quotes and
brackets, before white space, and at line ends; but not before a lower-case letter, nor after the full stop of
a single letter, as in initials. That is most of Unicode's rule (UAX #29, section 5) without its tables.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from pipeline.config.data import ChunkSettings

Span = tuple[int, int]
"""Characters [start, stop) of a text."""
TokenSpans = Callable[[list[str], int], Sequence[Sequence[Span] | None]]
"""For each of some texts the characters of its tokens; None if it has no more than a number of them."""

_SENTENCE_END = re.compile(
    r"""(?:(?:(?<!\b\w)\.|[!?…؟۔।])[.!?…]*["'”’»)\]]*\s+|[。！？][。！？”’」』）]*\s*|\n\s*)"""
)
_WORD = re.compile(r"\b\w\w+\b")


def word_spans(texts: list[str], most: int) -> list[list[Span] | None]:
    """The `TokenSpans` of words as bm25s finds them: two letters or digits and more, stop words included."""
    found = [[match.span() for match in _WORD.finditer(text)] for text in texts]
    return [spans if len(spans) > most else None for spans in found]


def cut(text: str, tokens: Sequence[Span] | None, settings: ChunkSettings) -> list[Span]:
    """The characters of each chunk of a text, in order; together they cover all its tokens.

    `tokens` has the characters of each token, in order; None if they fit one chunk. White space around a
    chunk is left out, but for that around the text itself.
    """
    if tokens is None or len(tokens) <= settings.tokens:
        return [(0, len(text))]
    sorts = [_word_starts(text, tokens), range(len(tokens) + 1)]
    if settings.boundary == "sentence":
        sorts.insert(0, _sentence_starts(text, tokens))
    return [
        _characters(text, tokens, first, stop)
        for first, stop in _token_ranges(sorts, settings.tokens, settings.overlap)
    ]


def _token_ranges(sorts: Sequence[Sequence[int]], most: int, overlap: int) -> Iterator[Span]:
    """The tokens [first, stop) of each chunk of at most `most` tokens, which is above `overlap`.

    `sorts` has the boundaries of each sort, the best first, ascending: numbers of tokens, from 0 to the
    number of all. Those of the last are all numbers.
    """
    first, stop = -1, 0
    while stop < sorts[0][-1]:
        first, stop = _next_range(sorts, most, max(stop - overlap, first + 1), stop)
        yield first, stop


def _next_range(sorts: Sequence[Sequence[int]], most: int, lowest: int, end: int) -> Span:
    """The tokens of the chunk after the one that ends at `end`, which may begin at `lowest`.

    It ends after `end`: at the last sort of boundaries, `lowest` and `most` tokens are already more.
    """
    same = next(sort for sort in sorts if sort[bisect_left(sort, end)] == end)
    starts = same[bisect_left(same, lowest) : bisect_right(same, end)]
    return next(
        (start, stop)
        for sort in sorts
        for start in starts
        if (stop := sort[bisect_right(sort, start + most) - 1]) > end
    )


def _word_starts(text: str, tokens: Sequence[Span]) -> list[int]:
    """The tokens that white space comes before, or begins; and 0, and the number of all."""
    inner = (
        number
        for number in range(1, len(tokens))
        if any(map(str.isspace, text[tokens[number - 1][1] : tokens[number][0] + 1]))
    )
    return [0, *inner, len(tokens)]


def _sentence_starts(text: str, tokens: Sequence[Span]) -> list[int]:
    """The first token of each sentence; and 0, and the number of all."""
    ends = [stop for _, stop in tokens]
    starts = (match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text))
    numbers = {bisect_right(ends, start) for start in starts if not text[start].islower()}
    return sorted({0, *numbers, len(tokens)})


def _characters(text: str, tokens: Sequence[Span], first: int, stop: int) -> Span:
    """The characters of tokens [first, stop), without white space where the text goes on."""
    begin = 0 if first == 0 else tokens[first][0]
    end = len(text) if stop == len(tokens) else tokens[stop - 1][1]
    inside = text[begin:end]
    if first and (ahead := len(inside) - len(inside.lstrip())) < len(inside):
        begin += ahead
    if stop < len(tokens) and (behind := len(inside) - len(inside.rstrip())) < len(inside):
        end -= behind
    return begin, end

"""Chunks of texts: where a text of many tokens is cut into parts that overlap.

A text may be cut at boundaries of several sorts, the best sort first: between sentences, between words, and
between any two tokens. A chunk is as long as the most tokens allow, and ends at a boundary of the best sort
that can be reached; only a sentence that is longer than a chunk is cut between words, and only such a word
inside. The next chunk begins at a boundary of the same sort as that end, at most the overlap before it, or at
the end itself if no such boundary is near enough or leaves room for something new.

A part may have more tokens by itself than in its text: where it begins or ends inside a word, or after white
space that was part of a token. `cut_texts` counts each chunk by itself, and shortens those with too many.

Sentences end at full stops, question and exclamation marks of several scripts, with closing quotes and
brackets, before white space, and at line ends; but not before a lower-case letter, nor after the full stop of
a single letter, as in initials. That is most of Unicode's rule (UAX #29, section 5) without its tables.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from pipeline.config.data import ChunkSettings
from pipeline.core.errors import InputError

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
    return list(_chunks(text, list(tokens), settings))


def cut_texts(
    texts: list[str], spans: TokenSpans, settings: ChunkSettings, first_only: bool = False
) -> list[list[Span]]:
    """The characters of each chunk of some texts, or of the first of each with `first_only`.

    None has more tokens by itself than `settings` allow; `spans` finds them.

    Raises:
        InputError: A single character has more tokens.
    """
    wanted = 1 if first_only else None
    tokens = spans(texts, settings.tokens)
    chunks = [cut(*each, settings)[:wanted] for each in zip(texts, tokens, strict=True)]
    rows = [row for row, of_text in enumerate(tokens) if of_text is not None for _ in chunks[row]]
    parts = [texts[row][start:stop] for row in dict.fromkeys(rows) for start, stop in chunks[row]]
    counted = spans(parts, settings.tokens)
    for row in {row for row, more in zip(rows, counted, strict=True) if more is not None}:
        shorter = _chunks(texts[row], list(tokens[row] or ()), settings, spans)
        chunks[row] = list(itertools.islice(shorter, wanted))
    return chunks


def _chunks(
    text: str, tokens: list[Span], settings: ChunkSettings, spans: TokenSpans | None = None
) -> Iterator[Span]:
    """The chunks of a text; with `spans` each is made shorter until it has few enough tokens by itself."""
    most = settings.tokens
    sorts = _boundaries(text, tokens, settings)
    first, end, reach = -1, 0, most
    while end < len(tokens):
        start, stop = _next_range(sorts, reach, max(end - settings.overlap, first + 1), end)
        begin, after = _characters(text, tokens, start, stop)
        (counted,) = spans([text[begin:after]], most) if spans else [None]
        if counted is None:
            yield begin, after
            first, end, reach = start, stop, most
        elif stop - start > 1:
            reach = max(stop - start - (len(counted) - most), 1)
        elif after - begin > 1:  # a token, whose characters become tokens
            tokens[start:stop] = [(place, place + 1) for place in range(begin, after)]
            sorts = _boundaries(text, tokens, settings)
        else:
            raise InputError(
                f"data.chunks.tokens is {most}, and the character {text[begin:after]!r} alone has "
                f"{len(counted)} tokens",
                allowed=f"{len(counted)} or more",
                fix="raise it",
            )


def _boundaries(text: str, tokens: Sequence[Span], settings: ChunkSettings) -> list[Sequence[int]]:
    """Where a text may be cut, as numbers of tokens: the best sort of places first."""
    sorts = [_word_starts(text, tokens), range(len(tokens) + 1)]
    return [_sentence_starts(text, tokens), *sorts] if settings.boundary == "sentence" else sorts


def _next_range(sorts: Sequence[Sequence[int]], most: int, lowest: int, end: int) -> Span:
    """The tokens of the chunk after the one that ends at `end`, which may begin at `lowest`.

    `sorts` has the boundaries of each sort, the best first, ascending: numbers of tokens, from 0 to the
    number of all. Those of the last are all numbers, so it ends after `end`: `lowest` and `most` are more.
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

"""Texts that a server is asked for to learn what it serves, and whether it cuts long texts."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence

from pipeline.core.records import Float32
from pipeline.storage.vector_forms import cosines

SAME = 0.999  # the lowest cosine of two vectors of a text: bf16 keeps 0.9999, other weights or int8 less
PROBES = (
    ("what is the capital of France", "Paris has been the capital of France since 987, with interruptions."),
    ("how do vaccines work", "A vaccine trains the immune system to recognize a pathogen."),
    ("python read file line by line", "for line in open('data.txt', encoding='utf-8'): print(line.rstrip())"),
    ("symptoms of iron deficiency", "Tiredness, pale skin and shortness of breath are common."),
    ("wie hoch ist der Mont Blanc", "Der Mont Blanc ist 4806 Meter hoch und der höchste Berg der Alpen."),
    ("best time to plant tulips", "Plant the bulbs in autumn, six weeks before the ground freezes."),
    ("meaning of GDPR", "The General Data Protection Regulation governs personal data in the EU."),
    ("qui a peint la Joconde", "Léonard de Vinci a peint la Joconde entre 1503 et 1519."),
)
"""Pairs of a query and a passage that a server is asked for in every run."""
PROBED_PASSAGES = tuple(passage for _, passage in PROBES)
LONGEST_WORDS = 2048  # of the text that is sent to see whether it is cut
SHORTEST_WORDS = 64  # of its beginning


def long_batch(texts: int) -> list[str]:
    """So many different texts, the longest first, as a request has them."""
    passages = itertools.cycle(passage for _, passage in PROBES)
    numbered = [f"{number} {passage}" for number, passage in zip(range(texts), passages, strict=False)]
    return sorted(numbered, key=lambda text: -len(text.encode()))


def spread_over(texts: Sequence[object]) -> list[int]:
    """The first, the middle and the last row of some texts."""
    return sorted({0, len(texts) // 2, len(texts) - 1})


async def cut_of(read: Callable[[str], Awaitable[tuple[Float32, int | None] | None]]) -> str | None:
    """How much of a long text a server reads, if it cuts it without an error, as a clause; else None.

    The text has the vector of its own beginning then. The beginning is halved until its vector differs.

    Args:
        read: Gives the vector [1, dimension] of a text and the tokens that the server counted, if it says
            so; None if it refuses the text.
    """
    queries, passages = (
        [word for text in texts for word in text.split()] for texts in zip(*PROBES, strict=True)
    )
    half = LONGEST_WORDS // 2
    beginning = list(itertools.islice(itertools.cycle(passages), half))
    # other words: the same ones have the same mean vector in any order
    other = list(itertools.islice(itertools.cycle(queries), half))
    whole = await read(" ".join(beginning + other))
    found, count = None, half
    while whole is not None and count >= SHORTEST_WORDS:
        part = await read(" ".join(beginning[:count]))
        if part is None or cosines(part[0], whole[0])[0] < SAME:
            break
        tokens = f", {part[1]:,} tokens" if part[1] and part[1] == whole[1] else ""
        found = f"a text of {LONGEST_WORDS:,} words has the vector of its first {count:,}{tokens}"
        count //= 2
    return found

"""Near-duplicates of texts by MinHash.

A text is the set of its runs of three words. How near two texts are is the Jaccard similarity of their sets:
the share of the runs of both that both have (Broder, *On the Resemblance and Containment of Documents*,
SEQUENCES 1997). Comparing all pairs would take too long, so candidates come from MinHash: for each of 64
random permutations of all runs, a text keeps the smallest number that one of its runs gets; two texts have
the same one with a probability of just their similarity. The 64 are cut into 16 bands of 4, and texts that
are equal in a whole band are candidates (Leskovec, Rajaraman and Ullman, *Mining of Massive Datasets*,
section 3.4): a pair of similarity s is one with probability 1 - (1 - s^4)^16, which is 0.9998 at 0.8. The
similarity of candidates is then computed exactly, so that no pair is reported that is not near.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.records import Int64

UInt64 = npt.NDArray[np.uint64]

RUN = 3
"""Words of a run; a shorter text is a single run."""
BANDS, BAND_ROWS = 16, 4
SEED = 1997
THRESHOLD = 0.8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd; joins the hashes of consecutive words


class Shingles(NamedTuple):
    """The runs of words of some texts, each as a number.

    Attributes:
        hashes: uint64 [runs], those of one text after those of the one before.
        starts: int64 [texts], where the runs of each begin; each text has one at least.
    """

    hashes: UInt64
    starts: Int64


def shingles_of(texts: Sequence[Sequence[str]]) -> Shingles:
    """The runs of words of texts that have words."""
    counts = np.array([len(words) for words in texts])
    hashes = np.fromiter(map(_word_hash, (word for words in texts for word in words)), np.uint64)
    hashes = np.concatenate([hashes, np.zeros(RUN - 1, np.uint64)])
    with np.errstate(over="ignore"):
        joined = hashes[: len(hashes) - RUN + 1].copy()
        firsts = np.cumsum(counts) - counts
        last = np.repeat(firsts + counts, counts)  # after the last word of the text that a word is of
        for step in range(1, RUN):
            inside = np.arange(len(joined)) + step < last
            joined = joined * _FACTOR + np.where(inside, hashes[step : step + len(joined)], np.uint64(0))
    runs = np.maximum(counts - RUN + 1, 1)
    starts = np.cumsum(runs) - runs
    kept = np.arange(runs.sum()) - np.repeat(starts - firsts, runs)
    return Shingles(joined[kept], starts.astype(np.int64))


def signatures(shingles: Shingles) -> UInt64:
    """uint64 [texts, 64]: of each text, the smallest number of a run under each permutation.

    The permutations are a · mixed + b modulo 2^64 with an odd a, where `mixed` is the run's number after the
    finalizer of MurmurHash3: the scheme `affine64` of datasketch.
    """
    mixed = _mix(shingles.hashes)
    factors, offsets = permutations()
    smallest = np.empty((len(factors), len(shingles.starts)), np.uint64)
    with np.errstate(over="ignore"):
        for row, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
            smallest[row] = np.minimum.reduceat(mixed * factor + offset, shingles.starts)
    return np.ascontiguousarray(smallest.T)


@cache
def permutations() -> tuple[UInt64, UInt64]:
    """The factors, all odd, and the offsets of the 64 permutations."""
    drawn = np.random.default_rng(SEED).integers(0, 1 << 64, (2, BANDS * BAND_ROWS), np.uint64)
    return drawn[0] | np.uint64(1), drawn[1]


class NearDuplicates:
    """Texts in which near-duplicates of others are found; it keeps 256 bytes of each and no text.

    Args:
        batches: The words of the texts, in batches; each has a word.
    """

    def __init__(self, batches: Iterator[Sequence[Sequence[str]]]) -> None:
        keys = [_band_keys(signatures(shingles_of(batch))) for batch in batches if batch]
        joined = np.concatenate(keys) if keys else np.zeros((0, BANDS), np.uint64)
        self._orders = np.argsort(joined, axis=0, kind="stable")
        self._keys = np.take_along_axis(joined, self._orders, axis=0)

    def candidates(self, texts: Sequence[Sequence[str]]) -> Int64:
        """int64 [pairs, 2]: rows of known texts and of the given ones that may be near, each pair once."""
        keys = _band_keys(signatures(shingles_of(texts)))
        pairs = [np.zeros((0, 2), np.int64)]
        for band in range(BANDS):
            known = self._keys[:, band]
            first = np.searchsorted(known, keys[:, band])
            counts = np.searchsorted(known, keys[:, band], side="right") - first
            others = np.repeat(np.arange(len(texts)), counts)
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = self._orders[np.repeat(first, counts) + within, band]
            pairs.append(np.stack([rows, others], axis=1))
        return np.unique(np.concatenate(pairs), axis=0)


def similarity(words: Sequence[str], others: Sequence[str]) -> float:
    """The Jaccard similarity of the runs of words of two texts."""
    ours, theirs = _runs(words), _runs(others)
    return len(ours & theirs) / len(ours | theirs)


def hash_words(words: Sequence[str]) -> int:
    """64 bits of the BLAKE2b hash of some words in their order."""
    text = " ".join(words).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + RUN]) for start in range(max(len(words) - RUN + 1, 1))}


def _band_keys(found: UInt64) -> UInt64:
    """uint64 [texts, bands]: a number for the signature's part in each band."""
    parts = found.reshape(len(found), BANDS, BAND_ROWS)
    keys = parts[:, :, 0].copy()
    with np.errstate(over="ignore"):
        for row in range(1, BAND_ROWS):
            keys = _mix(keys * _FACTOR + parts[:, :, row])
    return keys


def _mix(hashes: UInt64) -> UInt64:
    """The 64-bit finalizer of MurmurHash3 (Appleby), which makes every bit depend on all others."""
    with np.errstate(over="ignore"):
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(factor)
        return hashes ^ (hashes >> np.uint64(33))


@lru_cache(1 << 20)
def _word_hash(word: str) -> int:
    return hash_words([word])

"""How are texts kept as words? One array of word numbers, where each text ends in it, and the words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import Int32, Int64
from pipeline.storage.artifacts import Artifact, Draft

IDS, ENDS, VOCABULARY = "ids.npy", "ends.npy", "vocabulary.json"


@dataclass(frozen=True)
class Words:
    """Texts as word numbers; iterating gives each text's as a list, and holds one text at a time.

    Attributes:
        ids: int32 [words], of all texts one after the other.
        ends: int64 [texts], where each text's stop.
        vocabulary: The word of each number.
    """

    ids: Int32
    ends: Int64
    vocabulary: list[str]

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self.ends.tolist():
            yield self.ids[start:end].tolist()
            start = end


def write(draft: Draft, words: Words) -> None:
    """Write them as the files of an artifact."""
    for name, values in ((IDS, words.ids), (ENDS, words.ends)):
        with draft.file(name) as path, open(path, "wb") as file:
            np.save(file, values, allow_pickle=False)
    with draft.file(VOCABULARY) as path:
        path.write_text(json.dumps(words.vocabulary, ensure_ascii=False), encoding="utf-8")


def open_words(artifact: Artifact) -> Words:
    """What `write` wrote, its arrays memory-mapped."""
    ids, ends = (np.load(artifact.path(name), mmap_mode="r", allow_pickle=False) for name in (IDS, ENDS))
    return Words(ids, ends, json.loads(artifact.path(VOCABULARY).read_text(encoding="utf-8")))

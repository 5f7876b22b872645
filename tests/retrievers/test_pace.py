"""The sizes of shards: by the time that they take, within the number of rows that a config allows."""

from __future__ import annotations

import itertools

from pipeline.retrievers.rows import FIRST, LEAST, LONGEST, Pace


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def shards(rate: float, texts: int, most: int, workers: int = 1) -> list[tuple[float, int]]:
    """Time at the end and size of each shard, at `rate` texts per second in each worker."""
    clock, made = Clock(), []
    pace = Pace(most, clock)
    pace.workers = workers
    pace.start()
    while texts > 0:
        size = min(pace.texts, texts)
        clock.now += size / rate / workers
        pace.count(size)
        texts -= size
        made.append((clock.now, size))
    return made


def test_a_killed_run_keeps_four_fifths_of_its_work_and_loses_a_minute_at_most() -> None:
    made = shards(rate=100, texts=500_000, most=1 << 20)
    for begun, end in itertools.pairwise(end for end, _ in made):
        assert end - begun <= LONGEST + 0.01
        assert end - begun <= max(begun / 4, LEAST) + 0.01
    assert len(made) < 130


def test_no_shard_is_larger_than_a_config_allows_and_none_is_tiny() -> None:
    assert {size for _, size in shards(rate=1e6, texts=10_000, most=100)} == {100}
    assert {size for _, size in shards(rate=0.001, texts=3 * FIRST, most=1 << 20)} == {FIRST}


def test_workers_share_the_speed() -> None:
    alone, together = (shards(100, 100_000, 1 << 20, workers) for workers in (1, 4))
    assert max(size for _, size in together) <= max(size for _, size in alone) == 100 * LONGEST

"""Exact search against the definition: ties, any cut of vectors and memory, any product."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst
from search.by_definition import BAR, METRICS, best, ids, same, vector_scores

from pipeline.core import machine
from pipeline.core.records import Embeddings, Float32, Ranking, VectorForm
from pipeline.native.nearest import dense
from pipeline.search import candidates, exact, filtered_scan, scan, scoring
from pipeline.search.scan import DeviceScan
from pipeline.search.scoring import Metric
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store


def search(
    rows: Float32, queries: Float32, k: int, metric: Metric = "inner_product", shards: int = 3, **how: int
) -> Ranking:
    parts = tuple(part for part in np.array_split(rows, shards) if len(part))
    return exact.ExactSearcher(Embeddings(parts), ids(len(rows)), metric, **how).search(queries, k, BAR)


@contextlib.contextmanager
def multiplied_in(kind: str) -> Iterator[None]:
    """Let every search find its candidates in `float32` or `int8`, on any processor, or on AMX."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "has_vnni", lambda: True)
        patch.setattr(machine, "has_amx", lambda: kind == "int8 on AMX")
        if kind != "pairs":
            patch.setattr(exact, "SMALL", 0)
        patch.setattr(exact, "ENOUGH", np.inf if kind == "float32" else 0.0)
        patch.setattr(filtered_scan, "MANY", -1 if kind == "given up" else 2)
        patch.setattr(filtered_scan, "SETTLED", 0)  # given up after the first piece
        patch.setattr(filtered_scan, "JUDGED", 0)
        if kind == "torch":  # in place of a GPU, with sums in another order
            patch.setattr(exact, "find_device", lambda *_: torch.device("cpu"))
            patch.setattr(DeviceScan, "multiply", multiply_in_another_order)
        yield


def multiply_in_another_order(self: DeviceScan, queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(queries.shape[1])
    return queries[:, order] @ rows[:, order].T


KINDS = (
    "float32",
    "every pair",
    "int8",
    "given up",
    "torch",
    *(["int8 on AMX"] if machine.has_amx() else []),
)


@pytest.fixture(params=KINDS)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each product that a search may use."""
    with multiplied_in(request.param):
        yield request.param


# small integers: equal scores are many, and zero vectors among them
SMALL = npst.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-1, 1).map(np.float32)
)


@settings(max_examples=20)
@given(SMALL, SMALL, st.integers(1, 60), st.sampled_from(METRICS), st.integers(1, 4), st.sampled_from(KINDS))
def test_hits_are_the_best_with_ties_zero_vectors_and_any_k(
    rows: Float32, queries: Float32, k: int, metric: Metric, shards: int, kind: str
) -> None:
    with multiplied_in(kind):
        assert same(search(rows, queries, k, metric, shards), best(vector_scores(rows, queries, metric), k))


SIZES = st.tuples(st.integers(1, 700), st.integers(1, 150), st.integers(1, 130), st.integers(1, 90))


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), SIZES, st.sampled_from(METRICS), st.sampled_from(KINDS[1:]))
def test_integers_leave_every_bit_as_float32_finds_it_whatever_the_sizes(
    seed: int, sizes: tuple[int, int, int, int], metric: Metric, kind: str
) -> None:
    random, (n, n_queries, dimension, k) = np.random.default_rng(seed), sizes
    rows, queries = (random.standard_normal((some, dimension), np.float32) for some in (n, n_queries))
    rows *= 10.0 ** random.integers(-2, 3, (n, 1)).astype(np.float32)
    rows[random.integers(0, n, n // 3)] = rows[0]
    with multiplied_in("float32"):
        expected = search(rows, queries, k, metric)
    with multiplied_in(kind):
        assert same(search(rows, queries, k, metric, memory_mb=1), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_hits_are_the_best_whichever_product_finds_the_candidates(
    kernel: str, metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "QUERIES", 20)  # more than one tile, and blocks of many sizes
    monkeypatch.setattr(scan, "MOST_ROWS", 700)
    monkeypatch.setattr(filtered_scan, "PIECE", 700)
    monkeypatch.setattr(filtered_scan, "ROOM", dense.ROOM)
    monkeypatch.setattr(candidates, "SPARE", 16)
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((5000, 24), np.float32)
    rows *= generator.uniform(0.1, 10, (5000, 1)).astype(np.float32)
    rows[1000:1400] = rows[7]  # ties by hundreds, over the cut for some queries
    rows[2000:2050] = 0
    queries = np.concatenate([generator.standard_normal((48, 24), np.float32), rows[6:8], rows[2000:2001]])
    expected = best(vector_scores(rows, queries, metric), 60)
    assert same(search(rows, queries, 60, metric), expected)
    assert same(search(rows, queries, 60, metric, shards=9, memory_mb=1), expected)


def rising() -> tuple[Float32, Float32]:
    rows = np.linspace(0.1, 1, 4000, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    return rows, np.ones((2, 4), np.float32)


def near_duplicates() -> tuple[Float32, Float32]:
    """Integers put the two best rows in another order."""
    rows, queries = np.zeros((3000, 32), np.float32), np.zeros((2, 32), np.float32)
    queries[:, :2], queries[1, 2:] = 1, 0.3
    rows[1500, :2] = 1, 0.4 / 127 + 1e-6  # the best, whose second number falls to 0 in int8
    rows[1000, :2] = 1 - 0.4 / 127, 0.6 / 127  # the second number rises to 1 / 127
    return rows, queries


def of_any_length() -> tuple[Float32, Float32]:
    random = np.random.default_rng(2)
    rows = random.standard_normal((3000, 31), np.float32)
    rows *= 10.0 ** random.integers(-17, 9, (3000, 1)).astype(np.float32)
    rows[::3, 5] *= 1e4  # all else is zero in int8
    rows[::7] = 0
    queries = random.standard_normal((70, 31), np.float32)
    queries[::5, 5], queries[1], queries[2:4] = 0, 0, queries[2:4] * np.array([[1e-20], [1e9]], np.float32)
    return rows, queries


def best_together() -> tuple[Float32, Float32]:
    """A search guesses thresholds from spans of 256 rows, and the first one has too many of the best."""
    random = np.random.default_rng(5)
    rows, queries = (random.standard_normal((n, 16), np.float32) for n in (20_000, 40))
    rows = rows[np.argsort(-(rows @ queries[:20].T).max(axis=1), kind="stable")]
    rows[17:30] = rows[0]
    return rows, queries


def nearly_tied() -> tuple[Float32, Float32]:
    """More rows than there is room for differ by less than the error bound."""
    random = np.random.default_rng(0)
    rows = np.tile(random.standard_normal(64).astype(np.float32), (6000, 1))
    ends = np.where(random.random(rows.shape) < 0.5, np.float32(np.inf), np.float32(-np.inf))
    return np.nextafter(rows, ends), rows[:1] + random.standard_normal((3, 64), np.float32) / 10


def guessed_too_high() -> tuple[Float32, Float32]:
    """Products of the last rows, which are long, reach a guess that their scores, 0, do not."""
    random = np.random.default_rng(1)
    rows = np.zeros((20_000, 64), np.float32)
    rows[:, 0] = random.uniform(0, 0.5, 20_000)
    rows[:50, 0] = random.uniform(2, 3, 50)
    rows[1000:1060, 0] = 1  # of the best 60, all but 50 are these
    rows[-300:, ::2] = 1e8 * random.standard_normal((300, 32), np.float32)
    rows[-300:, 1::2] = -rows[-300:, ::2]
    rows[-300:] = random.permuted(rows[-300:], axis=1)
    return rows, np.ones((1, 64), np.float32)


@pytest.mark.parametrize(
    ("made", "k", "metrics"),
    [
        (rising, 5, METRICS[:1]),
        (near_duplicates, 1, METRICS[:1]),
        (of_any_length, 40, METRICS),
        (best_together, 90, METRICS[:1]),
        (nearly_tied, 1, METRICS[:1]),
        (guessed_too_high, 60, METRICS[:1]),
    ],
)
def test_vectors_that_are_hard_to_filter_are_found(
    kernel: str, made: Callable[[], tuple[Float32, Float32]], k: int, metrics: tuple[Metric, ...]
) -> None:
    rows, queries = made()
    for metric in metrics:
        assert same(search(rows, queries, k, metric), best(vector_scores(rows, queries, metric), k))


@pytest.mark.parametrize("metric", METRICS)
def test_stored_vectors_are_searched_as_those_in_memory_in_each_form(
    kernel: str, metric: Metric, tmp_path: Path, write_shard: Callable[..., None]
) -> None:
    rows = np.random.default_rng(3).standard_normal((900, 32), np.float32)

    def build(draft):  # type: ignore[no-untyped-def]
        for start in range(0, 900, 128):
            write_shard(draft, start, rows[start : start + 128])
        return {}

    artifact = Store(tmp_path).make(Recipe("passages", {}), build)
    halves = rows.astype(np.float16).astype(np.float32)
    for form, held in (
        (VectorForm(), rows), (VectorForm(halves=True), halves), (VectorForm(dimensions=20), rows[:, :20]),
    ):  # fmt: skip
        stored, queries = vector_shards.open_embeddings(artifact, form), rows[:40, : held.shape[1]]
        found = exact.ExactSearcher(stored, ids(900), metric, memory_mb=1).search(queries, 50, BAR)
        assert same(found, best(vector_scores(held, queries, metric), 50))


def test_stored_vectors_are_let_go_when_they_have_been_read(tmp_path: Path) -> None:
    path, held = tmp_path / "rows.npy", []
    np.save(path, np.random.default_rng(1).standard_normal((32_768, 256), np.float32))
    rows = np.load(path, mmap_mode="r")

    class Looking:
        def update(self, n: int = 1) -> None:
            mapped = psutil.Process().memory_maps()
            held.append(sum(part.rss for part in mapped if part.path == str(path)))

    queries = np.array(rows[:10])
    searcher = exact.ExactSearcher(Embeddings((rows,)), ids(len(rows)), "inner_product", memory_mb=8)
    searcher.search(queries, 10, Looking())
    assert 0 < max(held) <= 8_000_000 < path.stat().st_size / 4


@settings(max_examples=15)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from(METRICS),
)
def test_products_are_within_the_bound(seed: int, dimension: int, scale: float, metric: Metric) -> None:
    generator = np.random.default_rng(seed)
    rows, queries = (
        generator.standard_normal((n, dimension)).astype("f4") * np.float32(scale) for n in (30, 9)
    )
    wide, asked = rows.astype(np.float64), queries.astype(np.float64)
    half = (wide**2).sum(axis=1)[:, None] / 2 if metric == "l2" else np.zeros((30, 1))
    off = np.abs((rows @ queries.T - half.astype(np.float32)) - (wide @ asked.T - half)).max(axis=0)
    norms, longest = scoring.norm_bounds(queries), float(scoring.norm_bounds(rows).max())
    assert (off <= scoring.error_bound(norms, longest, dimension, metric)).all()


def test_a_filter_is_given_up_where_it_lets_too_many_pairs_pass_and_nowhere_else() -> None:
    random = np.random.default_rng(3)
    rows, queries = (random.standard_normal((n, 384), np.float32) for n in (20_000, 64))
    near = 0.2 * rows + queries[np.repeat(random.integers(0, 64, 500), 40)]  # 40 together
    spiked = rows.copy()
    spiked[:, 0] = 100
    plain = queries.copy()
    plain[:, 0] = 0
    for vectors, asked, is_useful in ((rows, queries, True), (near, queries, True), (spiked, plain, False)):
        for k in (10, 100):
            scan = filtered_scan.FilteredScan(Embeddings((vectors,)), asked, k, ids(20_000), "inner_product")
            ranking = scan.search(1000, 2, BAR)
            assert same(ranking, best(vector_scores(vectors, asked), k)) if is_useful else ranking is None


def test_a_guessed_threshold_is_never_lowered() -> None:
    """What it has dropped would be missing among the candidates."""
    found = filtered_scan.HitCandidates(1, 100, 2, ids(100), lambda queries: np.full(1, 0.1))
    hits = dense.Hits(np.zeros(3, np.int32), np.arange(3), *2 * [np.array([1, 0.9, 0.85], np.float32)])
    found.rank = 1
    found.set_thresholds()
    found.add(hits, 1)
    found.guess()
    found.add(dense.Hits(*(part[1:] for part in hits)), 2)
    found.guess()
    assert found.kth == 1
    assert found.missed() == 0


@pytest.mark.parametrize("metric", METRICS)
def test_rows_and_queries_with_nan_are_never_found(kernel: str, metric: Metric) -> None:
    random = np.random.default_rng(4)
    rows, queries = (random.standard_normal((some, 8), np.float32) for some in (3000, 5))
    rows[::9, 3] = np.nan
    queries[2, 1] = np.nan
    whole = np.flatnonzero(~np.isnan(rows).any(axis=1))
    found = search(rows, queries, 20, metric)
    assert (found.passages[2] == -1).all()
    kept = [0, 1, 3, 4]
    assert np.isin(found.passages[kept], whole).all()
    with multiplied_in("float32"):
        scores = search(rows[whole], queries[kept], 20, metric).scores
    assert (found.scores[kept] == scores).all()

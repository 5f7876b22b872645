"""Which device searches: the CPU side of the choice."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.search import faiss_search


@pytest.mark.parametrize(
    ("device", "gpus", "chosen"),
    [("auto", 0, None), ("auto", 2, 0), ("cpu", 2, None), ("cuda", 1, 0), ("cuda:1", 2, 1)],
)
def test_a_gpu_is_used_where_there_is_one_and_it_is_not_declined(
    device: str, gpus: int, chosen: int | None
) -> None:
    assert faiss_search.choose_gpu(device, gpus) == chosen


@pytest.mark.parametrize(("device", "gpus"), [("cuda", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_not_there_is_refused(device: str, gpus: int) -> None:
    with pytest.raises(InputError, match=rf"search\.device: {device}, and faiss sees {gpus} GPUs"):
        faiss_search.choose_gpu(device, gpus)


def test_the_cpu_searches_the_index_itself() -> None:
    index = faiss.IndexFlatIP(2)
    index.add(np.ones((1, 2), np.float32))
    assert faiss_search.move_to_device(index, "cpu", 10) is index


@pytest.mark.parametrize(
    ("hits", "nprobe", "said"),
    [(2049, 1, "2,048 hits at most, and 2,049 are"), (9, 2049, "2,048 lists at most, and nprobe is 2,049")],
)
def test_what_a_gpu_would_refuse_is_searched_on_the_cpu_or_refused(
    hits: int, nprobe: int, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(faiss_search, "count_gpus", lambda: 1)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(2), 2, 4096)
    index.nprobe = nprobe
    assert faiss_search.move_to_device(index, "auto", hits) is index
    assert said in caplog.text
    with pytest.raises(InputError, match=rf"search\.device: cuda: .*{said}"):
        faiss_search.move_to_device(index, "cuda", hits)


def test_as_many_hits_as_a_gpu_gives_are_no_reason_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_search, "count_gpus", lambda: 1)
    monkeypatch.setattr(faiss_search, "_copy_to_gpu", lambda index, number: "copy")
    assert faiss_search.move_to_device(faiss.IndexFlatIP(2), "cuda", 2048) == "copy"

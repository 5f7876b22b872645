import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from pipeline.formats import fingerprints, repeated_pairs

IDS = st.text("ab0", min_size=1, max_size=20) | st.text(min_size=1)


@given(st.lists(st.tuples(st.integers(0, 3), IDS), min_size=1), st.integers(1, 4))
def test_every_repeated_pair_is_found(pairs: list[tuple[int, str]], size: int) -> None:
    chunks = [pa.array([d for _, d in pairs[i : i + size]]) for i in range(0, len(pairs), size)]
    prints = np.concatenate([fingerprints(chunk) for chunk in chunks])
    queries = np.array([q for q, _ in pairs], dtype=np.int32)
    earlier, later = repeated_pairs(queries, pa.chunked_array(chunks), prints)
    expected = [i for i, pair in enumerate(pairs) if pair in pairs[:i]]
    assert later.tolist() == expected
    assert earlier.tolist() == [max(j for j in range(i) if pairs[j] == pairs[i]) for i in expected]


def test_equal_fingerprints_of_different_ids_are_no_duplicate() -> None:
    documents = pa.chunked_array([["a", "b", "b"]])
    prints = np.zeros(3, dtype=np.uint64)
    assert repeated_pairs(np.array([0, 0, 1], dtype=np.int32), documents, prints)[1].tolist() == []
    assert repeated_pairs(np.array([0, 1, 1], dtype=np.int32), documents, prints)[1].tolist() == [2]

"""Slices are the same everywhere, and a larger one contains the smaller."""

import hashlib

from layouts import beir


def test_first_queries_are_the_first_judged_ones(tmp_path, plain, loaded):
    config = beir(tmp_path / "c", plain).model_copy(update={"queries": 2})
    made = loaded(config)
    assert list(made.queries) == ["q0", "q1"]
    assert made.facts["outside_slice"] == {"queries": 1, "judgments": 1, "passages": 0}


def test_a_slice_is_what_is_judged_and_the_rest_by_a_keyed_hash_of_the_id(tmp_path, plain, loaded):
    base = beir(tmp_path / "c", plain)
    rest = [name for name, _, _ in plain.passages if name not in ("p0", "p1")]
    rest.sort(key=lambda name: hashlib.blake2b(name.encode(), digest_size=8, key=b"benchmarco").digest())
    for size, drawn in ((1, 0), (5, 3), (6, 4), (100, 10)):  # a larger one contains the smaller
        made = loaded(base.model_copy(update={"queries": 1, "corpus": size}))
        assert set(made.passages) == {"p0", "p1", *rest[:drawn]}
        assert list(made.passages) == sorted(made.passages, key=lambda name: int(name[1:]))
        assert made.facts["judgments"] == 2
    assert made.facts["outside_slice"]["passages"] == 0
    assert "note" not in made.facts
    some = loaded(base.model_copy(update={"queries": 1, "corpus": 5}))
    assert some.facts["note"] == "slice: 5 of 12 passages, judged or drawn at random: scores are too high"
    whole = loaded(base.model_copy(update={"corpus": 100}))
    assert whole.facts == loaded(base).facts

"""The measures by hand, and their names."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pipeline import InputError, evaluate, metrics


def score(ranked: Sequence[str], judged: dict[str, int], measure: str) -> float:
    """What one query has of a measure."""
    run = {"q": {passage: float(-rank) for rank, passage in enumerate(ranked)}}
    return evaluate({"q": judged}, run, [measure]).values.item()


@pytest.mark.parametrize(
    ("grades", "measure", "expected"),
    [
        ([5, 2, 4, 0, 1], "dcg@5", 8.64871),
        ([5, 2, 4, 0, 1], "cg@5", 12),
        ([5, 2, 4, 0, 1], "ndcg@5", 0.96586),
        ([2, 3, 3, 1, 2], "dcg@5", 6.59717),
        ([2, 3, 3, 1, 2], "ndcg@5", 6.59717 / 7.14100),
        ([2, 3, 3, 1, 2], "dcg(gain=exp)@5", 12.50774),
        ([2, 3, 3, 1, 2], "ndcg(gain=exp)@5", 12.50774 / 14.59539),
        ([2, 3, 3, 1, 2], "cg(gain=exp)@3", 3 + 7 + 7),
    ],
)
def test_graded_lists(grades: list[int], measure: str, expected: float) -> None:
    value = score("abcde", dict(zip("abcde", grades, strict=True)), measure)
    assert value == pytest.approx(expected, rel=1e-5)


# Of each rule one case; trec_eval, ir_measures and gdeval check all others (tests/parity).
# One query: ranks 1 to 6 hold grades 0, 2, unjudged, 1, -1, 3; a grade 1 and a grade 2 were not retrieved.
E = 0.00001
JUDGED = {"a": 0, "b": 2, "d": 1, "e": -1, "f": 3, "x": 1, "y": 2}


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("precision@10", 3 / 10),
        ("recall@4", 2 / 5),
        ("recall(cap=true)@4", 2 / 4),
        ("mrr", 1 / 2),
        ("map", (1 / 2 + 2 / 4 + 3 / 6) / 5),
        ("map(norm=retrieved)@4", (1 / 2 + 2 / 4) / 2),
        ("ndcg(ideal=retrieved)@2", (2 / np.log2(3)) / (3 + 2 / np.log2(3))),
        ("success@2", 1),
        ("judged@6", 5 / 6),
        ("r_precision", 2 / 5),
        # ranks 2, 4, 6 are relevant below 1 judged non-relevant document, all there is; R = 5
        ("bpref", 0),
        # with rel=2 ranks 2 and 6 are, below 1 and 2 of 3 others (grades 0, 1, 1); R = 3
        ("bpref(rel=2)", ((1 - 1 / 3) + (1 - 2 / 3)) / 3),
        # in the pool above: 1, 2 and 4; relevant of those judged: 0 of 1, 1 of 2, 2 of 3; E = 0.00001
        (
            "infap",
            (
                (1 + 1 * (0 + E) / (1 + 2 * E)) / 2
                + (1 + 2 * (1 + E) / (2 + 2 * E)) / 4
                + (1 + 4 * (2 + E) / (3 + 2 * E)) / 6
            )
            / 5,
        ),
        ("rbp(p=0.5)@4", 0.5 * (0.5 + 0.5**3)),
        # ranks 1, 2, 4 and 6 are judged; rank 5 is in the pool only
        ("err@6", 3 / 16 / 2 + 13 / 16 * (1 / 16 / 4 + 15 / 16 * 7 / 16 / 6)),
        # grades 0, 2, 1, 3 are left at ranks 1 to 4
        ("precision(unjudged=removed)@4", 3 / 4),
        ("map(unjudged=removed)", (1 / 2 + 2 / 3 + 3 / 4) / 5),
        ("dcg(unjudged=removed)@4", 2 / np.log2(3) + 1 / 2 + 3 / np.log2(5)),
    ],
)
def test_each_rule_by_hand(measure: str, expected: float) -> None:
    assert score("abcdef", JUDGED, measure) == pytest.approx(expected)


def test_grades_past_what_a_measure_can_hold_are_refused() -> None:
    assert score("ab", {"a": 4, "b": 4}, "err@2") == 15 / 16 + 1 / 16 * 15 / 16 / 2  # gdeval's
    with pytest.raises(InputError, match="grade 5 with err"):
        score("a", {"a": 1, "b": 5}, "err@5")
    with pytest.raises(InputError, match="grade 2000 with gain=exp"):
        score("a", {"a": 2000}, "dcg(gain=exp)@5")


@pytest.mark.parametrize("name", sorted(metrics.MEASURES))
def test_every_measure_says_its_formula(name: str) -> None:
    assert metrics.MEASURES[name].compute.__doc__


@st.composite
def measures(draw: st.DrawFn) -> metrics.Measure:
    name = draw(st.sampled_from(sorted(metrics.MEASURES)))
    definition = metrics.MEASURES[name]
    drawn = {"rel": st.integers(1, 2**31 - 1), "p": st.integers(1, 10**15 - 1).map(lambda n: n / 10**15)}
    values = {
        parameter: draw(drawn.get(parameter.name, st.sampled_from(parameter.values)))
        for parameter in definition.all_params
    }
    params = tuple(sorted((each.name, value) for each, value in values.items() if value != each.values[0]))
    cutoffs = st.integers(1, 2**31 - 1)
    cutoff = draw(
        {
            metrics.Cutoff.NONE: st.none(),
            metrics.Cutoff.OPTIONAL: st.none() | cutoffs,
            metrics.Cutoff.REQUIRED: cutoffs,
        }[definition.cutoff]
    )
    return metrics.Measure(name, definition, params, cutoff)


@given(measures())
def test_parse_and_print_are_inverse(measure: metrics.Measure) -> None:
    assert metrics.parse_measure(str(measure)) == measure
    assert metrics.parse_measure(f"  {str(measure).upper()} ") == measure


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("nDCG@10", "ndcg@10"),
        ("recip_rank", "mrr"),
        ("map_cut_10", "map@10"),
        ("R@100", "recall@100"),
        ("recall_at_100", "recall@100"),
        ("P@10", "precision@10"),
        ("ndcg_cut_10", "ndcg@10"),
        ("success_5", "success@5"),
        ("recall(rel=2,cap=True)@10", "recall(cap=true,rel=2)@10"),
        ("ndcg(gain=exp,ideal=retrieved)@5", "ndcg(gain=exp,ideal=retrieved)@5"),
        ("ndcg()@010", "ndcg@10"),
        ("infAP", "infap"),
        ("RBP(p=.50)@20", "rbp(p=0.5)@20"),
        ("err_20", "err@20"),
        ("hit_rate_at_3", "success@3"),
        ("R_cap@10", "recall(cap=true)@10"),
    ],
)
def test_names_of_other_tools_are_read(text: str, canonical: str) -> None:
    assert str(metrics.parse_measure(text)) == canonical


@given(st.text() | st.from_regex(r"[a-zA-Z_]{1,8}(\([a-z=,0-9]*\))?(@[0-9-]{1,3})?", fullmatch=True))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        measure = metrics.parse_measure(text)
    except InputError:
        return
    assert metrics.parse_measure(str(measure)) == measure


def test_lists_are_split_outside_parentheses() -> None:
    names = ["ndcg@10", "recall(cap=true,rel=2)@5", "map"]
    assert [str(m) for m in metrics.parse_measures("nDCG@10, recall(rel=2,cap=true)@5,AP")] == names
    assert [str(m) for m in metrics.parse_measures([*names, "nDCG_cut_10"])] == names  # each once


def test_aliases_lead_to_measures() -> None:
    assert not metrics.other_names().keys() & metrics.MEASURES.keys()
    for alias, (name, _) in metrics.other_names().items():
        cutoff = "" if metrics.MEASURES[name].cutoff is metrics.Cutoff.NONE else "@10"
        assert metrics.parse_measure(alias + cutoff).name == name

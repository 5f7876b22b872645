import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.metrics.measures import Cutoff
from pipeline.metrics.names import (
    ALIASES,
    COMMON,
    MEASURES,
    PARAMETERS,
    Measure,
    parse_measure,
    parse_measures,
)


@st.composite
def measures(draw: st.DrawFn) -> Measure:
    name = draw(st.sampled_from(sorted(MEASURES)))
    definition = MEASURES[name]
    drawn = {"rel": st.integers(1, 2**31 - 1), "p": st.integers(1, 10**15 - 1).map(lambda n: n / 10**15)}
    values = {
        key: draw(drawn.get(key, st.sampled_from(PARAMETERS[key]))) for key in (*definition.params, *COMMON)
    }
    params = tuple(sorted((key, value) for key, value in values.items() if value != PARAMETERS[key][0]))
    cutoffs = st.integers(1, 2**31 - 1)
    cutoff = draw(
        {Cutoff.NONE: st.none(), Cutoff.OPTIONAL: st.none() | cutoffs, Cutoff.REQUIRED: cutoffs}[
            definition.cutoff
        ]
    )
    return Measure(name, params, cutoff)


@given(measures())
def test_parse_and_print_are_inverse(measure: Measure) -> None:
    assert parse_measure(str(measure)) == measure
    assert parse_measure(f"  {str(measure).upper()} ") == measure


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
    ],
)
def test_names_of_other_tools_are_read(text: str, canonical: str) -> None:
    assert str(parse_measure(text)) == canonical


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ndgc@20", ["unknown measure 'ndgc@20'", "nearest is ndcg@20"]),
        ("rprecision", ["nearest is r_precision."]),
        ("quality", ["unknown measure 'quality'", "Allowed: precision, recall"]),
        ("ndcg", ["no cutoff", "ndcg@10"]),
        ("r_precision@5", ["has a cutoff", "r_precision alone"]),
        ("ndcg@0", ["cutoff '0'", "from 1"]),
        ("ndcg@99999999999999999999999", ["cutoff"]),
        ("ndcg@١", ["cutoff"]),
        ("ndcg(gian=exp)@5", ["no parameter 'gian'", "Allowed: gain, ideal", "nearest is gain"]),
        ("dcg(gain=expo)@5", ["gain=expo", "Allowed: gain=linear, gain=exp", "nearest is gain=exp"]),
        ("recall(cap)@5", ["cap=", "cap=false, cap=true"]),
        ("recall(rel=0)@5", ["rel=0", "from 1"]),
        ("recall(rel=2,rel=2)@5", ["duplicate parameter 'rel'"]),
        ("rbp(p=1)@5", ["p=1 in measure", "a share between 0 and 1"]),
        ("ndcg@10)", ["cannot be read"]),
    ],
)
def test_errors_name_what_is_wrong_and_what_is_near(text: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        parse_measure(text)
    for part in parts:
        assert part in str(error.value)


@given(st.text() | st.from_regex(r"[a-zA-Z_]{1,8}(\([a-z=,0-9]*\))?(@[0-9-]{1,3})?", fullmatch=True))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        measure = parse_measure(text)
    except InputError:
        return
    assert parse_measure(str(measure)) == measure


def test_lists_are_split_outside_parentheses() -> None:
    names = ["ndcg@10", "recall(cap=true,rel=2)@5", "map"]
    assert [str(m) for m in parse_measures("nDCG@10, recall(rel=2,cap=true)@5,AP")] == names
    assert [str(m) for m in parse_measures([*names, "nDCG_cut_10"])] == names  # each once


@pytest.mark.parametrize("texts", ["", [], "ndcg@10,", ","])
def test_no_measure_is_refused(texts: str | list[str]) -> None:
    with pytest.raises(InputError, match="measure"):
        parse_measures(texts)


def test_aliases_lead_to_measures() -> None:
    assert set(ALIASES.values()) <= set(MEASURES)
    assert not set(ALIASES) & set(MEASURES)

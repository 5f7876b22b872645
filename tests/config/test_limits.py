"""Small files that stand for too much: refused before anything looks at each value."""

from pathlib import Path

import pytest

from pipeline import InputError, load_config, load_configs

BASE = "name: t\ndata: {source: sample}\nmodel: {backend: bm25}\n"


def bomb(key: str, wide: int = 9, deep: int = 9) -> str:
    """Lists of aliases of lists of aliases."""
    lines = [f"a0: &a0 [{', '.join(['x'] * wide)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * wide)}]" for n in range(1, deep)]
    return "{" + ", ".join([*lines, f"{key}: *a{deep - 1}"]) + "}"


def merged(wide: int = 9, deep: int = 9) -> str:
    """Mappings that merge mappings."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * wide)}]}}" for n in range(1, deep)]
    return "\n".join(lines)


TOO_MUCH = {
    "a name": "name: " + bomb("x"),
    "measures": BASE + "evaluate: {measures: " + bomb("x") + "}",
    "parameters": BASE + "search: {parameters: " + bomb("x") + "}",
    "a sweep": BASE + "sweep: " + bomb("model.k1"),
    "merged mappings": BASE + merged(),
    "an alias inside itself": BASE + "sweep: &s [{sweep: *s}]",
    "a mapping inside itself": BASE + "search: &s {parameters: *s}",
    "a merge of itself": BASE + "search: &s {<<: *s}",
    "a long file": BASE + "#" * (1 << 20),
    "deep lists": BASE + "search: " + "[" * 20_000,
    "deep mappings": BASE + "search: " + "{a: " * 20_000,
    "many combinations": BASE + "sweep: {" + ", ".join(
        f"{key}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
        for key in ("model.k1", "search.top_k", "search.batch_size", "data.queries", "data.corpus", "name")
    ) + "}",
    "a long sweep": BASE + f"sweep: [{'{name: x}, ' * 1001}]",
    "a sweep of sweeps": BASE + "sweep: [" + ", ".join(
        ["{sweep: {search.top_k: [" + ", ".join(map(str, range(1, 101))) + "]}}"] * 11
    ) + "]",
}  # fmt: skip


@pytest.mark.parametrize("what", TOO_MUCH)
@pytest.mark.parametrize("name", ["c.yaml", "manifest.json"])
def test_it_is_refused(what: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TOO_MUCH[what], encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_configs(tmp_path / name)
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize("value", [bomb("x"), "&s [*s]", "[" * 20_000])
def test_it_is_refused_in_set_too(value: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(BASE, encoding="utf-8")
    with pytest.raises(InputError):
        load_config(tmp_path / "c.yaml", [f"evaluate.measures={value}"])


def test_a_thousand_benchmarks_are_made(tmp_path: Path) -> None:
    values = ", ".join(map(str, range(1, 1001)))
    (tmp_path / "c.yaml").write_text(BASE + f"sweep: {{search.top_k: [{values}]}}", encoding="utf-8")
    assert len(load_configs(tmp_path / "c.yaml")) == 1000


def test_aliases_that_stand_for_little_are_taken(tmp_path: Path) -> None:
    text = "name: t\ndata: {source: sample}\nmodel: &m {backend: bm25}\nsweep: [{model: *m}, {model: *m}]"
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    assert len(load_configs(tmp_path / "c.yaml")) == 2

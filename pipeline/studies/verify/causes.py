"""Causes of a difference from published scores: each is a change, which is made and measured.

What usually differs between tools is a table: changes of the evaluation (`EVALUATION`), and of settings
(`settings_to_try`). The evaluation is tried on the finished ranking. Settings are tried on a sample, the hits
of some queries, and the best of them on the whole collection, where the cache has what a change leaves alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.config import Config
from pipeline.config.files import make_config, put
from pipeline.core.display import Bar, Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts
from pipeline.formats.judgments import Judgments
from pipeline.metrics.evaluation import join_run_and_qrels
from pipeline.results.published import ScoreChange, ScoreCheck
from pipeline.run.benchmark import Session
from pipeline.run.running import prepare, run_each
from pipeline.storage.whole_files import temporary_folder
from pipeline.studies.verify.scored_run import EVALUATION, ScoredRun

log = logging.getLogger(__name__)

SAMPLE_QUERIES, SAMPLE_HITS = 60, 10
"""Of the first sample: its queries, and the hits of each that are searched, beside what is judged."""
FEWEST_QUERIES, MOST_HITS = 20, 50
"""Of a sample that fits the time: queries at least, and hits of each at most."""
NEAR = 0.003
"""An estimate no further away is measured on the whole collection at once: it may be the cause."""
EXACT = 0.0002
"""A change ends the search if the mean distance of what it gives is no more: others are further away."""
WHOLE = 3  # changes that are measured on the whole collection, at least
PAIRED = 6  # changes, the nearest, of which pairs are tried if none of them explains the scores
CHEAP = {
    "model.query_instruction", "model.query_max_length", "data.lowercase_queries", "model.normalize"
}  # fmt: skip
"""Settings whose changes need no sample: the cache has the passages, and up to `SMALL` are soon searched."""
SMALL = 200_000
SEPARATOR = "\x1f"  # between a title and a text while a sample is cut
PAIRS = (("query: ", "passage: "), ("search_query: ", "search_document: "))
"""Instructions of queries and passages that go together: E5's and Nomic's."""
PREFIXES = tuple(prefix for pair in PAIRS for prefix in pair)
BGE_PREFIX = "Represent this sentence for searching relevant passages: "


Means = Mapping[str, float]
"""Means by measure."""


def explain(
    cells: Sequence[ScoreCheck],
    scored_run: ScoredRun,
    config: Config | None,
    minutes: float,
    progress: Progress,
) -> list[ScoreCheck]:
    """Cells of one model and collection, with what was tried for those that are not reproduced.

    The nearest comes first: by the mean distance from all scores that were compared. Where a measure has
    several scores, those of each source are explained by themselves, and share the time. What was estimated
    from a sample alone comes after what was measured. Without time left, the evaluation alone is tried.
    """
    deadline = time.monotonic() + 60 * minutes
    compared = [cell for cell in cells if cell.got is not None and not cell.reason]
    sets = [scores for scores in _sets(compared) if any(each.verdict == "not reproduced" for each in scores)]
    explained: dict[int, ScoreCheck] = {}
    for number, scores in enumerate(sets):
        until = time.monotonic() + (deadline - time.monotonic()) / (len(sets) - number)
        found, order, late = _tried(scores, scored_run, config, until, progress)
        for cell in scores:
            if cell.verdict == "not reproduced":
                why = tuple(_outcome(name, found[name][cell.measure], cell) for name in order)
                explained[id(cell)] = cell.model_copy(update={"why": why, "not_tried": tuple(late)})
    return [explained.get(id(cell), cell) for cell in cells]


def _sets(cells: Sequence[ScoreCheck]) -> list[list[ScoreCheck]]:
    """The scores that one change must explain together: all, or of each source if a measure has several."""
    several = len({cell.measure for cell in cells}) < len(cells)
    sets: dict[str, list[ScoreCheck]] = {}
    for cell in cells:
        sets.setdefault(cell.source if several else "", []).append(cell)
    return [*sets.values()]


def _outcome(change: str, got: float, cell: ScoreCheck) -> ScoreChange:
    return ScoreChange(change=change, got=got, difference=got - cell.expected)


def _tried(
    scores: Sequence[ScoreCheck],
    scored_run: ScoredRun,
    config: Config | None,
    deadline: float,
    progress: Progress,
) -> tuple[dict[str, Means], list[str], list[str]]:
    """What changes make of the measures of scores, their names, the nearest first, and those left out."""
    names = [*dict.fromkeys(cell.measure for cell in scores)]
    base = scored_run.means(names)
    measured: dict[str, Means] = {}
    for change, make in EVALUATION.items():
        changed = make(scored_run)
        if changed and (means := changed.means(names)) != base:
            measured[change] = means
    estimated: dict[str, Means] = {}
    late: list[str] = []
    if config and not _explains(measured, scores):
        with temporary_folder() as place, progress("causes", None, "change") as bar:
            trials = _Trials(
                config, scored_run, scores, base, deadline, bar, Path(place), measured, estimated
            )
            late = trials.run()
    renamed = {name: f"{name} (estimated on a sample)" for name in estimated}
    order = [*_nearest(measured, scores), *(renamed[name] for name in _nearest(estimated, scores))]
    return measured | {renamed[name]: means for name, means in estimated.items()}, order, late


def _explains(found: Mapping[str, Means], scores: Sequence[ScoreCheck]) -> bool:
    """Whether a change reproduces all scores."""
    return any(
        all(abs(means[cell.measure] - cell.expected) <= cell.tolerance for cell in scores)
        for means in found.values()
    )


def _nearest(found: Mapping[str, Means], scores: Sequence[ScoreCheck]) -> list[str]:
    """Changes by the mean distance of their means from the scores."""
    return sorted(found, key=lambda each: _distance(found[each], scores))


def _distance(means: Means, scores: Sequence[ScoreCheck]) -> float:
    """The mean distance of means from the scores."""
    return sum(abs(means[cell.measure] - cell.expected) for cell in scores) / len(scores)


def settings_to_try(config: Config) -> dict[str, Facts]:
    """Changes of settings by what they are called, the cheapest first: of queries, then of passages."""
    model, raw = config.model, config.model_dump(mode="json")
    if model is None:
        return {}
    fields = type(model).model_fields
    changes: dict[str, Facts] = {}

    def add(path: str, values: Sequence[object]) -> None:
        """A change for each value of a setting."""
        changes.update({f"{path} {json.dumps(each, ensure_ascii=False)}": {path: each} for each in values})

    prompts = (None, "", *PREFIXES, BGE_PREFIX)
    lengths = (None, 128, 256, 384, 512)
    vectors = "pooling" in fields and getattr(model, "output", "") == "dense"
    if model.backend == "bm25":
        pairs = [(0.9, 0.4), (1.2, 0.75), (1.5, 0.75), (0.82, 0.68)]
        changes = {f"k1 {k1}, b {b}": {"model.k1": k1, "model.b": b} for k1, b in pairs}
        add("model.stemmer", (None, "english", "porter"))
        add("model.stop_words", (None, "english"))
    if "query_instruction" in fields:
        add("model.query_instruction", prompts)
        add("model.query_max_length", (None, 32, 64, 128, 256, 512))
        add("data.lowercase_queries", (True, False))
    if "passage_instruction" in fields:
        for each in lengths:
            both = dict.fromkeys(("model.query_max_length", "model.passage_max_length"), each)
            changes[f"length {each or 'of the model'}"] = both
        add("model.passage_max_length", lengths)
    add("data.title_separator", (" ", "\n", ". ", "", None))
    if "passage_instruction" in fields:
        for query, passage in PAIRS:
            changes[f'instructions "{query}" and "{passage}"'] = {
                "model.query_instruction": query,
                "model.passage_instruction": passage,
            }
        add("model.passage_instruction", prompts)
    if vectors:
        changes["queries and passages the other way round"] = {
            "model.query_instruction": getattr(model, "passage_instruction", None) or "",
            "model.passage_instruction": getattr(model, "query_instruction", None) or "",
        }
        add("model.pooling", ("cls", "mean"))
        add("model.normalize", (True, False))
        for precision in ("bf16", "int8"):  # last: another form of the model
            changes[f"precision {precision}"] = {"model.backend": "openvino", "model.precision": precision}

    def differs(path: str, value: object) -> bool:
        section, name = path.split(".")
        return bool(raw[section].get(name) != value)

    return {
        name: change
        for name, change in changes.items()
        if any(differs(path, value) for path, value in change.items())
    }


def _changed(config: Config, change: Mapping[str, object], **sections: object) -> Config:
    raw = config.model_dump(mode="json") | {"expected": []} | deepcopy(sections)
    for path, value in change.items():
        put(raw, path.split("."), value, path)
    return make_config(raw, Path("config"))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing of a trial below errors: its folders and caches are not the user's."""
    logger = logging.getLogger("pipeline")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass
class _Trials:
    """Trials of settings for some scores of a config, on a sample and on the whole collection.

    The order depends on the config and its ranking alone. Time decides how large the sample is, whether there
    is one, and where the search ends.

    Attributes:
        base: The means of the finished ranking.
        deadline: By the monotonic clock.
        place: A folder for what the trials write.
        measured: What changes make of the measures; filled.
        estimated: The same on the sample, of changes that are not measured; filled.
        tried: Names of changes, also of those that cannot be made.
    """

    config: Config
    scored_run: ScoredRun
    scores: Sequence[ScoreCheck]
    base: Means
    deadline: float
    bar: Bar
    place: Path
    measured: dict[str, Means]
    estimated: dict[str, Means]
    changes: dict[str, Facts] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)

    def run(self) -> list[str]:
        """Try settings on a sample, then the best on the whole collection.

        Returns the names of changes that time was too short for; none once one explains the scores.
        """
        started = time.monotonic()
        self.changes = settings_to_try(self.config)
        if started < self.deadline:
            with _quiet():
                size = _write_sample(self.config, self.scored_run, self.place, SAMPLE_QUERIES, SAMPLE_HITS)
            self._search(started, size)
        explained = _explains(self.measured, self.scores)
        return [] if explained else [name for name in self.changes if name not in self.tried]

    def _search(self, started: float, size: _Size) -> None:
        share = started + 0.6 * (self.deadline - started)
        small = size.whole <= SMALL
        cheap = [name for name, change in self.changes.items() if small and change.keys() <= CHEAP]
        if self._measure_each(cheap, share):
            return
        began = time.monotonic()
        before = self._means({}, self._sample())
        now = time.monotonic()
        if before is None or now > self.deadline:
            return
        left = [name for name in self.changes if name not in self.tried]
        # how many times this sample's time there is for each change
        room = (share - now) / (now - began) / (len(left) + 1)
        # A change may bring up passages that the sample lacks; the more hits it has, the fewer those are.
        hits = min(MOST_HITS, max(SAMPLE_HITS, int(room * SAMPLE_HITS)))
        queries = max(FEWEST_QUERIES, min(SAMPLE_QUERIES, int(room * SAMPLE_QUERIES)))
        if small and size.whole <= 1.5 * room * size.sample:  # without estimates, all of the time is for this
            if self._measure_each(left, self.deadline):
                return
        elif (queries, hits) != (SAMPLE_QUERIES, SAMPLE_HITS):
            with _quiet():
                _write_sample(self.config, self.scored_run, self.place, queries, hits)
            before = self._means({}, self._sample()) or before
        for until in (share, self.deadline):  # what is left of the time goes to changes that are left
            if self._try_on_sample(before, until) or self._confirm_on_collection():
                return
        if not _explains(self.measured, self.scores):
            nearest = _nearest(self.estimated | self.measured, self.scores)
            best = [name for name in nearest if name in self.changes][:PAIRED]
            self.changes |= {
                f"{best[one]} and {best[other]}": self.changes[best[one]] | self.changes[best[other]]
                for other in range(len(best))
                for one in range(other)
                if not self.changes[best[one]].keys() & self.changes[best[other]].keys()
            }
            now = time.monotonic()
            if not self._try_on_sample(before, now + 0.6 * (self.deadline - now)):
                self._confirm_on_collection(len(self.estimated))

    def _measure_each(self, names: Sequence[str], until: float) -> bool:
        """Measure changes on the whole collection; returns whether one gives the scores."""
        for name in names:
            if time.monotonic() > until:
                break
            self.tried.add(name)
            if self._measure(name):
                return True
        return False

    def _try_on_sample(self, before: Means, until: float) -> bool:
        """Try each change on the sample, and at once on the whole collection if it may be the cause.

        Returns whether one gives the scores.
        """
        near = min(NEAR, _distance(self.base, self.scores) / 4)
        for name, change in self.changes.items():
            if name in self.tried:
                continue
            if time.monotonic() > until:
                break
            self.tried.add(name)
            means = self._means(change, self._sample())
            if means and means != before:
                guess = {each: self.base[each] + means[each] - before[each] for each in means}
                self.estimated[name] = guess
                if _distance(guess, self.scores) <= near and self._confirm_on_collection(1):
                    return True
        return False

    def _confirm_on_collection(self, count: int = WHOLE) -> bool:
        """Measure the nearest on the whole collection; returns whether one gives the scores."""
        return self._measure_each(_nearest(self.estimated, self.scores)[:count], self.deadline)

    def _measure(self, name: str) -> bool:
        """Measure a change on the whole collection; returns whether it gives the scores."""
        means = self._means(self.changes[name], {"output": str(self.place / "whole")})
        self.estimated.pop(name, None)
        if means is None or all(math.isclose(means[each], self.base[each], abs_tol=1e-9) for each in means):
            return False
        self.measured[name] = means
        return _distance(means, self.scores) <= EXACT

    def _sample(self) -> Facts:
        """The sections of a config that runs on the sample."""
        names = {"title_separator", "lowercase_queries", "missing_passages", "ignored", "chunks"}
        data = self.config.data.model_dump(mode="json", include=names)
        data |= {"source": "beir", "path": str(self.place), "split": "test"}
        return {"data": data, "cache": str(self.place / "cache"), "output": str(self.place)}

    def _means(self, change: Facts, sections: Facts) -> Means | None:
        """The means with a change of settings; None where it cannot be made."""
        evaluate = {"measures": [*self.base]}
        try:
            with _quiet(), Session() as session:
                config = _changed(self.config, change, **sections, evaluate=evaluate)
                (outcome,) = run_each(prepare([config], None, silent, session), silent, session)
            error = outcome.error
        except InputError as refused:
            error = refused
        self.bar.update()
        if error or not outcome.result:
            log.info("%s cannot be tried: %s", change, error)
            return None
        found = outcome.result.metrics
        return {each: found[each] for each in self.base}


class _Size(NamedTuple):
    """Passages of a sample, and of the whole collection."""

    sample: int
    whole: int


def _write_sample(config: Config, scored_run: ScoredRun, place: Path, count: int, hits: int) -> _Size:
    """Write a collection in BEIR's layout: some queries, and their best hits and judged passages.

    A change moves these queries' scores nearly as on the whole collection: what it brings up was mostly among
    their best hits, or is judged.
    """
    with Session() as session:
        as_written: Facts = {"data.lowercase_queries": False, "data.title_separator": SEPARATOR}
        collection: Collection = session.benchmark(_changed(config, as_written)).collection
        as_written["data.title_separator"] = None  # tells a title without a text from a text without a title
        bare = session.benchmark(_changed(config, as_written)).collection.passages.texts
        joined = join_run_and_qrels(scored_run.run, scored_run.qrels)
        rows = np.linspace(0, len(joined.query_ids) - 1, count).astype(int)
        queries = {joined.query_ids[int(row)].as_py() for row in rows}
        chosen = np.array([each in queries for each in scored_run.run.query_ids.to_pylist()])
        lines = np.flatnonzero(chosen[scored_run.run.queries])
        # within each query by descending score: the first hits of each
        lines = lines[np.lexsort((-scored_run.run.scores[lines], scored_run.run.queries[lines]))]
        of_query = scored_run.run.queries[lines]
        rank = np.arange(len(lines)) - np.searchsorted(of_query, of_query)
        wanted = set(scored_run.run.documents.take(pa.array(lines[rank < hits])).to_pylist())
        judged = list(_judgments(scored_run.qrels, queries))
        wanted |= {passage for _, passage, _ in judged}
        (place / "qrels").mkdir(parents=True, exist_ok=True)
        with open(place / "corpus.jsonl", "w", encoding="utf-8") as file:
            texts = collection.passages
            for name, whole, rest in zip(texts.ids, texts.texts, bare, strict=True):
                if name.as_py() in wanted:
                    text = rest.as_py()
                    title = "" if whole == rest else whole.as_py().removesuffix(SEPARATOR + text)
                    file.write(json.dumps({"_id": name.as_py(), "title": title, "text": text}) + "\n")
        with open(place / "queries.jsonl", "w", encoding="utf-8") as file:
            for name, text in zip(collection.queries.ids, collection.queries.texts, strict=True):
                if name.as_py() in queries:
                    file.write(json.dumps({"_id": name.as_py(), "text": text.as_py()}) + "\n")
        with open(place / "qrels" / "test.tsv", "w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"{query}\t{passage}\t{grade}\n" for query, passage, grade in judged)
        return _Size(len(wanted), len(collection.passages))


def _judgments(qrels: Judgments, queries: set[str]) -> Iterator[tuple[str, str, int]]:
    """Query, passage and grade of the judgments of some queries."""
    query_ids, passage_ids = qrels.query_ids.to_pylist(), qrels.passage_ids.to_pylist()
    for query, passage, grade in zip(qrels.queries, qrels.passages, qrels.grades, strict=True):
        if query_ids[query] in queries:
            yield query_ids[query], passage_ids[passage], grade

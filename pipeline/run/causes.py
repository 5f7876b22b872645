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
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import Config
from pipeline.config.files import make_config, put
from pipeline.core.display import Bar, Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Collection, Facts, Float64, Int32, Int64
from pipeline.formats.judgments import Judgments
from pipeline.formats.runs import Run, read_run
from pipeline.metrics.evaluation import join_run_and_qrels, row_numbers
from pipeline.metrics.names import Measure, parse_measure
from pipeline.metrics.scoring import compute_measures, drop_identical
from pipeline.results.folder import RUN
from pipeline.results.published import Cell, Tried
from pipeline.run.benchmark import Session
from pipeline.run.running import prepare, run_each
from pipeline.storage.whole_files import temporary_folder

log = logging.getLogger(__name__)

SAMPLE_QUERIES, SAMPLE_HITS = 60, 10
"""Of the sample: its queries, and the hits of each that are searched, beside what is judged."""
NEAR = 0.003
"""An estimate no further away is measured on the whole collection at once: it may be the cause."""
EXACT = 0.0002
"""A change ends the search if the mean distance of what it gives is no more: others are further away."""
WHOLE = 3  # changes that are measured on the whole collection, at least
PAIRED = 6  # changes, the nearest, of which pairs are tried if none of them explains the scores
OF_QUERIES = {"model.query_instruction", "model.query_max_length", "data.lowercase_queries"}
"""Settings whose changes need no sample: the cache has the passages, and up to `SMALL` are soon searched."""
SMALL = 200_000
SEPARATOR = "\x1f"  # between a title and a text while a sample is cut
PREFIXES = ("query: ", "passage: ", "search_query: ", "search_document: ")
BGE_PREFIX = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True)
class Evidence:
    """A ranking, and how it is scored.

    Attributes:
        measured: The measure that is computed in place of one.
        self_hits: Whether hits with the query's own id count.
        queries: Over which the mean is taken: all that are judged, or those with hits, or those with a
            relevant passage.
        single: Whether scores are compared as float32.
        copies: Of a passage whose text an earlier one has, that one's id; of those retrieved or judged.
    """

    run: Run
    qrels: Judgments
    measured: Callable[[Measure], Measure] = lambda measure: measure
    self_hits: bool = True
    queries: str = "judged"
    single: bool = False
    copies: Mapping[str, str] = field(default_factory=dict)

    def means(self, measures: Sequence[str]) -> dict[str, float]:
        """The mean of each measure."""
        joined = join_run_and_qrels(self.run, self.qrels, self.single)
        ranking, count = joined.ranking, len(joined.query_ids)
        if not self.self_hits:
            ranking = drop_identical(ranking, row_numbers(joined.query_ids, joined.document_ids))
        changed = [self.measured(parse_measure(name)) for name in measures]
        values = compute_measures(ranking, joined.qrels, count, changed)
        kept: BoolArray = np.ones(count, np.bool_)
        if self.queries == "returned":
            kept = np.asarray((ranking.passages >= 0).any(axis=1))
        elif self.queries == "relevant":
            kept = np.isin(np.arange(count), joined.qrels.queries[joined.qrels.grades > 0])
        means = values[kept].mean(axis=0) if kept.any() else np.zeros(len(measures))
        return dict(zip(measures, means.tolist(), strict=True))


def _unpadded(name: str) -> str:
    """An id without leading zeros of its last number: CACM-46 for CACM-0046."""
    return re.sub(r"(?<!\d)0+(?=\d+$)", "", name)


def _renamed(qrels: Judgments, names: Mapping[str, str]) -> Judgments | None:
    """The judgments with other ids of passages; None if none changes, or two become one."""
    before = qrels.passage_ids.to_pylist()
    after = [names.get(name, name) for name in before]
    if after == before or len(set(after)) < len(after):
        return None
    return replace(qrels, passage_ids=pa.array(after, pa.string()))


def _without_zeros(given: Evidence) -> Evidence | None:
    ids = given.qrels.passage_ids.to_pylist()
    renamed = _renamed(given.qrels, {name: _unpadded(name) for name in ids})
    return replace(given, qrels=renamed) if renamed else None


def _with_zeros(given: Evidence) -> Evidence | None:
    documents = set(given.run.documents.unique().to_pylist())
    padded = {_unpadded(name): name for name in documents}
    absent = [name for name in given.qrels.passage_ids.to_pylist() if name not in documents]
    renamed = _renamed(given.qrels, {name: padded[name] for name in absent if name in padded})
    return replace(given, qrels=renamed) if renamed else None


def _ties_ascending(given: Evidence) -> Evidence | None:
    """Tied documents in ascending order of ids: their scores are replaced by descending ranks."""
    run = given.run
    order = np.lexsort(
        (np.array(run.documents.to_pylist(), dtype=object).astype(str), -run.scores, run.queries)
    )
    tied = (np.diff(run.scores[order]) == 0) & (np.diff(run.queries[order]) == 0)
    if not tied.any():
        return None
    scores = np.empty(len(order))
    scores[order] = -np.arange(len(order), dtype=np.float64)
    return replace(given, run=replace(run, scores=scores))


def _without_copies(judgments: bool) -> Callable[[Evidence], Evidence | None]:
    """The first passage of each text alone is retrieved; with `judgments` by their highest grade."""

    def first(ids: Sequence[str], given: Evidence) -> tuple[pa.Array, Int64]:
        named = pa.array([given.copies.get(name, name) for name in ids], pa.string()).dictionary_encode()
        return named.dictionary, named.indices.to_numpy().astype(np.int64)

    def change(given: Evidence) -> Evidence | None:
        if not given.copies:
            return None
        run, qrels = given.run, given.qrels
        listed = run.documents.combine_chunks().dictionary_encode()
        names, row = first(listed.dictionary.to_pylist(), given)
        documents = row[listed.indices.to_numpy()]
        kept = _highest(run.queries, documents, run.scores)
        made = replace(
            run,
            queries=run.queries[kept],
            documents=pa.chunked_array([names.take(pa.array(documents[kept]))]),
            scores=run.scores[kept],
        )
        if judgments:
            names, row = first(qrels.passage_ids.to_pylist(), given)
            passages = row[qrels.passages]
            kept = _highest(qrels.queries, passages, qrels.grades)
            qrels = replace(
                qrels,
                queries=qrels.queries[kept],
                passage_ids=names,
                passages=passages[kept].astype(np.int32),
                grades=qrels.grades[kept],
                numbers=qrels.numbers[kept],
            )
        return replace(given, run=made, qrels=qrels)

    return change


def _highest(queries: Int32, passages: Int64, values: Int64 | Float64) -> Int64:
    """The rows of each pair's highest value, ascending."""
    order = np.lexsort((-values, passages, queries))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(queries[order]) != 0) | (np.diff(passages[order]) != 0)
    kept: Int64 = np.sort(order[begins])
    return kept


def _param(name: str, value: int | bool | str, *measures: str) -> Callable[[Evidence], Evidence | None]:
    """A parameter of some measures, as a change."""

    def change(given: Evidence) -> Evidence:
        def measured(measure: Measure) -> Measure:
            if measure.name not in measures:
                return measure
            params = dict(measure.params) | {name: value}
            return replace(measure, params=tuple(sorted(params.items())))

        return replace(given, measured=measured)

    return change


def _cutoff(name: str, k: int | None) -> Callable[[Evidence], Evidence | None]:
    """Another cutoff of a measure, or none."""

    def measured(measure: Measure) -> Measure:
        return replace(measure, cutoff=k) if measure.name == name else measure

    return lambda given: replace(given, measured=measured)


BINARY = ("map", "mrr", "precision", "recall", "success")
EVALUATION: dict[str, Callable[[Evidence], Evidence | None]] = {
    "ids of judgments without leading zeros (CACM-46 for CACM-0046), which match no passage": _without_zeros,
    "ids of judgments with the leading zeros that the passages' ids have": _with_zeros,
    "hits with the query's own id removed": lambda given: replace(given, self_hits=False),
    "hits with the query's own id kept": lambda given: replace(given, self_hits=True),
    "the mean over queries with hits": lambda given: replace(given, queries="returned"),
    "the mean over queries with a relevant passage": lambda given: replace(given, queries="relevant"),
    "gain 2^grade - 1": _param("gain", "exp", "ndcg", "dcg", "cg"),
    "the ideal order of retrieved passages only": _param("ideal", "retrieved", "ndcg"),
    "grades from 2 count as relevant": _param("rel", 2, *BINARY),
    "grades from 3 count as relevant": _param("rel", 3, *BINARY),
    "recall over at most k": _param("cap", True, "recall"),
    "average precision over the relevant passages retrieved": _param("norm", "retrieved", "map"),
    **{
        f"{name} with {f'cutoff {k}' if k else 'no cutoff'}": _cutoff(name, k)
        for name in ("map", "mrr", "ndcg")
        for k in (None, 10, 100, 1000)
    },
    "passages with an earlier one's text removed": _without_copies(judgments=False),
    "passages with an earlier one's text removed, judged as that one": _without_copies(judgments=True),
    "ties in ascending order of ids": _ties_ascending,
    "scores compared as float32": lambda given: replace(given, single=True),
}
"""Changes of the evaluation alone; None where a change does nothing to the files."""


Means = Mapping[str, float]
"""Means by measure."""


def explain(
    cells: Sequence[Cell], evidence: Evidence, config: Config | None, minutes: float, progress: Progress
) -> list[Cell]:
    """Cells of one model and collection, with what was tried for those that are not reproduced.

    The nearest comes first: by the mean distance from all scores that were compared. Where a measure has
    several scores, those of each source are explained by themselves, and share the time. What was estimated
    from a sample alone comes after what was measured. Without time left, the evaluation alone is tried.
    """
    deadline = time.monotonic() + 60 * minutes
    compared = [cell for cell in cells if cell.got is not None and not cell.reason]
    sets = [scores for scores in _sets(compared) if any(each.verdict == "not reproduced" for each in scores)]
    explained: dict[int, Cell] = {}
    for number, scores in enumerate(sets):
        until = time.monotonic() + (deadline - time.monotonic()) / (len(sets) - number)
        found, order, late = _tried(scores, evidence, config, until, progress)
        for cell in scores:
            if cell.verdict == "not reproduced":
                why = tuple(_outcome(name, found[name][cell.measure], cell) for name in order)
                explained[id(cell)] = cell.model_copy(update={"why": why, "not_tried": tuple(late)})
    return [explained.get(id(cell), cell) for cell in cells]


def _sets(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The scores that one change must explain together: all, or of each source if a measure has several."""
    several = len({cell.measure for cell in cells}) < len(cells)
    sets: dict[str, list[Cell]] = {}
    for cell in cells:
        sets.setdefault(cell.source if several else "", []).append(cell)
    return [*sets.values()]


def _outcome(change: str, got: float, cell: Cell) -> Tried:
    return Tried(change=change, got=got, difference=got - cell.expected)


def _tried(
    scores: Sequence[Cell], evidence: Evidence, config: Config | None, deadline: float, progress: Progress
) -> tuple[dict[str, Means], list[str], list[str]]:
    """What changes make of the measures of scores, their names, the nearest first, and those left out."""
    names = [*dict.fromkeys(cell.measure for cell in scores)]
    base = evidence.means(names)
    measured: dict[str, Means] = {}
    for change, make in EVALUATION.items():
        changed = make(evidence)
        if changed and (means := changed.means(names)) != base:
            measured[change] = means
    estimated: dict[str, Means] = {}
    late: list[str] = []
    if config and not _explains(measured, scores):
        with temporary_folder() as place, progress("causes", None, "change") as bar:
            trials = _Trials(config, evidence, scores, base, deadline, bar, Path(place), measured, estimated)
            late = trials.run()
    renamed = {name: f"{name} (estimated on a sample)" for name in estimated}
    order = [*_nearest(measured, scores), *(renamed[name] for name in _nearest(estimated, scores))]
    return measured | {renamed[name]: means for name, means in estimated.items()}, order, late


def _explains(found: Mapping[str, Means], scores: Sequence[Cell]) -> bool:
    """Whether a change reproduces all scores."""
    return any(
        all(abs(means[cell.measure] - cell.expected) <= cell.tolerance for cell in scores)
        for means in found.values()
    )


def _nearest(found: Mapping[str, Means], scores: Sequence[Cell]) -> list[str]:
    """Changes by the mean distance of their means from the scores."""
    return sorted(found, key=lambda each: _distance(found[each], scores))


def _distance(means: Means, scores: Sequence[Cell]) -> float:
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

    The order and the sample depend on the config and its ranking alone; time decides where the search ends.

    Attributes:
        base: The means of the finished ranking.
        deadline: By the monotonic clock.
        place: A folder for what the trials write.
        measured: What changes make of the measures; filled.
        estimated: The same on the sample, of changes that are not measured; filled.
        tried: Names of changes, also of those that cannot be made.
    """

    config: Config
    evidence: Evidence
    scores: Sequence[Cell]
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
                passages = _write_sample(self.config, self.evidence, self.place)
            self._search(started, passages <= SMALL)
        explained = _explains(self.measured, self.scores)
        return [] if explained else [name for name in self.changes if name not in self.tried]

    def _search(self, started: float, small: bool) -> None:
        share = started + 0.6 * (self.deadline - started)
        of_queries = [name for name, change in self.changes.items() if small and change.keys() <= OF_QUERIES]
        for name in of_queries:
            if time.monotonic() > share:
                break
            self.tried.add(name)
            if self._measure(name):
                return
        before = self._means({}, self._sample())
        if before is None:
            return
        for until in (share, self.deadline):  # what is left of the time goes to changes that are left
            if self._estimate(before, until) or self._whole():
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
            if not self._estimate(before, now + 0.6 * (self.deadline - now)):
                self._whole()

    def _estimate(self, before: Means, until: float) -> bool:
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
                if _distance(guess, self.scores) <= near and self._whole(1):
                    return True
        return False

    def _whole(self, count: int = WHOLE) -> bool:
        """Measure the nearest on the whole collection; returns whether one gives the scores."""
        for name in _nearest(self.estimated, self.scores)[:count]:
            if time.monotonic() > self.deadline:
                break
            if self._measure(name):
                return True
        return False

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
        ignored = self.config.evaluate.ignore_identical_ids
        evaluate = {"measures": [*self.base], "ignore_identical_ids": ignored}
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
        found = outcome.result.metrics["metrics"]
        return {each: found[each] for each in self.base}


def _write_sample(config: Config, evidence: Evidence, place: Path) -> int:
    """Write a collection in BEIR's layout: some queries, and their best hits and judged passages.

    Returns the number of passages of the whole collection.

    A change moves these queries' scores nearly as on the whole collection: what it brings up was mostly among
    their best hits, or is judged.
    """
    with Session() as session:
        apart = _changed(config, {"data.title_separator": SEPARATOR, "data.lowercase_queries": False})
        collection: Collection = session.benchmark(apart).collection
        joined = join_run_and_qrels(evidence.run, evidence.qrels)
        rows = np.linspace(0, len(joined.query_ids) - 1, SAMPLE_QUERIES).astype(int)
        queries = {joined.query_ids[int(row)].as_py() for row in rows}
        chosen = np.array([each in queries for each in evidence.run.query_ids.to_pylist()])
        lines = np.flatnonzero(chosen[evidence.run.queries])
        # within each query by descending score: the first hits of each
        lines = lines[np.lexsort((-evidence.run.scores[lines], evidence.run.queries[lines]))]
        of_query = evidence.run.queries[lines]
        rank = np.arange(len(lines)) - np.searchsorted(of_query, of_query)
        wanted = set(evidence.run.documents.take(pa.array(lines[rank < SAMPLE_HITS])).to_pylist())
        judged = list(_judgments(evidence.qrels, queries))
        wanted |= {passage for _, passage, _ in judged}
        (place / "qrels").mkdir(parents=True)
        with open(place / "corpus.jsonl", "w", encoding="utf-8") as file:
            for name, text in zip(collection.passages.ids, collection.passages.texts, strict=True):
                if name.as_py() in wanted:
                    title, separator, rest = text.as_py().partition(SEPARATOR)
                    title, rest = (title, rest) if separator else ("", title)
                    file.write(json.dumps({"_id": name.as_py(), "title": title, "text": rest}) + "\n")
        with open(place / "queries.jsonl", "w", encoding="utf-8") as file:
            for name, text in zip(collection.queries.ids, collection.queries.texts, strict=True):
                if name.as_py() in queries:
                    file.write(json.dumps({"_id": name.as_py(), "text": text.as_py()}) + "\n")
        with open(place / "qrels" / "test.tsv", "w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"{query}\t{passage}\t{grade}\n" for query, passage, grade in judged)
        return len(collection.passages)


def _judgments(qrels: Judgments, queries: set[str]) -> Iterator[tuple[str, str, int]]:
    """Query, passage and grade of the judgments of some queries."""
    query_ids, passage_ids = qrels.query_ids.to_pylist(), qrels.passage_ids.to_pylist()
    for query, passage, grade in zip(qrels.queries, qrels.passages, qrels.grades, strict=True):
        if query_ids[query] in queries:
            yield query_ids[query], passage_ids[passage], int(grade)


def evidence_of(config: Config, folder: Path) -> Evidence:
    """The ranking of a result, and the judgments of its collection."""
    with Session() as session:
        collection = session.benchmark(config).collection
        qrels = collection.qrels
        ids = pa.concat_arrays(
            [
                *collection.passages.ids.cast(pa.string()).chunks,
                *collection.missing_ids.cast(pa.string()).chunks,
            ]
        )
        judged = Judgments(
            collection.queries.ids.cast(pa.string()).combine_chunks(),
            qrels.queries.astype(np.int32),
            ids,
            qrels.passages.astype(np.int32),
            qrels.grades,
            str(folder),
            "judgment",
            np.arange(len(qrels.grades)),
        )
        dropped = config.evaluate.ignore_identical_ids or config.data.ignored == "identical_ids"
        run = read_run(folder / RUN)
        return Evidence(run, judged, self_hits=not dropped, copies=_copies(collection, run))


def _copies(collection: Collection, run: Run) -> dict[str, str]:
    """Of each passage retrieved or judged whose text an earlier such passage has, that one's id."""
    ids = collection.passages.ids.cast(pa.string())
    wanted = np.isin(np.arange(len(ids)), collection.qrels.passages)
    wanted |= pc.is_in(ids, run.documents.unique()).to_numpy()
    first: dict[str, str] = {}
    pairs = zip(
        *(column.filter(pa.array(wanted)).to_pylist() for column in (ids, collection.passages.texts)),
        strict=True,
    )
    found = {name: first.setdefault(text, name) for name, text in pairs}
    return {name: other for name, other in found.items() if name != other}

"""Trials of settings: each change is run, on a sample of the collection and on the whole of it.

Settings are tried on a sample, the hits of some queries, and the best of them on the whole collection, where
the cache has what a change leaves alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import Config
from pipeline.config.files import make_config, put
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.records import ROLES, Collection, Facts
from pipeline.core.subprocesses import ending_at
from pipeline.formats.given import write_collection
from pipeline.run.benchmark import Benchmark, Session
from pipeline.run.running import prepare, run_each
from pipeline.studies.verify.fit import Fit
from pipeline.studies.verify.scored_run import ScoredRun

Values = Mapping[str, Sequence[float]]
"""The value of each query, by measure."""

SAMPLE = "sample"
SAMPLE_QUERIES, SAMPLE_HITS = 60, 10
"""Of the sample: its queries, and the hits of each that are searched, beside what is judged."""
NEAR = 0.003
"""An estimate no further away is measured on the whole collection at once: it may be the cause."""
ROUGH = 0.001  # of an estimate's error, whatever its spread
WHOLE = 3  # changes that are measured on the whole collection, at least
SMALL = 200_000
"""Passages that are soon searched: changes that the cache has these for need no sample."""
PAIRS = (("query: ", "passage: "), ("search_query: ", "search_document: "))
"""Instructions of queries and passages that go together: E5's and Nomic's."""
PREFIXES = tuple(prefix for pair in PAIRS for prefix in pair)
BGE_PREFIX = "Represent this sentence for searching relevant passages: "
LENGTHS = (512, 256, 128, 384, 64, 32, None)
"""Tokens of a text, the usual ones first; None is what the model declares."""


def settings_to_try(config: Config) -> dict[str, Facts]:
    """Changes of settings by what they are called, the likeliest first; lengths and precisions come last.

    Those that the model or the data do not have are refused with their config.
    """
    model = config.model
    if model is None:
        return {}
    pairs = ((0.9, 0.4), (1.2, 0.75), (1.5, 0.75), (0.82, 0.68))
    changes: dict[str, Facts] = {f"k1 {k1}, b {b}": {"model.k1": k1, "model.b": b} for k1, b in pairs}

    def add(path: str, values: Sequence[object]) -> None:
        """A change for each value of a setting."""
        changes.update({f"{path} {json.dumps(each, ensure_ascii=False)}": {path: each} for each in values})

    prompts = (None, "", *PREFIXES, BGE_PREFIX)
    add("model.stemmer", (None, "english", "porter"))
    add("model.stop_words", (None, "english"))
    add("data.title_separator", (None, " ", "\n", ". ", ""))
    if config.data.source == "beir":
        folder = Path(str(getattr(config.data, "path", None) or "")) / "qrels"
        splits = sorted(path.stem for path in folder.glob("*.tsv"))
        add("data.split", [each for each in splits if each != getattr(config.data, "split", None)])
    if config.data.ignored == "identical_ids":
        add("data.ignored", ("none",))
    add("model.query_instruction", prompts)
    add("data.lowercase_queries", (True, False))
    for query, passage in PAIRS:
        changes[f'instructions "{query}" and "{passage}"'] = {
            "model.query_instruction": query,
            "model.passage_instruction": passage,
        }
    add("model.passage_instruction", prompts)
    vectors = hasattr(model, "pooling") and getattr(model, "output", "") == "dense"
    if vectors:
        changes["queries and passages the other way round"] = {
            "model.query_instruction": getattr(model, "passage_instruction", None) or "",
            "model.passage_instruction": getattr(model, "query_instruction", None) or "",
        }
        add("model.pooling", ("cls", "mean"))
        add("model.normalize", (True, False))
    add("model.query_max_length", LENGTHS)
    for each in LENGTHS:
        add("model.passage_max_length", (each,))  # whose passages the next one finds in the cache
        both = dict.fromkeys(("model.query_max_length", "model.passage_max_length"), each)
        changes[f"length {each or 'of the model'}"] = both
    if vectors:
        for precision in ("bf16", "int8"):  # last: another form of the model
            changes[f"precision {precision}"] = {"model.backend": "openvino", "model.precision": precision}
    return changes


def _changed(config: Config, change: Mapping[str, object], **sections: object) -> Config:
    raw = config.model_dump(mode="json") | {"expected": []} | deepcopy(sections)
    for path, value in change.items():
        put(raw, path.split("."), value, path)
    return make_config(raw, Path("config"))


@dataclass
class Trials:
    """Trials of settings for some scores of a config, on a sample and on the whole collection.

    Changes come first whose vectors are in the cache, then those that encode queries alone. Time decides
    whether there is a sample, and where the search ends, unless the scores are explained before.
    """

    config: Config
    scored_run: ScoredRun
    deadline: float  # by the monotonic clock
    bar: Bar
    place: Path  # a folder for what the trials write
    fit: Fit  # what changes make of the measures; filled
    changes: dict[str, Facts] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)  # names of changes, also of those that cannot be made
    # For each change the roles of texts that it has to encode.
    encoded: dict[str, set[str]] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Try settings on a sample, then the best on the whole collection; returns those not tried."""
        started, logger = time.monotonic(), logging.getLogger("pipeline")
        level = logger.level
        logger.setLevel(logging.ERROR)  # the folders and caches of a trial are not the user's
        try:
            self.changes = self._effective()
            if started < self.deadline and not self.fit.settled():
                self._search(started, *self._write_sample())
        finally:
            logger.setLevel(level)
        return [name for name in self.changes if name not in self.tried]

    def _effective(self) -> dict[str, Facts]:
        """The changes that can be made and that by their recipes give another ranking, each only once.

        Those whose vectors are in the cache come first, then those that encode queries alone.
        """
        changes: dict[str, Facts] = {}
        with Session() as session:
            known = {Benchmark(_changed(self.config, {}), session).recipes["evaluate"].key}
            for name, change in settings_to_try(self.config).items():
                with contextlib.suppress(InputError):
                    benchmark = Benchmark(_changed(self.config, change), session)
                    key = benchmark.recipes["evaluate"].key
                    if key not in known:
                        known.add(key)
                        changes[name] = change
                        find, recipes = benchmark.store.find, benchmark.recipes
                        lacking = (role for role, recipe in recipes.items() if not find(recipe))
                        self.encoded[name] = {role.rpartition("/")[2] for role in lacking}.intersection(ROLES)
        cost = {name: ("passages" in roles, bool(roles)) for name, roles in self.encoded.items()}
        return {name: changes[name] for name in sorted(changes, key=lambda name: cost[name])}

    def _search(self, started: float, sample: int, whole: int) -> None:
        """Try and measure changes until the scores are explained.

        `sample` and `whole` are the numbers of passages of the sample and of the collection.
        """
        share = started + 0.6 * (self.deadline - started)
        small = whole <= SMALL
        changes = [*self.changes] if small else []
        self._measure_each([name for name in changes if not self.encoded[name]], share)
        if self.fit.settled():
            return
        began = time.monotonic()
        before = self._values("", self._sample())
        now = time.monotonic()
        if before is None or now > self.deadline:
            return
        sample_time = now - began
        queries = [name for name in changes if self.encoded[name] == {"queries"}]
        # Left-out titles are the commonest cause, and a sample has too few passages to show their effect. The
        # two likeliest changes of titles run on the whole collection; first of all if the config has none.
        fits = sample_time * whole / sample < self.deadline - now
        titles = [name for name in changes if fits and "data.title_separator" in self.changes[name]]
        if self.config.data.title_separator is not None:
            self._measure_each(queries, share)
        self._try_on_sample(before, share, titles)
        self._measure_each([name for name in self.fit.likeliest() if name in titles][:2], share)
        self._measure_each([name for name in queries if name not in self.tried], share)
        left = [name for name in self.changes if name not in self.tried]
        # how many times this sample's time there is for each change
        room = (share - time.monotonic()) / sample_time / (len(left) + 1)
        if small and whole <= 1.5 * room * sample:  # then all of the time is for the collection
            self._measure_each(left, self.deadline)
            return
        for until, most in ((share, WHOLE), (self.deadline, None)):  # then all, while there is time
            self._try_on_sample(before, until, left)
            self._measure_each(self.fit.likeliest()[:most], self.deadline)

    def _measure_each(self, names: Sequence[str], until: float) -> None:
        """Measure changes on the whole collection."""
        for name in names:
            if time.monotonic() > until or self.fit.settled():
                return
            values = self._values(name, {"output": str(self.place / "whole")}) or {}
            means = {measure: float(np.mean(column)) for measure, column in values.items()}
            self.fit.estimated.pop(name, None)
            if any(self.fit.moves(means, measure) for measure in means):
                self.fit.measured[name] = means

    def _try_on_sample(self, before: Values, until: float, names: Sequence[str]) -> None:
        """Try changes on the sample, and at once on the whole collection if it may be the cause."""
        near = min(NEAR, self.fit.distance(self.fit.base) / 4)
        for name in names:
            if name in self.tried:
                continue
            if time.monotonic() > until or self.fit.settled():
                return
            after = self._values(name, self._sample())
            if after and after != before:
                self._estimate(name, before, after)
                if self.fit.distance(self.fit.estimated[name]) <= near:
                    self._measure_each([name], self.deadline)

    def _estimate(self, name: str, before: Values, after: Values) -> None:
        """What a change makes of the means, from its effect on the queries of the sample.

        The standard error is that of a mean over drawn queries, even where all are in the sample: what it
        lacks in passages moves the effect by as much.
        """
        count = len(next(iter(after.values())))
        effects = {measure: np.subtract(after[measure], before[measure]) for measure in after}
        base = self.fit.base
        self.fit.estimated[name] = {each: base[each] + float(effects[each].mean()) for each in effects}
        self.fit.errors[name] = {
            each: math.hypot(effects[each].std() / math.sqrt(count), ROUGH) for each in effects
        }

    def _sample(self) -> Facts:
        """The sections of a config that runs on the sample."""
        names = {"title_separator", "lowercase_queries", "missing_passages", "ignored", "chunks"}
        data = self.config.data.model_dump(mode="json", include=names)
        data |= {"source": "beir", "path": str(self.place / SAMPLE), "split": "test"}
        return {"data": data, "cache": str(self.place / "cache"), "output": str(self.place)}

    def _write_sample(self) -> tuple[int, int]:
        """Write a collection in BEIR's layout: some queries, and their best hits and judged passages.

        Returns how many passages it has, and the whole collection.

        A change moves these queries' scores nearly as on the whole collection: what it brings up was mostly
        among their best hits, or is judged.
        """
        import pandas as pd

        run, qrels = self.scored_run.run, self.scored_run.qrels
        rows = np.linspace(0, len(qrels.query_ids) - 1, SAMPLE_QUERIES).astype(int)
        queries = set(qrels.query_ids.take(pa.array(rows)).to_pylist())
        chosen = np.array([each in queries for each in run.query_ids.to_pylist()])
        lines = pd.DataFrame({"query": run.queries, "score": run.scores})[chosen[run.queries]]
        lines = lines.sort_values("score", ascending=False, kind="stable")
        hits = lines.groupby("query").head(SAMPLE_HITS).index.to_numpy()
        is_in = np.isin(qrels.queries, rows)
        judged = pd.DataFrame(
            {
                "query_id": qrels.query_ids.take(pa.array(qrels.queries[is_in])).to_pylist(),
                "passage_id": qrels.passage_ids.take(pa.array(qrels.passages[is_in])).to_pylist(),
                "grade": qrels.grades[is_in],
            }
        )
        wanted = {*run.documents.take(pa.array(hits)).to_pylist(), *judged["passage_id"]}
        with Session() as session:

            def read(separator: str | None) -> Collection:
                as_written = {"data.lowercase_queries": False, "data.title_separator": separator}
                return Benchmark(_changed(self.config, as_written), session).collection

            collection, bare = read(""), read(None)
            ids = collection.passages.ids
            kept = pc.is_in(ids, value_set=pa.array([*wanted], ids.type))
            columns = (ids, collection.passages.texts, bare.passages.texts)
            records = zip(*(column.filter(kept).to_pylist() for column in columns), strict=True)
            passages = {
                name: {"title": whole.removesuffix(text), "text": text} for name, whole, text in records
            }
            asked = zip(collection.queries.ids.to_pylist(), collection.queries.texts.to_pylist(), strict=True)
            texts = {name: text for name, text in asked if name in queries}
            write_collection(self.place / SAMPLE, passages, texts, judged)
            return len(wanted), len(collection.passages)

    def _values(self, name: str, sections: Facts) -> Values | None:
        """The values of queries with a change of settings, "" for none; None where it cannot be made."""
        sections = {"evaluate": {"measures": [*self.fit.base]}} | sections
        error: Exception | None
        outcome = None

        def limited(*_: object) -> contextlib.AbstractContextManager[Bar]:
            return contextlib.nullcontext(_Limit(self.deadline))

        try:
            with ending_at(self.deadline), Session() as session:
                config = _changed(self.config, self.changes.get(name, {}), **sections)
                (outcome,) = run_each(prepare([config], None, limited, session), limited, session)
                error = outcome.error
        except (InputError, TimeoutError) as refused:
            error = refused
        self.bar.update()
        if not isinstance(error, TimeoutError):
            self.tried.add(name)
        if outcome is None or outcome.result is None:
            return None
        result = outcome.result.only_collection()
        return dict(zip(result.measures, result.values.T.tolist(), strict=True))


class _Limit(NamedTuple):
    """A bar that shows nothing, and raises TimeoutError after a deadline."""

    deadline: float

    def update(self, n: int = 1) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError("the time is over")

"""What a run takes: time, memory and disk of each stage, and whether this machine holds it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pipeline.config import SOURCES
from pipeline.core import machine
from pipeline.core.display import counted, figure
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.retrievers.costs import Rate, Rates, StageCost, Workload, rate_of
from pipeline.retrievers.retriever import COLLECTION
from pipeline.retrievers.stage import with_needs
from pipeline.run.benchmark import Benchmark
from pipeline.run.plan import SCORES
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

PROBE = "probe"  # the folder of what probes measured
QUERIES = 1000  # that are taken where it is not known how many there are


@dataclass(frozen=True)
class CostEstimate:
    """What the stages of a run take that are to be made.

    Attributes:
        workload: What it was computed for.
        costs: By role.
        keys: Likewise, for stages that several benchmarks share.
        rates: Measured rates of the models, by role.
        unmeasured: Roles of models without a rate that can be probed.
    """

    name: str
    workload: Workload
    costs: dict[str, StageCost]
    keys: dict[str, str]
    rates: dict[str, Rate]
    unmeasured: list[str]
    cache: Path

    @property
    def unknown(self) -> list[str]:
        """The roles whose time is not known."""
        return [role for role, cost in self.costs.items() if cost.seconds is None]

    @property
    def total(self) -> StageCost:
        """The sums of time and disk of all stages, as far as they are known, and the most memory of one."""
        return total_cost(self.costs.values())

    @cached_property
    def memory_bytes(self) -> int:
        """The memory that this process may use."""
        return machine.memory_bytes()

    @cached_property
    def free_bytes(self) -> int:
        """What the disk of the cache has left."""
        existing = next(path for path in (self.cache, *self.cache.absolute().parents) if path.exists())
        return shutil.disk_usage(existing).free

    def obstacle(self) -> InputError | None:
        """What this machine lacks; None if it holds the run."""
        if not self.costs:
            return None
        here = {"memory": self.memory_bytes, "disk": self.free_bytes}
        where = {"memory": "this machine has", "disk": f"the disk of {self.cache} has free"}
        for what, available in here.items():
            needs = {role: cost.bytes_of(what) for role, cost in self.costs.items()}
            needed = max(needs.values()) if what == "memory" else sum(needs.values())
            if needed <= available:
                continue
            passages, largest = self.workload.passages, max(needs, key=lambda role: needs[role])
            advice = [self.costs[role].smaller for role in needs if needs[role] > needed / 4]
            advice += ["another disk by --set cache=DIR"] if what == "disk" else []
            fixes = dict.fromkeys(each for each in (*advice, "fewer passages by data.corpus") if each)
            return InputError(
                f"{self.name}: {counted(passages, 'passage')} take about {figure(needed, 'bytes')} of "
                f"{what}, most in stage {largest}, and {where[what]} {figure(available, 'bytes')}",
                allowed=f"about {int(passages * available / needed):,} passages with these settings",
                fix=f"take {', or '.join(fixes)}",
            )
        return None

    def document(self) -> Facts:
        """The estimate as JSON."""
        obstacle, total = self.obstacle(), self.total
        return {
            "passages": self.workload.passages,
            "queries": self.workload.queries,
            "tokens": self.workload.tokens,
            "stages": [{"stage": role, **cost.document()} for role, cost in self.costs.items()],
            **total.document(),
            "unknown": self.unknown,
            "rates": {
                role: {"per_second": rate.per_second, "tokens": rate.tokens, "measured": rate.origin}
                for role, rate in self.rates.items()
            },
            "obstacle": obstacle.found if obstacle else None,
        }  # fmt: skip


def twin_on_sample(benchmark: Benchmark) -> Benchmark:
    """The same benchmark on the built-in sample: its keys and rates are known without the collection."""
    data = SOURCES.make(source="sample", chunks=benchmark.config.data.chunks)
    sample = benchmark.config.model_copy(update={"data": data})
    return Benchmark(sample, benchmark.store, benchmark.session)


def estimate(
    benchmark: Benchmark, workload: Workload, probing: bool, missing_only: bool = False
) -> CostEstimate:
    """What a benchmark, whose keys can be known, takes for as many passages as `workload` says.

    With `probing`, models whose rate is not known are run for a few seconds; with `missing_only`, stages in
    the cache cost nothing.
    """
    rates = {
        role: rate
        for role, stage in benchmark.stages.items()
        if stage.work and (rate := _rate(benchmark, role, probing))
    }
    # in the order in which they are made
    roles = with_needs(benchmark.stages, [benchmark.retriever.ranking, SCORES], lambda _: True)
    if missing_only:
        to_make = {*benchmark.missing(), SCORES}
        roles = [role for role in roles if role in to_make and not benchmark.has(role)]
    find: Rates = rates.get
    costs = {
        role: cost(workload, find) if (cost := benchmark.stages[role].cost) else StageCost() for role in roles
    }
    recipes = {role: benchmark.all_recipes[role] for role in costs}
    if missing_only:
        costs = {role: _left(cost, benchmark.store.folder(recipes[role])) for role, cost in costs.items()}
    models = {role: stage.work for role, stage in benchmark.stages.items() if role in roles}
    unmeasured = [role for role, work in models.items() if work and work.probe and role not in rates]
    keys = {role: recipe.key for role, recipe in recipes.items()}
    cache = Path(benchmark.config.cache)
    return CostEstimate(benchmark.config.name, workload, costs, keys, rates, unmeasured, cache)


def _left(cost: StageCost, folder: Path) -> StageCost:
    """A cost without the disk that an interrupted run has filled."""
    if cost.disk_bytes is None or not folder.is_dir():
        return cost
    written = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return replace(cost, disk_bytes=max(cost.disk_bytes - written, 0))


def measured_rate(store: Store, recipe: Recipe, alike: Sequence[Artifact]) -> Rate | None:
    """The rate at which most was computed here, for the artifact of a recipe or one of those alike."""
    itself, computed = store.find(recipe), {}
    for artifact in (*([itself] if itself else []), *alike):
        if rate := rate_of(artifact):
            origin = artifact.manifest["made"]
            computed[rate] = origin["items"] - origin.get("found", 0)
    return max(computed, key=lambda rate: computed[rate], default=None)


def _rate(benchmark: Benchmark, role: str, probing: bool) -> Rate | None:
    """The rate that was measured with the model of a role; else that of a probe."""
    stage, recipe, store = benchmark.stages[role], benchmark.all_recipes[role], benchmark.store
    assert stage.work is not None
    if rate := measured_rate(store, recipe, store.find_alike(recipe, stage.work.which)):
        return rate
    twin = twin_on_sample(benchmark)
    probed = Recipe(PROBE, {"of": twin.all_recipes[role].plain, "hardware": machine.hardware()})
    artifact = store.find(probed)
    work = twin.stages[role].work
    if artifact is None and probing and work and work.probe:
        probe, collection = work.probe, twin.opened(COLLECTION)
        artifact = store.make(probed, lambda draft: {PROBE: probe(store, collection)})
    return rate_of(artifact) if artifact else None


def estimate_each(
    benchmarks: Iterable[Benchmark], passages: int, tokens: float | None, probing: bool
) -> list[CostEstimate]:
    """What benchmarks take on a collection of so many passages, which need not be there."""
    estimates = []
    for benchmark in benchmarks:
        queries = benchmark.config.data.queries or QUERIES
        twin = twin_on_sample(benchmark)
        estimates.append(estimate(twin, Workload(passages, queries, tokens), probing))
        benchmark.session.close_engine()
    return estimates


def shared_total(estimates: Sequence[CostEstimate]) -> StageCost:
    """Of several, in which a stage that they share counts once."""
    costs = {each.keys[role]: cost for each in estimates for role, cost in each.costs.items()}
    return total_cost(costs.values())


def total_cost(costs: Iterable[StageCost]) -> StageCost:
    """The sums of time and disk, and the most memory; None where nothing of it is known."""
    all_costs = list(costs)
    seconds = [cost.seconds for cost in all_costs if cost.seconds is not None]
    memory = [cost.memory_mb for cost in all_costs if cost.memory_mb is not None]
    disk = [cost.disk_bytes for cost in all_costs if cost.disk_bytes is not None]
    time, most = sum(seconds) if seconds else None, max(memory, default=None)
    return StageCost(time, most, sum(disk) if disk else None)

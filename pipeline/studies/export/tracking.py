"""A result in an experiment tracker, by the tracker's own package: measures, their intervals, the manifest.

Where it is written is the tracker's own setting: a variable of the environment, or the working directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pipeline.core.installation import DISTRIBUTION
from pipeline.core.records import Facts
from pipeline.results.records import flatten
from pipeline.results.result import Result
from pipeline.storage.whole_files import MANIFEST, file_inside, write_whole

LONGEST = 500  # characters of a parameter, of which MLflow takes no more
AT_ONCE = 100  # parameters that MLflow takes


def track(result: Result, tracker: str) -> None:
    """Write a result to a tracker, one of `WRITERS`, as a run of its name."""
    config: Facts = {}
    for part in reversed(result.collections):  # of settings that they do not share, those of the first
        config |= flatten(part.manifest.config)
    manifests = [part.folder / MANIFEST for part in result.collections]
    WRITERS[tracker](result.name, figures_of(result), config, manifests)


def figures_of(result: Result) -> dict[str, float]:
    """Means by measure, the ends of their intervals as `MEASURE/low` and `MEASURE/high`, and sizes.

    Those of a suite's collections follow its macro means, as `COLLECTION/MEASURE`.
    """
    records = {"": result.record}
    if result.suite:
        records |= {f"{part.name}/": part.record for part in result.collections}
    figures: dict[str, float] = {}
    for prefix, record in records.items():
        for name, mean in record.metrics.items():
            figures[prefix + name] = mean
            if interval := record.intervals.get(name):
                figures |= {f"{prefix}{name}/low": interval[0], f"{prefix}{name}/high": interval[1]}
        figures |= {f"{prefix}queries": record.queries, f"{prefix}passages": record.passages}
    return figures


def _wandb(name: str, figures: Mapping[str, float], config: Facts, manifests: list[Path]) -> None:
    import wandb

    with wandb.init(project=DISTRIBUTION, name=name, config=config) as run:
        run.log(dict(figures))
        artifact = wandb.Artifact(f"{re.sub(r'[^a-zA-Z0-9_.-]', '-', name)}-manifest", "manifest")
        for manifest in manifests:
            artifact.add_file(str(manifest), name=f"{manifest.parent.name}.json")
        run.log_artifact(artifact)


def _mlflow(name: str, figures: Mapping[str, float], config: Facts, manifests: list[Path]) -> None:
    import mlflow

    mlflow.set_experiment(DISTRIBUTION)
    params = [(key, str(value)[:LONGEST]) for key, value in config.items()]
    with mlflow.start_run(run_name=name):
        for start in range(0, len(params), AT_ONCE):
            mlflow.log_params(dict(params[start : start + AT_ONCE]))
        # MLflow refuses @, brackets and =, and its files take / for a folder
        plain = {key: key.replace("@", "_at_").replace("/", ".") for key in figures}
        mlflow.log_metrics({re.sub(r"[^\w\-. :]", "_", plain[key]): value for key, value in figures.items()})
        for manifest in manifests:
            mlflow.log_artifact(str(manifest), manifest.parent.name)


def _tensorboard(name: str, figures: Mapping[str, float], config: Facts, manifests: list[Path]) -> None:
    from tensorboard.summary import Writer

    writer = Writer(str(Path("runs") / name))
    for key, value in figures.items():
        writer.add_scalar(key, value, 0)
    writer.close()
    for manifest in manifests:
        path = file_inside(Path("runs"), name, f"{manifest.parent.name}.json")
        write_whole(path, manifest.read_bytes())


WRITERS: dict[str, Callable[[str, Mapping[str, float], Facts, list[Path]], None]] = {
    "wandb": _wandb,
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
}
"""By the name of a tracker's package, and of the extra that installs it."""

"""The file `ir-metadata.yml` of a result: its run described by the schema of ir-metadata.org.

Breuer, Keller and Schaer, *ir_metadata: An Extensible Metadata Schema for IR Experiments*, SIGIR 2022. The
section `resources` is that of version 0.2, as TIREx Tracker writes it.
"""

from __future__ import annotations

import contextlib
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline.config import Config
from pipeline.results.records import Manifest, Metrics

NAME = "ir-metadata.yml"
SCHEMA_VERSION = 0.2
JOULES_PER_KWH = 3.6e6


def ir_metadata(config: Config, metrics: Metrics, manifest: Manifest) -> str:
    """The YAML of a result that this process has made.

    What is not known is left out: energy where the machine does not tell it, and CO2 where
    `engine.carbon_intensity` does not ask for it, or the energy is not known.
    """
    described = {
        "schema-version": SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": config.name,
        "platform": _platform(manifest),
        "research goal": {"evaluation": {"reported measures": list(metrics.metrics)}},
        "implementation": {"executable": {"cmd": _command()}, "source": {"lang": ["Python"]}},
        "resources": _resources(config, metrics, manifest),
        "method": _method(config, manifest),
        "actor": {"role": "experimenter"},
        "data": {"test collection": _collection(config, metrics)},
    }
    return yaml.safe_dump(_known(described), sort_keys=False, allow_unicode=True, width=110)


def _platform(manifest: Manifest) -> dict[str, Any]:
    hardware, libraries = manifest.hardware, dict(manifest.versions)
    own = libraries.pop("benchmarco", None)
    python = libraries.pop("python", None)
    bits = platform.architecture()[0].removesuffix("bit")
    return {
        "hardware": {
            "cpu": {
                "model": hardware.cpu,
                "architecture": platform.machine(),
                "operation mode": f"{bits}-bit",
                "number of cores": hardware.cores,
            },
            "gpu": {"model": ", ".join(hardware.gpus)},
            "ram": f"{hardware.memory_gb} GB" if hardware.memory_gb else None,
        },
        "operating system": {
            "kernel": f"{platform.system()} {platform.release()}",
            "distribution": _distribution(),
        },
        "software": {
            "libraries": {
                "python": [f"python=={python}", *(f"{name}=={each}" for name, each in libraries.items())]
            },
            "retrieval toolkit": [f"benchmarco=={own}"] if own else None,
        },
    }


def _distribution() -> str | None:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    return None


def _command() -> str | None:
    """The command line, if this process is the command."""
    program = Path(sys.argv[0])
    own = program.name == "benchmarco" or program.parts[-2:] == ("pipeline", "__main__.py")
    return shlex.join(["benchmarco", *sys.argv[1:]]) if own else None


def _resources(config: Config, metrics: Metrics, manifest: Manifest) -> dict[str, Any]:
    """Wall time of the run, most memory of its process, and energy of the stages, whichever run made them."""
    rows = metrics.all_stages
    peak = max((row.peak_rss_mb or 0 for row in rows), default=0)
    joules = [row.energy_joules for row in rows if row.energy_joules is not None]
    total = sum(joules) if joules else None
    intensity = config.engine.carbon_intensity
    grams = None if total is None or intensity is None else total / JOULES_PER_KWH * intensity
    return {
        "runtime": {"wallclock": f"{1000 * (manifest.wall_seconds or 0):.0f} ms"},
        "cpu": {"energy used system": None if total is None else f"{total:.1f} J"},
        "ram": {"used process": {"max": f"{peak:.0f} MB"} if peak else None},
        "co2": None if grams is None else f"{grams:.3g} g",
    }


def _method(config: Config, manifest: Manifest) -> dict[str, Any]:
    first = config.model
    indexing = {
        "tokenizer": None if first is None or first.backend == "bm25" else first.label,
        "stemmer": getattr(first, "stemmer", None),
        "stopwords": getattr(first, "stop_words", None),
    }
    return {
        "automatic": True,
        "score ties": "reverse alphabetical order",
        "indexing": indexing,
        "retrieval": list(_stages(config, manifest)),
    }


def _stages(config: Config, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """A component a mapping, each naming those whose rankings it takes."""
    settings = manifest.config
    if config.model:
        last = config.model.label
        yield {"name": last, "method": config.model.backend, **_parameters(settings["model"])}
    else:
        assert config.fuse is not None
        parts = [part.label for part in config.parts]
        for part, given in zip(config.parts, settings["fuse"]["of"], strict=True):
            assert part.model is not None
            yield {"name": part.label, "method": part.model.backend, **_parameters(given["model"])}
        last = "fusion"
        yield {
            "name": last,
            "method": config.fuse.method,
            "interpolates": parts,
            "weight": settings["fuse"]["weights"],
        }
    if config.rerank:
        given = settings["rerank"]
        yield {
            "name": config.rerank.label,
            "method": given["backend"],
            "reranks": last,
            "depth": given["depth"],
        }


def _parameters(model: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model that shape a ranking most."""
    wanted = ("name", "revision", "output", "precision", "pooling", "k1", "b")
    return {("model" if key == "name" else key): model[key] for key in wanted if model.get(key) is not None}


def _collection(config: Config, metrics: Metrics) -> dict[str, Any]:
    source = config.data.source
    place = getattr(config.data, "path", None)
    return {
        "name": Path(place).name if place else source,
        "source": place,
        "ir_datasets": place if source == "ir_datasets" else None,
        "split": getattr(config.data, "split", None),
        "queries": metrics.queries,
        "passages": metrics.passages,
    }


def _known(value: Any) -> Any:
    """The value without what is None, or empty."""
    if isinstance(value, Mapping):
        inner = {key: _known(each) for key, each in value.items()}
        return {key: each for key, each in inner.items() if each not in (None, "", {}, [])}
    return [_known(each) for each in value] if isinstance(value, list | tuple) else value

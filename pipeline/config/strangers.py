"""Which settings are taken from a manifest without `--set`: a manifest may come from a stranger.

A setting with an `effect` beyond a computation on this machine (`pipeline.config.settings.setting`), and one
that another package defines, is taken from a manifest only where `--set` gives it again. The check is made on
benchmarks as they will run: sweeps expanded, defaults filled in.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from pipeline.config import benchmark, suites
from pipeline.config.settings import Section, mark_of
from pipeline.core.display import as_text
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import MANIFEST, comes_with

ADDRESSES = ("url", "address")
"""Settings that send the collection elsewhere: its files must be beside the manifest then, or given again."""
FOLDERS = ("cache", "output")
OTHER = "set what another package defines to {}"


def refuse_unasked(config: benchmark.Config, given: Sequence[str], where: Path) -> None:
    """Refuse a manifest's settings that have an effect elsewhere, unless they are given again.

    Args:
        config: The benchmark that would run.
        given: What the user gives, as `--set` takes it; the name of a section stands for all in it.
        where: The manifest.

    Raises:
        InputError: It names the settings, what they would do, and how to give them.
    """
    settings = list(_settings(config, ""))
    beyond = [
        (path, value, effect)
        for path, value, effect in settings
        if effect and value not in (None, False) and not _may_be_written(path, value, where)
    ]
    if any(path.rpartition(".")[2] in ADDRESSES for path, *_ in beyond):
        folder = where.resolve().parent
        beyond += [
            (path, value, "send what is in {}")
            for path, value, effect in settings
            if not effect and _is_outside(value, folder)
        ]
    names = [each.partition("=")[0].strip() for each in given]
    risky = [each for each in beyond if not any(f"{each[0]}.".startswith(f"{name}.") for name in names)]
    if not risky:
        return
    effects = ", ".join(f"{effect.format(as_text(value))} ({path})" for path, value, effect in risky)
    sets = " ".join(f"--set {shlex.quote(f'{path}={as_text(value)}')}" for path, value, _ in risky)
    raise InputError(
        f"{where}: its settings would {effects}",
        allowed="such settings only where you give them again",
        fix=f"if you trust them, add {sets}",
    )


def _settings(section: Section, path: str) -> Iterator[tuple[str, object, str]]:
    """The dotted name, value and effect of each setting inside a section; the effect is "" if it has none.

    The collections that the file of a suite lists have the name of the setting that names the file.
    """
    for name in type(section).model_fields:
        at, value = f"{path}{name}", getattr(section, name)
        yield from _values(value, at, _effect(type(section), name))
        if isinstance(section, suites.SuiteSettings) and name == "suite":
            for collection in section.suite_of_collections.collections.values():
                yield from ((at, inner, effect) for _, inner, effect in _settings(collection.data, ""))


def _effect(section: type[Section], name: str) -> str:
    """What a setting does beyond a computation on this machine, by the classes here that declare it."""
    sections = [kind for kind in section.__mro__ if issubclass(kind, Section)]
    here = [kind for kind in sections if kind.__module__.startswith("pipeline.")]
    declared = [kind.model_fields[name] for kind in here if name in inspect.get_annotations(kind)]
    effects = [mark_of(field).effect for field in declared] or [OTHER]
    return next(filter(None, effects), "")


def _values(value: object, path: str, effect: str) -> Iterator[tuple[str, object, str]]:
    """The values of one setting: those of the sections that it holds; places in a list count from 1."""
    inside = dict(enumerate(value, start=1)) if isinstance(value, list | tuple) else value
    if isinstance(value, Section):
        yield from _settings(value, f"{path}.")
        if effect:
            yield path, value.model_dump(mode="json"), effect
    elif isinstance(inside, Mapping) and any(isinstance(each, Section) for each in inside.values()):
        for key, each in inside.items():
            yield from _values(each, f"{path}.{key}", effect)
    else:
        yield path, value, effect


def _may_be_written(path: str, value: object, where: Path) -> bool:
    """Whether a setting is a folder inside the working directory, or a cache that has a collection.

    A cache that may have come with the manifest is neither: what it holds would be taken for computed here.
    """
    if path not in FOLDERS or not isinstance(value, str):
        return False
    if path == "cache" and comes_with(value, where.parent):
        return False
    here = Path.cwd()
    leads_out = PurePath(value).is_absolute() or not (here / value).resolve().is_relative_to(here)
    return not leads_out or (path == "cache" and has_collection(value))


def find_cache(of_run: str, configured: str) -> str:
    """The folder where a run had its artifacts, if it still has a collection; else what its config names."""
    return of_run if of_run and has_collection(of_run) else configured


def has_collection(cache: str) -> bool:
    """Whether a folder is a cache that has a collection."""
    return any(Path(cache).glob(f"data/*/{MANIFEST}"))


def _is_outside(value: object, folder: Path) -> bool:
    """Whether a value names files that are not in a folder: paths are absolute here, ids are not."""
    paths = [
        PurePath(each) for each in (value if isinstance(value, tuple) else [value]) if isinstance(each, str)
    ]
    return any(path.is_absolute() and folder not in path.parents for path in paths)

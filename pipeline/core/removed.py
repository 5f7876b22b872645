"""Settings, values, commands and options of earlier releases: what to use instead of each."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.core.errors import InputError, short_repr

ANY = object()
"""Every value but those of `NOTHING`."""
NOTHING = (None, "auto", "cpu")
"""Values that ask for nothing: files written by earlier releases hold them for settings that nobody gave."""
SETTINGS: tuple[tuple[str, object, str], ...] = (
    ("engine.store", ANY, "data and models travel through Ray itself: remove it"),
    ("index.plaid", ANY, "token vectors are searched exactly: remove it"),
    ("index.factory", "PLAID", "token vectors are searched exactly: remove it"),
    ("rerank.backend", "native", "set it to auto, which takes openvino where it is installed, or flag"),
    ("rerank.precision", "int16", "set it to fp32, which openvino computes as fast"),
    *(
        (f"rerank.{name}", ANY, "layerwise and lightweight rerankers are not run: remove it")
        for name in ("cutoff_layers", "compress_layers", "compress_ratio")
    ),
    ("data.missing_passages", "refuse", "set it to count, as trec_eval does, or to drop"),
    ("data.source", "miracl", "name the suite miracl, or take source beir with path mteb/MIRACLRetrieval"),
    ("data.source", "mldr", "name the suite mldr, or take source beir with path mteb/MultiLongDocRetrieval"),
    ("data.source", "mkqa", "belebele asks in one language for passages in another"),
    (
        "data.suite",
        "mkqa",
        "mteb-multilingual has collections with queries and passages in two languages",
    ),
    ("search.device", ANY, "indexes are searched on the CPU: remove it"),
    ("engine.carbon_intensity", ANY, "energy and carbon are not reported: remove it"),
)
"""The path of each removed setting, the value that is refused, and what to do."""
COMMANDS = {
    "board": "use 'benchmarco compare' for results, and 'benchmarco export --mteb' for MTEB's own tools",
}
"""Each removed command, and what to use instead."""
OPTIONS = {
    ("gate", "--max-slowdown"): "'benchmarco compare' shows the speeds of both results",
    ("compare", "--correction"): "a difference is shown where Holm's and MaxT's correction both show it",
    ("compare", "--margin"): "'benchmarco gate --margin' says whether one result is as good as another",
    ("gate", "--write-baseline"): "the folder of a result is a baseline, also without its run.trec",
    ("doctor", "--cache"): "it says no more what room the disks have: leave the option out",
    ("reproduce", "--baseline"): "reproduce that result too, and compare both",
    ("reproduce", "--cache"): "an interrupted reproduction starts again",
    ("reproduce", "--tolerance"): "compare the differences of 'reproduce --json' with it",
    ("example", "--template"): "docs/configuration.md lists every setting, and so does 'benchmarco schema'",
}
"""Each removed option by its command and name, and what to use instead."""


def without_removed(raw: Mapping[str, object], where: str) -> dict[str, object]:
    """The settings of a file without removed ones that are null; others are refused."""
    kept = dict(raw)
    for path, refused, instead in SETTINGS:
        section, _, name = path.partition(".")
        kept[section] = _checked(kept.get(section), name, refused, f"{where}: '{path}'", instead)
        if section not in raw:
            del kept[section]
    fuse = kept.get("fuse")
    if isinstance(fuse, Mapping) and isinstance(fuse.get("of"), list | tuple):
        of = [
            without_removed(part, f"{where}: fuse.of.{number}") if isinstance(part, Mapping) else part
            for number, part in enumerate(fuse["of"], start=1)
        ]
        kept["fuse"] = {**fuse, "of": of}
    return kept


def _checked(section: object, name: str, refused: object, at: str, instead: str) -> object:
    """A section without a removed setting; refused if that asks for something, or has the refused value."""
    if not isinstance(section, Mapping) or name not in section:
        return section
    value = section[name]
    if refused is not ANY:
        if value == refused:
            raise InputError(f"{at} is {short_repr(value)}, which no longer exists", fix=instead)
        return section
    if value not in NOTHING:
        raise InputError(f"{at} no longer exists", fix=instead)
    return {key: each for key, each in section.items() if key != name}

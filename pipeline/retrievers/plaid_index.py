"""The stages of an approximate index of token vectors: its making and its search, by fast-plaid."""

from __future__ import annotations

import os
import re
from importlib import metadata
from typing import TYPE_CHECKING

from pipeline.config import PlaidSettings, SearchConfig
from pipeline.core.errors import InputError
from pipeline.core.extras import install_command, require
from pipeline.core.records import Collection, TokenEmbeddings
from pipeline.retrievers.shared import save_ranking
from pipeline.retrievers.stage import Context, Facts
from pipeline.retrievers.stored_index import StoredIndex
from pipeline.storage.artifacts import Draft

if TYPE_CHECKING:
    from pipeline.search.documents import Documents

PACKAGE = "fast-plaid"
SCHEMAS = {"index": 1, "search": 1}


def installed_version() -> str | None:
    """The version of fast-plaid; None if it is not installed."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def check_installed() -> None:
    """Refuse the index where fast-plaid is not installed, or is built for another PyTorch than that here."""
    setting = "index.factory: PLAID"
    require("fast_plaid", "plaid", setting)
    wanted, here = _torch_wanted(), metadata.version("torch").partition("+")[0]
    if wanted not in (None, here):
        raise InputError(
            f"{setting}: {PACKAGE} {installed_version()} is built for torch {wanted}, and torch here "
            f"is {here}",
            allowed=f"torch {wanted}, or a release of {PACKAGE} for torch {here}",
            fix=f"install them in an environment of their own: {install_command('plaid')}",
        )


def _torch_wanted() -> str | None:
    """The only version of PyTorch that fast-plaid says it runs with; None if it names no single one."""
    found = (re.match(r"torch\s*==\s*([\d.]+)", line) for line in metadata.requires(PACKAGE) or ())
    return next((match[1] for match in found if match), None)


def build(settings: PlaidSettings, passages: TokenEmbeddings, draft: Draft, context: Context) -> Facts:
    """Make the index. It is made whole: of one that was interrupted nothing is kept."""
    from pipeline.search import plaid

    draft.whole.clear()
    with draft.scratch() as folder:
        bar_of = context.progress("train and fill the index", len(passages), "passages")
        with bar_of as bar, context.meter.working("fast_plaid.search"):
            centroids = plaid.build_index(passages, settings, folder)
            bar.update(len(passages))
        for path in sorted(folder.iterdir()):
            with draft.file(path.name) as target:
                os.replace(path, target)
    context.meter.count(len(passages))
    tokens, dimension = len(passages.vectors), passages.vectors.dimension
    return {"rows": len(passages), "tokens": tokens, "dimension": dimension, "centroids": centroids}


def search(
    config: SearchConfig,
    mean: bool,
    measured: bool,
    collection: Collection,
    stored: StoredIndex,
    queries: TokenEmbeddings,
    passages: TokenEmbeddings | None,
    documents: Documents | None,
    draft: Draft,
    context: Context,
) -> Facts:
    """Search the index, and with `measured` measure its speed; other arguments as of `plaid.open_searcher`.

    Where the vectors are those of chunks, `documents` are the documents that are ranked.
    """
    from pipeline.search import plaid

    artifact, meter = stored.artifact, context.meter
    opened = plaid.open_searcher(artifact.folder, artifact.files, config, queries, mean, passages)
    with opened as searcher:
        with context.progress("search", len(queries), "queries") as bar, meter.working():
            ranking = searcher.search(collection.passages.ids, bar, documents)
        meter.count(len(queries))
        facts = save_ranking(draft, collection, ranking)
        meter.stop()
        if measured:
            memory = {"memory_mb": round(artifact.bytes / 1e6, 3)}
            facts["index"] = {**stored.cost, **memory, **searcher.measure()}
    return facts

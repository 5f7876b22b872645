"""Clusters of queries, such as paraphrases or questions of one document: each is one draw of a sample."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import DataSettings
from pipeline.core.errors import InputError
from pipeline.data.sources import open_source
from pipeline.data.sources.folders import ID_FIELDS, FolderSource
from pipeline.formats.texts import parse_lines, read_blocks


def read_clusters(settings: DataSettings, field: str) -> dict[str, str]:
    """The cluster of each query that has one, by the query's id, from a field of the file of queries.

    Raises:
        InputError: The queries are not in a file of JSON lines, none has the field, or a value is no text,
            number or truth value.
    """
    source = open_source(settings)
    if not isinstance(source, FolderSource) or source.name not in ID_FIELDS:
        raise InputError(
            f"evaluate.cluster: {field} with data.source: {settings.source}",
            allowed="a collection whose queries are JSON lines: data.source beir or flag",
            fix="leave it out, or write the collection in BEIR's layout",
        )
    id_field, path = ID_FIELDS[source.name], Path(source.queries_file)
    clusters, fields = {}, set[str]()
    for block in read_blocks(path):
        for _, place, record in parse_lines(block, (id_field, field)):
            fields |= record.keys()
            value = record.get(field)
            if value is None:
                continue
            if not isinstance(value, str | int | float):
                raise InputError(
                    f"{place}: {field} is a {type(value).__name__}",
                    allowed="a text or a number that names the query's cluster",
                    fix="correct that line, or name another field in evaluate.cluster",
                )
            clusters[str(record.get(id_field))] = str(value)
    if not clusters:
        raise InputError(
            f"evaluate.cluster: no query of {path} has a field {field}",
            allowed=f"one of {', '.join(sorted(fields))}",
            fix="add it to the lines of the queries, or correct its name",
        )
    return clusters

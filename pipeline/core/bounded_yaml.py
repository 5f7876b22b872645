"""A YAML loader that refuses documents whose aliases stand for more values than any file here has.

A few hundred bytes of nested aliases (`&a [...]`, `*a`) can stand for billions of values. PyYAML holds each
only once, but whoever prints, merges or combines them meets them all.
"""

from __future__ import annotations

from itertools import chain

import yaml

MOST_VALUES = 100_000


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses more than `MOST_VALUES` values, aliases written out."""

    def get_single_node(self) -> yaml.Node | None:
        """The document's root; an error if it is too large."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _count(node, {}) > MOST_VALUES:
            problem = f"with its aliases written out, it has more than {MOST_VALUES:,} values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node holds, aliases written out; `known` has the numbers of nodes seen before."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # of a node inside itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = chain.from_iterable(inner) if isinstance(node, yaml.MappingNode) else inner
        known[id(node)] = 1 + sum(_count(part, known) for part in parts)
    return known[id(node)]

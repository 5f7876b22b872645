"""Names in backticks, in docstrings and comments of the package, are names of something in it.

`pipeline.core.records.Texts` and `retrievers.stage` are looked up as modules and what these define,
`Collection.missing_ids` among the members of the class, and `missing_ids` among all names of the package.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "pipeline"
QUOTED = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")
IS_CODE = re.compile(r"\w+(\.\w+)+|\w*[A-Za-z0-9]_\w+|_\w+|[A-Z][a-z0-9]+[A-Z]\w*")
"""What looks like code: dotted, with underscores, or in camel case."""
FILE_NAME = re.compile(r".+\.(arrow|bin|csv|html|jsonl?|md|np[yz]|py|safetensors|toml|trec|tsv|txt|ya?ml)")
FOREIGN = re.compile(
    r"(FlagEmbedding|datasets|faiss|np|numpy|pyarrow|ray|scipy|torch|Transformer)\..+"
    r"|comp_sim_docno|index_factory|quantize_embeddings|sentence_transformers\..+|shuffle_vector"
    r"|(eval_)?\w*(_at|_cut|P)_10|(_at)?_k"
)
"""Names of other packages, also of measures."""
VARIABLES = re.compile("config|data|model|index|search|engine|rerank|fuse|evaluate|judge|expected")
"""Sections of a config, and what functions call their arguments: modules of these names are not meant."""


def members(node: ast.AST) -> Iterator[str]:
    """What a module or a class defines: functions, classes, variables, fields, attributes of `self`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield child.name
        for inner in ast.walk(child) if not isinstance(child, ast.ClassDef) else ():
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id
            elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                yield inner.attr
            elif isinstance(inner, ast.alias):
                yield inner.asname or inner.name


def words(tree: ast.Module) -> Iterator[str]:
    """All names of a module, with parameters, and strings that could be keys."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from (node.name, *members(node))
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
    yield from members(tree)


def prose(source: str, tree: ast.Module) -> Iterator[str]:
    """The docstrings and comments of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_a_name_in_backticks_resolves() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    below: defaultdict[str, set[str]] = defaultdict(set)  # what a module or a class of this name holds
    bases: defaultdict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for depth in range(1, len(parts)):
            below[parts[depth - 1]].add(parts[depth])
        below[parts[-1]].update(members(tree))
        for face in path.parent.glob("__init__.pyi") if path.stem == "__init__" else ():
            below[parts[-1]].update(members(ast.parse(face.read_text(encoding="utf-8"))))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                below[node.name].update(members(node))
                bases[node.name].update(base.id for base in node.bases if isinstance(base, ast.Name))
    known = {word for tree in trees.values() for word in words(tree)} | below.keys()

    def resolves(name: str) -> bool:
        first, *rest = name.split(".")
        for part in rest:
            holders = [first, *bases[first]]
            if first in below and not any(part in below[holder] for holder in holders):
                return bool(VARIABLES.fullmatch(first)) and part in known
            first = part
        return name.split(".")[0] in known and first in known

    stale = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path, source in sources.items()
        for text in prose(source, trees[path])
        for name in QUOTED.findall(text)
        if IS_CODE.fullmatch(name)
        if not FILE_NAME.fullmatch(name) and not FOREIGN.fullmatch(name) and not resolves(name)
    ]
    assert stale == []

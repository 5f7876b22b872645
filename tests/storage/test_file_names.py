"""Names of files that come from a user, a result or a server: they lead nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import InputError
from pipeline.storage import file_inside

PACKAGE = Path(__file__).resolve().parents[2] / "pipeline"
NAMES = [
    "..", ".", "", "/", "../../x", "/etc/passwd", "a/../../b", "..\\x", "~", "~root", "\0", "a\0b", "a\nb",
    "name", "owner/model", "x" * 5000, "ü" * 3000, "." * 300, ".bashrc", "._/..", "a b", "\u202ex", "\ud800",
    "con|x>y", "../" * 40 + "etc", "x/" * 400, ".json", "...json", "\x1b[31m",
]  # fmt: skip
WRITERS = {
    "write_text", "write_bytes", "write_json", "write_whole", "replacing", "mkdir", "rename", "symlink_to",
    "touch",
}  # fmt: skip
CHECKED = {
    "f'{hash_json(recipe)}.jsonl'": "a hash",
    "folders.NOTE": "chosen here",
    "f'{name}.{uuid.uuid4().hex}'": "a file of a model, whose names are checked where they are listed",
    "f'{MANIFEST}.{uuid.uuid4().hex}'": "chosen here",
    "entry['sha256']": "a hash",
    "self._recipe.key": "a hash",
    "f'.{uuid.uuid4().hex}{TEMPORARY}'": "chosen here",
    "_FINISHED": "chosen here",
    "name": "a file of an artifact, a model or a result: chosen here, or checked where it is listed",
    "place": "the root of a model's folder, or its part `0_Transformer`",
    "folder.name": "the folder of an adapter",
    "hash_json(targets)[:16]": "a hash",
    "routes['passages'][1]": "a folder that a model's modules name, checked where it is read",
    "each": "a name of a collection, which the config checks",
    "source.name": "a file of an artifact",
    "file": "a file of a collection that is written, chosen here",
}
"""What else names a file that is written, and why it leads nowhere else."""


@pytest.mark.parametrize("name", NAMES)
def test_every_name_stays_in_the_folder_and_can_be_written(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "named"
    path = file_inside(folder, name, f"{name}.json")
    assert path.resolve().parent.parent == folder.resolve()
    path.parent.mkdir(parents=True)
    path.write_text("written", encoding="utf-8")
    assert path.name.isprintable()
    assert [*tmp_path.iterdir()] == [folder]


def test_a_link_inside_the_folder_does_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "named/out").symlink_to(tmp_path)
    with pytest.raises(InputError, match="is a link to"):
        file_inside(tmp_path / "named", "out", "x.json")


def named_where_files_are_written() -> Iterator[tuple[str, str]]:
    """Each expression that names a file in a function that writes, with its place."""
    for path in PACKAGE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            inside = list(ast.walk(function))
            called = [node.func for node in inside if isinstance(node, ast.Call)]
            if not WRITERS & {getattr(each, "attr", getattr(each, "id", "")) for each in called}:
                continue
            for node in inside:
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                    name = ast.unparse(node.right)
                    if not isinstance(node.right, ast.Constant) and not name.isupper():
                        yield f"{path.name}:{node.lineno}", name


def test_the_code_names_files_by_what_is_checked_or_by_file_inside() -> None:
    places = list(named_where_files_are_written())
    assert {name for _, name in places} <= CHECKED.keys(), places

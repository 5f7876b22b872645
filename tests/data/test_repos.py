"""Which files hold a split: what a README declares, in each of its forms, and what it must not reach."""

import pytest
import yaml

from pipeline import InputError
from pipeline.data.sources import Repo

FILES = ("some/part-0.parquet", "some/part-1.parquet", "dev.parquet")
A, B = {"split": "a", "path": "some/part-0*"}, {"split": "b", "path": "some/part-1*"}


def table(data_files, name="default", **more):
    return {"config_name": name, "data_files": data_files, **more}


def reads(repo, name, split):
    return [path.relative_to(repo.name).as_posix() for path in repo.files(name, split)]


def write(folder, readme, *files):
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    if readme is not None:
        (folder / "README.md").write_text(readme, encoding="utf-8")
    return Repo(str(folder), None)


@pytest.mark.parametrize(
    ("configs", "name", "split", "expected"),
    [
        ([table([{"split": "dev", "path": "some/part-*"}])], None, "dev", FILES[:2]),
        (
            [table([{"split": "dev", "path": ["some/part-1.parquet", "./some/part-0.parquet"]}])],
            None, "dev", FILES[:2],
        ),
        ([table({"dev": "some/*"})], None, "dev", FILES[:2]),
        ([table("some/*.parquet")], None, "train", FILES[:2]),
        ([table({"dev": "some/*"})], None, "train", "no split 'train' of table 'default'"),
        ([table([A, B], "corpus")], "corpus", "b", FILES[1:2]),
        ([table([A, B], "corpus")], "corpus", None, "table 'corpus' with one split"),
        ([table([A], "one"), table([{**B, "split": "a"}], "two")], None, "a", FILES[:1]),
        ([table([A], "one"), table([{**B, "split": "a"}], "two", default=True)], None, "a", FILES[1:2]),
        *(
            ([table([{"split": "dev", "path": path}])], None, "dev", "no file of a split named 'dev'")
            for path in ("../secret-*", "HERE/secret-*", None, 7)
        ),
        *((unread, None, "dev", FILES[2:]) for unread in (5, [5], "---\n: [\n---\n", "no header")),
    ],
)  # fmt: skip
def test_every_form_of_declaring_a_split(tmp_path, configs, name, split, expected):
    (tmp_path / "secret-dev.parquet").touch()
    header = yaml.safe_dump({"configs": configs}).replace("HERE", str(tmp_path))
    readme = configs if isinstance(configs, str) else f"---\n{header}---\n# A dataset\n"
    repo = write(tmp_path / "repo", readme, *FILES)
    if isinstance(expected, tuple):
        assert reads(repo, name, split) == list(expected)
    else:
        with pytest.raises(InputError, match=expected):
            repo.files(name, split)


def test_of_several_kinds_one_is_taken(tmp_path):
    repo = write(tmp_path, None, "corpus/a.parquet", "corpus.jsonl.gz", ".cache/corpus/b.parquet")
    assert reads(repo, "corpus", None) == ["corpus/a.parquet"]

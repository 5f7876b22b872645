"""Which files hold a split: what a README declares, in each of its forms, and what it must not reach."""

from __future__ import annotations

import pytest
import yaml

from pipeline.core.errors import InputError
from pipeline.data.sources.repos import Repo


@pytest.fixture
def repo(tmp_path):
    """A local repository with some files, and a README that declares what is given."""

    def make(configs, *names):
        folder = tmp_path / "repo"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        if configs is not None:
            header = yaml.safe_dump({"configs": configs})
            (folder / "README.md").write_text(f"---\n{header}---\n# A dataset\n", encoding="utf-8")
        return Repo(str(folder), None)

    return make


def names(repo, config, split):
    return [path.relative_to(repo.name).as_posix() for path in repo.files(config, split)]


@pytest.mark.parametrize(
    "data_files",
    [
        [{"split": "dev", "path": "some/part-*"}],
        [{"split": "dev", "path": ["some/part-1.parquet", "./some/part-0.parquet"]}],
        {"dev": "some/*"},
    ],
)
def test_every_form_of_declaring_a_split(repo, data_files):
    made = repo([{"config_name": "default", "data_files": data_files}], *PARTS)
    assert names(made, None, "dev") == ["some/part-0.parquet", "some/part-1.parquet"]
    with pytest.raises(InputError, match="no split 'train' of table 'default'"):
        made.files(None, "train")


PARTS = ("some/part-0.parquet", "some/part-1.parquet", "dev.parquet")


def test_files_without_a_split_are_train(repo):
    made = repo([{"config_name": "default", "data_files": "some/*.parquet"}], *PARTS)
    assert names(made, None, "train") == ["some/part-0.parquet", "some/part-1.parquet"]


def test_a_table_of_several_splits_is_not_guessed(repo):
    splits = [{"split": "a", "path": "some/part-0*"}, {"split": "b", "path": "some/part-1*"}]
    made = repo([{"config_name": "corpus", "data_files": splits}], *PARTS)
    assert names(made, "corpus", "b") == ["some/part-1.parquet"]
    assert made.splits("corpus") == ["a", "b"]
    with pytest.raises(InputError, match="table 'corpus' with one split"):
        made.files("corpus", None)


def test_the_table_marked_as_default_is_meant_where_none_is_named(repo):
    tables = [
        {"config_name": name, "data_files": [{"split": "dev", "path": f"some/part-{number}*"}]}
        for number, name in enumerate("ab")
    ]
    assert names(repo(tables, *PARTS), None, "dev") == ["some/part-0.parquet"]
    tables[1]["default"] = True
    assert names(repo(tables, *PARTS), None, "dev") == ["some/part-1.parquet"]


def test_a_readme_cannot_reach_outside(repo, tmp_path):
    (tmp_path / "secret-dev.parquet").touch()
    for path in ("../secret-*", str(tmp_path / "secret-*"), None, 7):
        made = repo([{"config_name": "default", "data_files": [{"split": "dev", "path": path}]}], *PARTS)
        with pytest.raises(InputError, match="no file of a split named 'dev'"):
            made.files(None, "dev")


@pytest.mark.parametrize(
    "readme", ["---\n: [\n---\n", "---\nconfigs: 5\n---\n", "no header", "---\nconfigs:\n- 5\n---\n"]
)
def test_a_readme_that_declares_nothing_leaves_it_to_names(repo, tmp_path, readme):
    made = repo(None, *PARTS)
    (tmp_path / "repo" / "README.md").write_text(readme)
    assert names(made, None, "dev") == ["dev.parquet"]


def test_of_several_kinds_one_is_taken(repo):
    made = repo(None, "corpus/a.parquet", "corpus.jsonl.gz", ".cache/corpus/b.parquet")
    assert names(made, "corpus", None) == ["corpus/a.parquet"]

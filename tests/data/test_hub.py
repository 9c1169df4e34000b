"""Datasets on the hub as rows: the real client talks to a hub on this machine."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
from hub_server import TOKEN, running_hub
from ludus_data.validate import validate

import ludus
from ludus import Environment, UserError
from ludus.data.hub import HubReference
from ludus.data.hub_splits import split_files
from ludus.data.sources import read_lines
from ludus.dataset import Dataset

ROWS = [{"responses_create_params": {"input": f"What is {n}?"}, "expected_answer": str(n)} for n in range(4)]
LINES = b"".join(orjson.dumps(row) + b"\n" for row in ROWS)


def read(source):
    return [orjson.loads(line) for _, line in read_lines(source)]


def test_a_split_of_a_dataset_is_read_at_a_revision(hub):
    first = hub.add("me/sums", {"README.md": b"# Sums", "data/train-00000-of-00002.jsonl": LINES})
    hub.add("me/sums", {"data/train-00001-of-00002.jsonl.gz": gzip.compress(LINES), "data/test.csv": b"a,b\n1,2\n"})
    assert read("hf:me/sums") == ROWS + ROWS
    assert read("hf:me/sums:test") == [{"a": "1", "b": "2"}]
    assert read(f"hf:me/sums@{first}:train") == ROWS
    where, _ = next(read_lines(f"hf:me/sums@{first}"))
    assert where == f"hf:me/sums@{first[:8]}:data/train-00000-of-00002.jsonl:1"


def test_a_file_is_downloaded_once(hub):
    hub.add("me/sums", {"train.jsonl": LINES})
    assert read("hf:me/sums") == read("hf:me/sums") == ROWS
    assert sum(each.startswith("GET /datasets/") for each in hub.requests) == 1


def test_the_commit_is_part_of_the_runs_identity(hub, tmp_path):
    first = hub.add("me/sums", {"train.jsonl": LINES})
    model = ludus.ScriptedModel(["\\boxed{1}"] * 100)
    options = {"model": model, "output": tmp_path / "run"}
    ludus.collect("string_match", input="hf:me/sums", **options)
    identity = json.loads((tmp_path / "run" / "run.json").read_bytes())["identity"]["dataset"]
    assert identity["name"] == "hf:me/sums"
    assert identity["revision"] == first
    assert identity["rows"] == 4
    hub.add("me/sums", {"train.jsonl": LINES + LINES})
    with pytest.raises(UserError, match=f"dataset.revision was '{first}', now"):
        ludus.collect("string_match", input="hf:me/sums", resume=True, **options)
    ludus.collect("string_match", input=f"hf:me/sums@{first}", resume=True, **options)


def test_a_dataset_that_an_environment_has_on_the_hub_is_validated(hub):
    hub.add("me/sums", {"train.jsonl": LINES})
    environment = Environment.load("string_match")
    report = validate([], [replace(environment, datasets=[Dataset(name="train", path=Path("hf:me/sums"))])])
    assert (report.files, report.rows, report.bad_rows) == (["hf:me/sums"], 4, 0)


def test_a_private_dataset_needs_the_token(hub, monkeypatch):
    hub.add("me/secret", {"train.jsonl": LINES}, private=True)
    with pytest.raises(UserError, match="has no dataset hf:me/secret, or it is private. .*HF_TOKEN"):
        read("hf:me/secret")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert read("hf:me/secret") == ROWS


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("hf:me/nothing", "has no dataset hf:me/nothing, or it is private. Check the name"),
        ("hf:me/sums@nowhere", "has no revision hf:me/sums@nowhere. Name a branch"),
        ("hf:me/sums:nope", "hf:me/sums has no split nope. Write hf:me/sums:SPLIT with one of: test, train"),
        ("hf:me/pictures", "hf:me/pictures has no files of rows"),
        ("hf:../../etc", "is not a dataset of the hub. Write hf:OWNER/NAME"),
        ("hf:", "is not a dataset of the hub"),
        ("hf:a/b?x=1", "is not a dataset of the hub"),
    ],
)
def test_what_the_hub_lacks_is_named(hub, source, says):
    hub.add("me/sums", {"train.jsonl": LINES, "test.jsonl": LINES})
    hub.add("me/pictures", {"cat.png": b"x"})
    with pytest.raises(UserError, match=says) as caught:
        read(source)
    assert "\n" not in str(caught.value)


def test_half_a_file_is_never_taken_for_a_whole_one(hub):
    hub.add("me/sums", {"train.jsonl": LINES})
    hub.half = 1
    assert read("hf:me/sums") == ROWS
    assert sum(each.startswith("GET /datasets/") for each in hub.requests) == 2


def test_a_hub_that_sends_half_an_answer_is_named(hub):
    hub.add("me/sums", {"train.jsonl": LINES})
    hub.broken_json = True
    with pytest.raises(UserError, match="sent an unreadable answer for hf:me/sums"):
        read("hf:me/sums")


def test_a_hub_that_does_not_answer_is_given_up(hub, monkeypatch):
    monkeypatch.setattr("ludus.data.hub._TIMEOUT", 0.2)
    hub.add("me/sums", {"train.jsonl": LINES})
    hub.hangs.clear()
    with pytest.raises(UserError, match=r"hf:me/sums: the hub 127.0.0.1:\d+ did not answer in time. Run it again"):
        read("hf:me/sums")


def test_a_hub_that_is_gone_is_named_without_its_password(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@127.0.0.1:9")
    with pytest.raises(UserError, match=r"hf:me/sums: the hub 127.0.0.1:9 cannot be reached") as caught:
        read("hf:me/sums")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf:a/b", ("a/b", None, None)),
        ("hf:a/b@main", ("a/b", "main", None)),
        ("hf:a/b:test", ("a/b", None, "test")),
        ("hf:a/b@refs/pr/1:main/test", ("a/b", "refs/pr/1", "main/test")),
        ("squad", ("squad", None, None)),
    ],
)
def test_references_are_read_and_written(text, parts):
    reference = HubReference.parse(text)
    assert tuple(reference) == parts
    assert str(reference) == (text if text.startswith("hf:") else f"hf:{text}")


@pytest.mark.parametrize(
    ("files", "configs", "wanted", "found"),
    [
        (["train.jsonl", "test.jsonl"], None, None, ["train.jsonl"]),
        (["validation.jsonl"], None, None, ["validation.jsonl"]),
        (["dev.csv", "train.csv"], None, "validation", ["dev.csv"]),
        (["rows.jsonl"], None, None, ["rows.jsonl"]),
        (["data/hard-00000-of-00001.parquet", "data/easy-00000-of-00001.parquet"], None, "hard", "first"),
        (["main/test-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"], None, "main/test", "first"),
        (["main/test-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"], None, "main", "first"),
        (["train.parquet", "train.jsonl"], None, None, "first"),
        (["train.jsonl", "dataset_infos.json", ".gitattributes"], None, None, "first"),
        (["test/a.jsonl", "train/a.jsonl"], None, "test", "first"),
        (["a.jsonl", "b.jsonl"], [{"config_name": "x", "data_files": "a.jsonl"}], None, "first"),
        (
            ["a/1.jsonl", "b/1.jsonl"],
            [
                {"config_name": "x", "data_files": [{"split": "gold", "path": "a/*"}], "default": True},
                {"config_name": "y", "data_files": [{"split": "gold", "path": ["b/*"]}]},
            ],
            None,
            "first",
        ),
    ],
)
def test_the_files_of_a_split_are_found(files, configs, wanted, found):
    assert split_files("hf:a/b", files, configs, wanted) == (files[:1] if found == "first" else found)


def test_a_file_name_that_leaves_the_dataset_is_refused(hub):
    hub.add("me/evil", {"train.jsonl": LINES, "../../evil.jsonl": LINES})
    with pytest.raises(UserError, match=r"hf:me/evil lists a file '../../evil.jsonl' outside its folder"):
        read("hf:me/evil")


def test_a_hub_that_redirects_to_another_host_does_not_give_it_the_token(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running_hub() as other:
        other.add("me/sums", {"train.jsonl": LINES})
        hub.moved_to = other.url.replace("127.0.0.1", "localhost")
        with suppress(UserError):
            read("hf:me/sums")
        assert hub.keys == [f"Bearer {TOKEN}"] * len(hub.requests)
        assert other.requests
        assert other.keys == []


def test_a_file_that_goes_on_after_its_size_is_refused(hub, tmp_path):
    hub.add("me/sums", {"train.jsonl": LINES})
    hub.endless = True
    said = rf"train.jsonl: the hub sent more than the {len(LINES)} bytes that it announced\. Run it again"
    with pytest.raises(UserError, match=said):
        read("hf:me/sums")
    assert stored(tmp_path) == []


def stored(folder):
    """The files of a dataset in the client's cache, whole or not."""
    return [path for path in folder.rglob("*/blobs/*") if path.stat().st_size]


def test_a_file_without_a_size_ends_at_a_limit_that_a_variable_sets(hub, tmp_path, monkeypatch):
    hub.add("me/sums", {"train.jsonl": LINES})
    hub.unsized = True
    assert read("hf:me/sums") == ROWS
    hub.endless = True
    hub.add("me/more", {"train.jsonl": LINES + LINES})
    monkeypatch.setenv("LUDUS_DOWNLOAD_GB", "0.02")
    said = r"train.jsonl: the hub announces no size, and sent more than 0.02 GB\. .*raise LUDUS_DOWNLOAD_GB$"
    with pytest.raises(UserError, match=said):
        read("hf:me/more")
    assert sum(path.stat().st_size for path in stored(tmp_path)) == len(LINES)
    monkeypatch.setenv("LUDUS_DOWNLOAD_GB", "much")
    with pytest.raises(UserError, match=r"LUDUS_DOWNLOAD_GB='much' is not a number\. Example: LUDUS_DOWNLOAD_GB=64"):
        read("hf:me/more")


def test_a_download_leaves_a_part_of_the_disk_free(hub, tmp_path, monkeypatch):
    hub.add("me/sums", {"train.jsonl": LINES})
    monkeypatch.setattr("ludus.data.hub_download.FREE_BYTES", 2**60)
    with pytest.raises(UserError, match=r"do not fit on the disk of .*cache \(.* MB free\)\. Make room"):
        read("hf:me/sums")
    assert not any(request.startswith("GET /datasets/") for request in hub.requests)
    assert stored(tmp_path) == []


def test_a_disk_that_others_fill_ends_a_download(hub, tmp_path, monkeypatch):
    hub.add("me/sums", {"train.jsonl": LINES * 1000})
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 2**16)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20 if stored(tmp_path) else 2**40))
    with pytest.raises(UserError, match=r"do not fit on the disk of .*cache \(1 MB free\)"):
        read("hf:me/sums")
    assert stored(tmp_path) == []


@pytest.mark.parametrize("tags", [["../../../evil"], ["honest", "../../../evil"], ["honest", "{folder}/evil"]])
def test_a_hub_cannot_store_a_file_outside_the_cache(hub, tmp_path, tags):
    hub.add("me/sums", {"train.jsonl": LINES})
    hub.tags = [tag.format(folder=tmp_path) for tag in tags]
    with pytest.raises(UserError, match=r"the hub names a file outside the cache for it\. Do not use this dataset"):
        read("hf:me/sums")
    assert not (tmp_path / "evil").exists()
    assert stored(tmp_path) == []


def test_several_configurations_must_be_chosen_from():
    files = ["main/test.jsonl", "main/train.jsonl", "other/train.jsonl"]
    with pytest.raises(UserError, match="hf:a/b has several splits. .*: main/test, main/train, other/train"):
        split_files("hf:a/b", files, None, None)


def test_an_environment_names_a_dataset_on_the_hub(hub, tmp_path):
    hub.add("me/sums", {"train.jsonl": LINES})
    (tmp_path / "environment.yaml").write_text(
        "name: sums\nresources: ludus.environments.string_match.resources:StringMatch\n"
        "datasets:\n- {name: train, path: 'hf:me/sums'}\n"
    )
    result = ludus.collect(tmp_path, model=ludus.ScriptedModel(["1"] * 4))
    assert result.metrics["counts"]["completed"] == 4

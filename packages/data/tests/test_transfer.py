"""`ludus data download`, `upload` and `list`: the real client talks to a hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256

import orjson
import pytest
import yaml
from click.testing import CliRunner
from hub_server import TOKEN
from ludus_data.card import dataset_card
from ludus_data.commands import data as commands
from ludus_data.transfer import download, list_datasets, list_files, upload

from ludus import UserError
from ludus.data.sources import read_lines

LINES = b"".join(orjson.dumps({"responses_create_params": {"input": f"{n}?"}}) + b"\n" for n in range(3))


def test_a_download_pins_the_commit_in_its_manifest(hub, tmp_path):
    files = {"README.md": b"---\nlicense: mit\n---\n", "data/train.jsonl": LINES, "test.csv": b"a\n1\n"}
    commit = hub.add("me/sums", files)
    manifest = download("hf:me/sums", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes()) == manifest
    assert manifest["sources"] == [{"file": "hf:me/sums", "revision": commit, "licence": "mit"}]
    assert {each["file"]: each["sha256"] for each in manifest["files"]} == {
        name: sha256(content).hexdigest() for name, content in files.items()
    }
    assert (tmp_path / "out" / "data" / "train.jsonl").read_bytes() == LINES
    with pytest.raises(UserError, match="manifest.json exists already. Add --overwrite"):
        download("hf:me/sums", tmp_path / "out")


def test_one_split_is_downloaded(hub, tmp_path):
    hub.add("me/sums", {"train.jsonl": LINES, "test.jsonl": LINES})
    manifest = download("me/sums:test", tmp_path / "out", overwrite=True)
    assert [(each["file"], each["split"]) for each in manifest["files"]] == [("test.jsonl", "test")]
    assert sorted(os.listdir(tmp_path / "out")) == ["manifest.json", "test.jsonl"]


def test_a_download_that_fails_leaves_no_manifest_and_no_half_file(hub, tmp_path, monkeypatch):
    hub.add("me/sums", {"a.jsonl": LINES, "b.jsonl": LINES})
    found = download("hf:me/sums:train", tmp_path / "whole")
    assert len(found["files"]) == 2
    commit = hub.add("me/sums", {"b.jsonl": LINES + LINES})
    del hub.repositories["me/sums"].commits[commit]["b.jsonl"]  # the file disappears after it was listed
    hub.repositories["me/sums"].listed = ["a.jsonl", "b.jsonl"]
    with pytest.raises(UserError, match=r"has no file hf:me/sums@\w{8}:b.jsonl. Name another split or revision"):
        download("hf:me/sums:train", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["a.jsonl"]


def test_a_download_goes_on_where_the_hub_closed_the_connection(hub, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**16)  # the client keeps whole chunks, of 10 MB by default
    content = os.urandom(3_000_000)
    hub.add("me/sums", {"train.jsonl": LINES, "weights.bin": content})
    download("hf:me/sums:train", tmp_path / "first")
    hub.half = 1
    manifest = download("hf:me/sums", tmp_path / "out")
    assert (tmp_path / "out" / "weights.bin").read_bytes() == content
    assert {each["file"]: each["bytes"] for each in manifest["files"]}["weights.bin"] == len(content)
    (asked,) = hub.ranges
    kept = int(asked.removeprefix("bytes=").partition("-")[0])
    assert len(content) // 2 - 2**16 < kept <= len(content) // 2


def test_hidden_files_are_not_downloaded_and_a_file_called_part_is(hub, tmp_path):
    files = {"a.jsonl": LINES, "sub/.git/config": b"x", ".env": b"x", "manifest.json.part": b"mine"}
    hub.add("me/sums", files)
    manifest = download("hf:me/sums", tmp_path / "out")
    assert sorted(each["file"] for each in manifest["files"]) == ["a.jsonl", "manifest.json.part"]
    assert sorted(os.listdir(tmp_path / "out")) == ["a.jsonl", "manifest.json", "manifest.json.part"]
    assert (tmp_path / "out" / "manifest.json.part").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (["a/train.jsonl", "a"], "lists 'a' as a file and as a folder. Do not use this dataset"),
        (["b/a/train.jsonl", "b/a"], "lists 'b/a' as a file and as a folder"),
        (["a\x1b[2J.jsonl"], "lists a file with a bad name"),
        (["a\n.jsonl"], "lists a file with a bad name"),
        (["a//b.jsonl"], "lists a file with a bad name"),
        (["./b.jsonl"], "lists a file with a bad name"),
    ],
)
def test_names_that_cannot_be_files_are_refused(hub, tmp_path, listed, message):
    hub.add("me/sums", {"a.jsonl": LINES})
    hub.repositories["me/sums"].listed = listed
    with pytest.raises(UserError) as refused:
        download("hf:me/sums", tmp_path / "out")
    assert message in str(refused.value)
    assert str(refused.value).isprintable()
    assert not (tmp_path / "out").exists()


def test_an_upload_makes_a_private_dataset_with_a_card(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.jsonl").write_bytes(LINES)
    (tmp_path / "rows" / ".secret").write_bytes(b"no")
    (tmp_path / "rows" / "half.jsonl.part").write_bytes(b"no")
    manifest = {
        "files": [{"split": "train", "file": "train.jsonl", "rows": 3, "bytes": len(LINES), "sha256": "ab"}],
        "sources": [{"file": "a.jsonl", "environment": "mcqa", "licence": "Apache 2.0"}],
    }
    (tmp_path / "rows" / "manifest.json").write_bytes(orjson.dumps(manifest))
    done = upload(tmp_path / "rows", "me/tasks", private=True)
    repository = hub.repositories["me/tasks"]
    assert repository.private
    assert done["revision"] == repository.head
    content = repository.commits[repository.head]
    assert sorted(content) == [".gitattributes", "README.md", "manifest.json", "train.jsonl"]
    assert yaml.safe_load(content["README.md"].decode().split("---")[1])["license"] == "apache-2.0"
    assert [orjson.loads(line) for _, line in read_lines("hf:me/tasks")] == list(map(orjson.loads, LINES.splitlines()))
    again = download("hf:me/tasks", tmp_path / "again")
    assert again["uploaded_with"] == manifest


def test_a_file_is_uploaded_to_an_existing_dataset(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.add("me/tasks", {"README.md": b"mine"})
    (tmp_path / "train.jsonl").write_bytes(LINES)
    assert upload(tmp_path / "train.jsonl", "hf:me/tasks")["files"] == ["train.jsonl"]
    assert hub.repositories["me/tasks"].commits[hub.repositories["me/tasks"].head]["README.md"] == b"mine"


@pytest.fixture
def without_xet(hub, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the client has read the variable at its import
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.mark.usefixtures("without_xet")
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client calls httpx in an old way
def test_large_and_binary_files_are_uploaded_by_git_lfs(hub, tmp_path):
    hub.lfs_from = 1_000_000
    files = {"rows.parquet": b"PAR1\0" + os.urandom(1000), "train.jsonl": LINES * 30_000, "test.jsonl": LINES}
    for name, content in files.items():
        (tmp_path / "rows" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "rows" / name).write_bytes(content)
    upload(tmp_path / "rows", "me/tasks")
    assert set(hub.objects.values()) == {files["rows.parquet"], files["train.jsonl"]}
    download("hf:me/tasks", tmp_path / "again")
    assert {name: (tmp_path / "again" / name).read_bytes() for name in files} == files
    sent = len([each for each in hub.requests if each.startswith("PUT")])
    upload(tmp_path / "rows", "me/others")  # the hub has these objects already
    assert len([each for each in hub.requests if each.startswith("PUT")]) == sent == 2


@pytest.mark.usefixtures("without_xet")
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client calls httpx in an old way
def test_a_large_file_that_does_not_arrive_is_not_committed(hub, tmp_path):
    hub.forgets_objects = True
    before = hub.add("me/tasks", {"train.jsonl": LINES})
    (tmp_path / "rows.parquet").write_bytes(b"PAR1\0")
    with pytest.raises(UserError, match="answered 404 to a large file. Run it again: nothing was committed"):
        upload(tmp_path / "rows.parquet", "me/tasks")
    assert hub.repositories["me/tasks"].head == before


@pytest.mark.parametrize(
    ("path", "repo", "says"),
    [
        ("train.jsonl", "me/tasks", r"the hub 127.0.0.1:\d+ answered 401 for hf:me/tasks. Set HF_TOKEN"),
        ("nowhere", "me/tasks", "cannot read .*nowhere: No such file"),
        ("empty", "me/tasks", "empty holds no files"),
        ("train.jsonl", "me/tasks:test", "names more than a repository"),
        ("train.jsonl", "a b", "is not a dataset of the hub"),
    ],
)
def test_an_upload_that_cannot_be_is_one_line(hub, tmp_path, path, repo, says):
    (tmp_path / "train.jsonl").write_bytes(LINES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=says):
        upload(tmp_path / path, repo)


def test_a_link_out_of_the_folder_is_not_uploaded(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.jsonl").write_bytes(LINES)
    (tmp_path / "rows" / "link.jsonl").symlink_to(tmp_path / "secret")
    assert upload(tmp_path / "rows", "me/tasks")["files"] == ["train.jsonl"]


def test_datasets_and_files_are_listed(hub, monkeypatch):
    commit = hub.add("me/sums", {"train.jsonl": LINES})
    hub.add("me/secret", {"train.jsonl": LINES}, private=True)
    hub.add("you/sums", {"train.jsonl": LINES})
    assert [each.name for each in list_datasets("me", None, 10)] == ["me/sums"]
    assert [each.name for each in list_datasets(None, "sums", 10)] == ["me/sums", "you/sums"]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert [(each.name, each.private) for each in list_datasets("me", "secret", 10)] == [("me/secret", True)]
    assert list_files("me/sums") == {
        "dataset": "me/sums",
        "revision": commit,
        "licence": "unknown",
        "files": ["train.jsonl"],
    }


@pytest.mark.parametrize(
    ("licences", "expected"),
    [(["MIT", "MIT"], "mit"), (["MIT", "Apache 2.0"], "other"), (["MIT", "unknown"], "unknown"), ([], "unknown")],
)
def test_the_card_names_one_licence_only_if_there_is_one(licences, expected):
    card = dataset_card("me/x", {"sources": [{"file": "a", "licence": each} for each in licences]})
    assert yaml.safe_load(card.split("---")[1])["license"] == expected


def test_a_hostile_manifest_cannot_leave_its_table():
    bad = {"file": "a | b\n---\n# <script>", "split": "x", "rows": "`", "sha256": ["[x](y)"]}
    card = dataset_card("me/x", {"files": [bad, 5, {"file": 7}], "sources": "x"})
    table = card.partition("| --- |")[2]
    assert "\n#" not in table
    assert "<" not in table
    assert "](" not in table


def test_the_commands_print_tables_and_json(hub, tmp_path):
    commit = hub.add("me/sums", {"train.jsonl": LINES})
    run = CliRunner().invoke
    assert "me/sums" in run(commands, ["list", "me"]).output
    assert json.loads(run(commands, ["list", "me", "--json"]).stdout)[0]["name"] == "me/sums"
    assert commit in run(commands, ["list", "hf:me/sums"]).output.replace("\n", "")
    done = run(commands, ["download", "hf:me/sums", "--output", str(tmp_path / "out"), "--json"])
    assert json.loads(done.stdout)["sources"][0]["revision"] == commit


@pytest.mark.slow
def test_the_program_honours_the_endpoint_and_the_token_of_its_environment(hub, tmp_path):
    hub.add("me/secret", {"train.jsonl": LINES}, private=True)
    environment = {**os.environ, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "ludus", "data", "download", "hf:me/secret", "-o", str(tmp_path / "out"), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout)["files"][0]["file"] == "train.jsonl"
    del environment["HF_TOKEN"]
    done = subprocess.run([*command, "--overwrite"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "or it is private. Check the name; for a private dataset set HF_TOKEN" in done.stderr

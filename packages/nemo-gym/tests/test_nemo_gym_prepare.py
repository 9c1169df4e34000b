"""`ng_prepare_data` checks datasets, writes their metrics and collates their rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ludus_nemo_gym.commands import ng_prepare_data

from ludus.runtime.encoding import encode

Row = dict[str, Any]
Prepare = Callable[..., int]


def row(number: int, **fields: Any) -> Row:
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": f"question {number}"}]
    return {"responses_create_params": {"input": messages, **fields}, "answer": "ab"[number % 2], "level": number}


def dataset(kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": kind, "type": kind, "jsonl_fpath": f"data/{kind}.jsonl", "license": "MIT", **fields}


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Writes a config with datasets and runs the command in a temporary folder."""
    monkeypatch.chdir(tmp_path)

    def run(*datasets: Any, mode: str = "train_preparation", arguments: tuple[str, ...] = ()) -> int:
        agent = {"entrypoint": "app.py", "datasets": list(datasets)}
        tree = {"quiz_agent": {"responses_api_agents": {"simple_agent": agent}}}
        Path("quiz.yaml").write_text(yaml.safe_dump(tree))
        with pytest.raises(SystemExit) as ended:
            ng_prepare_data(["+config_paths=[quiz.yaml]", f"+mode={mode}", "+output_dirpath=out", *arguments])
        return int(ended.value.code or 0)

    return run


def write(name: str, rows: list[Row]) -> None:
    path = Path("data") / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(encode(each) + b"\n" for each in rows))


def lines(path: str) -> list[Row]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_rows_are_repeated_and_stamped_with_their_agent(prepare: Prepare, capsys: pytest.CaptureFixture[str]):
    write("train.jsonl", [row(0), row(1)])
    write("validation.jsonl", [row(2)])
    write("example.jsonl", [row(3)])
    datasets = [dataset("train", num_repeats=2), dataset("validation"), dataset("example")]
    assert prepare(*datasets) == 0
    reference = {"agent_ref": {"type": "responses_api_agents", "name": "quiz_agent"}}
    made = [{**each, **reference} for each in (row(0), row(0), row(1), row(1))]
    assert lines("out/train.jsonl") == lines("data/train_prepare.jsonl") == made
    assert lines("out/validation.jsonl") == [{**row(2), **reference}]
    assert not Path("out/example.jsonl").exists()
    assert capsys.readouterr().out == "out/train.jsonl: 4 rows\nout/validation.jsonl: 1 rows\n"
    assert prepare(*datasets, mode="example_validation") == 0
    assert lines("out/example.jsonl") == [{**row(3), **reference}]


def test_a_manifest_says_what_was_made_of_which_files(prepare: Prepare):
    write("train.jsonl", [row(0), row(1)])
    write("validation.jsonl", [row(1)])
    assert prepare(dataset("train", num_repeats=2), dataset("validation")) == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    sources = [(each["environment"], each["licence"], each["rows"], each["used"]) for each in manifest["sources"]]
    assert sources == [("quiz_agent", "MIT", 2, 4), ("quiz_agent", "MIT", 1, 1)]
    for each in manifest["files"]:
        assert each["sha256"] == sha256(Path("out", each["file"]).read_bytes()).hexdigest()
    assert [each["kind"] for each in manifest["conflicts"]] == ["in_train_too"]


def test_metrics_have_nemo_gyms_names_and_numbers(prepare: Prepare):
    tools = [{"type": "function", "name": "f"}]
    write("train.jsonl", [row(0, temperature=0.5, tools=tools), row(1), row(2, tools=[])])
    assert prepare(dataset("train")) == 0
    metrics = json.loads(Path("data/train_metrics.json").read_text())
    assert {key: metrics[key] for key in dataset("train")} == dataset("train")
    assert metrics["Number of examples"] == 3
    assert metrics["Number of tools"] == {
        "Total # non-null values": 2,
        "Average": 0.5,
        "Min": 0,
        "Max": 1,
        "Standard deviation": 0.707,
    }
    assert metrics["Number of turns"]["Average"] == 1
    assert metrics["Temperature"]["Total # non-null values"] == 1
    words = [len(json.dumps(row(1)["responses_create_params"]).split())]
    assert metrics["Json-dumped number of words (proxy for token count)"]["Min"] == words[0]
    assert metrics["level"] == {
        "Total # non-null values": 3,
        "Average": 1.0,
        "Min": 0,
        "Max": 2,
        "Standard deviation": 1.0,
    }
    assert metrics["answer"] == {"unique_count": 2, "total_count": 3}
    assert json.loads(Path("out/train_metrics.json").read_text())["Number of examples"] == 3


def test_metrics_of_a_type_cover_all_its_datasets(prepare: Prepare):
    write("train.jsonl", [row(0)])
    write("more.jsonl", [row(5), row(7)])
    assert prepare(dataset("train"), dataset("train", name="more", jsonl_fpath="data/more.jsonl")) == 0
    metrics = json.loads(Path("out/train_metrics.json").read_text())
    assert metrics["Number of examples"] == 3
    assert metrics["level"]["Average"] == 4.0
    assert len(lines("out/train.jsonl")) == 3


def test_metrics_that_differ_go_to_a_conflict_file_and_are_reported(
    prepare: Prepare, capsys: pytest.CaptureFixture[str]
):
    write("train.jsonl", [row(0)])
    assert prepare(dataset("train")) == 0
    assert prepare(dataset("train")) == 0
    write("train.jsonl", [row(0), row(1)])
    assert prepare(dataset("train")) == 2
    assert "+overwrite_metrics_conflicts=true" in capsys.readouterr().err
    assert json.loads(Path("data/train_metrics.json").read_text())["Number of examples"] == 1
    assert json.loads(Path("data/train_metrics_conflict.json").read_text())["Number of examples"] == 2
    assert len(lines("out/train.jsonl")) == 1
    assert prepare(dataset("train"), arguments=("+overwrite_metrics_conflicts=true",)) == 0
    assert len(lines("out/train.jsonl")) == 2


def test_every_bad_row_is_reported_and_nothing_is_written(prepare: Prepare, capsys: pytest.CaptureFixture[str]):
    write("train.jsonl", [row(0)])
    bad = ["{", "[]", '{"a": 1}', '{"responses_create_params": {"input": 1}}']
    bad.append('{"responses_create_params": {"input": "x", "sed": 1}}')
    with Path("data/train.jsonl").open("a") as file:
        file.write("\n".join(bad) + "\n")
    assert prepare(dataset("train")) == 2
    printed = capsys.readouterr().err
    for number in range(2, 7):
        assert f"data/train.jsonl:{number}: " in printed
    assert "responses_create_params has no field sed" in printed
    assert printed.count("\n") == 1
    assert not Path("out").exists()
    assert [path.name for path in Path("data").iterdir()] == ["train.jsonl"]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (dataset("train"), "there is no data/train.jsonl (train of quiz_agent)"),
        (dataset("tran"), "unknown type tran. Did you mean train?"),
        (dataset("train", license=None), "train has no license"),
        (dataset("train", num_repeats=0), "num_repeats 0 is not a number from 1 on"),
        ({"name": "x", "type": "train"}, "an entry has no jsonl_fpath"),
        ("train", "an entry must be a mapping"),
        (dataset("example"), "no agent of the configuration has a dataset of type train or validation or benchmark"),
    ],
)
def test_a_malformed_dataset_is_reported(prepare: Prepare, capsys: pytest.CaptureFixture[str], block: Any, said: str):
    assert prepare(block) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_mode_is_reported(prepare: Prepare, capsys: pytest.CaptureFixture[str]):
    assert prepare(dataset("train"), mode="train") == 2
    assert "unknown mode train" in capsys.readouterr().err


def test_preparing_built_in_examples_writes_nothing_into_their_folder(tmp_path: Path, monkeypatch: Any):
    from ludus.folder import folders

    monkeypatch.chdir(tmp_path)
    before = sorted(folders()["mcqa"].rglob("*.json*"))
    path = "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"
    with pytest.raises(SystemExit) as ended:
        ng_prepare_data([path, "+mode=example_validation", "+output_dirpath=out"])
    assert ended.value.code == 0
    assert {each["agent_ref"]["name"] for each in lines("out/example.jsonl")} == {"mcqa_simple_agent"}
    assert sorted(folders()["mcqa"].rglob("*.json*")) == before


def test_a_download_needs_huggingface_hub(prepare: Prepare, monkeypatch: Any, capsys: pytest.CaptureFixture[str]):
    source = {"type": "huggingface", "repo_id": "a/b", "artifact_fpath": "t.jsonl"}
    monkeypatch.setattr("ludus_nemo_gym.hub.find_spec", lambda name: None)
    assert prepare(dataset("train", source=source), arguments=("+should_download=true",)) == 2
    assert "not downloaded, because huggingface_hub is not installed" in capsys.readouterr().err
    assert prepare(dataset("train"), arguments=("+should_download=true",)) == 2
    assert "it has no repo_id and artifact_fpath to download from" in capsys.readouterr().err


def test_a_missing_file_is_downloaded(prepare: Prepare, tmp_path: Path, monkeypatch: Any):
    request: dict[str, Any] = {}

    def download(**given: Any) -> str:
        request.update(given)
        path = tmp_path / "cache.jsonl"
        path.write_bytes(encode(row(0)) + b"\n")
        return str(path)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download, __spec__=object()))
    source = {"repo_id": "a/b", "artifact_fpath": "t.jsonl"}
    arguments = ("+should_download=true", "+hf_token=hf_12345678")
    assert prepare(dataset("train", huggingface_identifier=source), arguments=arguments) == 0
    assert request == {"repo_id": "a/b", "filename": "t.jsonl", "repo_type": "dataset", "token": "hf_12345678"}
    assert len(lines("out/train.jsonl")) == 1
    assert lines("data/train.jsonl") == [row(0)]

"""`ludus data prepare` checks, weighs, repeats, stamps and shuffles rows, and writes a manifest of what it did."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from data_rows import command, read, row, write
from hypothesis import given
from hypothesis import strategies as st
from ludus_data.prepare import SplitSource, prepare, with_agent

import ludus
from ludus import UserError

RESOURCES = """\
import ludus


class Quiz(ludus.Resources):
    class Task(ludus.Task):
        expected_answer: str

    async def verify(self, task, response):
        return 1.0
"""


def make(folder: Path, train: list[Any], validation: list[Any] | None = None) -> Path:
    folder.mkdir()
    files = {"train": train} | ({"validation": validation} if validation is not None else {})
    datasets = [f"{{name: {name}, path: {name}.jsonl, license: MIT}}" for name in files]
    yaml = f"name: {folder.name}\nresources: resources.py:Quiz\ndatasets: [{', '.join(datasets)}]\n"
    (folder / "environment.yaml").write_text(yaml)
    (folder / "resources.py").write_text(RESOURCES)
    for name, rows in files.items():
        write(folder / f"{name}.jsonl", *rows)
    return folder


def rows_of(name: str, count: int) -> list[dict[str, Any]]:
    return [row(f"{name} {number}", n=number) for number in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "math", rows_of("math", 30), rows_of("math held out", 3))
    make(tmp_path / "tools", rows_of("tools", 50))
    return tmp_path


def manifest_of(folder: Path, *words: str) -> dict[str, Any]:
    done = command(folder, "prepare", "--env", "math", "--env", "tools", "-o", "out", "--overwrite", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found == json.loads((folder / "out" / "manifest.json").read_text())
    return found


def by_agent(path: Path) -> Counter[str]:
    return Counter(each["agent_ref"]["name"] for each in read(path))


def test_all_rows_are_collated_with_their_agent_and_listed_in_the_manifest(folder: Path):
    found = manifest_of(folder)
    assert by_agent(folder / "out" / "train.jsonl") == {"math": 30, "tools": 50}
    assert by_agent(folder / "out" / "validation.jsonl") == {"math": 3}
    reference = {"type": "responses_api_agents", "name": "math"}
    assert read(folder / "out" / "validation.jsonl")[0] == {**row("math held out 0", n=0), "agent_ref": reference}
    for each in found["files"]:
        content = (folder / "out" / each["file"]).read_bytes()
        assert (each["rows"], each["bytes"]) == (content.count(b"\n"), len(content))
        assert each["sha256"] == sha256(content).hexdigest()
    for each in found["sources"]:
        assert (each["licence"], each["used"], each["repeats"]) == ("MIT", each["rows"], 1)
        assert each["sha256"] == sha256((folder / each["file"]).read_bytes()).hexdigest()
    assert found["statistics"]["train"]["math"]["n"]["number"]["max"] == 29
    assert found["conflicts"] == []


def test_train_is_shuffled_by_the_seed_and_the_rest_keeps_its_order(folder: Path):
    orders = []
    for words in (("--seed", "1"), ("--seed", "1"), ("--seed", "2"), ("--no-shuffle",)):
        manifest_of(folder, *words)
        orders.append([(each["agent_ref"]["name"], each["n"]) for each in read(folder / "out" / "train.jsonl")])
        assert [each["n"] for each in read(folder / "out" / "validation.jsonl")] == [0, 1, 2]
    assert orders[0] == orders[1] != orders[2]
    assert orders[3] == sorted(orders[0]) == sorted(orders[2])


def test_weights_hold_and_no_row_is_used_twice(folder: Path):
    found = manifest_of(folder, "--mix", "math=0.6,tools=0.4")
    assert by_agent(folder / "out" / "train.jsonl") == {"math": 30, "tools": 20}
    assert len({each["responses_create_params"]["input"] for each in read(folder / "out" / "train.jsonl")}) == 50
    assert {each["environment"]: each["used"] for each in found["sources"] if each["split"] == "train"} == {
        "math": 30,
        "tools": 20,
    }
    assert found["mix"] == {"math": 0.6, "tools": 0.4}


def test_repeats_are_counted_before_the_weights(folder: Path):
    manifest_of(folder, "--repeats", "math=2", "--mix", "math=0.6,tools=0.4")
    assert by_agent(folder / "out" / "train.jsonl") == {"math": 60, "tools": 40}
    assert set(Counter(each["n"] for each in read(folder / "out" / "train.jsonl")).values()) <= {1, 2, 3}
    manifest_of(folder, "--repeats", "3")
    assert by_agent(folder / "out" / "train.jsonl") == {"math": 90, "tools": 150}
    assert by_agent(folder / "out" / "validation.jsonl") == {"math": 3}


@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=3), weights=st.data(), seed=st.integers(0, 5))
def test_a_mix_takes_a_subset_of_each_environment(sizes, weights, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mix")
    mix = {f"e{number}": weights.draw(st.floats(0.1, 10)) for number in range(len(sizes))}
    sources = []
    for name, size in zip(mix, sizes, strict=True):
        path = write(folder / f"{name}.jsonl", *rows_of(name, size))
        sources.append(SplitSource(name, "train", path, ludus.Task.model_validate))
    prepare(sources, folder / "out", mix=mix, seed=seed)
    made = [each["responses_create_params"]["input"] for each in read(folder / "out" / "train.jsonl")]
    total = sum(mix.values())
    for name, size in zip(mix, sizes, strict=True):
        own = [prompt for prompt in made if prompt.startswith(name)]
        assert len(own) == len(set(own)) <= size
        assert abs(len(own) - mix[name] / total * len(made)) <= 1 + 1e-6


def test_files_replace_the_datasets_of_an_environment_and_take_a_licence(folder: Path):
    write(folder / "mine.jsonl", row("mine"))
    found = manifest_of(folder, "--train", "math=mine.jsonl", "--license", "math=CC0")
    assert by_agent(folder / "out" / "train.jsonl") == {"math": 1, "tools": 50}
    licences = {(each["environment"], each["split"]): each["licence"] for each in found["sources"]}
    assert licences == {("math", "train"): "CC0", ("math", "validation"): "CC0", ("tools", "train"): "MIT"}


def test_conflicts_are_shown_and_exit_with_1(folder: Path):
    shared = [row("math 1"), row("new", n="text")]
    write(folder / "tools" / "train.jsonl", *shared, row("new", n="other"))
    write(folder / "math" / "validation.jsonl", row("math 1"), row("math 2"), row("fresh"))
    done = command(folder, "prepare", "--env", "math", "--env", "tools", "-o", "out")
    assert done.returncode == 1
    found = {each["kind"]: each for each in json.loads((folder / "out" / "manifest.json").read_text())["conflicts"]}
    assert found["in_train_too"]["rows"] == 2
    assert found["in_train_too"]["where"] == f"{folder / 'math' / 'validation.jsonl'}:1"
    assert found["rows_differ"]["rows"] == 2
    assert found["types_differ"]["message"] == "train: n is number in math, text in tools"
    assert done.stdout.count("conflict: ") == 3


def test_bad_rows_stop_everything_before_anything_is_written(folder: Path):
    write(folder / "tools" / "train.jsonl", *rows_of("tools", 3), {"responses_create_params": {"input": "x"}}, b"{")
    done = command(folder, "prepare", "--env", "math", "--env", "tools", "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "tools/train.jsonl:4: expected_answer is missing; " in done.stderr
    assert "tools/train.jsonl:5: not JSON" in done.stderr
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env math -o out --mix math=1", "--mix needs two environments or more"),
        ("--env math --env tools -o out --mix math=1", "--mix has no weight for tools"),
        ("--env math -o out --repeats tols=2", "--repeats names tols, which is not prepared"),
        ("--env math -o out --repeats 1.5", "--repeats N=1.5 is not a whole number"),
        ("--env math -o out --train math", "--train math is not ENV=VALUE"),
        ("-o out", "no environment is named"),
        ("--env math -o math", "train.jsonl exists already"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, words: str, says: str):
    done = command(folder, "prepare", *words.split())
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert says in done.stderr


def test_a_row_keeps_its_bytes_and_only_gets_an_agent():
    line = b'{"big": 123456789012345678901234567890, "z": "\\u00e9"}\n'
    stamped = with_agent("x:1", line, "math")
    assert stamped.startswith(line.rstrip()[:-1])
    assert json.loads(stamped)["agent_ref"]["name"] == "math"
    assert with_agent("x:1", stamped, "math") == stamped
    other = json.loads(with_agent("x:1", stamped, "tools"))
    assert (other["agent_ref"]["name"], other["big"]) == ("tools", 123456789012345678901234567890)


def test_a_source_that_can_be_read_only_once_is_refused(tmp_path: Path):
    source = SplitSource("quiz", "train", Path("/dev/null"), ludus.Task.model_validate)
    with pytest.raises(UserError, match="can be read only once"):
        prepare([source], tmp_path / "out")

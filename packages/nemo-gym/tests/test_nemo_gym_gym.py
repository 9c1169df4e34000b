"""The `gym` command as its users type it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked
import interruptible
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_nemo_gym import gym
from ludus_nemo_gym.gym_flags import COLLECT, COMPONENTS, MODEL, quoted, translate
from ludus_nemo_gym.gym_subcommands import SUBCOMMANDS
from ludus_nemo_gym.overrides import parse_overrides
from servers import Server
from serving import COUNTER, COUNTER_ROW, served
from waiting import CEILING

from ludus.errors import UserError
from ludus.runtime.encoding import encode

KEY = "your-openai-api-key"
START = "gym env start --resources-server mcqa --model-type openai_model"
RUN = (
    "gym eval run --no-serve --agent mcqa_simple_agent --input resources_servers/mcqa/data/example.jsonl "
    "--output results/mcqa_rollouts.jsonl --limit 5 --num-repeats 1"
)
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "")


def typed(line: str) -> list[str]:
    """The command line that runs `gym ...`."""
    return [sys.executable, "-c", "from ludus_nemo_gym.gym import main; main()", *shlex.split(line)[1:]]


def run(line: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return forked.run(typed(line), capture_output=True, text=True, env=variables)


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        gym.main(list(arguments))
    return int(ended.value.code or 0)


def lines(path: str) -> list[Row]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@contextmanager
def started(line: str) -> Iterator[str]:
    """A command that serves until it is interrupted. Gives what it printed until it was ready."""
    process = interruptible.start(typed(line), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = ""
    while "ready" not in said and (printed := process.stdout.readline()):
        said += printed
    try:
        assert "ready" in said, said
        yield said
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=CEILING)
    assert process.returncode == 0, rest
    assert KEY not in said + rest


@pytest.mark.parametrize("how", ["env.yaml", "variables"])
def test_the_quickstart_works_as_it_is_written_in_an_empty_folder(
    how: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    values = {"policy_base_url": server.url, "policy_api_key": KEY, "policy_model_name": "gpt-4.1-2025-04-14"}
    if how == "env.yaml":
        (tmp_path / "env.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    else:
        for key, value in values.items():
            monkeypatch.setenv(key.upper(), value)
    with started(f"{START} ++head_server.port=0") as said:
        for name in ("mcqa", "mcqa_simple_agent", "policy_model"):
            assert re.search(rf"^ *{name} ", said, re.MULTILINE), said
        found = re.search(r"head +head +http://127.0.0.1:(\d+)", said)
        assert found is not None, said
        done = run(f"{RUN} ++head_server.port={found[1]}")
        assert done.returncode == 0, done.stderr
        status = run(f"gym env status --json ++head_server.port={found[1]}")
        assert {each["status"] for each in json.loads(status.stdout)["servers"]} == {"ok"}
    assert "Key metrics for mcqa_simple_agent:" in done.stdout
    printed = json.loads(done.stdout.partition("Key metrics for mcqa_simple_agent:")[2].partition("Fully")[0])
    assert {"mean/reward", "pass@1/reward", "pass@1[avg-of-1]/reward"} <= printed.keys()
    assert len(lines("results/mcqa_rollouts.jsonl")) == 5
    assert len(lines("results/mcqa_rollouts_materialized_inputs.jsonl")) == 5
    (metrics,) = json.loads(Path("results/mcqa_rollouts_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"] == printed
    assert server.bodies[0]["model"] == "gpt-4.1-2025-04-14"


POLICY = "--model m --model-url {url} --model-api-key none-needed"
ONE_COMMAND = f"gym eval run --resources-server {COUNTER} --model-type openai_model {POLICY}"


def test_one_command_starts_servers_collects_and_stops_them(server: Server):
    done = run(f"{ONE_COMMAND} --output out/r.jsonl --limit 2 --num-repeats 2 --temperature 0.5".format(url=server.url))
    assert done.returncode == 0, done.stderr
    rows = lines("out/r.jsonl")
    assert len(rows) == 4
    assert {body["temperature"] for body in server.bodies} == {0.5}
    assert len(lines("out/r_data/example.jsonl")) >= 2
    again = run(
        f"{ONE_COMMAND} --output out/r.jsonl --limit 2 --num-repeats 2 --temperature 0.5 --resume".format(
            url=server.url
        )
    )
    assert "resuming: 4 rollouts are done already" in again.stdout + again.stderr
    assert lines("out/r.jsonl") == rows


def collected(name: str, rows: list[Row], repeats: int = 2) -> None:
    """A collection in the folder, made by a running server."""
    Path("in.jsonl").write_bytes(b"".join(encode(row) + b"\n" for row in rows))
    with served(COUNTER) as serving:
        port = serving.head_url.rpartition(":")[2]
        agent = f"{COUNTER}_simple_agent"
        flags = ["--agent", agent, "--input", "in.jsonl", "--output", name, "--num-repeats", str(repeats)]
        assert called("eval", "run", "--no-serve", *flags, f"++head_server.port={port}") == 0


WRONG = {**COUNTER_ROW, "expected_count": 9}


def test_a_profile_has_the_rewards_of_each_task(capsys: pytest.CaptureFixture[str]):
    collected("r.jsonl", [COUNTER_ROW, WRONG])
    flags = ["--inputs", "r_materialized_inputs.jsonl", "--rollouts", "r.jsonl"]
    assert called("eval", "profile", *flags) == 0
    good, bad = sorted(lines("r_reward_profiling.jsonl"), key=lambda each: each["_ng_task_index"])
    assert (good["mean/reward"], bad["mean/reward"]) == (1.0, 0.0)
    assert good["sample"]["expected_count"] == 4
    assert (good["num_rollouts"], good["expected_num_rollouts"], good["missing_num_rollouts"]) == (2, 2, 0)
    assert good["reward_profile_completion_pct"] == 100
    assert [each["reward"] for each in good["rollout_infos"]] == [1.0, 1.0]
    (agent,) = json.loads(Path("r_agent_metrics.json").read_text())
    assert agent["key_metrics"]["pass@1/reward"] == 50.0
    printed = capsys.readouterr().out
    assert "groups with a learning signal" in printed  # the tables of `ludus profile`
    assert "0.0%, 0 of 2" in printed
    Path("r.jsonl").write_text(Path("r.jsonl").read_text().splitlines()[0] + "\n")
    capsys.readouterr()
    assert called("eval", "profile", *flags) == 2
    assert "r.jsonl lacks 3 of 4 rollouts" in capsys.readouterr().err
    assert called("eval", "profile", *flags, "+allow_partial_rollouts=true") == 0
    assert sum(each["missing_num_rollouts"] for each in lines("r_reward_profiling.jsonl")) == 3


def test_shards_are_merged_and_a_rollout_in_two_of_them_counts_once(capsys: pytest.CaptureFixture[str]):
    collected("r.jsonl", [COUNTER_ROW, WRONG])
    whole = Path("r.jsonl").read_text().splitlines(keepends=True)
    Path("shard_0.jsonl").write_text("".join(whole[:3]))
    Path("shard_1.jsonl").write_text("".join(whole[2:]))
    assert called("eval", "aggregate", "-i", "shard_*.jsonl", "-o", "all.jsonl") == 0
    assert "Key metrics for" in capsys.readouterr().out
    assert sorted(Path("all.jsonl").read_text().splitlines()) == sorted(line.strip() for line in whole)
    (agent,) = json.loads(Path("all_aggregate_metrics.json").read_text())
    assert agent["key_metrics"]["mean/reward"] == 0.5
    other = json.loads(whole[0])
    other["responses_create_params"] = {"input": "another question"}
    Path("shard_2.jsonl").write_text(json.dumps(other) + "\n")
    assert called("eval", "aggregate", "-i", "shard_*.jsonl", "-o", "all.jsonl") == 2
    assert "has another prompt than elsewhere" in capsys.readouterr().err


def test_rollouts_are_judged_again_without_a_model(capsys: pytest.CaptureFixture[str]):
    collected("r.jsonl", [COUNTER_ROW, WRONG])
    inputs = lines("r_materialized_inputs.jsonl")
    for row in inputs:
        row["expected_count"] = 4  # the row that was wrong is corrected
    Path("corrected.jsonl").write_bytes(b"".join(encode(row) + b"\n" for row in inputs))
    line = ["eval", "reverify", "--resources-server", COUNTER, "--rollouts", "r.jsonl", "--output", "again.jsonl"]
    assert called(*line, "--inputs", "corrected.jsonl") == 0
    rows = lines("again.jsonl")
    assert [row["reward"] for row in rows] == [1.0] * 4
    indices = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows}
    assert indices == {(0, 0), (0, 1), (1, 0), (1, 1)}
    capsys.readouterr()
    assert called(*line, "--inputs", "corrected.jsonl") == 2
    assert "again.jsonl exists already. Add --overwrite to replace it, or --resume to" in capsys.readouterr().err
    assert called(*line, "--inputs", "r_materialized_inputs.jsonl", "--overwrite") == 0
    assert sorted(row["reward"] for row in lines("again.jsonl")) == [0.0, 0.0, 1.0, 1.0]
    assert called(*line, "--inputs", "r_materialized_inputs.jsonl", "--force") == 0
    assert len(lines("unsafe_again.jsonl")) == 4


def test_only_what_the_judge_failed_on_is_judged_again():
    collected("r.jsonl", [COUNTER_ROW, WRONG], repeats=1)
    kept, failed = lines("r.jsonl")
    Path("r.jsonl").write_text(json.dumps({**kept, "reward": 0.25}) + "\n")
    Path("r_failures.jsonl").write_text(
        json.dumps({**failed, "reward": None, "_ng_failure_class": "judge_failed"}) + "\n"
    )
    flags = ["--inputs", "r_materialized_inputs.jsonl", "--rollouts", "r.jsonl", "--output", "again.jsonl"]
    assert called("eval", "reverify", "--resources-server", COUNTER, *flags, "--judge-failed-only") == 0
    rewards = {row["_ng_task_index"]: row["reward"] for row in lines("again.jsonl")}
    assert rewards == {kept["_ng_task_index"]: 0.25, failed["_ng_task_index"]: failed["reward"]}


PROMPT = "system: Answer briefly.\nuser: 'Solve {problem} {{now}}'\n"


def test_prompts_are_built_for_rows_without_one(capsys: pytest.CaptureFixture[str]):
    Path("prompt.yaml").write_text(PROMPT)
    own = {"responses_create_params": {"input": "mine"}, "problem": "x"}
    Path("in.jsonl").write_text(json.dumps({"problem": "{1}+{__class__}", "answer": 2}) + "\n" + json.dumps(own) + "\n")
    flags = ["--prompt-config", "prompt.yaml", "--output", "out.jsonl"]
    assert called("dataset", "render", "--input", "in.jsonl", *flags) == 0
    built, kept = lines("out.jsonl")
    assert built["responses_create_params"]["input"] == [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Solve {1}+{__class__} {now}"},
    ]
    assert kept == own
    Path("in.jsonl").write_text('{"probelm": "x"}\n')
    capsys.readouterr()
    assert called("dataset", "render", "--input", "in.jsonl", *flags) == 2
    printed = capsys.readouterr().err
    assert "in.jsonl:1: the prompt needs the field problem, and the row has none. Did you mean probelm?" in printed
    assert printed.count("\n") == 1


def test_a_collection_builds_prompts(server: Server):
    Path("prompt.yaml").write_text("user: 'add {count}'\n")
    Path("in.jsonl").write_text(json.dumps({"count": 3, "initial_count": 0, "expected_count": 1}) + "\n")
    done = run(
        f"{ONE_COMMAND} -i in.jsonl -o r.jsonl --prompt-config prompt.yaml -a {COUNTER}_simple_agent".format(
            url=server.url
        )
    )
    assert done.returncode == 0, done.stderr
    assert server.bodies[0]["input"] == [{"role": "user", "content": "add 3"}]


def test_environments_are_listed_searched_and_inspected(capsys: pytest.CaptureFixture[str]):
    assert called("list", "environments", "--json") == 0
    names = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert names["mcqa"]["status"] == "installed"
    assert called("list", "environments", "--json", "--domain", "math") == 0
    math = {each["name"] for each in json.loads(capsys.readouterr().out)}
    assert "math_with_judge" in math
    assert "mcqa" not in math
    assert called("search", "environments", "calender", "--json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["calendar"]
    assert called("list", "resources-servers", "mcqa") == 0
    assert "resources_servers/mcqa/data/example.jsonl" in capsys.readouterr().out
    for kind, name in (("agents", "simple_agent"), ("models", "openai_model")):
        assert called("list", kind) == 0
        assert name in capsys.readouterr().out
    assert called("list", "benchmarks", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.usefixtures("few_plugins")
def test_a_new_environment_is_made_tested_and_validated(capsys: pytest.CaptureFixture[str]):
    assert called("env", "init", "--resources-server", "corner_shop") == 0
    assert Path("resources_servers/corner_shop/environment.yaml").is_file()
    assert called("env", "test", "--resources-server", "corner_shop") == 0
    (test,) = Path("resources_servers/corner_shop").glob("**/test_*.py")
    test.write_text("def test_it():\n    assert False\n")
    assert called("env", "test") == 1
    capsys.readouterr()
    assert called("env", "validate", "--resources-server", "corner_shop", "--model-type", "local") == 0
    assert "valid: 3 servers" in capsys.readouterr().out
    assert called("env", "resolve", "--resources-server", "corner_shop") == 0
    assert "corner_shop_simple_agent:" in capsys.readouterr().out


def test_a_search_dir_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for folder in ("checkout", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    called("env", "init", "--resources-server", "corner_shop")
    monkeypatch.chdir(tmp_path / "elsewhere")
    line = ["env", "validate", "--resources-server", "corner_shop", "--model-type", "local"]
    assert called(*line) == 2
    assert called(*line, "--search-dir", str(tmp_path / "checkout")) == 0


def test_datasets_are_collated():
    flags = ["--mode", "example_validation", "--output-dir", "data/mcqa"]
    assert called("dataset", "collate", "--resources-server", "mcqa", *flags) == 0
    assert len(lines("data/mcqa/example.jsonl")) >= 5


def test_a_file_is_downloaded_and_uploaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The hub cannot be reached from the tests: this stands in for its package."""
    Path("there.jsonl").write_text("{}\n")
    asked: list[Row] = []

    def note(given: Row, answer: Any) -> Any:
        asked.append(given)
        return answer

    hub = SimpleNamespace(
        hf_hub_download=lambda **given: note(given, "there.jsonl"),
        HfApi=lambda token: SimpleNamespace(
            upload_file=lambda **given: note(given, SimpleNamespace(commit_url="done"))
        ),
        __spec__=object(),
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    common = ["--storage", "hf", "--repo-id", "org/name", "--split", "train"]
    assert called("dataset", "download", *common, "--output-dir", "data") == 0
    assert Path("data/train.jsonl").read_text() == "{}\n"
    assert (asked[0]["repo_id"], asked[0]["filename"]) == ("org/name", "train.jsonl")
    assert called("dataset", "upload", *common, "--input", "there.jsonl", "--create-pr") == 0
    assert (asked[1]["path_in_repo"], asked[1]["create_pr"]) == ("train.jsonl", True)
    assert called("dataset", "download", *common[2:], "--storage", "gitlab") == 2
    assert "Use --storage hf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("evn start", "gym has no command evn. Did you mean env?"),
        ("env strat", "gym env has no command strat. Did you mean start?"),
        ("env start --resource-server mcqa", "there is no flag --resource-server. Did you mean --resources-server?"),
        ("env start --resources-server", "--resources-server needs a value"),
        ("env start --resources-server ../mcqa", "--resources-server ../mcqa is not a name"),
        ("env start --resources-server mcq", "there is no environment mcq. Did you mean mcqa?"),
        ("env start mcqa", "mcqa is neither a flag nor key=value"),
        ("env status --json=1", "--json takes no value"),
        ("eval run --no-serve --agent a --input b.jsonl", "output_jsonl_fpath is missing. Add --output VALUE"),
        (
            "eval run --no-serve --input a --output b.jsonl --limit five",
            "limit 'five' is not a number from 1 on. Example: --limit 4",
        ),
        ("eval aggregate -i none_*.jsonl -o a.jsonl", "no file matches none_*.jsonl"),
        ("eval profile --inputs a.jsonl --rollouts b.jsonl", "cannot read a.jsonl"),
        ("eval prepare --benchmark gpqa", "there is no config benchmarks/gpqa/config.yaml"),
        ("list tools", "unknown kind tools"),
        ("list environments mcq", "there is no mcq among environments. Did you mean mcqa?"),
        ("search", "gym search takes one QUERY"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: str, said: str, capsys: pytest.CaptureFixture[str]):
    assert called(*arguments.split()) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("name", sorted(SUBCOMMANDS))
def test_every_subcommand_prints_its_help_with_an_example_that_it_accepts(
    name: str, capsys: pytest.CaptureFixture[str]
):
    assert called(*name.split(), "--help") == 0
    printed = capsys.readouterr().out
    assert f"Example: gym {name} " in printed
    assert "Example: " + SUBCOMMANDS[name].example in printed
    assert translate(shlex.split(SUBCOMMANDS[name].example)[3:], SUBCOMMANDS[name].flags).words == []


@pytest.mark.parametrize("group", ["", *sorted({name.partition(" ")[0] for name in SUBCOMMANDS})])
def test_the_overview_of_commands_has_an_example_that_is_accepted(group: str, capsys: pytest.CaptureFixture[str]):
    assert called(*group.split(), "--help") == 0
    (example,) = re.findall(r"^Example: (.*)$", capsys.readouterr().out, re.MULTILINE)
    words = shlex.split(example)
    assert words[0] == "gym"
    assert words[1] == (group or words[1])
    assert translate(words[3:], SUBCOMMANDS[" ".join(words[1:3])].flags).words == []


def test_help_lists_every_subcommand_and_the_version_is_json(capsys: pytest.CaptureFixture[str]):
    assert called("--help") == 0
    printed = capsys.readouterr().out
    assert all(f"gym {name} " in printed for name in SUBCOMMANDS)
    assert called("env") == 0
    assert "gym env start" in capsys.readouterr().out
    assert called("--version", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ludus"]
    assert called("--version") == 0


@given(st.text().filter(lambda text: not re.search(r"\$\{", text)))
def test_any_text_of_a_flag_reaches_the_configuration_unchanged(text: str):
    try:
        found = parse_overrides(translate([f"--agent={text}"], COLLECT).overrides)
    except UserError:
        assert re.search(r"[\x00-\x1f\x7f]", text), text  # control characters may be refused
        return
    assert found == {"agent_name": text}


def test_files_of_flags_follow_those_of_overrides():
    found = translate(
        ["+config_paths=[a.yaml]", "--config", "b, c.yaml", "--resources-server", "mcqa/v2", "--model-type=local"],
        {**COMPONENTS, **MODEL},
    )
    assert parse_overrides(found.overrides)["config_paths"] == [
        "a.yaml",
        "b, c.yaml",
        "resources_servers/mcqa/configs/v2.yaml",
        "responses_api_models/local/configs/local.yaml",
    ]


def test_flags_and_overrides_can_be_mixed():
    flags = {**COLLECT, **COMPONENTS, **MODEL}
    line = ["+responses_create_params={top_k: 3}", "--temperature", "0.5", "--num-repeats", "{a: 2}", "-m", "007"]
    assert parse_overrides(translate(line, flags).overrides) == {
        "responses_create_params": {"top_k": 3, "temperature": 0.5},
        "num_repeats": {"a": 2},
        "policy_model_name": "007",
    }
    assert quoted("it's") == r"'it\'s'"

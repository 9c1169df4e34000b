"""Harbor's task folders run unchanged, their verdicts are hard to forge, and failures say why."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from harbor_boxes import TASKS, needs_images, new_cache, played
from hypothesis import given
from hypothesis import strategies as st

from ludus import Environment, Failure, UserError
from ludus.data.convert import convert
from ludus.environments.terminal import qualify
from ludus.environments.terminal.settings import TaskSettings, filled
from ludus.environments.terminal.verdicts import rewards_of

#: Tasks whose solution earns 1 on a base without packages.
OFFLINE = ("hello", "stages", "service", "separate", "verifier_image", "hostile", "steps", "named")


@pytest.fixture(scope="module")
def base() -> Any:
    """One cache for the tests of this file: each image is built once."""
    with pytest.MonkeyPatch.context() as patch:
        yield new_cache(patch)


def running(*commands: str) -> list[Any]:
    return [*({"call": "bash", "arguments": {"command": command}} for command in commands), "Done."]


def cheating(name: str) -> Any:
    """A script that cheats in this way."""
    return lambda task: qualify.exploits(task)[f"grader/{name}"]


@needs_images
def test_a_folder_of_tasks_runs_unchanged(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_TEST_SECRET", "of the host")
    for name in OFFLINE:
        shutil.copytree(TASKS / name, tmp_path / name)
    rollouts = played(f"harbor:{tmp_path}", None, ["Done."], **base)
    verdicts = [(rollout.job.row["task_name"], rollout.reward, rollout.error) for rollout in rollouts]
    assert verdicts == [(name, reward, None) for name in sorted(OFFLINE) for reward in (1.0, 0.0)]


@needs_images
@pytest.mark.slow
def test_packages_come_from_the_registries_if_the_operator_lets_builds_reach_them() -> None:
    from ludus.sandbox.bases import Bases

    if Bases().find("debian:bookworm-slim") is None:
        pytest.skip("there is no base: ludus sandbox base debian --for debian:bookworm-slim")
    (rollout,) = played(f"harbor:{TASKS / 'packages'}", **{"resources.build_network": True})
    assert rollout.reward == 1.0


@needs_images
def test_a_test_script_that_needs_a_network_is_a_failure_with_its_cause(base: dict[str, Any]) -> None:
    (rollout,) = played(f"harbor:{TASKS / 'needs_network'}", **base)
    assert rollout.reward is None
    assert rollout.error is not None
    assert "cannot run without a network: /tests/test.sh: line 2: uvx: command not found" in rollout.error.cause


@needs_images
def test_a_model_cannot_claim_that_the_network_is_missing(base: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(TASKS / "hello", tmp_path / "task")
    test = (tmp_path / "task/tests/test.sh").read_text()
    (tmp_path / "task/tests/test.sh").write_text(test.replace("#!/bin/bash\n", "#!/bin/bash\ncat /app/hello.txt\n"))
    (rollout,) = played(str(tmp_path / "task"), running("echo Could not resolve host > hello.txt"), **base)
    assert (rollout.reward, rollout.error) == (0.0, None)


@needs_images
def test_a_cheat_earns_nothing_in_the_agents_own_box(base: dict[str, Any]) -> None:
    names = ("verdict_in_advance", "waits", "own_tests", "linked_tests", "git_hooks", "conftest", "path")
    rollouts = played(f"harbor:{TASKS / 'hello'}", *map(cheating, names), **base)
    assert [(rollout.reward, rollout.error) for rollout in rollouts] == [(0.0, None)] * len(names)
    planted = rollouts[-1].verdict
    assert planted is not None
    assert planted.values["problem"].endswith("; after the task's own solution it writes a reward")


@needs_images
def test_a_missing_reward_is_a_failure_unless_the_solution_gets_one(base: dict[str, Any], tmp_path: Path) -> None:
    for name, test in {"none": "true", "nan": "echo nan > /logs/verifier/reward.txt"}.items():
        shutil.copytree(TASKS / "hello", tmp_path / name)
        (tmp_path / name / "tests/test.sh").write_text(test)
    shutil.copytree(TASKS / "hello", tmp_path / "unsolved", ignore=shutil.ignore_patterns("solution"))
    rollouts = played(f"harbor:{tmp_path}", cheating("path"), **base)
    assert [rollout.reward for rollout in rollouts] == [None] * 3
    assert [rollout.error and rollout.error.kind for rollout in rollouts] == ["bad_verdict"] * 3


@needs_images
def test_programs_that_the_model_planted_do_not_reach_a_separate_verifier(base: dict[str, Any]) -> None:
    rollouts = played(f"harbor:{TASKS / 'separate'}", *map(cheating, ("path", "waits")), **base)
    assert [(rollout.reward, rollout.error) for rollout in rollouts] == [(0.0, None)] * 2
    links = running("ln -s /expected answers/number.txt; ln -s /tests x; echo a > notes.txt")
    (rollout,) = played(f"harbor:{TASKS / 'verifier_image'}", links, **base)
    assert rollout.reward == 0.0


@needs_images
def test_a_step_that_is_not_good_enough_ends_the_task(base: dict[str, Any]) -> None:
    skip = [{"call": "finish_step", "arguments": {}}, *running("echo 1 > one; cp given two")]
    (rollout,) = played(f"harbor:{TASKS / 'steps'}", skip, **base)
    assert rollout.reward == 0.0


@needs_images
def test_an_image_of_the_settings_wins_and_says_so(base: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    image = next(iter(base["resources.bases"].values()))
    (rollout,) = played(f"harbor:{TASKS / 'stages'}", running("ls /app"), **{"resources.sandbox.image": image})
    assert rollout.reward == 0.0
    assert f"resources.sandbox.image={image} is used in place of the task's Dockerfile" in caplog.text


def test_rows_travel_with_their_files_and_need_no_base_to_be_written(tmp_path: Path) -> None:
    converted = convert(f"harbor:{TASKS / 'hello'}", tmp_path / "rows.jsonl")
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert (converted.rows, row["task_name"]) == (1, "hello")
    assert Environment.load("terminal").task(row).solution["solve.sh"].startswith("#!/bin/bash")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("instruction.md", " \n", "task has no instruction. Write it into instruction.md"),
        ("task.toml", "[agent\n", r"task.toml is not valid TOML: .*line 1"),
        ("task.toml", "[agent]\ntimeout_sec = 'soon'\n", "task.toml: agent.timeout_sec must be a number of seconds"),
        ("task.toml", "[environment]\ngpus = 2\n", "task.toml: environment.gpus asks for GPUs"),
        ("task.toml", "[[environment.mcp_servers]]\nname = 'a'\n", "mcp_servers asks for MCP servers"),
        ("task.toml", "[[steps]]\nname = '../x'\n", "there is no folder steps/../x"),
        ("environment/Dockerfile", "FROM elsewhere:1\n", "environment/Dockerfile:1: FROM elsewhere:1: no base"),
    ],
)
def test_bad_input_is_one_line_with_its_place(tmp_path: Path, path: str, text: str, problem: str) -> None:
    shutil.copytree(TASKS / "hello", tmp_path / "task")
    (tmp_path / "task" / path).write_text(text)
    settings = {"resources.bases": {"ubuntu:*": str(tmp_path)}}
    with pytest.raises(UserError, match=problem) as caught:
        played(f"harbor:{tmp_path / 'task'}", ["Done."], **settings)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "task") in str(caught.value)


@needs_images
def test_a_task_that_cannot_be_built_is_a_bad_row(base: dict[str, Any], tmp_path: Path) -> None:
    for name, path, text in (
        ("fails", "Dockerfile", "FROM ubuntu:1\nRUN true\nRUN false\n"),
        ("services", "docker-compose.yaml", "services: {main: {}, db: {}}\n"),
    ):
        shutil.copytree(TASKS / "hello", tmp_path / name)
        (tmp_path / name / "environment" / path).write_text(text)
    fails, services = (rollout.error for rollout in played(f"harbor:{tmp_path}", ["Done."], **base))
    assert fails is not None
    assert services is not None
    assert (fails.kind, services.kind) == ("bad_row", "bad_row")
    assert "fails/environment/Dockerfile:3: the step" in fails.cause
    assert "the services main, db, and a task has one" in services.cause


def test_a_variable_of_the_host_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    assert filled({"X": "${A_KEY:-none}/${OTHER:-}"}, []) == {"X": "none/"}
    assert filled({"X": "${A_KEY}"}, ["A_KEY"]) == {"X": "secret"}
    with pytest.raises(Failure, match="A_KEY of this machine"):
        filled({"X": "${A_KEY}"}, [])


def test_hosts_are_those_of_the_phase_or_of_the_operator() -> None:
    allow = {"network_mode": "allowlist", "allowed_hosts": ["a.example"]}
    settings = TaskSettings.of(
        {"environment": {"network_mode": "public"}, "agent": allow, "verifier": {"network_mode": "no-network"}}
    )
    assert settings.hosts("setup", ["o.example"]) == ["o.example"]
    assert settings.hosts("agent", ["o.example"]) == ["a.example"]
    assert settings.hosts("verify", ["o.example"]) == []


NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53))


@given(st.dictionaries(st.text(max_size=8), NUMBERS, min_size=1, max_size=4))
def test_named_finite_numbers_are_read_as_they_were_written(values: dict[str, float]) -> None:
    assert rewards_of(json.dumps(values), "r.json") == values


@given(st.text(max_size=20))
def test_any_text_is_a_finite_number_or_a_failure(text: str) -> None:
    for path in ("r.json", "r.txt"):
        with contextlib.suppress(Failure):
            assert all(map(math.isfinite, rewards_of(text, path).values()))

"""Every key of `task.toml` has a line in docs/moving/harbor-fields.md, and a test that the line names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from harbor_boxes import TASKS, needs_images, new_cache, played
from sandboxes import needs

from ludus import UserError
from ludus.environments.terminal.verdicts import combined, reaches

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/moving/harbor-fields.md"

#: The keys of schema 1.4, as Harbor 0.25 reads it.
KEYS = """
schema_version task metadata source artifacts multi_step_reward_strategy
agent.timeout_sec agent.user agent.network_mode agent.allowed_hosts
verifier.timeout_sec verifier.env verifier.user verifier.environment_mode verifier.environment verifier.network_mode
verifier.allowed_hosts verifier.collect.command verifier.collect.service verifier.collect.timeout_sec
verifier.collect.user
environment.build_timeout_sec environment.docker_image environment.os environment.cpus environment.memory_mb
environment.storage_mb environment.gpus environment.gpu_types environment.tpu environment.mcp_servers environment.env
environment.skills_dir environment.healthcheck environment.workdir environment.network_mode environment.allowed_hosts
environment.allow_internet
solution.env
steps.name steps.agent steps.verifier steps.min_reward steps.healthcheck steps.artifacts
artifacts.source artifacts.destination artifacts.exclude artifacts.service
""".split()


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return new_cache(monkeypatch)


def hello(folder: Path, **replaced: str) -> Path:
    """The task `hello` with lines added after the headers of tables."""
    shutil.copytree(TASKS / "hello", folder)
    toml = (folder / "task.toml").read_text()
    for table, lines in replaced.items():
        header = f"[{table}]\n"
        toml = re.sub(rf"^({re.escape(lines.split(' =')[0])} = .*)\n", "", toml, flags=re.MULTILINE)
        toml = toml.replace(header, header + lines + "\n") if header in toml else f"{toml}\n{header}{lines}\n"
    (folder / "task.toml").write_text(toml)
    return folder


def said(rollout: Any) -> str:
    return "\n".join(item["output"] for item in rollout.response.output if item["type"] == "function_call_output")


def running(*commands: str) -> list[Any]:
    return [*({"call": "bash", "arguments": {"command": command}} for command in commands), "Done."]


def test_every_key_of_the_schema_is_in_the_page_with_a_test_that_exists() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {key for row in rows for key in re.findall(r"`([^`]+)`", row[0])}
    assert named == set(KEYS)
    folders = (ROOT / "tests", ROOT / "src/ludus/environments/terminal")
    tests = "\n".join(path.read_text() for folder in folders for path in folder.rglob("test_*.py"))
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row[-1])
        assert names or row[1].startswith("ignored"), row[0]
        assert [name for name in names if f"def {name}(" not in tests] == []


@pytest.mark.parametrize(
    "text",
    [
        "artifacts = [{ source = '/data', service = 'db' }]\n",
        "[[verifier.collect]]\ncommand = 'true'\nservice = 'db'\n",
    ],
)
def test_a_service_of_a_compose_file_is_refused(tmp_path: Path, text: str) -> None:
    shutil.copytree(TASKS / "hello", tmp_path / "task")
    (tmp_path / "task/task.toml").write_text(text)
    with pytest.raises(UserError, match="service names a service of a compose file, and tasks have one box here"):
        played(f"harbor:{tmp_path / 'task'}", ["Done."], **{"resources.bases": {"ubuntu:*": str(tmp_path)}})


@needs_images
def test_commands_are_not_run_when_the_time_of_the_agent_is_over(base: dict[str, Any], tmp_path: Path) -> None:
    task = hello(tmp_path / "task", agent="timeout_sec = 1.0")
    (rollout,) = played(f"harbor:{task}", running("sleep 600", "echo hello > hello.txt"), **base)
    assert (rollout.reward, rollout.error) == (0.0, None)
    assert "The time for this task is over" in said(rollout)


@needs_images
def test_a_script_that_runs_out_of_time_earns_nothing(base: dict[str, Any], tmp_path: Path) -> None:
    task = hello(tmp_path / "task", verifier="timeout_sec = 0.5")
    (task / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt; sleep 600\n")
    (rollout,) = played(f"harbor:{task}", ["Done."], **base)
    assert (rollout.reward, rollout.error) == (0.0, None)


@needs_images
def test_a_build_that_runs_out_of_time_says_so(base: dict[str, Any], tmp_path: Path) -> None:
    task = hello(tmp_path / "task", environment="build_timeout_sec = 1.0")
    with (task / "environment/Dockerfile").open("a") as file:
        file.write("\nRUN sleep 600\n")
    (rollout,) = played(f"harbor:{task}", ["Done."], **base)
    assert rollout.error is not None
    assert rollout.error.kind == "bad_row"
    assert "Dockerfile" in rollout.error.cause
    assert "environment.build_timeout_sec" in rollout.error.cause


@needs_images
def test_a_box_has_the_memory_and_the_storage_that_a_task_asks_for(base: dict[str, Any], tmp_path: Path) -> None:
    task = hello(tmp_path / "task", environment="storage_mb = 16")
    (rollout,) = played(f"harbor:{task}", running("for i in 1 2 3; do head -c 10000000 /dev/zero > $i; done"), **base)
    assert "No space left on device" in said(rollout)
    task = hello(tmp_path / "small", environment="memory_mb = 64")
    use = "python3 -c \"print(len(b'x' * (200 << 20)))\"; echo ended with $?"
    (rollout,) = played(f"harbor:{task}", running(use), **base)
    assert "209715200" not in said(rollout)


@needs_images
def test_the_solution_has_its_variables(base: dict[str, Any], tmp_path: Path) -> None:
    task = hello(tmp_path / "task", **{"solution.env": 'WORD = "hello"'})
    (task / "solution/solve.sh").write_text("echo $WORD > /app/hello.txt\n")
    (rollout,) = played(f"harbor:{task}", **base)
    assert rollout.reward == 1.0


@needs_images
def test_a_step_waits_for_its_own_health_check_after_its_set_up(base: dict[str, Any], tmp_path: Path) -> None:
    task = tmp_path / "task"
    shutil.copytree(TASKS / "steps", task)
    toml = (task / "task.toml").read_text()
    check = '\n[steps.healthcheck]\ncommand = "test -e /app/ready"\nretries = 1\n'
    (task / "task.toml").write_text(toml + check)
    (task / "steps/second/workdir/setup.sh").write_text("touch /app/ready\n")
    (rollout,) = played(f"harbor:{task}", **base)
    assert (rollout.reward, rollout.error) == (1.0, None)
    (task / "steps/second/workdir/setup.sh").unlink()
    (rollout,) = played(f"harbor:{task}", **base)
    assert rollout.error is not None
    assert "the task's health check failed: test -e /app/ready" in rollout.error.cause


@needs("bubblewrap")
def test_a_health_check_holds_without_an_image_too(tmp_path: Path) -> None:
    task = hello(tmp_path / "task", **{"environment.healthcheck": 'command = "echo not yet >&2; false"\nretries = 1'})
    (task / "environment/Dockerfile").unlink()
    (rollout,) = played(f"harbor:{task}", ["Done."], **{"resources.sandbox.warm": 0})
    assert rollout.error is not None
    assert rollout.error.cause == "the task's health check failed: echo not yet >&2; false: not yet"


@pytest.mark.parametrize("final", [True, False])
def test_rewards_of_steps_are_their_mean_or_the_last_one(final: bool) -> None:
    rewards = [{"reward": 1.0}, {"reward": 0.5, "style": 1.0}]
    expected = {"reward": 0.5, "style": 1.0} if final else {"reward": 0.75, "style": 0.5}
    assert combined(rewards, 2, final=final) == expected
    assert combined(rewards[:1], 2, final=final) == {"reward": 0.0 if final else 0.5}


def test_a_step_must_reach_every_reward_that_it_names() -> None:
    assert reaches({"reward": 1.0}, 1)
    assert not reaches({"reward": 0.9}, 1)
    assert not reaches({"style": 1.0}, {"reward": 0.5, "style": 0.5})
    assert reaches({}, None)

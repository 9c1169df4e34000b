"""Environments judge what an agent's program did in the sandbox, though it called none of their tools."""

from __future__ import annotations

import json
from typing import Any

from sandboxes import needs

import ludus
from ludus.agent import Agent
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.models.scripted import ScriptedModel
from ludus.sandbox import Mount
from ludus.sandbox.equipment import Equipment, EquippedProvider

pytestmark = needs("bubblewrap")


class Worker(Agent):
    """Works on a task by commands in its sandbox."""

    def equip(self, shared: Any, resources: type[Any]) -> Any:
        return EquippedProvider(shared, Equipment(mounts=(Mount("/usr/share", "/opt/mounted"),)))

    async def act(self, episode: Episode) -> str:
        sandbox = episode.resources.sandbox  # type: ignore[attr-defined]
        folder, script, stdin = self.work(episode.task)
        ended = await sandbox.exec(f"test -d /opt/mounted && {script}", cwd=folder, stdin=stdin, timeout=60)
        assert ended.ok, ended
        await episode.ask()
        return "completed"

    def work(self, task: Any) -> tuple[str, str, bytes]:
        """The folder, the script and its input."""
        raise NotImplementedError


class Repairing(Worker):
    def work(self, task: Any) -> tuple[str, str, bytes]:
        return "repo", "git apply -", task.patch.encode()


class Solving(Worker):
    def work(self, task: Any) -> tuple[str, str, bytes]:
        return "/app", "sh", task.solution["solve.sh"].encode()


async def rewards(name: str, agent: Agent, **row: Any) -> list[float]:
    environment = Environment.load(name)
    environment.agent = agent
    with environment.dataset().open() as rows:
        task = json.loads(next(iter(rows))) | row
    result = await ludus.collect_async(environment, model=ScriptedModel(["done"]), input=[task])
    assert list(result.failures()) == []
    return result.rewards()


async def test_the_change_of_a_program_is_the_patch_that_is_judged():
    assert await rewards("mini_swe_agent", Repairing()) == [1.0]


async def test_the_files_that_a_program_left_are_judged():
    assert await rewards("terminal", Solving()) == [1.0]

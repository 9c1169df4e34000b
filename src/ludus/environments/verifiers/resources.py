"""A task of the verifiers library: its prompt, its tools and its rewards.

A Ludus agent drives the model. The task's own code sets up the task and scores the conversation with its rewards,
weights and metrics.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ludus
from ludus import Failure, ResourcesConfig, Response, Verdict
from ludus.environments.verifiers.session import VerifiersSession, checked_source, shared_tools
from ludus.integrations.mcp import McpResources
from ludus.integrations.mcp_servers import HttpServer, McpServer


class Verifiers(McpResources):
    """One task, with the task's tools if it has any."""

    class Task(ludus.Task):
        #: The data of the task, as verifiers stores it.
        verifiers: dict[str, Any]

        @property
        def tools(self) -> list[dict[str, Any]] | None:
            """The tools that this row lists; None, which means the tools of the task, if it lists none."""
            return super().tools or None

    class Config(ResourcesConfig):
        """The taskset, and the taskset's settings."""

        #: The id of an installed taskset, or `module:Class`.
        taskset: str
        settings: dict[str, Any] = {}

    config: Config  # type: ignore[assignment]
    shared: dict[str, Any]  # type: ignore[assignment]

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[dict[str, Any]]:
        source = checked_source(config.taskset, config.settings)
        async with shared_tools(source) as servers:
            yield {"source": source, "tools": servers}

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._rollout: VerifiersSession | None = None

    async def servers(self, task: Any) -> dict[str, McpServer]:
        """The servers of the task's tools, which start with the rollout."""
        self._rollout = VerifiersSession(self.shared["source"], task.verifiers, self.shared["tools"])
        if self._rollout.needs_runtime and threading.current_thread() is not threading.main_thread():
            # On another thread, rewards that use signals for timeouts would silently give 0.
            raise Failure("wrong_thread", f"{self.config.taskset} can be scored on the main thread only")
        urls = await self._rollout.open()
        return {f"{name}_" if name else "": HttpServer(url, f"tools {name}") for name, url in urls.items()}

    async def verify(self, task: Task, response: Response) -> Verdict:
        if self._rollout is None:
            raise Failure("disconnected", "there is no session: open() has not been called")
        scores = await self._rollout.score(task.input, response.output, self.in_process)
        missing = [name for name, reward in scores.rewards.items() if reward is None]
        if missing or not scores.rewards:
            raise Failure("no_reward", f"the task gave no reward for {', '.join(missing) or 'anything'}")
        rewards = {name: reward for name, reward in scores.rewards.items() if reward is not None}
        verdict = Verdict(sum(rewards.values()), components=rewards)
        verdict.values |= scores.metrics
        return verdict

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if self._rollout is not None:
                await self._rollout.close()

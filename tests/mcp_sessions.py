"""Helpers for tests of the MCP client: real servers, sessions with them, and rollouts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import ludus
from ludus import Response, ScriptedModel
from ludus.integrations.mcp import McpResources

SCRIPT = Path(__file__).parent / "mcp_server.py"
STDIO = {"command": [sys.executable, str(SCRIPT), "stdio"]}
ROW: dict[str, Any] = {"responses_create_params": {"input": "Add 2 and 3.", "tools": []}, "expected": "5"}


class Sum(McpResources):
    """Rewards an answer that holds the row's `expected`."""

    class Task(McpResources.Task):
        expected: str = ""

    async def verify(self, task: Task, response: Response) -> float:
        return float(task.expected in response.output_text)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, int]]:
    """Start a server process. Gives its URL and its process id."""
    command = [sys.executable, str(SCRIPT), "http", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process.pid
        finally:
            process.kill()


@asynccontextmanager
async def opened(
    settings: dict[str, Any], row: dict[str, Any] = ROW, kind: type[McpResources] = Sum
) -> AsyncIterator[Any]:
    config = kind.Config(**settings)
    async with kind.share(config) as shared:
        session = kind(config, shared)
        try:
            await session.open(kind.Task.model_validate(row))
            yield session
        finally:
            await session.close()


def play(settings: dict[str, Any], *turns: Any, row: dict[str, Any] = ROW, **limits: Any) -> ludus.Rollout:
    given = {f"resources.{key}": value for key, value in settings.items()}
    given |= {f"limits.{key}": value for key, value in limits.items()}
    return ludus.collect(Sum, model=ScriptedModel(list(turns)), input=[row], settings=given).rollouts[0]


def outputs(rollout: ludus.Rollout) -> list[str]:
    assert rollout.response is not None
    return [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]

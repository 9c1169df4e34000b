"""Our MCP client plays an environment that `ludus serve --mcp` serves."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import lazily
import pytest
from mcp_sessions import outputs

import ludus
from ludus import Response, ScriptedModel
from ludus.integrations.mcp import McpResources
from ludus.integrations.mcp_servers import HttpServer, McpServer

lazily.needs("mcp", "pip install 'ludus-gym[mcp]'")

SERVE = [sys.executable, "-m", "ludus", "serve", "example_mcp_weather", "--mcp"]
SENTENCE = "The weather in Lisbon is sunny and 72 F."
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "How is the weather in Lisbon?", "tools": []},
    "verifier_metadata": {"expected_city": "Lisbon"},
}
TURNS = [{"call": "get_weather", "arguments": {"city": "Lisbon"}}, SENTENCE]


class LocalVerdict(McpResources):
    """Rewards the expected sentence without asking the server."""

    async def verify(self, task: Any, response: Response) -> float:
        return float(SENTENCE in response.output_text)


class ServerVerdict(McpResources):
    """Opens a session with `/seed_session`, uses it over MCP, and asks the server's `/verify` for the reward."""

    async def servers(self, task: Any) -> dict[str, McpServer]:
        assert isinstance(self.shared, HttpServer)
        seeded = await self._post("/seed_session", {})
        return {"": dataclasses.replace(self.shared, headers=seeded["mcp"]["headers"])}

    async def verify(self, task: Any, response: Response) -> float:
        row = task.model_dump(mode="json")
        verdict = await self._post("/verify", {**row, "response": {**response.data, "output": list(response.output)}})
        return float(verdict["reward"])

    async def open(self, task: Any) -> None:
        self.http = aiohttp.ClientSession()
        await super().open(task)

    async def close(self) -> None:
        await super().close()
        await self.http.close()

    async def _post(self, path: str, extra: dict[str, Any]) -> Any:
        assert isinstance(self.shared, HttpServer)
        base = self.shared.url.removesuffix("/mcp")
        async with self.http.post(base + path, json={**ROW, **extra}) as reply:
            return await reply.json()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [*SERVE, "--resources-only", "--head-port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            servers = json.loads(process.stdout.readline())["servers"]
            yield next(each["url"] for each in servers if each["kind"] == "resources_servers")
        finally:
            process.terminate()


def test_an_environment_served_over_stdio_can_be_played() -> None:
    settings = {"resources.command": [*SERVE, "--stdio"]}
    [rollout] = ludus.collect(LocalVerdict, model=ScriptedModel(TURNS), input=[ROW], settings=settings).rollouts
    assert (rollout.reward, rollout.error) == (1.0, None)
    assert json.loads(outputs(rollout)[0]) == {"weather": SENTENCE}


def test_an_environment_served_over_http_rewards_only_a_call_that_was_made_over_mcp(url: str) -> None:
    settings = {"resources.url": f"{url}/mcp"}
    called = ludus.collect(ServerVerdict, model=ScriptedModel(TURNS), input=[ROW], settings=settings, repeats=8)
    assert [rollout.reward for rollout in called.rollouts] == [1.0] * 8
    claimed = ludus.collect(ServerVerdict, model=ScriptedModel([SENTENCE]), input=[ROW], settings=settings, repeats=8)
    assert [rollout.reward for rollout in claimed.rollouts] == [0.0] * 8

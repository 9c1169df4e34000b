"""A collection with remote resources, a remote agent or a remote model has the same rollouts as a local one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from serving import COUNTER, COUNTER_ROW, served, url_of

import ludus
from ludus.collection.collection import Collection
from ludus.errors import UserError
from ludus.model import Model, Request
from ludus.response import Response, function_call, message
from ludus.serve.agents import AgentApp

ROWS = [{**COUNTER_ROW, "initial_count": start, "expected_count": start + 3 + start % 2} for start in range(6)]
MODEL = "scripted:serving:count_to_three"


def collected(**options: Any) -> list[dict[str, Any]]:
    result: Collection = ludus.collect(COUNTER, input=ROWS, repeats=2, **options)
    rows = [rollout.to_row() for rollout in result.rollouts]
    for row in rows:
        assert row.pop("timings")["total"] > 0
        row["response"]["output"] = orjson.loads(orjson.dumps(row["response"]["output"]))
        row["response"] = {key: row["response"][key] for key in ("output", "status", "usage")}
    return sorted(rows, key=lambda row: row["rollout_id"])


@pytest.fixture(scope="module")
def local_rows() -> list[dict[str, Any]]:
    found = collected(model=MODEL)
    assert {row["reward"] for row in found} == {0.0, 1.0}
    return found


def test_remote_resources_give_the_same_rollouts(local_rows: list[dict[str, Any]]):
    with served(COUNTER, resources_only=True) as serving:
        assert collected(model=MODEL, resources=url_of(serving, COUNTER)) == local_rows


def test_a_remote_agent_gives_the_same_rollouts(local_rows: list[dict[str, Any]]):
    with served(COUNTER) as serving:
        assert collected(agent=url_of(serving, f"{COUNTER}_simple_agent")) == local_rows


def test_worker_processes_reach_the_same_servers(local_rows: list[dict[str, Any]]):
    with served(COUNTER) as serving:
        agent, resources = url_of(serving, f"{COUNTER}_simple_agent"), url_of(serving, COUNTER)
        assert collected(agent=agent, workers=2) == local_rows
        assert collected(model=MODEL, resources=resources, workers=2) == local_rows


def test_a_remote_model_gives_the_same_rollouts(local_rows: list[dict[str, Any]]):
    with served(COUNTER) as serving:
        assert collected(model=f"remote:{url_of(serving, 'policy_model')}") == local_rows


def test_resources_agent_and_model_on_separate_servers_give_the_same_rollouts(local_rows: list[dict[str, Any]]):
    with served(COUNTER, resources_only=True) as resources, served(COUNTER) as model:
        spec = f"remote:{url_of(model, 'policy_model')}"
        with served(COUNTER, model=spec, resources=url_of(resources, COUNTER)) as agent:
            assert collected(agent=url_of(agent, f"{COUNTER}_simple_agent")) == local_rows


@pytest.mark.parametrize("part", ["agent", "resources"])
def test_an_unreachable_server_is_a_user_error_with_a_hint(part: str):
    with pytest.raises(
        UserError, match=r"cannot reach http://127\.0\.0\.1:9: .*\. Start the server, or correct its URL"
    ):
        ludus.collect(COUNTER, input=ROWS[:1], **{"model": MODEL, part: "http://127.0.0.1:9"})


@pytest.mark.parametrize("part", ["agent", "resources"])
def test_a_server_of_another_environment_is_refused_before_a_rollout_starts(part: str):
    other = "example_single_tool_call"
    servers = {"agent": f"{COUNTER}_simple_agent", "resources": COUNTER}
    row = {"responses_create_params": {"input": "x"}, "initial_count": 1, "expected_count": 4}
    with served(COUNTER) as serving:
        url = url_of(serving, servers[part])
        said = rf"{url} serves the environment {COUNTER}, not {other}\. Give the URL of the {part} server of {other}"
        with pytest.raises(UserError, match=said):
            ludus.collect(other, input=[row], **{"model": MODEL, part: url})
        with pytest.raises(UserError, match=said):  # also when the rows name the environment
            ludus.collect(None, input=[{**row, "agent_ref": {"name": other}}], **{"model": MODEL, part: url})
        played = next(app for app in serving.apps.values() if isinstance(app, AgentApp)).played
    assert played == 0


@pytest.mark.parametrize("part", ["agent", "resources"])
def test_a_server_of_another_kind_is_refused_before_a_rollout_starts(part: str):
    servers = {"resources": f"{COUNTER}_simple_agent", "agent": COUNTER}
    with served(COUNTER) as serving:
        url = url_of(serving, servers[part])
        with pytest.raises(UserError, match=f"{url} is not a server for {part}: it has no /"):
            ludus.collect(COUNTER, input=ROWS[:1], **{"model": MODEL, part: url})


def test_an_agent_server_refuses_to_start_with_resources_of_another_environment():
    with served("example_single_tool_call", resources_only=True) as resources:
        url = url_of(resources, "example_single_tool_call")
        said = f"serves the environment example_single_tool_call, not {COUNTER}"
        with pytest.raises(UserError, match=said), served(COUNTER, resources=url):
            pass


def test_the_late_reply_of_a_timed_out_call_is_never_given_to_another_call(tmp_path: Path):
    (tmp_path / "environment.yaml").write_text("name: late\nresources: resources.py:Late\nlimits: {tool: 1.5}\n")
    (tmp_path / "resources.py").write_text(
        "import asyncio\n"
        "from ludus import Resources, tool\n"
        "class Late(Resources):\n"
        "    @tool\n"
        "    async def echo(self, text: str, seconds: float) -> str:\n"
        '        """Say it back, later."""\n'
        "        await asyncio.sleep(seconds)\n"
        "        return text\n"
        "    async def verify(self, task, response):\n"
        "        said = [item['output'] for item in response.output if 'output' in item]\n"
        "        return float(said == [f'{task.number}'])\n"
    )
    rows = [{"responses_create_params": {"input": str(number)}, "number": number} for number in range(24)]
    server_settings = {"limits.tool": 30}  # so that the server replies after the collector's timeout
    with served(str(tmp_path), resources_only=True, settings=server_settings) as serving:
        url = serving.plan.servers[0].url
        result = ludus.collect(tmp_path, input=rows, model=Echoing(), resources=url, concurrency=4)
    late = [rollout for rollout in result.rollouts if rollout.error is not None]
    assert {rollout.job.row["number"] for rollout in late} == {number for number in range(24) if number % 3 == 0}
    assert {(rollout.error.stage, rollout.error.kind) for rollout in late if rollout.error} == {("tool", "timeout")}
    assert all(rollout.reward == 1.0 for rollout in result.rollouts if rollout.error is None)


class Echoing(Model):
    """Calls the tool once. In every third rollout the call takes too long."""

    async def respond(self, request: Request) -> Response:
        if request.turn:
            return Response.of(message("done"))
        number = int(request.input[0]["content"])
        call = function_call("echo", {"text": str(number), "seconds": 3.0 if number % 3 == 0 else 0.0}, call_id="c")
        return Response.of(call)

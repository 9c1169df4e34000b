"""The record of a rollout holds the tools that the model was offered, so that a training prompt can be rebuilt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of

import ludus
from ludus import Agent, Environment, Episode, Game, Model, Request, Resources, Response, Step, tool
from ludus.agents.command import CommandAgent
from ludus.agents.conversation import ConversationAgent
from ludus.agents.gymnasium import GymnasiumAgent
from ludus.agents.simple import SimpleAgent
from ludus.agents.single_turn import SingleTurnAgent
from ludus.agents.user import UserRole
from ludus.rescore.rescoring import rescore
from ludus.response import function_call, message

Row = dict[str, Any]
ASK: Row = {"responses_create_params": {"input": "go"}}
OWN_TOOL: Row = {"type": "function", "name": "ring", "description": "Ring twice.", "parameters": {}, "strict": False}


class Bell(Game):
    """One tool, and enough of every role that each agent can play it."""

    @tool
    async def ring(self, times: int) -> str:
        """Ring the bell."""
        return "ding" * times

    def user(self, task: Any) -> UserRole:
        return UserRole(goal="Hear the bell.")

    async def reset(self, task: Any) -> str:
        return "The bell waits."

    async def step(self, task: Any, response: Response) -> Step:
        return Step(terminated=True)

    async def verify(self, task: Any, response: Response) -> float:
        return 1.0


class Watching(Model):
    """Rings once, then answers. Keeps the tools of each request. Its answers claim other tools."""

    name = "watching"

    def __init__(self) -> None:
        self.offered: list[Any] = []

    async def respond(self, request: Request) -> Response:
        offered = request.params.get("tools")
        self.offered.append(offered)
        if request.turn == 0 and offered:
            answer = function_call("ring", {"times": 1}, call_id="c1")
        else:
            answer = message("Rung. ###STOP###")
        return Response.of(answer, model=self.name, tools=[{"type": "function", "name": "something_else"}])


def recorded(agent: Agent, row: Row = ASK, resources: type[Resources] = Bell) -> tuple[Row, Watching]:
    """The record of one rollout, as its line in a file would be read, and the model that was asked."""
    environment, model = Environment.load(resources), Watching()
    environment.agent = agent
    (rollout,) = ludus.collect(environment, model=model, input=[row]).rollouts
    assert rollout.error is None, rollout.error
    return json.loads(rollout.encode()), model


def schemas(resources: type[Resources] = Bell) -> list[Row]:
    return json.loads(json.dumps(resources().tools()))  # type: ignore[no-any-return]


@pytest.mark.parametrize("agent", [SimpleAgent(), SingleTurnAgent(), GymnasiumAgent(), ConversationAgent()])
def test_the_record_holds_the_environments_tools_whichever_agent_plays(agent: Agent):
    record, model = recorded(agent)
    assert record["response"]["tools"] == schemas()
    assert schemas() in model.offered
    assert "tools" not in record["responses_create_params"]  # the task is recorded as it was given


@pytest.mark.parametrize("agent", [SimpleAgent(), SingleTurnAgent(), GymnasiumAgent(), ConversationAgent()])
def test_the_record_holds_the_rows_own_tools(agent: Agent):
    row = {"responses_create_params": {"input": "go", "tools": [OWN_TOOL]}}
    record, _ = recorded(agent, row)
    assert record["response"]["tools"] == [OWN_TOOL] == record["responses_create_params"]["tools"]


@pytest.mark.parametrize("tools", [[], None])
def test_a_row_without_tools_in_an_environment_without_tools_has_an_empty_list(tools: list[Row] | None):
    class Plain(Resources):
        async def verify(self, task: Any, response: Response) -> float:
            return 1.0

    record, _ = recorded(SimpleAgent(), {"responses_create_params": {"input": "go", "tools": tools}}, Plain)
    assert record["response"]["tools"] == []


def test_a_row_may_offer_no_tool_of_an_environment_with_tools():
    record, _ = recorded(SimpleAgent(), {"responses_create_params": {"input": "go", "tools": []}})
    assert record["response"]["tools"] == []


def test_a_call_that_was_offered_other_tools_says_which():
    class Closing(Agent):
        async def act(self, episode: Episode) -> str:
            await episode.ask()
            await episode.ask(tools=[])
            await episode.ask(tools=[OWN_TOOL])
            return "completed"

    record, model = recorded(Closing())
    assert record["response"]["tools"] == schemas()
    offered = [call.get("tools", record["response"]["tools"]) for call in record["model_calls"]]
    assert offered == model.offered == [schemas(), [], [OWN_TOOL]]


def test_the_record_of_a_program_holds_the_tools_that_the_program_offered(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, urllib.request\n"
        "function = {'name': 'knock', 'description': 'Knock.', 'parameters': {'type': 'object', 'properties': {}}}\n"
        "body = {'model': 'any', 'messages': [{'role': 'user', 'content': 'hi'}],\n"
        "        'tools': [{'type': 'function', 'function': function}]}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY'], 'Content-Type': 'application/json'}\n"
        "urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()\n"
    )
    record, model = recorded(CommandAgent(CommandAgent.Config(command=[sys.executable, str(program)])))
    assert [entry["name"] for entry in record["response"]["tools"]] == ["knock"]
    assert record["response"]["tools"] == model.offered[0]


def test_the_record_of_a_remote_agent_holds_the_tools_that_its_server_offered():
    with served(COUNTER) as serving:
        result = ludus.collect(COUNTER, input=[COUNTER_ROW], agent=url_of(serving, f"{COUNTER}_simple_agent"))
    (rollout,) = result.rollouts
    local = schemas(Environment.load(COUNTER).resources)
    assert json.loads(rollout.encode())["response"]["tools"] == local != []


def test_the_record_with_remote_resources_holds_the_tools_that_their_server_describes():
    with served(COUNTER, resources_only=True) as serving:
        options: Row = {"model": "scripted:serving:count_to_three", "resources": url_of(serving, COUNTER)}
        (rollout,) = ludus.collect(COUNTER, input=[COUNTER_ROW], **options).rollouts
    names = [entry["name"] for entry in json.loads(rollout.encode())["response"]["tools"]]
    assert names == ["increment_counter", "get_counter_value"]


def test_the_reply_of_an_agent_server_holds_the_tools():
    weather = "example_single_tool_call"
    with served(COUNTER, weather) as serving:
        run = Web(url_of(serving, f"{COUNTER}_simple_agent")).post("/run", COUNTER_ROW).json()
        answer = Web(url_of(serving, f"{weather}_simple_agent")).post("/v1/responses", {"input": "hello"}).json()
    assert run["response"]["tools"] == schemas(Environment.load(COUNTER).resources)
    assert answer["tools"] == schemas(Environment.load(weather).resources)


def test_a_stored_rollout_keeps_its_tools_when_it_is_resumed_and_scored_again(tmp_path: Path):
    environment, model = Environment.load(Bell), Watching()
    environment.agent = SimpleAgent()
    options: Row = {"model": model, "input": [ASK], "output": tmp_path / "run"}
    ludus.collect(environment, **options)
    resumed = ludus.collect(environment, **options, repeats=2, resume=True)
    assert [rollout.to_row()["response"]["tools"] for rollout in resumed] == [schemas()] * 2
    file, scored = tmp_path / "run" / "rollouts.jsonl", tmp_path / "scored.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**row, "reward": 0.0}) + "\n" for row in rows))  # so that every line changes
    rescore(file, Bell, output=scored)
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [(line["reward"], line["response"]["tools"]) for line in lines] == [(1.0, schemas())] * 2

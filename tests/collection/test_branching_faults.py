"""Branches that fail or are refused, because of the record, the session, the agent or the options."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest
from branches import ASK, Guessing, Row, Tally, add, branched, gist, lines, recorded
from serving import COUNTER

import ludus
from ludus import Agent, Environment, Failure, Resources, Response, ScriptedModel, UserError, tool
from ludus.agents.conversation import ConversationAgent, Ending
from ludus.agents.simple import SimpleAgent
from ludus.agents.simulated_user import is_users
from ludus.agents.user import STOP, UserRole, user_tool, user_tools
from ludus.model import Request
from ludus.rescore.rescoring import rescore


@pytest.fixture(autouse=True)
def _reset_events() -> None:
    Tally.events.clear()


class Drifting(Tally):
    """`add(2)` returns another number once `offset` has changed."""

    offset: ClassVar[int] = 0

    @tool
    async def add(self, number: int) -> int:
        """Add a number."""
        self.total += number
        return self.total + (self.offset if number == 2 else 0)


def test_drift_fails_the_branches_of_its_record_and_no_others(tmp_path, monkeypatch):
    def play(request: Request) -> Any:
        odd = "1" in str(request.input[0]["content"])
        return [add(2 if odd else 1), add(1), "Done."][request.turn]

    rows = [{"responses_create_params": {"input": f"task {number}"}} for number in range(2)]
    path = recorded(tmp_path, Drifting, ScriptedModel(play), input=rows)
    monkeypatch.setattr(Drifting, "offset", 5)
    rollouts = branched(path, 1, ScriptedModel(play), Drifting, repeats=3)
    failed = [rollout for rollout in rollouts if rollout.error is not None]
    assert [rollout.reward for rollout in failed] == [None] * 3
    assert len({rollout.job.task_id for rollout in failed}) == 1
    assert {rollout.reward for rollout in rollouts if rollout.error is None} == {2.0}
    error = failed[0].error
    assert error is not None
    assert (error.stage, error.kind) == ("tool", "drift")
    assert error.cause == "add returned '2' then, and returns '7' now"
    assert failed[0].to_row()["parent"] == failed[0].job.task_id.removesuffix(".t1")


def test_drift_after_the_branch_point_is_ignored(tmp_path, monkeypatch):
    path = recorded(tmp_path, Drifting, [add(1), add(2), "Done."])
    monkeypatch.setattr(Drifting, "offset", 5)
    (rollout,) = branched(path, 1, [add(1), add(2), "Done."], Drifting)
    assert rollout.reward == 3.0


def test_a_changed_observation_of_a_game_is_drift(tmp_path, monkeypatch):
    path = recorded(tmp_path, Guessing, ["9", "9", "9", "9"], settings={"agent.max_steps": 4})
    (parent,) = lines(path)
    changed = parent | {
        "response": {
            **parent["response"],
            "output": [
                {**item, "content": "Wrong."} if item.get("role") == "user" else item
                for item in parent["response"]["output"]
            ],
        }
    }
    path.write_text(json.dumps(changed) + "\n")
    (rollout,) = branched(path, 3, ["9"], Guessing)
    assert rollout.error is not None
    assert rollout.error.kind == "drift"


def test_a_session_that_cannot_be_opened_fails_all_branches_of_its_record(tmp_path, monkeypatch):
    path = recorded(tmp_path)

    async def refuse(self: Any, task: Any) -> None:
        self.events["opened"] += 1
        raise Failure("no_room", "all taken")

    monkeypatch.setattr(Tally, "open", refuse)
    errors = [rollout.error for rollout in branched(path, 1, repeats=3)]
    assert [(error.stage, error.kind) for error in errors if error is not None] == [("open", "no_room")] * 3
    assert Tally.events["opened"] == 1


def test_a_replay_that_takes_too_long_is_a_timeout(tmp_path, monkeypatch):
    path = recorded(tmp_path, script=[{"call": "draw"}, "Done."])

    async def hang(self: Any, name: str, arguments: str) -> str:
        await asyncio.sleep(3600)
        return ""

    monkeypatch.setattr(Tally, "call", hang)
    rollouts = branched(path, 1, ["Done."], repeats=2, settings={"limits.tool": 0.05})
    assert [(each.error.stage, each.error.kind) for each in rollouts if each.error] == [("tool", "timeout")] * 2


# Which records, and which agents


def test_a_negative_turn_counts_from_the_end(tmp_path):
    path = recorded(tmp_path)
    assert [branched(path, turn)[0].job.origin["branch_turn"] for turn in (-1, -4)] == [3, 0]  # type: ignore[index]


def test_short_and_failed_records_are_left_out_and_a_limit_counts_the_others(tmp_path):
    def play(request: Request) -> Any:
        return add(1) if request.turn < int(str(request.input[0]["content"])) else "Done."

    rows = [{"responses_create_params": {"input": str(calls)}} for calls in (0, 3, 1, 5, 4)]
    path = recorded(tmp_path, script=ScriptedModel(play), input=rows, concurrency=1)
    failed = {**lines(path)[1], "outcome": "failed", "stage": "model", "kind": "k", "cause": "c", "rollout_id": "f"}
    path.write_bytes(path.read_bytes() + json.dumps(failed).encode() + b"\n")
    collection = ludus.collect(Tally, branch=path, turn=2, model=ScriptedModel(play))
    assert sorted(rollout.reward or 0.0 for rollout in collection.rollouts) == [3.0, 4.0, 5.0]
    assert collection.rows.left_out == 3  # type: ignore[attr-defined]
    assert [rollout.reward for rollout in branched(path, 2, ScriptedModel(play), limit=2)] == [3.0, 5.0]


def test_a_folder_is_read_as_its_rollouts_file(tmp_path):
    recorded(tmp_path)
    assert branched(tmp_path, 1)[0].reward == 7.0


def test_branches_of_records_with_the_same_id_get_different_ids(tmp_path):
    path = recorded(tmp_path)
    record = path.read_bytes()
    path.write_bytes(record + record.replace(b'"task_id":"', b'"task_id":"other-'))
    assert len({rollout.rollout_id for rollout in branched(path, 1, repeats=2)}) == 4


def test_a_duplicated_record_is_branched_once(tmp_path):
    path = recorded(tmp_path)
    path.write_bytes(path.read_bytes() * 2)
    assert len(branched(path, 1, repeats=2)) == 2


def test_a_branch_can_be_branched_and_rescored(tmp_path):
    path = recorded(tmp_path / "first", Guessing, list("9990123"))
    again = tmp_path / "again.jsonl"
    rollouts = branched(path, 2, list("9990123"), Guessing, repeats=2, seed=3)
    again.write_bytes(b"".join(rollout.encode() + b"\n" for rollout in rollouts))
    (parent,) = lines(path)
    for row in lines(again):
        assert gist(row) == gist(parent)
    changes = rescore(again, Guessing, output=tmp_path / "scored.jsonl")
    assert changes.counts["unchanged"] == 2
    assert (tmp_path / "scored.jsonl").read_bytes() == again.read_bytes()
    for rollout in branched(again, 3, list("9990123"), Guessing):
        row = json.loads(rollout.encode())
        assert gist(row) == gist(parent)
        assert row["session_seed"] == parent["rollout_seed"]
        assert row["rollout_id"] == f"{row['parent']}.t3-0"
        assert row["model_calls"][:3] == [{"items": 1, "given": True}] * 3


NINE_CALLS = {"rollout_id": "a", "task_id": "b", "outcome": "completed", "model_calls": [{"items": 1}] * 9}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({}, "not a recorded rollout"),
        ({**NINE_CALLS, "model_calls": [{}]}, "model_calls: the number of items of a call is missing"),
        ({**NINE_CALLS, "model_calls": [{"items": -1}] * 9}, "model_calls: the number of items of a call"),
        (NINE_CALLS, "the row has no response"),
        ({**NINE_CALLS, "response": {"output": [{}]}}, "model_calls do not match the items of the response"),
        ({**NINE_CALLS, "response": {"output": [7]}}, "response: an output item is not an object"),
    ],
)
def test_a_line_that_is_not_a_recorded_rollout_is_reported_with_file_and_line(tmp_path, line, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ASK | line) + "\n")
    with pytest.raises(UserError, match=rf"rows\.jsonl:1: {complaint}"):
        branched(path, 3)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"branch": "x"}, "--branch FILE and --turn K need each other"),
        ({"turn": 1}, "--branch FILE and --turn K need each other"),
        ({"branch": "x", "turn": 1, "input": [ASK]}, "--branch takes its tasks from recorded rollouts"),
    ],
)
def test_incomplete_or_contradictory_branch_options_are_refused(options, complaint):
    with pytest.raises(UserError, match=complaint):
        ludus.collect(Tally, model=ScriptedModel(["x"]), **options)


class Bespoke(Agent):
    async def act(self, episode: Any) -> str:
        await episode.ask()
        return "completed"


class Altered(SimpleAgent):
    async def act(self, episode: Any) -> str:
        return await super().act(episode)


@pytest.mark.parametrize("agent", [Bespoke, Altered])
def test_an_agent_that_cannot_continue_a_record_is_refused_before_any_session_opens(tmp_path, agent):
    path = recorded(tmp_path)
    environment = Environment.load(Tally)
    environment.agent = agent()
    with pytest.raises(UserError, match=f"its agent {agent.__name__} cannot continue a recorded rollout"):
        branched(path, 1, environment=environment)
    assert not Tally.events


def test_an_agent_on_a_server_is_refused(tmp_path):
    with pytest.raises(UserError, match="RemoteAgent cannot continue"):
        branched(recorded(tmp_path), 1, agent="http://127.0.0.1:1")


def test_a_branch_runs_in_the_environment_that_its_record_names(tmp_path):
    script = [{"call": "increment_counter", "arguments": {"count": 3}}, "Done."]
    path = recorded(tmp_path, COUNTER, script, input=[{**ASK, "initial_count": 1, "expected_count": 4}])
    (rollout,) = branched(path, 1, script, None)
    assert (rollout.reward, rollout.job.environment) == (1.0, COUNTER)


class Longest(Resources):
    """The longest answer of all wins."""

    async def verify_group(self, task: Any, responses: list[Response]) -> list[float]:  # type: ignore[override]
        most = max(len(response.output_text) for response in responses)
        return [float(len(response.output_text) == most) for response in responses]


def test_the_branches_of_one_record_are_judged_together_by_verify_group(tmp_path):
    path = recorded(tmp_path, Longest, ["short"], repeats=2)
    rollouts = branched(path, -1, lambda request: "x" * (request.seed % 50), Longest, repeats=4)
    groups: dict[str, list[float | None]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.job.task_id, []).append(rollout.reward)
    assert len(groups) == 2
    assert all(sorted(rewards) == [0.0, 0.0, 0.0, 1.0] for rewards in groups.values())  # type: ignore[type-var]


# Conversations


class Door(Resources):
    """A door that the policy opens and only the user can unlock."""

    async def open(self, task: Any) -> None:
        self.locked, self.opened = True, 0

    @tool
    async def open_door(self) -> str:
        """Open the door."""
        self.opened += not self.locked
        return "It is locked." if self.locked else "It is open."

    @user_tool
    async def unlock(self) -> str:
        """Turn the key."""
        self.locked = False
        return "Click."

    def user(self, task: Any) -> UserRole:
        return UserRole(persona="Shy.", goal="A door.", tools=user_tools(self))

    async def verify(self, task: Any, response: Response) -> float:
        return float(self.opened)


def test_the_user_of_a_branched_conversation_gets_the_whole_history(tmp_path):
    policy = [{"call": "open_door"}, "Unlock it, please.", {"call": "open_door"}, "It is open.", "Anything else?"]
    user = ["Open the door.", {"call": "unlock"}, "I have.", "Thanks.", STOP]
    sides = [ScriptedModel(side)._answer for side in (policy, user)]
    heard: list[tuple[int, list[Row]]] = []

    def speak(request: Request) -> Any:
        if is_users(request):
            heard.append((request.turn, [_without_ids(item) for item in request.input]))
        return sides[is_users(request)](request)

    environment = Environment.load(Door)
    environment.agent = ConversationAgent()
    rows = [{"responses_create_params": {"input": [{"role": "system", "content": "Help."}]}}]
    path = recorded(tmp_path / "first", environment, ScriptedModel(speak), input=rows)
    (parent,) = lines(path)
    assert (parent["reward"], parent["stop_reason"]) == (1.0, "user_stop")
    before = dict(heard)
    for turn in range(5):
        heard.clear()
        (rollout,) = branched(path, turn, ScriptedModel(speak), environment)
        row = json.loads(rollout.encode())
        assert gist(row) == gist(parent)
        assert heard
        assert all(before[number] == history for number, history in heard)
        ending = Ending.of(Response(row["response"]))
        assert ending is not None
        assert [(call.name, call.after) for call in ending.user_calls] == [("unlock", 4)]


def _without_ids(item: Row) -> Row:
    """An item without its ids and its status."""
    return {key: value for key, value in item.items() if key not in ("id", "call_id", "status")}

"""Branches: continuations of recorded rollouts, from after any of their model calls."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import HERE, ready, records
from serving import COUNTER, served, url_of

import ludus
from ludus import Agent, Environment, Failure, Game, Resources, Response, Rollout, ScriptedModel, Step, UserError, tool
from ludus.agents.conversation import ConversationAgent, Ending
from ludus.agents.simple import SimpleAgent
from ludus.agents.simulated_user import is_users
from ludus.agents.user import STOP, UserRole, user_tool, user_tools
from ludus.collection.api import Collection, Options
from ludus.collection.rescore import rescore
from ludus.model import Request
from ludus.processes import shared_pool
from ludus.response import function_call, message
from ludus.tokens import Tokens

Row = dict[str, Any]
ASK = {"responses_create_params": {"input": "go"}}


class Tally(Resources):
    """Adds up, draws lots, and counts what happens to its sessions."""

    seen: ClassVar[Counter[str]] = Counter()

    async def open(self, task: Any) -> None:
        self.seen["opened"] += 1
        self.total, self.lots = 0, random.Random(self.seed)

    @tool
    async def add(self, number: int) -> int:
        """Add a number."""
        self.seen["added"] += 1
        self.total += number
        return self.total

    @tool
    async def draw(self) -> int:
        """Draw a lot."""
        return self.lots.randrange(1000)

    async def verify(self, task: Any, response: Response) -> float:
        return float(self.total)


class Held(Tally):
    """The same with something to close, so that it cannot be copied."""

    async def close(self) -> None:
        self.seen["closed"] += 1


@pytest.fixture(autouse=True)
def _nothing_seen_yet() -> None:
    Tally.seen.clear()


def add(number: int) -> Row:
    return {"call": "add", "arguments": {"number": number}}


TWO_AT_ONCE = {"calls": [{"name": "add", "arguments": {"number": 2}}, {"name": "draw"}]}
SCRIPT: list[Any] = [add(1), TWO_AT_ONCE, add(4), "Done."]


def played(environment: Any, script: Any, **options: Any) -> list[Rollout]:
    """All rollouts of a collection, failed ones included."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script if callable(script) else [*script])
    collection = Collection(environment, Options(model=model, **options))
    asyncio.run(collection.prepare(sink=collection.keep).run())
    return collection.rollouts


def recorded(folder: Path, environment: Any = Tally, script: Any = SCRIPT, **options: Any) -> Path:
    """The file of a collection in which the script was played."""
    rollouts = played(environment, script, **{"input": [ASK], **options})
    folder.mkdir(exist_ok=True)
    path = folder / "rollouts.jsonl"
    path.write_bytes(b"".join(rollout.encode() + b"\n" for rollout in rollouts))
    Tally.seen.clear()
    return path


def branched(path: Path, turn: int, script: Any = SCRIPT, environment: Any = Tally, **options: Any) -> list[Rollout]:
    """The continuations of the rollouts in a file."""
    return played(environment, script, branch=path, turn=turn, **options)


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def outputs(rollout: Rollout) -> list[Row]:
    assert rollout.response is not None
    return list(rollout.response.output)


# What a continuation is


def test_a_continuation_goes_on_where_the_record_stood(tmp_path):
    path = recorded(tmp_path)
    (parent,) = lines(path)
    (rollout,) = branched(path, 2, lambda request: add(10) if request.turn == 2 else "Done.")
    output = outputs(rollout)
    assert output[:6] == parent["response"]["output"][:6]  # one call and what it returned, then two
    assert [item["type"] for item in output[6:]] == ["function_call", "function_call_output", "message"]
    assert output[7]["output"] == "13"
    assert rollout.reward == 13.0


def test_its_record_tells_where_it_comes_from(tmp_path):
    path = recorded(tmp_path / "first", input=[{**ASK, "number": 8}])
    (parent,) = lines(path)
    options = {"branch": path, "turn": 2, "repeats": 2, "seed": 5, "output": tmp_path / "second"}
    ludus.collect(Tally, model=ScriptedModel(SCRIPT), **options)
    rows = lines(tmp_path / "second" / "rollouts.jsonl")
    name = parent["rollout_id"]
    assert {row["rollout_id"] for row in rows} == {f"{name}.t2-0", f"{name}.t2-1"}
    for row in rows:
        assert (row["parent"], row["branch_turn"], row["session_seed"]) == (name, 2, parent["rollout_seed"])
        assert row["task_id"] == f"{name}.t2"
        assert row["model_calls"][:2] == [{"items": 1, "given": True}, {"items": 2, "given": True}]
        assert row["number"] == parent["number"] == 8
        assert row["receipt"] == parent["receipt"]  # the same verifier, task and trajectory
        assert Rollout.from_row(row).to_row() == row | {"outcome": "completed"}
    assert len({row["rollout_seed"] for row in rows} | {parent["rollout_seed"]}) == 3


def test_continuations_of_one_record_are_a_group_of_their_own(tmp_path):
    path = recorded(tmp_path, input=[{**ASK, "number": number} for number in range(2)])

    def sometimes(request: Request) -> Any:
        return add(request.seed % 2) if request.turn == 1 else "Done."

    found = ludus.collect(Tally, branch=path, turn=1, repeats=6, model=ScriptedModel(sometimes)).metrics
    assert found["counts"]["completed"] == 12
    assert {task["task_id"] for task in found["tasks"]} == {f"{row['rollout_id']}.t1" for row in lines(path)}
    assert all(task["completed"] == 6 for task in found["tasks"])
    assert set(found["pass@k"]) == {str(k) for k in range(1, 7)}


def test_the_model_is_told_its_turn_and_everything_before(tmp_path):
    asked: list[tuple[int, list[str]]] = []

    def keep(request: Request) -> str:
        asked.append((request.turn, [item.get("type", "message") for item in request.input]))
        return "Done."

    branched(recorded(tmp_path), 2, keep)
    ((turn, kinds),) = asked
    assert turn == 2
    assert kinds == [
        "message",
        "function_call",
        "function_call_output",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


def test_only_new_calls_have_tokens_and_are_trained_on(tmp_path):
    def speak(request: Request) -> Response:
        turn = request.turn
        prompt = list(range(10 * turn + 1))
        item = function_call("add", {"number": 1}, call_id=f"c{turn}") if turn < 3 else message("Done.")
        return Response.of(item, tokens=Tokens(prompt, [100 + turn], [-0.5]), usage={"output_tokens": 1})

    path = recorded(tmp_path, script=ScriptedModel(speak), tokens=True)
    (rollout,) = branched(path, 2, ScriptedModel(speak), tokens=True)
    assert rollout.outcome == "completed"
    assert ["prefix" in call for call in rollout.calls] == [False, False, True, True]
    sequences = list(rollout.sequences())
    assert sequences[0].ids[:21] == list(range(21))
    assert sum(sum(sequence.mask) for sequence in sequences) == 2
    assert rollout.usage == {"output_tokens": 2}

    (rollout,) = branched(path, 2, tokens=True)
    assert rollout.outcome == "masked"
    assert rollout.verdict is not None
    assert rollout.verdict.mask == "no token ids for model call 3, 4"


# The property: from anywhere in its own record, a deterministic model ends where it ended


def gist(row: Row) -> Row:
    return {
        "output": row["response"]["output"],
        "metadata": row["response"].get("metadata"),
        **{key: row.get(key) for key in ("reward", "stop_reason", "turn_rewards", "reward_components", "outcome")},
        "calls": [call["items"] for call in row["model_calls"]],
    }


async def continuations(environment: Environment, path: Path, turn: int, answer: Any) -> list[Row]:
    """What comes of a branch on this loop, as records."""
    options = Options(branch=path, turn=turn, repeats=2, model=ScriptedModel(answer), concurrency=4)
    collection = Collection(environment, options)
    await collection.run(collection.prepare(sink=collection.keep))
    return [json.loads(rollout.encode()) for rollout in collection.rollouts]


@pytest.mark.parametrize("name", HERE)
async def test_every_environment_comes_to_the_same_end_from_any_turn(name, tmp_path):
    environment, oracle = ready(name)
    path = tmp_path / "rollouts.jsonl"
    async with shared_pool():
        found = {record["rollout_id"]: (attempt, record) for attempt, record in await records(environment, oracle)}
        path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for _, record in found.values()))
        longest = max(len(record["model_calls"]) for _, record in found.values())

        def say(request: Request) -> Any:
            return found[str(request.session).rpartition(".t")[0]][0].turn(request)

        for turn in sorted({0, 1, longest // 2, longest - 1} & set(range(longest))):
            rows = await continuations(environment, path, turn, say)
            assert rows
            for row in rows:
                assert row["outcome"] == "completed", row.get("cause")
                parent = found[row["parent"]][1]
                if environment.resources.by_group:  # a reward depends on the other continuations
                    assert row["response"]["output"] == parent["response"]["output"]
                else:
                    assert gist(row) == gist(parent)


TURNS = st.one_of(
    st.builds(add, st.integers(-5, 5)),
    st.just({"call": "draw"}),
    st.just({"call": "unheard_of"}),
    st.just({"call": "add", "arguments": '{"number": '}),
    st.just({"calls": [{"name": "add", "arguments": {"number": 1}}, {"name": "draw"}], "text": "Both."}),
    st.just({"reasoning": "Hm."}),
    st.just({"items": []}),
    st.just({"text": "Cut", "incomplete": "max_output_tokens"}),
    st.just("Done."),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=7), st.integers(1, 8), st.integers(-8, 7))
@example([{"reasoning": "Hm."}, {"items": []}, "Done."], 8, 1)
@example([{"items": []}, {"reasoning": "Hm."}, "Done."], 8, -1)
def test_any_script_is_reproduced_from_any_turn(tmp_path_factory, script, max_steps, turn):
    folder = tmp_path_factory.mktemp("any")
    steps = {"agent.max_steps": max_steps}
    path = recorded(folder, script=script, settings=steps)
    (parent,) = lines(path)
    made = len(parent["model_calls"])
    if not 0 <= (turn if turn >= 0 else made + turn) < made:
        with pytest.raises(UserError, match="none of its rollouts made a model call after turn"):
            branched(path, turn, script, settings=steps)
        return
    for rollout in branched(path, turn, script, settings=steps, repeats=2):
        assert gist(json.loads(rollout.encode())) == gist(parent)


class Guessing(Game):
    """A number from the seed; sometimes the game says nothing."""

    async def reset(self, task: Any) -> str | None:
        self.number, self.tries = random.Random(self.seed).randrange(4), 0
        return "Guess." if self.number % 2 else None

    async def step(self, task: Any, response: Response) -> Step:
        self.tries += 1
        if response.output_text == str(self.number):
            return Step(reward=1.0 / self.tries, terminated=True)
        return Step(f"Not {response.output_text}." if self.tries % 2 else None, reward=-0.1)


GUESSES = st.lists(st.sampled_from(["0", "1", "2", "3", {"items": []}]), min_size=1, max_size=7)


@settings(max_examples=25, deadline=None)
@given(GUESSES, st.integers(0, 6), st.integers(0, 20))
def test_any_game_is_reproduced_from_any_turn(tmp_path_factory, guesses, turn, seed):
    folder = tmp_path_factory.mktemp("game")
    path = recorded(folder, Guessing, guesses, seed=seed)
    (parent,) = lines(path)
    if turn < len(parent["model_calls"]):
        for rollout in branched(path, turn, guesses, Guessing, repeats=2):
            assert rollout.error is None, rollout.error
            assert gist(json.loads(rollout.encode())) == gist(parent)


def test_an_agent_has_the_steps_that_are_left(tmp_path):
    path = recorded(tmp_path, script=[add(1)], settings={"agent.max_steps": 4})
    (rollout,) = branched(path, 3, [add(1)], settings={"agent.max_steps": 6})
    assert (rollout.stop_reason, rollout.reward, len(rollout.calls)) == ("max_steps", 6.0, 6)


# Sessions


def test_the_record_is_replayed_once_however_many_go_on(tmp_path):
    path = recorded(tmp_path)
    rollouts = branched(path, 3, ["Done."], repeats=5)
    assert [rollout.reward for rollout in rollouts] == [7.0] * 5
    assert Tally.seen == {"opened": 1, "added": 3}


def test_continuations_know_nothing_of_each_other(tmp_path):
    def by_seed(request: Request) -> Any:
        return add(request.seed % 1000) if request.turn in (1, 2) else "Done."

    for rollout in branched(recorded(tmp_path), 1, by_seed, repeats=8):
        assert rollout.reward == 1 + 2 * (rollout.job.seed % 1000)


def test_chance_goes_on_where_it_was(tmp_path):
    script = [{"call": "draw"}, {"call": "draw"}, {"call": "draw"}, "Done."]
    path = recorded(tmp_path, script=script)
    (parent,) = lines(path)
    drawn = [item["output"] for item in parent["response"]["output"] if "output" in item]
    for rollout in branched(path, 1, script, repeats=3, seed=99):
        assert [item["output"] for item in outputs(rollout) if "output" in item] == drawn


def test_a_session_that_cannot_be_copied_is_brought_there_for_each(tmp_path, monkeypatch):
    path = recorded(tmp_path, Held)
    at_once = Held.open

    async def slowly(self: Any, task: Any) -> None:
        await asyncio.sleep(0.01)
        await at_once(self, task)

    monkeypatch.setattr(Held, "open", slowly)
    rollouts = branched(path, 2, [add(0), add(0), add(0), "Done."], Held, repeats=3)
    assert [rollout.reward for rollout in rollouts] == [3.0] * 3
    assert Tally.seen["opened"] == Tally.seen["closed"] == 3


def test_a_fork_of_ones_own_may_be_async_and_is_closed_like_any_other(tmp_path):
    class Own(Held):
        async def fork(self) -> Own:  # type: ignore[override]
            await asyncio.sleep(0)
            twin = type(self)(self.config, self.shared)
            twin.total, twin.lots = self.total, random.Random()
            self.seen["forked"] += 1
            return twin

    path = recorded(tmp_path, Own)
    assert [each.reward for each in branched(path, 3, ["Done."], Own, repeats=4)] == [7.0] * 4
    assert Tally.seen == {"opened": 1, "added": 3, "forked": 3, "closed": 4}


@pytest.mark.parametrize("returned", [None, "the session itself"])
def test_a_fork_that_is_none_fails_what_wanted_it(tmp_path, returned):
    class Wrong(Tally):
        def fork(self) -> Any:
            return self if returned else None

    first, second = branched(recorded(tmp_path, Wrong), 1, ["Done."], Wrong, repeats=2)
    assert first.error is not None
    assert (first.error.stage, first.error.kind) == ("open", "bad_fork")
    assert second.reward == 1.0


async def test_a_run_that_is_stopped_closes_the_sessions_that_nobody_took(tmp_path):
    class Slow(Held):
        async def fork(self) -> Slow:  # type: ignore[override]
            twin = self.copied()
            self.seen["opened"] += 1
            return twin

    path = await asyncio.to_thread(recorded, tmp_path, Slow)
    reached = asyncio.Event()

    async def stuck(request: Request) -> str:
        reached.set()
        await asyncio.sleep(3600)
        return "never"

    options = Options(branch=path, turn=1, repeats=9, model=ScriptedModel(stuck), concurrency=3)
    collection = Collection(Slow, options)
    running = asyncio.create_task(collection.run(collection.prepare(sink=collection.keep)))
    await reached.wait()
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert Tally.seen["opened"] == Tally.seen["closed"] == 4


def test_sessions_on_a_server_can_be_branched(tmp_path):
    script = [{"call": "increment_counter", "arguments": {"count": 3}}, "Done."]
    row = {**ASK, "initial_count": 1, "expected_count": 4}
    with served(COUNTER) as serving:
        url = url_of(serving, COUNTER)
        path = recorded(tmp_path, COUNTER, script, input=[row], resources=url)
        rollouts = branched(path, 1, script, COUNTER, resources=url, repeats=3)
    assert [rollout.reward for rollout in rollouts] == [1.0] * 3


# What goes wrong


class Moody(Tally):
    """Answers differently once its mood has changed."""

    mood: ClassVar[int] = 0

    @tool
    async def add(self, number: int) -> int:
        """Add a number."""
        self.total += number
        return self.total + (self.mood if number == 2 else 0)


def test_drift_fails_the_continuations_of_its_point_and_no_others(tmp_path, monkeypatch):
    def play(request: Request) -> Any:
        odd = "1" in str(request.input[0]["content"])
        return [add(2 if odd else 1), add(1), "Done."][request.turn]

    rows = [{"responses_create_params": {"input": f"task {number}"}} for number in range(2)]
    path = recorded(tmp_path, Moody, ScriptedModel(play), input=rows)
    monkeypatch.setattr(Moody, "mood", 5)
    rollouts = branched(path, 1, ScriptedModel(play), Moody, repeats=3)
    failed = [rollout for rollout in rollouts if rollout.error is not None]
    assert [rollout.reward for rollout in failed] == [None] * 3
    assert len({rollout.job.task_id for rollout in failed}) == 1
    assert {rollout.reward for rollout in rollouts if rollout.error is None} == {2.0}
    error = failed[0].error
    assert error is not None
    assert (error.stage, error.kind) == ("tool", "drift")
    assert error.cause == "add led to '2' then, and leads to '7' now"
    assert failed[0].to_row()["parent"] == failed[0].job.task_id.removesuffix(".t1")


def test_drift_behind_the_point_does_not_matter(tmp_path, monkeypatch):
    path = recorded(tmp_path, Moody, [add(1), add(2), "Done."])
    monkeypatch.setattr(Moody, "mood", 5)
    (rollout,) = branched(path, 1, [add(1), add(2), "Done."], Moody)
    assert rollout.reward == 3.0


def test_a_game_that_has_changed_has_drifted(tmp_path, monkeypatch):
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


def test_a_session_that_cannot_be_opened_fails_them_all(tmp_path, monkeypatch):
    path = recorded(tmp_path)

    async def refuse(self: Any, task: Any) -> None:
        self.seen["opened"] += 1
        raise Failure("no_room", "all taken")

    monkeypatch.setattr(Tally, "open", refuse)
    errors = [rollout.error for rollout in branched(path, 1, repeats=3)]
    assert [(error.stage, error.kind) for error in errors if error is not None] == [("open", "no_room")] * 3
    assert Tally.seen["opened"] == 1


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


def test_a_folder_stands_for_its_rollouts(tmp_path):
    recorded(tmp_path)
    assert branched(tmp_path, 1)[0].reward == 7.0


def test_records_of_the_same_name_are_told_apart(tmp_path):
    path = recorded(tmp_path)
    path.write_bytes(path.read_bytes() * 2)
    assert len({rollout.rollout_id for rollout in branched(path, 1, repeats=2)}) == 4


def test_a_branch_can_be_branched_and_scored_again(tmp_path):
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
        ({}, "it is not a recorded rollout"),
        ({**NINE_CALLS, "model_calls": [{}]}, "its model_calls do not say how many items"),
        ({**NINE_CALLS, "model_calls": [{"items": -1}] * 9}, "its model_calls do not say how many items"),
        (NINE_CALLS, "the row has no response"),
        ({**NINE_CALLS, "response": {"output": [{}]}}, "its model_calls do not fit its response"),
        ({**NINE_CALLS, "response": {"output": [7]}}, "response: an output item is not an object"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, line, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ASK | line) + "\n")
    with pytest.raises(UserError, match=rf"rows\.jsonl:1: {complaint}"):
        branched(path, 3)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"branch": "x"}, "a branch needs both"),
        ({"turn": 1}, "a branch needs both"),
        ({"branch": "x", "turn": 1, "input": [ASK]}, "the rows of a branch are its recorded rollouts"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, complaint):
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
def test_an_agent_that_does_not_say_that_it_can_go_on_is_refused_before_anything_runs(tmp_path, agent):
    path = recorded(tmp_path)
    environment = Environment.load(Tally)
    environment.agent = agent()
    with pytest.raises(UserError, match=f"its agent, {agent.__name__}, cannot go on from the middle"):
        branched(path, 1, environment=environment)
    assert not Tally.seen


def test_an_agent_on_a_server_is_refused(tmp_path):
    with pytest.raises(UserError, match="RemoteAgent, cannot go on"):
        branched(recorded(tmp_path), 1, agent="http://127.0.0.1:1")


def test_rows_may_name_their_environment(tmp_path):
    script = [{"call": "increment_counter", "arguments": {"count": 3}}, "Done."]
    path = recorded(tmp_path, COUNTER, script, input=[{**ASK, "initial_count": 1, "expected_count": 4}])
    (rollout,) = branched(path, 1, script, None)
    assert (rollout.reward, rollout.job.environment) == (1.0, COUNTER)


class Longest(Resources):
    """The longest answer of all wins."""

    async def verify_group(self, task: Any, responses: list[Response]) -> list[float]:  # type: ignore[override]
        most = max(len(response.output_text) for response in responses)
        return [float(len(response.output_text) == most) for response in responses]


def test_continuations_are_judged_together_where_answers_are(tmp_path):
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


def test_a_conversation_goes_on_with_a_user_who_remembers(tmp_path):
    policy = [{"call": "open_door"}, "Unlock it, please.", {"call": "open_door"}, "It is open.", "Anything else?"]
    user = ["Open the door.", {"call": "unlock"}, "I have.", "Thanks.", STOP]
    sides = [ScriptedModel(side)._answer for side in (policy, user)]
    heard: list[tuple[int, list[Row]]] = []

    def speak(request: Request) -> Any:
        if is_users(request):
            heard.append((request.turn, [_unnamed(item) for item in request.input]))
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


def _unnamed(item: Row) -> Row:
    """An item without the id that a call goes by."""
    return {key: value for key, value in item.items() if key not in ("id", "call_id", "status")}


# On the command line

PLAYER = """
import asyncio

async def respond(request):
    await asyncio.sleep((request.seed % 7) / 500)
    if request.turn < 2:
        return {"call": "increment_counter", "arguments": {"count": request.seed % 3}}
    return "done"
"""
PROGRAM = [sys.executable, "-m", "ludus", "collect", COUNTER, "--model", "scripted:player:respond"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a first collection, to run commands in."""
    (tmp_path / "player.py").write_text(PLAYER)
    rows = ({**ASK, "initial_count": 0, "expected_count": n % 3, "n": n} for n in range(25))
    (tmp_path / "rows.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    first = [*PROGRAM, "--input", "rows.jsonl", "--output", "first"]
    subprocess.run(first, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def command(output: str, *more: str) -> list[str]:
    branch = ["--branch", "first/rollouts.jsonl", "--turn", "1", "--repeats", "4", "--concurrency", "8"]
    return [*PROGRAM, *branch, "--output", output, *more]


def content(path: Path) -> dict[str, Any]:
    rows = lines(path / "rollouts.jsonl")
    assert len({row["rollout_id"] for row in rows}) == len(rows), "no rollout is there twice"
    return {row["rollout_id"]: gist(row) | {"parent": row["parent"]} for row in rows}


@pytest.mark.slow
def test_killed_and_resumed_a_branched_collection_equals_an_uninterrupted_one(folder):
    subprocess.run(command("whole"), cwd=folder, check=True, capture_output=True)
    expected = content(folder / "whole")
    assert len(expected) == 100
    dice, kills, more = random.Random(3), 0, ()
    journal = folder / "killed" / "rollouts.jsonl"
    for _ in range(8):
        process = subprocess.Popen(command("killed", *more), cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        before = journal.stat().st_size if journal.exists() else 0
        enough, began = before + dice.randrange(0, 20_000), time.monotonic()
        while process.poll() is None and time.monotonic() - began < 20:
            if journal.exists() and journal.stat().st_size > enough:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.communicate()
        more = ("--resume",)
    assert kills > 1
    done = subprocess.run(command("killed", "--resume"), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert content(folder / "killed") == expected
    metrics = json.loads((folder / "killed" / "metrics.json").read_bytes())
    assert metrics["counts"] == {"dispatched": 100, "completed": 100, "failed": 0, "masked": 0}
    assert len(metrics["tasks"]) == 25
    other = subprocess.run([*command("killed", "--resume"), "--turn", "0"], cwd=folder, capture_output=True, text=True)
    assert other.returncode != 0
    assert "describes a different run: dataset.turn was 1, now 0" in other.stderr


def test_the_command_line_says_what_it_leaves_out_and_what_is_missing(folder):
    done = subprocess.run([*command("out"), "--turn", "2", "--limit", "2"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    none = subprocess.run([*command("none"), "--turn", "3"], cwd=folder, capture_output=True, text=True)
    assert none.returncode != 0
    assert "none of its rollouts made a model call after turn 3" in none.stderr
    assert "Traceback" not in none.stderr

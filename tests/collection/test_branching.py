"""Branches: recorded rollouts that are continued after any of their model calls."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from branches import ASK, SCRIPT, ClosingTally, Guessing, Row, Tally, add, branched, gist, lines, outputs, recorded
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import HERE, ready, records
from serving import COUNTER, served, url_of
from waiting import until_async

import ludus
from ludus import Environment, Response, Rollout, ScriptedModel, UserError
from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.model import Request
from ludus.response import function_call, message
from ludus.runtime.processes import shared_pool
from ludus.tokens import Tokens


@pytest.fixture(autouse=True)
def _reset_events() -> None:
    Tally.events.clear()


def test_a_branch_repeats_the_record_up_to_its_turn_and_goes_on_from_there(tmp_path):
    path = recorded(tmp_path)
    (parent,) = lines(path)
    (rollout,) = branched(path, 2, lambda request: add(10) if request.turn == 2 else "Done.")
    output = outputs(rollout)
    assert output[:6] == parent["response"]["output"][:6]  # one call with its output, then two calls
    assert [item["type"] for item in output[6:]] == ["function_call", "function_call_output", "message"]
    assert output[7]["output"] == "13"
    assert rollout.reward == 13.0


def test_the_record_of_a_branch_names_its_parent_turn_and_session_seed(tmp_path):
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
        assert row["model_calls"][:2] == [
            {"items": 1, "given": True},
            {"items": 2, "parallel": False, "given": True},
        ]
        assert row["number"] == parent["number"] == 8
        assert row["receipt"] == parent["receipt"]  # the same verifier, task and trajectory
        assert Rollout.from_row(row).to_row() == row | {"outcome": "completed"}
    assert len({row["rollout_seed"] for row in rows} | {parent["rollout_seed"]}) == 3


def test_the_branches_of_one_record_count_as_one_task(tmp_path):
    path = recorded(tmp_path, input=[{**ASK, "number": number} for number in range(2)])

    def sometimes(request: Request) -> Any:
        return add(request.seed % 2) if request.turn == 1 else "Done."

    found = ludus.collect(Tally, branch=path, turn=1, repeats=6, model=ScriptedModel(sometimes)).metrics
    assert found["counts"]["completed"] == 12
    assert {task["task_id"] for task in found["tasks"]} == {f"{row['rollout_id']}.t1" for row in lines(path)}
    assert all(task["completed"] == 6 for task in found["tasks"])
    assert set(found["pass@k"]) == {str(k) for k in range(1, 7)}


def test_the_model_gets_its_turn_number_and_all_earlier_items(tmp_path):
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


def test_only_calls_after_the_branch_point_have_tokens_and_are_trained_on(tmp_path):
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


# A deterministic model that branches its own record at any turn repeats the record


async def branch_rows(environment: Environment, path: Path, turn: int, answer: Any) -> list[Row]:
    """The rows of a branch, collected on the running event loop."""
    options = Options(branch=path, turn=turn, repeats=2, model=ScriptedModel(answer), concurrency=4)
    collection = Collection(environment, options)
    await collection.run(collection.prepare(sink=collection.add_rollout))
    return [json.loads(rollout.encode()) for rollout in collection.rollouts]


#: Environments whose sandboxes take seconds branch at one turn only.
ONE_TURN = {"mini_swe_agent", "swerl_gen", "terminal"}


@pytest.mark.parametrize("name", HERE)
async def test_every_environment_repeats_its_record_from_any_turn(name, tmp_path):
    environment, oracle = ready(name)
    path = tmp_path / "rollouts.jsonl"
    async with shared_pool():
        found = {record["rollout_id"]: (attempt, record) for attempt, record in await records(environment, oracle)}
        path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for _, record in found.values()))
        longest = max(len(record["model_calls"]) for _, record in found.values())

        def say(request: Request) -> Any:
            return found[str(request.session).rpartition(".t")[0]][0].turn(request)

        turns = {longest // 2} if name in ONE_TURN else {0, 1, longest // 2, longest - 1}
        for turn in sorted(turns & set(range(longest))):
            rows = await branch_rows(environment, path, turn, say)
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


def test_recorded_model_calls_count_against_max_steps(tmp_path):
    path = recorded(tmp_path, script=[add(1)], settings={"agent.max_steps": 4})
    (rollout,) = branched(path, 3, [add(1)], settings={"agent.max_steps": 6})
    assert (rollout.stop_reason, rollout.reward, len(rollout.calls)) == ("max_steps", 6.0, 6)


# Sessions


def test_a_record_is_replayed_once_for_all_its_branches(tmp_path):
    path = recorded(tmp_path)
    rollouts = branched(path, 3, ["Done."], repeats=5)
    assert [rollout.reward for rollout in rollouts] == [7.0] * 5
    assert Tally.events == {"opened": 1, "added": 3}


def test_branches_of_one_record_do_not_share_state(tmp_path):
    def by_seed(request: Request) -> Any:
        return add(request.seed % 1000) if request.turn in (1, 2) else "Done."

    for rollout in branched(recorded(tmp_path), 1, by_seed, repeats=8):
        assert rollout.reward == 1 + 2 * (rollout.job.seed % 1000)


def test_a_branch_continues_the_random_numbers_of_its_session(tmp_path):
    script = [{"call": "draw"}, {"call": "draw"}, {"call": "draw"}, "Done."]
    path = recorded(tmp_path, script=script)
    (parent,) = lines(path)
    drawn = [item["output"] for item in parent["response"]["output"] if "output" in item]
    for rollout in branched(path, 1, script, repeats=3, seed=99):
        assert [item["output"] for item in outputs(rollout) if "output" in item] == drawn


def test_a_session_that_cannot_be_copied_is_replayed_for_each_branch(tmp_path, monkeypatch):
    path = recorded(tmp_path, ClosingTally)
    at_once = ClosingTally.open

    async def slowly(self: Any, task: Any) -> None:
        await asyncio.sleep(0.01)
        await at_once(self, task)

    monkeypatch.setattr(ClosingTally, "open", slowly)
    rollouts = branched(path, 2, [add(0), add(0), add(0), "Done."], ClosingTally, repeats=3)
    assert [rollout.reward for rollout in rollouts] == [3.0] * 3
    assert Tally.events["opened"] == Tally.events["closed"] == 3


def test_an_overridden_fork_may_be_async_and_every_fork_is_closed(tmp_path):
    class Own(ClosingTally):
        async def fork(self) -> Own:  # type: ignore[override]
            await asyncio.sleep(0)
            twin = type(self)(self.config, self.shared)
            twin.total, twin.generator = self.total, random.Random()
            self.events["forked"] += 1
            return twin

    path = recorded(tmp_path, Own)
    assert [each.reward for each in branched(path, 3, ["Done."], Own, repeats=4)] == [7.0] * 4
    assert Tally.events == {"opened": 1, "added": 3, "forked": 3, "closed": 4}


@pytest.mark.parametrize("returned", [None, "the session itself"])
def test_a_fork_that_returns_no_new_session_fails_its_branch(tmp_path, returned):
    class Wrong(Tally):
        def fork(self) -> Any:
            return self if returned else None

    first, second = branched(recorded(tmp_path, Wrong), 1, ["Done."], Wrong, repeats=2)
    assert first.error is not None
    assert (first.error.stage, first.error.kind) == ("open", "bad_fork")
    assert second.reward == 1.0


async def test_a_cancelled_run_closes_the_forks_that_no_rollout_used(tmp_path):
    class Slow(ClosingTally):
        async def fork(self) -> Slow:  # type: ignore[override]
            twin = self.copied()
            self.events["opened"] += 1
            return twin

    path = await asyncio.to_thread(recorded, tmp_path, Slow)
    reached = asyncio.Event()

    async def stuck(request: Request) -> str:
        reached.set()
        await asyncio.sleep(3600)
        return "never"

    options = Options(branch=path, turn=1, repeats=9, model=ScriptedModel(stuck), concurrency=3)
    collection = Collection(Slow, options)
    running = asyncio.create_task(collection.run(collection.prepare(sink=collection.add_rollout)))
    await reached.wait()
    await until_async(lambda: Tally.events["opened"] == 4)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert Tally.events["opened"] == Tally.events["closed"] == 4


def test_sessions_on_a_server_can_be_branched(tmp_path):
    script = [{"call": "increment_counter", "arguments": {"count": 3}}, "Done."]
    row = {**ASK, "initial_count": 1, "expected_count": 4}
    with served(COUNTER) as serving:
        url = url_of(serving, COUNTER)
        path = recorded(tmp_path, COUNTER, script, input=[row], resources=url)
        rollouts = branched(path, 1, script, COUNTER, resources=url, repeats=3)
    assert [rollout.reward for rollout in rollouts] == [1.0] * 3

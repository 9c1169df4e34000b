"""A turn's tool calls are replayed the way they were played: at once, or one after another."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from branches import branched, collected, lines
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import Web, served, url_of

from ludus import Agent, Environment, Resources, Response, tool
from ludus.episode import Episode
from ludus.rescore.rescoring import Rescoring, rescore
from ludus.response import function_call_output

Row = dict[str, Any]
ASK: Row = {"responses_create_params": {"input": "Move the money."}}
IN_SEQUENCE: Row = {"responses_create_params": {**ASK["responses_create_params"], "parallel_tool_calls": False}}


class Bank(Resources):
    """Two transfers at once both read the balance before either writes it, so that one of them is lost."""

    async def open(self, task: Any) -> None:
        self.balance = 100

    @tool
    async def transfer(self, amount: int) -> str:
        """Transfer money out of the account."""
        balance = self.balance
        for _ in range(amount):
            await asyncio.sleep(0)
        self.balance = balance - amount
        return "done"

    @tool
    async def read_balance(self) -> int:
        """The balance."""
        return self.balance

    async def verify(self, task: Any, response: Response) -> float:
        return float(self.balance == 70)


def transfer(amount: int) -> Row:
    return {"name": "transfer", "arguments": {"amount": amount}}


BALANCE: Row = {"name": "read_balance"}
TWO_TRANSFERS: list[Any] = [{"calls": [transfer(10), transfer(20)]}, "Done."]


def written(path: Path, *rows: Row) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def record_of(environment: Any = Bank, script: Any = TWO_TRANSFERS, row: Row = ASK, **options: Any) -> Row:
    (rollout,) = collected(environment, script, input=[row], **options)
    assert rollout.error is None, rollout.error
    record: Row = json.loads(rollout.encode())
    return record


def rescored(path: Path, *rows: Row, environment: Any = Bank) -> list[Row]:
    rescore(written(path, *rows), environment, output=path)
    return lines(path)


def test_calls_that_ran_at_once_are_replayed_at_once(tmp_path: Path):
    record = record_of()
    assert (record["reward"], record["model_calls"][0]["parallel"]) == (0.0, True)
    (again,) = rescored(tmp_path / "rollouts.jsonl", record)
    assert again == record


def test_calls_that_ran_one_after_another_are_replayed_one_after_another(tmp_path: Path):
    record = record_of(row=IN_SEQUENCE)
    assert (record["reward"], record["model_calls"][0]["parallel"]) == (1.0, False)
    (again,) = rescored(tmp_path / "rollouts.jsonl", record)
    assert again == record


def test_only_turns_with_several_calls_say_how_they_ran():
    record = record_of(script=[{"calls": [transfer(1)]}, *TWO_TRANSFERS])
    assert [call.get("parallel") for call in record["model_calls"]] == [None, True, None]


def test_a_record_of_ludus_without_the_field_ran_its_calls_at_once_unless_its_task_forbids_it(tmp_path: Path):
    records = [record_of(), record_of(row=IN_SEQUENCE)]
    for record in records:
        del record["model_calls"][0]["parallel"]
    again = rescored(tmp_path / "rollouts.jsonl", *records)
    assert [row["reward"] for row in again] == [0.0, 1.0]


def test_a_response_without_model_calls_ran_its_calls_one_after_another(tmp_path: Path):
    record = record_of()
    (again,) = rescored(tmp_path / "rows.jsonl", {**ASK, "response": record["response"]})
    assert again["reward"] == 1.0


def test_a_branch_starts_from_the_state_after_calls_that_ran_at_once(tmp_path: Path):
    path = written(tmp_path / "rollouts.jsonl", record_of(script=[*TWO_TRANSFERS[:1], {"calls": [BALANCE]}, "Done."]))
    branches = [json.loads(rollout.encode()) for rollout in branched(path, 1, "Done.".split(), Bank, repeats=2)]
    assert [row["reward"] for row in branches] == [0.0, 0.0]
    assert branches[0]["model_calls"][0] == {"items": 2, "given": True, "parallel": True}
    again = rescored(tmp_path / "again.jsonl", *branches)
    assert [row["reward"] for row in again] == [0.0, 0.0]


def test_verify_without_a_session_replays_calls_that_ran_at_once(tmp_path: Path):
    folder = tmp_path / "bank"
    folder.mkdir()
    imports = "import asyncio\nfrom typing import Any\nfrom ludus import Resources, Response, tool\n"
    (folder / "resources.py").write_text(imports + inspect.getsource(Bank))
    (folder / "environment.yaml").write_text("name: bank\nresources: resources.py:Bank\n")
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps(TWO_TRANSFERS))
    with served(str(folder), model=f"scripted:{script}") as serving:
        agent, resources = Web(url_of(serving, "bank_simple_agent")), Web(url_of(serving, "bank"))
        record = agent.post("/run", ASK).json()
        assert record["reward"] == 0.0
        assert resources.post("/verify", record).json()["reward"] == 0.0
        record["model_calls"][0]["parallel"] = False
        assert Web(url_of(serving, "bank")).post("/verify", record).json()["reward"] == 1.0


class _OwnLoop(Agent):
    """Runs the calls of a turn with `call_tool`: at once, or in pairs, or one after another."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self._sizes = sizes

    async def act(self, episode: Episode) -> str:
        response = await episode.ask()
        calls, outputs = response.function_calls, []
        for size in self._sizes:
            group = calls[len(outputs) : len(outputs) + size]
            outputs += await asyncio.gather(*(episode.call_tool(call["name"], call["arguments"]) for call in group))
        for call, output in zip(calls, outputs, strict=True):
            episode.say(function_call_output(call["call_id"], output))
        await episode.ask()
        return "completed"


@pytest.mark.parametrize(("sizes", "parallel", "reward"), [([2], True, 0.0), ([1, 1], False, 1.0)])
def test_an_agent_that_runs_the_calls_itself_is_recorded_too(
    tmp_path: Path, sizes: list[int], parallel: bool, reward: float
):
    environment = Environment.load(Bank)
    environment.agent = _OwnLoop(sizes)
    record = record_of(environment)
    assert (record["reward"], record["model_calls"][0]["parallel"]) == (reward, parallel)
    (again,) = rescored(tmp_path / "rollouts.jsonl", record)
    assert again["reward"] == reward


TURNS = st.lists(st.lists(st.sampled_from([transfer(1), transfer(2), transfer(5), BALANCE]), max_size=4), max_size=5)


@settings(max_examples=40, deadline=None)
@given(TURNS, st.booleans())
def test_any_turns_are_replayed_without_drift(tmp_path_factory: Any, turns: list[list[Row]], in_sequence: bool):
    script = [*({"text": "Next.", "calls": calls} for calls in turns if calls), "Done."]
    record = record_of(script=script, row=IN_SEQUENCE if in_sequence else ASK)
    path = written(tmp_path_factory.mktemp("any") / "rollouts.jsonl", record)
    rescoring = Rescoring(path, Bank)
    asyncio.run(rescoring.run())
    assert (rescoring.changes.counts["unchanged"], rescoring.changes.drift_count) == (1, 0)

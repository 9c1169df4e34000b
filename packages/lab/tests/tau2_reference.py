"""tau2's own evaluator on conversations that we played, and 100 of them with its results in `tau2_evaluated.json`.

    python packages/lab/tests/tau2_reference.py        # plays and evaluates all again, and writes the file

The evaluator's module imports litellm, which asks models. The rules ask none, so an empty module stands in for it.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from ludus_lab.tau2.domains import DOMAINS, fresh, module
from ludus_lab.tau2.generate import stream
from ludus_lab.tau2.resources import arguments_of
from ludus_qualify.attempts import Attempt, play
from ludus_qualify.oracle import Oracle

from ludus.agents.conversation import Ending
from ludus.environment import Environment
from ludus.response import is_message, texts_of
from ludus.rollout import Rollout

FILE = Path(__file__).with_name("tau2_evaluated.json")
COUNT = 100
PARTS = {
    "db": "db_check",
    "env_assertion": "env_assertions",
    "action": "action_checks",
    "communicate": "communicate_checks",
}
FIELDS = ("user_scenario", "initial_state", "evaluation_criteria")
_NO_LITELLM = ("litellm", "litellm.caching", "litellm.caching.caching", "litellm.main")


def attempts() -> list[Attempt]:
    """100 conversations: tasks of all domains, in turn with the right script, others that are right, and wrong ones."""
    environment = Environment.load("tau2")
    oracle = Oracle.of(environment)
    chosen: list[Attempt] = []
    for domain in DOMAINS:
        rows = list(stream(0, domain=domain, split="small" if domain == "telecom" else "base"))
        for number, row in enumerate(islice(cycle(rows), 34 if domain == "airline" else 33)):
            task = environment.task(row)
            right = {"oracle": oracle.script(task)} | oracle.preserving(task)
            scripts = list(right.items()) if number % 2 else list(oracle.breaking(task).items())
            name, script = scripts[number // 2 % len(scripts)]
            chosen.append(Attempt(row["task_id"], row, "odd", name, script, number))
    return chosen


async def played(chosen: list[Attempt]) -> dict[str, Rollout]:
    """The rollouts of attempts, with the user that follows rules."""
    environment = Environment.load("tau2").copy()
    environment.configure(Oracle.of(environment).settings)
    return await play(environment, chosen, concurrency=8, seed=0)


def evaluated(row: dict[str, Any], rollout: Rollout) -> dict[str, Any]:
    """What tau2's evaluator says about a rollout: the reward, and each part where it looked at it."""
    evaluator, types = _evaluator()
    ending = Ending.of(rollout.response)
    assert ending is not None
    task = types.Task.model_validate({"id": row["task_id"], **{key: row[key] for key in FIELDS}})
    reason = types.TerminationReason.USER_STOP if ending.by_user else types.TerminationReason.AGENT_ERROR
    times = {"start_time": "", "end_time": "", "duration": 0.0}
    run = types.SimulationRun(
        id="1", task_id=task.id, termination_reason=reason, messages=_messages(row, rollout, ending, types), **times
    )
    database, packed = type(fresh(row["domain"], None).tools.db), _packed(row["domain"])
    with patch.object(database, "load", lambda path: pickle.loads(packed)):
        info = evaluator.evaluate_simulation(run, task, evaluator.EvaluationType.ALL, False, row["domain"])
    looked = info.reward_basis is not None  # not at a conversation that did not end as it should
    return {
        "reward": info.reward,
        **{part: _held(getattr(info, field)) if looked else None for part, field in PARTS.items()},
    }


def judged(rollout: Rollout) -> dict[str, Any]:
    """What we say about a rollout, in the same form."""
    assert rollout.verdict is not None
    parts = rollout.verdict.components or {}
    return {"reward": rollout.reward, **{part: bool(parts[part]) if part in parts else None for part in PARTS}}


def _held(checks: Any) -> bool:
    if checks is None:  # nothing to check
        return True
    if isinstance(checks, list):
        return all(getattr(check, "met", getattr(check, "action_match", None)) for check in checks)
    return bool(checks.db_match)


def _messages(row: dict[str, Any], rollout: Rollout, ending: Ending, types: Any) -> list[Any]:
    """A rollout as tau2 records it. A call that is no call for tau2, without a JSON object, is left out."""
    messages: list[Any] = []
    outputs = {item["call_id"]: item["output"] for item in rollout.response.output if "output" in item}
    pending = list(ending.user_calls)
    environment = fresh(row["domain"], None)

    def add(requestor: str, name: str, arguments: str, output: str) -> None:
        if (values := arguments_of(arguments)) is None:
            return
        toolkit = environment.tools if requestor == "assistant" else environment.user_tools
        if not toolkit.has_tool(name):
            output = f"Error: Tool '{name}' not found."
        call = types.ToolCall(id=str(len(messages)), name=name, arguments=values, requestor=requestor)
        kind = types.AssistantMessage if requestor == "assistant" else types.UserMessage
        messages.append(kind(role=requestor, tool_calls=[call]))
        messages.append(types.ToolMessage(id=call.id, role="tool", content=output, requestor=requestor))

    def add_user_calls(position: int) -> None:
        while pending and pending[0].after <= position:
            made = pending.pop(0)
            add("user", made.name, made.arguments, made.output)

    for position, item in enumerate(rollout.response.output):
        add_user_calls(position)
        if item.get("type") == "function_call" and item["call_id"] in outputs:
            add("assistant", item["name"], item["arguments"], outputs[item["call_id"]])
        elif is_message(item):
            messages.append(types.AssistantMessage(role="assistant", content=texts_of(item)))
        elif item.get("role") == "user":
            messages.append(types.UserMessage(role="user", content=texts_of(item)))
    add_user_calls(len(rollout.response.output))
    return messages


@cache
def _packed(domain: str) -> bytes:
    return pickle.dumps(module(domain).get_environment().tools.db)


@cache
def _evaluator() -> tuple[Any, Any]:
    from types import SimpleNamespace

    module("airline")
    with patch.dict(sys.modules, {name: MagicMock() for name in _NO_LITELLM}):
        from tau2.data_model import message, simulation, tasks
        from tau2.evaluator import evaluator
    return evaluator, SimpleNamespace(**{**vars(message), **vars(simulation), **vars(tasks)})


def main() -> None:
    """Write the file."""
    chosen = attempts()
    rollouts = asyncio.run(played(chosen))
    lines = []
    for attempt in chosen:
        result = evaluated(attempt.row, rollouts[attempt.id])
        lines.append(json.dumps([attempt.id, result]))
        print(attempt.id, result["reward"], "" if result == judged(rollouts[attempt.id]) else "DIFFERS", flush=True)
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()

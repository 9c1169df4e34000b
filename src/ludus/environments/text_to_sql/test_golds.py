"""Gold queries are tried once for a group, and remembered up to a size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ludus
from ludus import Failure, ScriptedModel
from ludus.environments.text_to_sql import resources
from ludus.environments.text_to_sql.execution import TriedGold
from ludus.environments.text_to_sql.golds import TriedGolds
from ludus.runtime.processes import in_process

GOLD = "SELECT city, SUM(amount) FROM sales WHERE amount > 10 GROUP BY city;"
CONTEXT = "CREATE TABLE sales (id INTEGER PRIMARY KEY, city TEXT NOT NULL, amount INTEGER NOT NULL);"
QUERY = {"sql": GOLD, "sql_dialect": "sqlite", "sql_context": CONTEXT, "sql_prompt": "What?"}
ROW: dict[str, Any] = {"responses_create_params": {"input": "What?"}, **QUERY}


@pytest.mark.parametrize("broken", [False, True])
async def test_a_group_tries_its_gold_query_once_and_again_after_a_failure(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = in_process

    async def counted(function: Any, *args: Any, **limits: Any) -> Any:
        asked.append(function.__name__)
        if broken and len(asked) == 1:
            raise Failure("crash", "the child ended")
        return await original(function, *args, **limits)

    monkeypatch.setattr(resources, "in_process", counted)
    answer = ScriptedModel(lambda request: f"```sql\n{GOLD}\n```")
    at_once = 1 if broken else 4
    run = await asyncio.to_thread(
        lambda: ludus.collect("text_to_sql", model=answer, input=[ROW], repeats=4, concurrency=at_once)
    )
    rewards = [rollout.verdict and rollout.verdict.reward for rollout in run.rollouts]
    assert sorted(asked) == ["decide_packed"] * (3 if broken else 4) + ["try_gold"] * (2 if broken else 1)
    assert sorted(rewards, key=str) == ([1.0, 1.0, 1.0, None] if broken else [1.0] * 4)


async def test_golds_are_kept_up_to_a_size_and_a_failed_trial_is_made_again() -> None:
    golds, tried = TriedGolds(most=100), list[str]()

    async def trial(name: str, size: int = 40) -> TriedGold:
        tried.append(name)
        await asyncio.sleep(0)
        if size < 0:
            raise Failure("crash", "the child ended")
        return TriedGold("", bytes(size))

    def asked(name: str, size: int = 40) -> Any:
        return golds.get((name, "", ""), lambda: trial(name, size))

    with pytest.raises(Failure):
        await asked("a", -1)
    assert len({id(gold) for gold in await asyncio.gather(asked("a"), asked("a"), asked("b"), asked("a"))}) == 2
    await asked("a")
    assert tried == ["a", "a", "b"]
    await asked("c")  # b was asked for least recently, and goes
    await asked("a")
    await asked("b")
    assert tried == ["a", "a", "b", "c", "b"]
    waiting = asyncio.create_task(asked("d"))
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await asked("d")).packed == bytes(40)
    assert tried.count("d") == 1, "a rollout that gave up does not end the trial of the others"
    await asked("e", 1000)  # larger than all that may be kept
    await asked("e", 1000)
    assert tried.count("e") == 2

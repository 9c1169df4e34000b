"""Rollouts that are not waited for: enough have ended, the time is up, or the policy has moved on."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from interrupted import Asked, Compared, Ledger, adds, complete, records, rows
from ludus_bench.profile.profile import Profile
from waiting import until_async

import ludus
from ludus import UserError
from ludus.compare.scores import Scores
from ludus.response import Response, function_call, message
from ludus.tokens import Tokens
from ludus.view.live import LiveRuns


def failures(output: Any) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (output / "failures.jsonl").read_bytes().splitlines()]


def slow(request: Any) -> bool:
    """The last two of six repeats never get an answer to their third call."""
    return request.session[-2:] in ("-4", "-5") and request.turn >= 2


@pytest.mark.parametrize("concurrency", [12, 1])
async def test_enough_ends_the_slower_rollouts_of_a_task_and_records_why(tmp_path, concurrency) -> None:
    asked = Asked(adds)
    asked.stops = slow
    given: dict[str, Any] = {"input": rows(2), "repeats": 6, "enough": 4, "concurrency": concurrency}
    result = await complete(Ledger, asked, tmp_path / "out", **given)
    assert result.metrics["counts"] == {"dispatched": 12, "completed": 8, "failed": 0, "masked": 0, "ended_early": 4}
    ended = failures(tmp_path / "out")
    assert {(row["kind"], row["stage"], row["cause"]) for row in ended} == {
        ("enough", "agent", "4 other rollouts of its task had ended")
    }
    assert sorted(row["repeat"] for row in ended) == [4, 4, 5, 5]
    assert all("reward" not in row for row in ended)
    if concurrency > 1:
        assert all(len(row["model_calls"]) == 2 for row in ended)
    again = Asked(adds)
    await complete(Ledger, again, tmp_path / "out", **given, resume=True)
    assert again.turns == {}
    del given["enough"]
    await complete(Ledger, again, tmp_path / "out", **given, resume=True)
    assert len(again.turns) == 4
    assert len(records(tmp_path / "out")) == 12


async def test_rollouts_that_were_ended_early_are_no_failures_anywhere(tmp_path) -> None:
    asked = Asked(adds)
    asked.stops = slow
    result = await complete(Ledger, asked, tmp_path / "out", input=rows(2), repeats=6, enough=4)
    stored = ludus.load(tmp_path / "out")
    for run in (result, stored):
        assert list(run.failures()) == []
        assert ("failed", "0") in run.facts()
        assert ("ended early", "4") in run.facts()
    assert stored.metrics["failures"] == {}
    profile = Profile([tmp_path / "out"]).summary()
    assert sum(task["failed"] for task in profile["tasks"]) == 0
    assert Scores.read(tmp_path / "out").failed == 0
    viewed = LiveRuns([tmp_path / "out"], {})
    viewed.index_all()
    overview = next(iter(viewed.runs.values())).overview({})
    assert (overview["counts"]["failed"], overview["counts"]["ended_early"], overview["failures"]) == (0, 4, [])
    assert None not in overview["spark"]


async def test_a_failed_rollout_is_not_one_of_the_enough(tmp_path) -> None:
    def fails(request: Any) -> Any:
        return {"error": {"kind": "http_500"}} if request.session.endswith("-0") else adds(request)

    given: dict[str, Any] = {"input": rows(1), "repeats": 4, "enough": 2, "concurrency": 1}
    result = await complete(Ledger, Asked(fails), tmp_path / "out", **given)
    assert result.metrics["counts"] == {"dispatched": 4, "completed": 2, "failed": 1, "masked": 0, "ended_early": 1}
    assert [(row["repeat"], row["kind"]) for row in failures(tmp_path / "out")] == [(0, "http_500"), (3, "enough")]


async def test_a_resumed_run_counts_the_rollouts_of_earlier_runs_as_enough(tmp_path) -> None:
    await complete(Ledger, Asked(adds), tmp_path / "out", input=rows(1), repeats=2)
    asked = Asked(adds)
    await complete(Ledger, asked, tmp_path / "out", input=rows(1), repeats=4, enough=2, resume=True)
    assert asked.turns == {}
    assert [row["kind"] for row in failures(tmp_path / "out")] == ["enough", "enough"]


async def test_a_task_is_closed_at_its_deadline(tmp_path) -> None:
    asked = Asked(adds)
    asked.stops = slow
    given: dict[str, Any] = {"input": rows(1), "repeats": 6, "group_deadline": 0.3}
    await complete(Ledger, asked, tmp_path / "out", **given)
    late = [row for row in failures(tmp_path / "out") if row["repeat"] in (4, 5)]
    assert {(row["kind"], row["cause"]) for row in late} == {("group_deadline", "its task began 0.3 s before")}
    assert len(late) == 2


async def test_a_rollout_of_an_old_policy_is_ended(tmp_path) -> None:
    version = 3

    async def answer(request: Any) -> Response:
        nonlocal version
        old = request.session.endswith("-0")
        if old and request.turn:
            version = 5
            await asyncio.Event().wait()
        if not old:
            await until_async(lambda: version == 5)
        tokens = Tokens([1], [2], [-0.5], policy_version=str(version))
        call = function_call("add", {"number": 1}, call_id=f"c{request.turn}")
        if request.turn == 1:
            await until_async(lambda: failures(tmp_path / "out"))
        return Response.of(call if request.turn < 2 else message("done"), tokens=tokens)

    asked = Asked(adds)
    asked.respond = answer  # type: ignore[method-assign]
    given: dict[str, Any] = {"input": rows(1), "repeats": 2, "max_staleness": 1, "tokens": True}
    await complete(Ledger, asked, tmp_path / "out", **given)
    assert [(row["kind"], row["cause"]) for row in failures(tmp_path / "out")] == [
        ("stale", "its oldest call is of policy version 3, now is 5")
    ]
    assert len(records(tmp_path / "out")) == 1


async def test_limits_that_make_no_sense_are_refused(tmp_path) -> None:
    with pytest.raises(UserError, match=r"--enough 5 is more than --repeats 4. Raise --repeats"):
        await complete(Ledger, Asked(adds), tmp_path, input=rows(1), repeats=4, enough=5)
    with pytest.raises(UserError, match=r"group_deadline must be a positive number"):
        await complete(Ledger, Asked(adds), tmp_path, input=rows(1), group_deadline=0.0)
    with pytest.raises(UserError, match=r"verify_group.*none can be left out"):
        await complete(Compared, Asked(adds), tmp_path, input=rows(1), repeats=2, enough=1)

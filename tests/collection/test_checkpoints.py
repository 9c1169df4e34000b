"""Checkpoints: an interrupted rollout goes on after its last turn, and ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest
from interrupted import TURNS, Asked, Climb, Compared, Ledger, Talk, adds, complete, interrupt, records, rows

import ludus
from ludus import Agent, Episode, UserError
from ludus.agents.conversation import ConversationAgent
from ludus.agents.simulated_user import is_users
from ludus.agents.user import STOP
from ludus.response import Response, function_call, message
from ludus.tokens import Tokens


async def test_interrupted_rollouts_go_on_after_their_last_turn(tmp_path) -> None:
    whole, first, second = Asked(adds), Asked(adds, stop_at=4), Asked(adds)
    given = {"input": rows(3), "repeats": 2}
    await complete(Ledger, whole, tmp_path / "whole", **given)
    await interrupt(Ledger, first, tmp_path / "out", 6, **given)
    assert (tmp_path / "out" / "turns.jsonl").exists()
    result = await complete(Ledger, second, tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert all(turns == [4, 5, 6] for turns in second.turns.values())
    assert len(second.turns) == 6
    nothing = {"turns_alike": 0, "turns_lost": 0, "started_over": 0}
    assert result.metrics["checkpoints"] == {"resumed": 6, "turns_kept": 24, **nothing}
    assert not (tmp_path / "out" / "turns.jsonl").exists()


async def test_the_total_time_of_a_resumed_rollout_includes_what_was_played_before(tmp_path) -> None:
    class Slow(Ledger):
        async def call(self, name: str, arguments: str) -> str:
            await asyncio.sleep(0.05)
            return await super().call(name, arguments)

    await interrupt(Slow, Asked(adds, stop_at=4), tmp_path / "out", 1, input=rows(1))
    result = await complete(Slow, Asked(adds), tmp_path / "out", resume=True, input=rows(1))
    (rollout,) = ludus.load(tmp_path / "out")
    timings = rollout.timings
    assert timings["tool"] >= 0.3  # six turns with tools
    assert timings["total"] >= timings["tool"] + timings["model"] + timings["replay"]
    assert result.metrics["seconds"]["total"]["mean"] >= 0.3


@pytest.mark.parametrize("environment", [Ledger, Talk, Compared])
async def test_a_played_rollout_is_freed_at_once(environment, tmp_path) -> None:
    """Python finds a rollout in a reference cycle only later, and looks for cycles less often during a collection."""
    gc.collect()
    gc.disable()
    try:
        before = len(_episodes())
        await complete(environment, Asked(adds), tmp_path / "out", input=rows(2))
        assert len(_episodes()) == before
    finally:
        gc.enable()


def _episodes() -> list[Episode]:
    # `isinstance` would ask objects of other libraries for their class, and some of them answer with a warning.
    return [each for each in gc.get_objects() if type(each) is Episode]


async def test_a_rollout_may_be_interrupted_again_and_again(tmp_path) -> None:
    given, asked = {"input": rows(2)}, list[Asked]()
    await complete(Ledger, Asked(adds), tmp_path / "whole", **given)
    for stop_at in (1, 3, 5):
        asked.append(Asked(adds, stop_at=stop_at))
        await interrupt(Ledger, asked[-1], tmp_path / "out", 2, resume=stop_at > 1, **given)
    asked.append(Asked(adds))
    await complete(Ledger, asked[-1], tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    played = [next(iter(each.turns.values())) for each in asked]
    assert played == [[0, 1], [1, 2, 3], [3, 4, 5], [5, 6]]


async def test_a_game_goes_on_after_its_last_turn(tmp_path) -> None:
    def climbs(request: Any) -> str:
        return str(request.turn + 1)

    given: dict[str, Any] = {"input": rows(2), "settings": {}}
    whole, second = Asked(climbs), Asked(climbs)
    await complete(Climb, whole, tmp_path / "whole", **given)
    await interrupt(Climb, Asked(climbs, stop_at=3), tmp_path / "out", 2, **given)
    await complete(Climb, second, tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert all(turns[0] == 3 for turns in second.turns.values())


async def test_the_token_ids_of_an_interrupted_rollout_go_on(tmp_path) -> None:
    def answer(request: Any) -> Response:
        before = request.tokens
        prompt = [*before.prompt_ids, *before.generated_ids, 7] if before is not None else [1, 2]
        tokens = Tokens(prompt, [request.turn + 100], [-0.5], policy_version="3")
        call = function_call("add", {"number": request.turn}, call_id=f"c{request.turn}")
        return Response.of(call if request.turn < TURNS else message("done"), tokens=tokens)

    given: dict[str, Any] = {"input": rows(2), "tokens": True}
    await complete(Ledger, Asked(answer), tmp_path / "whole", **given)
    await interrupt(Ledger, Asked(answer, stop_at=4), tmp_path / "out", 2, **given)
    await complete(Ledger, Asked(answer), tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    (sequence,) = next(iter(ludus.load(tmp_path / "out"))).sequences()
    assert sum(sequence.mask) == TURNS + 1


async def test_a_rollout_whose_tools_drift_starts_over_and_says_so(tmp_path, monkeypatch) -> None:
    given, second = {"input": rows(2)}, Asked(adds)
    await interrupt(Ledger, Asked(adds, stop_at=4), tmp_path / "out", 2, **given)
    monkeypatch.setattr(Ledger, "extra", 5)
    result = await complete(Ledger, second, tmp_path / "out", resume=True, **given)
    assert all(turns == [*range(TURNS + 1)] for turns in second.turns.values())
    nothing = {"resumed": 0, "turns_kept": 0, "turns_alike": 0}
    assert result.metrics["checkpoints"] == {**nothing, "turns_lost": 2, "started_over": 2}
    assert any("2 interrupted rollouts started over" in each for each in result.warnings)
    await complete(Ledger, Asked(adds), tmp_path / "whole", **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")


async def test_a_rollout_that_started_over_and_is_interrupted_goes_on_with_its_new_turns(tmp_path, monkeypatch) -> None:
    given, last = {"input": rows(1)}, Asked(adds)
    await interrupt(Ledger, Asked(adds, stop_at=4), tmp_path / "out", 1, **given)
    monkeypatch.setattr(Ledger, "extra", 5)
    await interrupt(Ledger, Asked(adds, stop_at=2), tmp_path / "out", 1, resume=True, **given)
    await complete(Ledger, last, tmp_path / "out", resume=True, **given)
    assert [*last.turns.values()] == [[*range(2, TURNS + 1)]]
    await complete(Ledger, Asked(adds), tmp_path / "whole", **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")


async def test_an_interrupted_branch_goes_on_after_its_own_last_turn(tmp_path) -> None:
    await complete(Ledger, Asked(adds), tmp_path / "parents", input=rows(1))
    given: dict[str, Any] = {"branch": tmp_path / "parents", "turn": 2, "repeats": 3}
    second = Asked(adds)
    await complete(Ledger, Asked(adds), tmp_path / "whole", **given)
    await interrupt(Ledger, Asked(adds, stop_at=4), tmp_path / "out", 3, **given)
    await complete(Ledger, second, tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert all(turns == [4, 5, 6] for turns in second.turns.values())


async def test_an_interrupted_branch_of_a_game_goes_on(tmp_path) -> None:
    def climbs(request: Any) -> str:
        return str(request.turn + 1)

    await complete(Climb, Asked(climbs), tmp_path / "parents", input=rows(1))
    given: dict[str, Any] = {"branch": tmp_path / "parents", "turn": 1, "repeats": 2}
    second = Asked(climbs)
    await complete(Climb, Asked(climbs), tmp_path / "whole", **given)
    await interrupt(Climb, Asked(climbs, stop_at=3), tmp_path / "out", 2, **given)
    await complete(Climb, second, tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert all(turns[0] == 3 for turns in second.turns.values())


async def test_a_failed_rollout_is_retried_from_its_beginning(tmp_path) -> None:
    def fails(request: Any) -> Any:
        return {"error": {"kind": "http_500", "cause": "down"}} if request.turn == 3 else adds(request)

    given, second = {"input": rows(2)}, Asked(adds)
    await complete(Ledger, Asked(fails), tmp_path / "out", **given)
    assert not (tmp_path / "out" / "turns.jsonl").exists()
    await complete(Ledger, second, tmp_path / "out", resume=True, **given)
    assert all(turns == [*range(TURNS + 1)] for turns in second.turns.values())


async def test_without_checkpoints_an_interrupted_rollout_starts_over(tmp_path) -> None:
    given: dict[str, Any] = {"input": rows(1), "checkpoint": False}
    second = Asked(adds)
    await interrupt(Ledger, Asked(adds, stop_at=4), tmp_path / "out", 1, **given)
    assert not (tmp_path / "out" / "turns.jsonl").exists()
    await complete(Ledger, second, tmp_path / "out", resume=True, **given)
    assert [*second.turns.values()] == [[*range(TURNS + 1)]]


class Once(Agent):
    """Cannot continue."""

    async def act(self, episode: Episode) -> str:
        await episode.ask()
        return "completed"


class Outside(Ledger):
    """Its tools act on something that another session does not undo."""

    replays = False


async def test_checkpoint_says_where_turns_cannot_be_saved(tmp_path) -> None:
    once = replace(ludus.Environment.load(Ledger), agent=Once())
    for number, environment in enumerate((once, Outside)):
        asked = Asked(adds)
        result = await complete(environment, asked, tmp_path / str(number), input=rows(1), checkpoint=True)
        (said,) = [each for each in result.warnings if "turns are not saved" in each]
        assert ("Once cannot continue" in said) if number == 0 else ("Outside.replays is False" in said)
        silent = await complete(environment, asked, tmp_path / f"default{number}", input=rows(1))
        assert silent.warnings == []


async def test_a_damaged_turns_file_is_refused_with_its_line(tmp_path) -> None:
    await interrupt(Ledger, Asked(adds, stop_at=4), tmp_path / "out", 1, input=rows(1))
    path = tmp_path / "out" / "turns.jsonl"
    path.write_bytes(b'{"rollout_id": 3}\n' + path.read_bytes())
    with pytest.raises(UserError, match=r"turns.jsonl:1: not a turn.*Delete the file"):
        await complete(Ledger, Asked(adds), tmp_path / "out", resume=True, input=rows(1))


async def test_turns_that_do_not_fit_together_start_the_rollout_over(tmp_path) -> None:
    given, second = {"input": rows(1)}, Asked(adds)
    for stop_at in (2, 4):
        await interrupt(Ledger, Asked(adds, stop_at=stop_at), tmp_path / "out", 1, resume=stop_at > 2, **given)
    path = tmp_path / "out" / "turns.jsonl"
    _, later = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(later)
    result = await complete(Ledger, second, tmp_path / "out", resume=True, **given)
    assert result.metrics["checkpoints"]["started_over"] == 1
    assert list(second.turns.values()) == [list(range(TURNS + 1))]


async def test_a_rollout_that_was_interrupted_in_a_tool_repeats_that_turn_and_counts_it_once(tmp_path) -> None:
    def counted(request: Any) -> Response:
        usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
        call = function_call("add", {"number": request.turn}, call_id=f"call_{request.turn}")
        return Response.of(call if request.turn < TURNS else message("done"), usage=usage)

    class Stuck(Ledger):
        async def call(self, name: str, arguments: str) -> str:
            if "3" in arguments:
                first.stuck += 1
                await asyncio.Event().wait()
            return await super().call(name, arguments)

    given, first, second = {"input": rows(1)}, Asked(counted), Asked(counted)
    await complete(Ledger, Asked(counted), tmp_path / "whole", **given)
    await interrupt(Stuck, first, tmp_path / "out", 1, **given)
    Stuck.call = Ledger.call
    await complete(Stuck, second, tmp_path / "out", resume=True, **given)
    assert list(second.turns.values()) == [[3, 4, 5, 6]]
    (whole,), (resumed,) = records(tmp_path / "whole").values(), records(tmp_path / "out").values()
    assert (
        resumed["response"]["usage"]
        == whole["response"]["usage"]
        == {"input_tokens": 70, "output_tokens": 7, "total_tokens": 77}
    )


async def test_a_conversation_goes_on_with_the_calls_of_its_user(tmp_path) -> None:
    def speaks(request: Any) -> Any:
        if is_users(request):
            calls = [item for item in request.input if item.get("type") == "function_call_output"]
            said = sum(item.get("role") == "assistant" for item in request.input)
            if len(calls) <= said:
                return {"call": "look", "arguments": {}}
            return STOP if said >= 4 else f"message {said} of {request.seed}"
        return {"call": "add", "arguments": {"number": 1}} if request.turn % 2 else f"answer {request.turn}"

    environment = replace(ludus.Environment.load(Talk), agent=ConversationAgent())
    given, second = {"input": rows(2)}, Asked(speaks)
    await complete(environment, Asked(speaks), tmp_path / "whole", **given)
    stop = Asked(lambda request: speaks(request), stop_at=None)
    stop.stops = lambda request: not is_users(request) and request.turn >= 4
    await interrupt(environment, stop, tmp_path / "out", 2, **given)
    await complete(environment, second, tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert {turns[0] for name, turns in second.turns.items() if not name.endswith("/user")} == {4}


async def test_rollouts_that_waited_for_their_group_go_on_too(tmp_path) -> None:
    stop = Asked(adds)
    stop.stops = lambda request: request.session.endswith("-1") and request.turn >= 4
    given, second = {"input": rows(1), "repeats": 2}, Asked(adds)
    await complete(Compared, Asked(adds), tmp_path / "whole", **given)
    await interrupt(Compared, stop, tmp_path / "out", 1, **given)
    await complete(Compared, second, tmp_path / "out", resume=True, **given)
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert sorted(second.turns.values()) == [[4, 5, 6], [6]]

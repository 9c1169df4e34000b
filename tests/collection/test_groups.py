"""Rollouts that are judged together: waiting costs no concurrency, and each rollout is recorded exactly once."""

from __future__ import annotations

import asyncio
import pickle
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import forked
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kills import MOMENTS, kill_beyond
from ludus_qualify.run import qualify
from waiting import CEILING, until_async

import ludus
from ludus import Agent, Environment, Episode, Failure, Request, Resources, Response, Rollout, ScriptedModel, Verdict
from ludus.collection.collector import Collector
from ludus.collection.groups import Group, IncompleteGroups
from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.data.rows import Rows
from ludus.rescore.child import HelperSettings, score_block
from ludus.rescore.groups import NeedsWholeFile
from ludus.rescore.rescoring import rescore
from ludus.rollout import Job
from ludus.runtime.processes import ProcessPool
from ludus.store.lines import Block
from ludus.testing import disagreement, judge, judge_group, replay


class Longest(Resources):
    """The reward is an answer's length minus the mean length of its group."""

    async def verify_group(self, task: Any, responses: list[Response]) -> list[float | Verdict]:
        lengths = [len(response.output_text) for response in responses]
        mean = sum(lengths) / len(lengths)
        return [Verdict(length - mean, together=len(lengths)) for length in lengths]


def saying(*lengths: int | str | None, name: str = "scripted") -> ScriptedModel:
    """A model whose n-th repeat answers with a text of the n-th length, with the n-th text, or fails for None."""

    def answer(request: Request) -> Any:
        said = lengths[int(str(request.session).rpartition("-")[2])]
        if said is None:
            raise Failure("http_500", "down")
        return said if isinstance(said, str) else "x" * said

    return ScriptedModel(answer, name)


def ends(rollouts: list[Rollout]) -> list[Any]:
    """The reward of each repeat, or the kind of its failure."""
    ordered = sorted(rollouts, key=lambda rollout: rollout.rollout_id)
    return [rollout.reward if rollout.error is None else rollout.error.kind for rollout in ordered]


def test_verify_group_gets_all_repeats_of_a_task_once_and_in_order(rows):
    calls: list[list[str]] = []

    class Watched(Longest):
        opened = False

        async def open(self, task: Any) -> None:
            self.opened = True

        async def verify(self, task: Any, response: Response) -> float:
            raise AssertionError("verify must not be called")

        async def verify_group(self, task: Any, responses: list[Response]) -> list[float | Verdict]:
            assert not self.opened
            calls.append([response.output_text for response in responses])
            return await super().verify_group(task, responses)

    result = ludus.collect(Watched, model=saying(5, 1, 3), input=rows(2), repeats=3, concurrency=6)
    assert calls == [["xxxxx", "x", "xxx"]] * 2
    assert ends(result.rollouts) == [2.0, -2.0, 0.0] * 2
    assert result.metrics["counts"] == {"dispatched": 6, "completed": 6, "failed": 0, "masked": 0}
    assert result.metrics["values"] == {"together": 3.0}
    assert {"group", "verify"} <= result.metrics["seconds"].keys()


@pytest.mark.parametrize("concurrency", [1, 2, 3, 64, "auto"])
def test_waiting_group_members_do_not_count_against_concurrency(rows, concurrency):
    result = ludus.collect(Longest, model=saying(1, 2, 3, 4), input=rows(5), repeats=4, concurrency=concurrency)
    assert ends(result.rollouts) == [-1.5, -0.5, 0.5, 1.5] * 5


def test_verify_group_may_be_a_plain_function(rows):
    class Plain(Resources):
        def verify_group(self, task: Any, responses: list[Response]) -> list[float]:
            return [1.0] * len(responses)

    assert ends(ludus.collect(Plain, model=saying(1, 2), input=rows(1), repeats=2).rollouts) == [1.0, 1.0]


def test_a_failed_repeat_is_counted_and_the_others_are_judged_without_it(rows):
    result = ludus.collect(Longest, model=saying(1, None, 3), input=rows(1), repeats=3)
    assert ends(result.rollouts) == [-1.0, "http_500", 1.0]
    assert result.metrics["counts"] == {"dispatched": 3, "completed": 2, "failed": 1, "masked": 0}


def test_the_only_repeat_that_did_not_fail_has_no_reward(rows):
    result = ludus.collect(Longest, model=saying(None, 2, None), input=rows(1), repeats=3)
    assert ends(result.rollouts) == ["http_500", "group_incomplete", "http_500"]
    assert result.metrics["failures"] == {"model/http_500": 2, "verify/group_incomplete": 1}


def test_a_task_with_one_repeat_is_judged_as_a_group_of_one(rows):
    assert ends(ludus.collect(Longest, model=saying(7), input=rows(2)).rollouts) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (RuntimeError("boom"), "crash"),
        (Failure("judge", "away"), "judge"),
        (3600.0, "timeout"),
        ([1.0], "bad_verdict"),
        ([1.0, float("nan")], "bad_verdict"),
        (None, "bad_verdict"),
    ],
)
def test_a_failing_verify_group_fails_every_member(rows, found, kind):
    class Broken(Resources):
        async def verify_group(self, task: Any, responses: list[Response]) -> Any:
            if isinstance(found, Exception):
                raise found
            if isinstance(found, float):
                await asyncio.sleep(found)
            return found

    result = ludus.collect(
        Broken, model=saying(1, 2), input=rows(2), repeats=2, settings={"limits.verify": 0.05}, concurrency=4
    )
    assert ends(result.rollouts) == [kind] * 4
    assert all(rollout.error is not None and rollout.error.stage == "verify" for rollout in result.rollouts)


@pytest.mark.parametrize(
    ("early", "found"), [({0, 1}, [-0.5, 0.5, "group_late"]), ({0}, ["group_incomplete", "group_late", "group_late"])]
)
async def test_a_repeat_that_ends_after_the_group_deadline_fails_as_group_late(rows, early, found):
    over = asyncio.Event()

    async def answer(request: Request) -> str:
        repeat = int(str(request.session).rpartition("-")[2])
        if repeat not in early:
            await over.wait()
        return "x" * (repeat + 1)

    seen = []
    options: dict[str, Any] = {"input": rows(1), "repeats": 3, "settings": {"limits.group": 1.0}}
    async for rollout in ludus.stream(Longest, model=ScriptedModel(answer), **options):
        seen.append(rollout)
        over.set()
    assert ends(seen) == found


def test_masks_by_the_agent_and_for_missing_tokens_apply_to_group_members(rows):
    class Doubtful(Agent):
        async def act(self, episode: Episode) -> str:
            await episode.ask()
            episode.mask = "the agent says so" if episode.job.repeat == 1 else None
            return "completed"

    environment = Environment("doubt", Longest, Doubtful(), Longest.Config())
    result = ludus.collect(environment, model=saying(1, 2), input=rows(1), repeats=2)
    masks = {rollout.job.repeat: rollout.to_row().get("mask") for rollout in result.rollouts}
    assert masks == {0: None, 1: "the agent says so"}
    result = ludus.collect(Longest, model=saying(1, 2), input=rows(1), repeats=2, tokens=True)
    assert result.metrics["counts"]["masked"] == 2


def test_masking_one_of_two_members_with_the_same_verdict_object_leaves_the_other(rows):
    class Shared(Resources):
        async def verify_group(self, task: Any, responses: list[Response]) -> list[Verdict]:
            return [Verdict(1.0)] * len(responses)

    class Second(Agent):
        async def act(self, episode: Episode) -> str:
            await episode.ask()
            episode.mask = "second" if episode.job.repeat == 1 else None
            return "completed"

    environment = Environment("shared", Shared, Second(), Shared.Config())
    result = ludus.collect(environment, model=saying(1, 2), input=rows(1), repeats=2)
    assert result.metrics["counts"] == {"dispatched": 2, "completed": 1, "failed": 0, "masked": 1}


async def test_a_stream_yields_every_member_once(rows):
    seen = [rollout async for rollout in ludus.stream(Longest, model=saying(1, None, 3), input=rows(3), repeats=3)]
    assert ends(seen) == [-1.0, "http_500", 1.0] * 3
    assert len({rollout.rollout_id for rollout in seen}) == 9


async def test_a_stream_that_is_left_early_leaves_no_task_behind(rows):
    stream = ludus.stream(Longest, model=saying(1, 2), input=rows(50), repeats=2, concurrency=4)
    async for _ in stream:
        break
    await stream.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_one_collection_may_mix_group_verdicts_and_single_verdicts(rows, counter):
    environments = [Environment.load(Longest), Environment.load(counter)]
    given, kept = rows(4, expected_count=0), list[Rollout]()

    async def keep(rollout: Rollout) -> None:
        kept.append(rollout)

    def environment_of(row: dict[str, Any]) -> Environment:
        return environments[row["number"] % 2]

    checked = Rows(given, lambda row: environment_of(row).task(row))
    plan = CollectionPlan(Options(repeats=2), checked, environment_of, saying(1, 3))
    collector = Collector(plan, sink=keep)
    collector.progress.total = 8
    asyncio.run(collector.run())
    assert Counter(rollout.reward for rollout in kept) == {-1.0: 2, 1.0: 6}


def test_waiting_members_are_not_recorded_when_a_run_is_stopped(rows, tmp_path):
    async def stop_when_some_wait() -> Counter[str]:
        from ludus.collection.collection import Collection

        async def answer(request: Request) -> str:
            await asyncio.sleep(3600 if str(request.session).endswith("-2") else 0)
            return "x"

        options = Options(model=ScriptedModel(answer), input=rows(2), output=tmp_path, repeats=3)
        collection = Collection(Longest, options)
        collector = collection.prepare()
        running = asyncio.create_task(collection.run(collector))
        await until_async(lambda: collector.progress.waiting() == {"model": 2, "group": 4})
        stages = collector.progress.waiting()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return stages

    assert asyncio.run(stop_when_some_wait()) == {"model": 2, "group": 4}
    assert (tmp_path / "rollouts.jsonl").read_bytes() == b""
    assert (tmp_path / "failures.jsonl").read_bytes() == b""


def collected(path: Path) -> dict[str, Any]:
    lines = [orjson.loads(line) for line in (path / "rollouts.jsonl").read_bytes().splitlines()]
    found = {line["rollout_id"]: line for line in lines}
    assert len(found) == len(lines), "no rollout is there twice"
    return found


def test_a_retried_repeat_is_judged_together_with_the_recorded_ones(rows, tmp_path):
    options: dict[str, Any] = {"input": rows(1), "output": tmp_path, "repeats": 3}
    ludus.collect(Longest, model=saying(1, None, 3), **options)
    before = collected(tmp_path)
    result = ludus.collect(Longest, model=saying(1, 5, 3), resume=True, **options)
    after = collected(tmp_path)
    assert {name: after[name] for name in before} == before
    (new,) = after.keys() - before.keys()
    assert (after[new]["reward"], after[new]["together"], after[new]["attempt"]) == (2.0, 3, 2)
    assert result.metrics["counts"] == {"dispatched": 3, "completed": 3, "failed": 0, "masked": 0}


def test_added_repeats_are_judged_together_with_the_recorded_ones(rows, tmp_path):
    options: dict[str, Any] = {"model": saying(1, 3, 8), "input": rows(1), "output": tmp_path}
    ludus.collect(Longest, repeats=2, **options)
    ludus.collect(Longest, repeats=3, resume=True, **options)
    found = collected(tmp_path)
    assert [found[name]["reward"] for name in sorted(found)] == [-1.0, 1.0, 4.0]
    assert [found[name]["together"] for name in sorted(found)] == [2, 2, 3]


def test_a_duplicated_line_is_judged_once_with_added_repeats(rows, tmp_path):
    options: dict[str, Any] = {"model": saying(1, 3, 8), "input": rows(1), "output": tmp_path}
    ludus.collect(Longest, repeats=2, **options)
    journal = tmp_path / "rollouts.jsonl"
    recorded = journal.read_bytes()
    journal.write_bytes(recorded * 2)
    ludus.collect(Longest, repeats=3, resume=True, **options)
    new = orjson.loads(journal.read_bytes()[2 * len(recorded) :])
    assert (new["repeat"], new["together"], new["reward"]) == (2, 3, 4.0)


def test_a_group_of_which_a_kill_left_a_part_is_completed_and_judged_together(rows, tmp_path):
    options: dict[str, Any] = {"model": saying(1, 3, 8), "input": rows(1), "output": tmp_path, "repeats": 3}
    ludus.collect(Longest, **options)
    journal = tmp_path / "rollouts.jsonl"
    first, second, _ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + second[:40])  # the write of three lines ended inside the second
    result = ludus.collect(Longest, resume=True, **options)
    found = collected(tmp_path)
    assert result.metrics["counts"] == {"dispatched": 3, "completed": 3, "failed": 0, "masked": 0}
    assert [found[name]["together"] for name in sorted(found)] == [3, 3, 3]


def test_receipts_show_which_rollouts_were_judged_together(rows, tmp_path):
    options: dict[str, Any] = {"model": saying(1, 3, 8), "input": rows(1), "output": tmp_path}
    ludus.collect(Longest, repeats=2, **options)
    ludus.collect(Longest, repeats=3, resume=True, **options)
    receipts = [row["receipt"].split(".") for _, row in sorted(collected(tmp_path).items())]
    assert len({tuple(receipt[:2]) for receipt in receipts}) == 1
    assert len({receipt[2] for receipt in receipts}) == 3
    assert [receipts[0][3] == receipt[3] for receipt in receipts] == [True, True, False]


def test_rescoring_judges_stored_groups_together(rows, tmp_path):
    ludus.collect(Longest, model=saying(1, 3, 8), input=rows(3), output=tmp_path, repeats=3)
    path, out = tmp_path / "rollouts.jsonl", tmp_path / "out.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    path.write_bytes(b"".join(lines))
    assert rescore(tmp_path, Longest, output=out).counts == {"unchanged": 9}
    assert out.read_bytes() == path.read_bytes()
    assert rescore(tmp_path, Longest, stale=True).counts == {"fresh": 9}


def test_a_changed_response_makes_its_whole_group_stale(rows, tmp_path):
    ludus.collect(Longest, model=saying(1, 3, 8), input=rows(2), output=tmp_path, repeats=3)
    path = tmp_path / "rollouts.jsonl"
    found = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    found[0]["response"]["output"][0]["content"][0]["text"] = "x" * 4
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in found))
    changes = rescore(path, Longest, output=path, stale=True)
    assert changes.counts == {"changed": 3, "fresh": 3}
    assert sorted(row["reward"] for row in collected(tmp_path).values())[:3] == [-3.0, -2.0, -1.0]
    assert rescore(path, Longest, stale=True).counts == {"fresh": 6}


def test_rescoring_a_group_that_grew_judges_all_members_together(rows, tmp_path):
    options: dict[str, Any] = {"model": saying(1, 3, 8), "input": rows(1), "output": tmp_path}
    ludus.collect(Longest, repeats=2, **options)
    ludus.collect(Longest, repeats=3, resume=True, **options)
    changes = rescore(tmp_path, Longest, output=tmp_path / "rollouts.jsonl", stale=True)
    assert changes.counts == {"changed": 2, "unchanged": 1}
    assert [row["reward"] for _, row in sorted(collected(tmp_path).items())] == [-3.0, -1.0, 4.0]


def stored(text: Any, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "?"}, "response": text, **fields}


def test_rows_without_a_task_id_are_grouped_by_their_content(tmp_path):
    path = tmp_path / "rows.jsonl"
    given = [stored("x"), stored("x", task_id="b"), stored("xxx"), "nonsense", stored(None), stored("xx", task_id="b")]
    given += [stored("x", task_id="c"), stored("xx", task_id="c", other=1), stored("x", task_id="d")]
    path.write_bytes(b"".join((orjson.dumps(row) if isinstance(row, dict) else row.encode()) + b"\n" for row in given))
    changes = rescore(path, Longest, output=tmp_path / "out.jsonl")
    rows = [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    found = [row.get("reward", row.get("kind")) for row in rows]
    assert found == [-1.0, -0.5, 1.0, "bad_row", "bad_row", 0.5, "group_incomplete", "bad_row", 0.0]
    assert "its task differs from line 7" in rows[7]["cause"]
    assert changes.counts == {"new": 5, "failed": 4}


def test_a_failing_verify_group_fails_every_stored_row_of_the_group(tmp_path):
    class Broken(Resources):
        async def verify_group(self, task: Any, responses: list[Response]) -> list[float]:
            if len(responses) == 3:
                await asyncio.sleep(3600)
            raise Failure("judge", "away")

    path = tmp_path / "rows.jsonl"
    given = [stored("x"), stored("xx"), *(stored("x", task_id="b") for _ in range(3))]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    changes = rescore(path, Broken, settings={"limits.verify": 0.05})
    assert changes.failures == {"verify/judge": 2, "verify/timeout": 3}


async def test_a_helper_process_with_one_block_of_the_file_refuses_to_judge_groups(longest):
    path = longest.parent / "rows.jsonl"
    path.write_bytes(orjson.dumps(stored("x")) + b"\n")
    settings = pickle.dumps(HelperSettings(str(longest), {}, {"sign": True}))
    async with ProcessPool(1) as pool:
        with pytest.raises(NeedsWholeFile):
            await pool.run(score_block, settings, path, Block(0, path.stat().st_size, 1))


def test_ludus_chat_says_that_the_answer_is_a_group_of_one(longest):
    rows = longest.parent / "rows.jsonl"
    rows.write_bytes(orjson.dumps({"responses_create_params": {"input": "?"}}) + b"\n")
    command = [sys.executable, "-m", "ludus", "chat", str(longest), "--input", str(rows)]
    done = forked.run(command, input="A long answer.\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "your answer is a group of one" in done.stdout
    assert "completed, reward 0" in done.stdout


async def test_judge_and_judge_group_of_ludus_testing_judge_groups():
    found = await judge_group(Longest, {"responses_create_params": {"input": "?"}}, ["x", "xxx"])
    assert isinstance(found, list)
    assert [verdict.reward for verdict in found] == [-1.0, 1.0]
    alone = await judge(Longest, {"responses_create_params": {"input": "?"}}, "x")
    assert isinstance(alone, Verdict)
    assert alone.reward == 0.0
    refused = await judge_group(Longest, {}, ["x"])
    assert isinstance(refused, Failure)
    assert refused.kind == "bad_row"


@pytest.mark.parametrize(
    ("fields", "agrees"),
    [
        ({"reference_rewards": [-1.0, 1.0]}, True),
        ({"reference_rewards": [-1.0, 1.0 + 1e-15]}, True),
        ({"reference_rewards": [-1.0, 1.1]}, False),
        ({"reference_rewards": [-1.0]}, False),
        ({"reference_rewards": None, "reference_error": "HTTP 500"}, False),
    ],
)
async def test_disagreement_compares_a_recorded_group_by_its_rewards(fields, agrees):
    said = [Response.of({"role": "assistant", "content": text}).data for text in ("x", "xxx")]
    line = {"row": {"responses_create_params": {"input": "?"}}, "responses": said, "class": "well_formed", **fields}
    assert (disagreement(line, await replay(Longest, line)) is None) is agrees


def test_qualify_judges_each_answer_together_with_its_rivals(longest):
    rows = [{"responses_create_params": {"input": "Say something."}, "expected_answer": "a long answer"}]
    checks = {check.name: check for check in qualify(longest, input=rows).checks}
    assert (checks["rivals"].status, checks["deterministic"].status) == ("skipped", "ok")
    (longest / "qualify.py").write_text("def rivals(task):\n    return ['x' * 4]\n")
    card = qualify(longest, input=rows)
    assert {check.name: check.status for check in card.checks}["rivals"] == "ok"
    assert card.oracle == (13 - 4) / 2
    assert not card.passed  # a verifier that only rewards length does not qualify


PLAYER = """
import asyncio

async def respond(request):
    await asyncio.sleep((request.seed % 7) / 500)
    return "x" * (request.seed % 50)
"""
RESOURCES = """
from ludus import Resources

class Longest(Resources):
    async def verify_group(self, task, responses):
        lengths = [len(response.output_text) for response in responses]
        return [length - sum(lengths) / len(lengths) for length in lengths]
"""


@pytest.fixture
def longest(tmp_path: Path) -> Path:
    """The folder of an environment that judges groups."""
    folder = tmp_path / "longest"
    folder.mkdir()
    (folder / "resources.py").write_text(RESOURCES)
    (folder / "environment.yaml").write_text("name: longest\nresources: resources.py:Longest\n")
    return folder


@pytest.mark.slow
def test_a_collection_of_groups_killed_many_times_and_resumed_equals_an_uninterrupted_one(longest):
    tmp_path = longest.parent
    (tmp_path / "player.py").write_text(PLAYER)
    lines = (orjson.dumps({"responses_create_params": {"input": f"row {n}"}}) + b"\n" for n in range(40))
    (tmp_path / "rows.jsonl").write_bytes(b"".join(lines))

    def command(output: str, *more: str) -> list[str]:
        fixed = ["--input", "rows.jsonl", "--model", "scripted:player:respond", "--repeats", "4", "--concurrency", "9"]
        return [sys.executable, "-m", "ludus", "collect", "./longest", *fixed, "--output", output, *more]

    forked.run(command("whole"), cwd=tmp_path, check=True, capture_output=True)
    expected = {name: row["reward"] for name, row in collected(tmp_path / "whole").items()}
    assert len(expected) == 160
    dice = random.Random(11)
    for attempt in range(MOMENTS):
        journal = tmp_path / "killed" / "rollouts.jsonl"
        before = journal.stat().st_size if journal.exists() else 0
        process = forked.start(command("killed", *["--resume"] * (attempt > 0)), cwd=tmp_path)
        size = before + dice.randrange(0, 12_000)
        kill_beyond(size, journal, process)
    forked.run(command("killed", "--resume"), cwd=tmp_path, check=True, capture_output=True)
    assert {name: row["reward"] for name, row in collected(tmp_path / "killed").items()} == expected


class Clock:
    """A clock that stands still: the test fires the timers."""

    def __init__(self) -> None:
        self.timers: list[Any] = []

    def call_later(self, seconds: float, callback: Any) -> Any:
        timer = Timer(callback)
        self.timers.append(timer)
        return timer


class Timer:
    def __init__(self, callback: Any) -> None:
        self.callback: Any = callback

    def cancel(self) -> None:
        self.callback = None


def played(task_id: str, repeat: int, fails: bool) -> Rollout:
    rollout = Rollout(Job(f"{task_id}-{repeat}", task_id, repeat, ludus.Task.model_construct(), {}))
    if fails:
        rollout.fail(Failure("http_500", "down", stage="model"))
    return rollout


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_rollout_is_recorded_once_in_any_order_of_arrival(data: st.DataObject):
    """Each arrival fails at once or is in exactly one group, and no group stays open after the last arrival."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    arrivals = data.draw(st.permutations([(f"t{n}", repeat) for n, size in enumerate(sizes) for repeat in range(size)]))
    environment = Environment("longest", Longest, Agent(), Longest.Config())
    clock, expired = Clock(), list[Group]()
    groups = IncompleteGroups(clock.call_later, expired.append)
    for number, size in enumerate(sizes):
        groups.expect(f"t{number}", environment, size=size, missing=size)
    judged: list[Group] = []
    failed: Counter[str] = Counter()
    names: list[str] = []
    for task_id, repeat in arrivals:
        rollout = played(task_id, repeat, data.draw(st.booleans()))
        complete = groups.add(rollout)
        if rollout.error is not None:
            failed[rollout.error.kind] += 1
            names.append(rollout.rollout_id)
        if complete is not None:
            judged.append(complete)
        if data.draw(st.booleans()) and clock.timers:
            timer = data.draw(st.sampled_from(clock.timers))
            if timer.callback is not None:
                callback, timer.callback = timer.callback, None
                callback()
    assert not groups.by_task
    assert all(timer.callback is None for timer in clock.timers)
    members = [member.rollout for group in [*judged, *expired] for member in group.members]
    assert all(member.error is None for member in members)
    recorded = [*names, *(member.rollout_id for member in members)]
    assert sorted(recorded) == sorted(f"{task_id}-{repeat}" for task_id, repeat in arrivals)
    tasks = Counter(group.task_id for group in [*judged, *expired])
    assert not tasks or max(tasks.values()) == 1


@settings(max_examples=20, deadline=None)
@given(
    delays=st.lists(st.lists(st.sampled_from([0, 0.001, 0.004, 0.02]), min_size=3, max_size=3), min_size=1, max_size=4),
    failing=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=5),
    group=st.sampled_from([0.002, 0.01, 3600.0]),
    verify=st.sampled_from([0.0, 0.003]),
    breaks=st.booleans(),
    concurrency=st.integers(1, 12),
)
def test_every_rollout_ends_once_under_any_delays_failures_and_deadlines(
    delays: list[list[float]],
    failing: set[tuple[int, int]],
    group: float,
    verify: float,
    breaks: bool,
    concurrency: int,
):
    class Slow(Longest):
        async def verify_group(self, task: Any, responses: list[Response]) -> list[float | Verdict]:
            await asyncio.sleep(verify)
            if breaks and task.number == 0:
                raise RuntimeError("boom")
            return await super().verify_group(task, responses)

    async def answer(request: Request) -> str:
        task_id, _, repeat = str(request.session).rpartition("-")
        place = (int(task_id), int(repeat))
        await asyncio.sleep(delays[place[0]][place[1]])
        if place in failing:
            raise Failure("http_500", "down")
        return "x"

    rows = [{"responses_create_params": {"input": "?"}, "task_id": n, "number": n} for n in range(len(delays))]

    async def run() -> list[Rollout]:
        options: dict[str, Any] = {"model": ScriptedModel(answer), "input": rows, "repeats": 3}
        limits = {"limits.group": group}
        async with asyncio.timeout(CEILING):
            stream = ludus.stream(Slow, concurrency=concurrency, settings=limits, **options)
            return [rollout async for rollout in stream]

    found = asyncio.run(run())
    assert sorted(rollout.rollout_id for rollout in found) == sorted(
        f"{n}-{repeat}" for n in range(len(delays)) for repeat in range(3)
    )
    for rollout in found:
        assert (rollout.error is None) == (rollout.reward is not None)
        if rollout.error is not None:
            assert rollout.error.kind in ("http_500", "crash", "group_incomplete", "group_late")
    if group == 3600.0:
        assert not any(rollout.error is not None and rollout.error.kind == "group_late" for rollout in found)

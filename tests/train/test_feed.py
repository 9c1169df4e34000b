"""The contract: groups of rollouts for a trainer, complete, short, late, stale or dropped, and every count adds up."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from training import Gate, Judged, answer, policy, questions
from waiting import CEILING, until_async

from ludus import Response, tool
from ludus.errors import UserError
from ludus.model import Request
from ludus.models import open_model
from ludus.models.scripted import ScriptedModel
from ludus.response import function_call
from ludus.train.contract import GroupFeed
from ludus.train.group import TrainingGroup
from ludus.train.policy import GroupPolicy


async def groups_of(feed: GroupFeed) -> list[TrainingGroup]:
    async with asyncio.timeout(CEILING), feed:
        return [group async for group in feed]


def check_counts(feed: GroupFeed, groups: list[TrainingGroup]) -> None:
    counts = feed.counts
    assert counts["started"] == sum(
        counts[name] for name in ("completed", "masked", "failed", "ended_early", "cancelled")
    )
    assert feed.group_counts["delivered"] == len(groups)


def feed_of(answers: Any, rows: int = 3, **settings: Any) -> GroupFeed:
    chosen = {"size": 4, **settings.pop("policy", {})}
    model = answers if isinstance(answers, ScriptedModel) else policy(answers)
    return GroupFeed(Judged, model=model, input=questions(rows), policy=GroupPolicy(**chosen), **settings)


class TestMembers:
    """What a member of a delivered group holds."""

    async def test_a_member_has_tokens_masks_logprobs_rewards_version_and_receipt(self) -> None:
        feed = feed_of(lambda question, repeat: f"{repeat}.0", rows=1, version=7)
        (group,) = await groups_of(feed)
        assert [member.reward for member in group.members] == [0.0, 1.0, 2.0, 3.0]
        assert (group.task_id, group.closed, group.failures) == ("t0", "full", [])
        for member in group.members:
            (sequence,) = member.sequences
            assert sequence.mask == [0, 0, 1, 1, 1]
            assert sequence.ids[:2] == [1, 2]
            assert sequence.logprobs == [0.0, 0.0, -0.5, -0.5, -0.5]
            assert (member.versions, member.components) == ([7], {"all": 1.0})
            assert member.receipt is not None
        check_counts(feed, [group])

    async def test_all_groups_of_all_epochs_are_delivered_and_have_rollout_ids_of_their_own(self) -> None:
        feed = feed_of(lambda question, repeat: str(repeat), epochs=3)
        groups = await groups_of(feed)
        assert sorted(group.task_id for group in groups) == ["t0"] * 3 + ["t1"] * 3 + ["t2"] * 3
        ids = [member.rollout.rollout_id for group in groups for member in group.members]
        assert len(set(ids)) == len(ids) == 36

    async def test_a_template_that_changes_earlier_ids_gives_several_sequences(self) -> None:
        member = (await groups_of(feed_of(lambda question, repeat: str(repeat), rows=1)))[0].members[0]
        calls = member.rollout.calls
        member.rollout.calls = [*calls, {**calls[0], "prefix": 1, "prompt_ids": [9]}]
        member.__dict__.pop("sequences", None)
        assert [sequence.ids[:2] for sequence in member.sequences] == [[1, 2], [1, 9]]
        assert member.per_token([0.25, -1.0]) == [[0.0, 0.0, 0.25], [0.0, 0.0, -1.0]]

    async def test_a_policy_without_token_ids_makes_masked_members_which_are_no_group(self) -> None:
        feed = feed_of(ScriptedModel(["1"]), rows=1)
        assert await groups_of(feed) == []
        assert (feed.counts["masked"], feed.group_counts["short"]) == (4, 1)


class TestFailures:
    """Failed and masked members."""

    async def test_failed_members_are_replaced_and_do_not_move_the_baseline(self) -> None:
        feed = feed_of(lambda question, repeat: "crash" if repeat < 2 else str(repeat % 2), rows=1)
        (group,) = await groups_of(feed)
        assert [member.reward for member in group.members] == [0.0, 1.0, 0.0, 1.0]
        failures = [(m.failure.stage, m.failure.kind, m.reward) for m in group.failures if m.failure is not None]
        assert failures == [("verify", "crash", None)] * 2
        assert group.advantages() == pytest.approx([-0.866, 0.866, -0.866, 0.866], abs=1e-3)
        assert dict(feed.counts) == {"started": 6, "completed": 4, "failed": 2}

    async def test_a_group_is_closed_short_when_the_replacements_are_used_up(self) -> None:
        feed = feed_of(
            lambda question, repeat: str(repeat) if repeat < 3 else "refuse", rows=1, policy={"replacements": 2}
        )
        (group,) = await groups_of(feed)
        assert (group.closed, len(group.members), len(group.failures)) == ("short", 3, 3)
        check_counts(feed, [group])

    async def test_a_feed_whose_rollouts_all_failed_says_why(self, caplog: pytest.LogCaptureFixture) -> None:
        feed = feed_of(lambda question, repeat: "crash", rows=1, policy={"replacements": 1})
        assert await groups_of(feed) == []
        (said,) = [record.getMessage() for record in caplog.records if record.name == "ludus.train.contract"]
        assert said.startswith(f"the feed is empty: {feed.counts['failed']} rollouts failed, the first: verify: crash")

    async def test_an_endless_feed_ends_with_an_error_if_nothing_ever_gets_a_verdict(self) -> None:
        feed = feed_of(lambda question, repeat: "crash", rows=2, policy={"replacements": 1}, epochs=None)
        with pytest.raises(UserError, match=r"the feed is empty: \d+ rollouts failed, the first: verify: crash"):
            await groups_of(feed)

    async def test_min_size_drops_a_short_group_and_counts_it(self) -> None:
        feed = feed_of(
            lambda question, repeat: str(repeat) if repeat < 3 or question == "q1" else "refuse",
            policy={"replacements": 1, "min_size": 4},
        )
        groups = await groups_of(feed)
        assert [group.task_id for group in groups] == ["t1"]
        assert feed.group_counts == {"short": 2, "delivered": 1}
        check_counts(feed, groups)

    async def test_masked_members_are_in_neither_the_loss_nor_the_baseline(self) -> None:
        feed = feed_of(lambda question, repeat: "mask 100" if repeat == 0 else str(repeat), rows=1)
        (group,) = await groups_of(feed)
        assert [member.trains for member in group.members] == [False, True, True, True]
        assert group.members[0].mask == "unfit"
        assert group.advantages() == pytest.approx([0.0, -1.0, 0.0, 1.0], abs=1e-3)

    async def test_groups_without_signal_are_dropped_and_counted_unless_they_are_kept(self) -> None:
        def answers(question: str, repeat: int) -> str:
            return str(repeat) if question == "q1" else "1"

        feed = feed_of(answers)
        assert [group.task_id for group in await groups_of(feed)] == ["t1"]
        assert feed.group_counts == {"no_signal": 2, "delivered": 1}
        assert len(await groups_of(feed_of(answers, policy={"keep_without_signal": True}))) == 3

    async def test_a_dead_policy_ends_the_feed_with_its_cause(self) -> None:
        feed = feed_of(ScriptedModel([{"error": {"kind": "refused", "cause": "nobody listens"}}]))
        with pytest.raises(UserError, match="nobody listens"):
            await groups_of(feed)


class TestStragglers:
    """Over-sampling and deadlines."""

    async def test_a_group_closes_with_the_first_members_and_its_stragglers_are_cancelled(self) -> None:
        gate = Gate()
        feed = feed_of(
            lambda question, repeat: gate.hold(f"{question}-{repeat}", "0") if repeat in (1, 2) else str(repeat),
            policy={"extra": 2},
        )
        groups = await groups_of(feed)
        for group in groups:
            assert sorted(member.rollout.job.repeat for member in group.members) == [0, 3, 4, 5]
            assert (group.closed, group.cancelled) == ("full", 2)
        assert feed.counts == {"started": 18, "completed": 12, "cancelled": 6}

    async def test_cancelled_stragglers_close_their_sessions(self) -> None:
        closed: list[int] = []

        class Closing(Judged):
            async def close(self) -> None:
                closed.append(1)

        gate = Gate()
        model = policy(lambda question, repeat: gate.hold("", "0") if repeat == 0 else str(repeat))
        feed = GroupFeed(Closing, model=model, input=questions(2), policy=GroupPolicy(size=3, extra=1))
        await groups_of(feed)
        assert len(closed) == 8

    async def test_a_deadline_closes_a_group_with_the_members_it_has(self) -> None:
        gate = Gate()
        feed = feed_of(
            lambda question, repeat: gate.hold("", "0") if repeat == 3 else str(repeat), policy={"deadline": 0.2}
        )
        groups = await groups_of(feed)
        assert [(group.closed, len(group.members), group.cancelled) for group in groups] == [("deadline", 3, 1)] * 3
        check_counts(feed, groups)

    async def test_one_straggler_does_not_hold_up_other_groups(self) -> None:
        gate = Gate()
        feed = feed_of(lambda q, repeat: gate.hold("", "9") if (q, repeat) == ("q0", 0) else str(repeat), rows=6)
        async with asyncio.timeout(CEILING), feed:
            others = [(await anext(feed)).task_id for _ in range(5)]
            assert sorted(others) == ["t1", "t2", "t3", "t4", "t5"]
            gate.open()
            assert (await anext(feed)).task_id == "t0"

    async def test_leaving_a_feed_cancels_what_runs(self) -> None:
        gate = Gate()
        feed = feed_of(lambda question, repeat: gate.hold(question, "1"), rows=9, concurrency=8)
        async with asyncio.timeout(CEILING), feed:
            reading = asyncio.create_task(anext(feed))  # type: ignore[arg-type]
            await until_async(lambda: len(gate.waiting) == 8)
            reading.cancel()
        assert dict(feed.counts) == {"started": 8, "cancelled": 8}


class TestVersions:
    """Weights that change while rollouts are in flight."""

    async def test_each_call_of_a_rollout_records_the_version_at_which_it_began(self) -> None:
        gate = Gate()
        feed = feed_of(lambda question, repeat: gate.hold(question, str(repeat)), rows=1)
        async with asyncio.timeout(CEILING), feed:
            reading = asyncio.create_task(anext(feed))  # type: ignore[arg-type]
            await until_async(lambda: len(gate.waiting) == 4)
            feed.update()
            gate.open()
            assert [member.versions for member in (await reading).members] == [[0]] * 4

    async def test_members_of_weights_that_are_too_old_are_dropped_when_a_group_is_delivered(self) -> None:
        feed = feed_of(lambda question, repeat: str(repeat), rows=8, policy={"max_staleness": 1}, groups_per_step=4)
        async with asyncio.timeout(CEILING), feed:
            first = await anext(feed)
            await until_async(lambda: len(feed._ready) >= 4)
            unread = len(feed._ready)
            feed.update()
            second = await anext(feed)
            feed.update()
            rest = [group async for group in feed]
        assert first.members[0].versions == second.members[0].versions == [0]
        assert all(
            version >= 1 for group in rest for m in group.members for version in m.versions if version is not None
        )
        assert feed.group_counts["stale"] >= unread - 1
        assert feed.group_counts.total() == 8

    async def test_a_rollout_that_spans_too_many_updates_is_dropped_and_replaced(self) -> None:
        class Updating(Judged):
            @tool
            async def look(self, repeat: int) -> str:
                """Two updates of the weights happen during the first rollout."""
                for _ in range(2 if repeat == 0 else 0):
                    feed.update()
                return "seen"

        def respond(request: Request) -> Response:
            repeat = int(str(request.session).rpartition("-")[2])
            said = answer(str(repeat), prompt=[1, 2, 3] if request.turn else None)
            if request.turn:
                return said
            return Response.of(function_call("look", {"repeat": repeat}, call_id="c"), model="m", tokens=said.tokens)

        chosen = GroupPolicy(size=4, max_span=1)
        feed = GroupFeed(
            Updating, model=ScriptedModel(respond), input=questions(1), policy=chosen, concurrency=1, version=3
        )
        (group,) = await groups_of(feed)
        assert (group.closed, group.dropped) == ("full", 1)
        assert [member.rollout.job.repeat for member in group.members] == [1, 2, 3, 4]
        assert [member.versions for member in group.members] == [[5, 5]] * 4

    @pytest.mark.parametrize(
        ("limit", "versions", "trained"),
        [({"max_span": 1}, [3], [1, 0]), ({"max_staleness": 1}, [5], [0, 1]), ({"max_span": 2}, [3, 5], [1, 1])],
    )
    async def test_only_the_turns_beyond_a_limit_are_cut_out_of_the_loss(self, limit, versions, trained) -> None:
        class Updating(Judged):
            @tool
            async def look(self, repeat: int) -> str:
                """Two updates of the weights happen during the first rollout."""
                for _ in range(2 if repeat == 0 else 0):
                    feed.update()
                return "seen"

        def respond(request: Request) -> Response:
            repeat = int(str(request.session).rpartition("-")[2])
            said = answer(str(repeat), prompt=[1, 2, 3] if request.turn else None)
            if request.turn:
                return said
            return Response.of(function_call("look", {"repeat": repeat}, call_id="c"), model="m", tokens=said.tokens)

        chosen = GroupPolicy(size=4, over_budget="cut", **limit)
        feed = GroupFeed(
            Updating, model=ScriptedModel(respond), input=questions(1), policy=chosen, concurrency=1, version=3
        )
        (group,) = await groups_of(feed)
        assert (group.closed, group.dropped, group.cut) == ("full", 0, int(len(versions) == 1))
        assert [member.versions for member in group.members] == [versions, [5, 5], [5, 5], [5, 5]]
        first, second = group.members[:2]
        assert [sum(sequence.mask) for sequence in first.sequences] == trained
        assert [values[-1] for values in first.per_token([0.5, 0.25])] == [0.5 * trained[0], 0.25 * trained[1]]
        assert [values[-1] for values in second.per_token([0.5, 0.25])] == [0.5, 0.25]

    async def test_updating_pauses_a_policy_in_this_process(self) -> None:
        feed = feed_of(lambda question, repeat: str(repeat), rows=1)
        async with feed, feed.updating(5):
            pass
        assert feed.version == feed.collection.model.policy_version == 5

    async def test_a_fixed_version_of_the_model_is_refused(self) -> None:
        model = open_model("vllm:http://127.0.0.1:9/v1#m", {"policy_version": 1})
        feed = GroupFeed("mcqa", model=model, policy=GroupPolicy(size=2))
        with pytest.raises(UserError, match=r"model\.policy_version is set.* Leave model\.policy_version out"):
            feed.prepare()


class TestBackPressure:
    """How far generation runs ahead."""

    async def test_no_group_is_started_for_a_step_beyond_the_chosen_number_ahead(self) -> None:
        started: set[str] = set()

        def answers(question: str, repeat: int) -> str:
            started.add(question)
            return str(repeat)

        feed = feed_of(answers, rows=40, groups_per_step=2, ahead=1, concurrency=64)
        async with asyncio.timeout(CEILING), feed:
            for step in range(5):
                for _ in range(2):
                    await anext(feed)
                await until_async(lambda: len(feed._ready) == 2)
                assert len(started) == 2 * (step + 2)
                feed.update()

    async def test_with_nothing_ahead_every_group_is_of_the_newest_weights(self) -> None:
        feed = feed_of(lambda question, repeat: str(repeat), rows=10, groups_per_step=2, ahead=0)
        async with asyncio.timeout(CEILING), feed:
            for step in range(5):
                for _ in range(2):
                    group = await anext(feed)
                    assert [member.versions for member in group.members] == [[step]] * 4
                feed.update()

    async def test_an_endless_feed_stops_generating_while_nobody_reads(self) -> None:
        feed = feed_of(lambda question, repeat: str(repeat), epochs=None, groups_per_step=3, concurrency=8)
        async with asyncio.timeout(CEILING), feed:
            for _ in range(20):
                await anext(feed)
            await until_async(lambda: feed._schedule.open_groups == 0)
            assert 3 <= len(feed._ready) <= 3 + 8

    async def test_dropped_groups_do_not_count_as_groups_of_a_step(self) -> None:
        feed = feed_of(
            lambda question, repeat: str(repeat) if question in ("q3", "q6") else "1",
            rows=8,
            groups_per_step=1,
            ahead=0,
        )
        async with asyncio.timeout(CEILING), feed:
            assert (await anext(feed)).task_id == "t3"
            feed.update()
            assert (await anext(feed)).task_id == "t6"


class TestOnDemand:
    """Groups that a trainer asks for one by one."""

    async def test_play_returns_the_group_of_a_task_whatever_became_of_it(self) -> None:
        feed = feed_of(lambda q, repeat: "refuse" if q == "q1" else "1", policy={"replacements": 0})
        async with asyncio.timeout(CEILING), feed:
            tasks = dict(feed.tasks())
            found = await asyncio.gather(*(feed.play(name, row, 2) for name, row in tasks.items()))
            again = await feed.play("t0", tasks["t0"], 3)
        assert [(group.task_id, len(group.members), len(group.failures)) for group in found] == [
            ("t0", 2, 0),
            ("t1", 0, 2),
            ("t2", 2, 0),
        ]
        assert len(again.members) == 3
        assert dict(feed.counts) == {"started": 9, "completed": 7, "failed": 2}

    async def test_a_group_that_nobody_waits_for_any_more_is_cancelled(self) -> None:
        gate = Gate()

        async def respond(request: Request) -> Response:
            return answer(await gate.hold(str(request.session), "1"))

        feed = feed_of(ScriptedModel(respond))
        async with asyncio.timeout(CEILING), feed:
            name, row = next(feed.tasks())
            playing = asyncio.ensure_future(feed.play(name, row, 2))
            await until_async(lambda: len(gate.waiting) == 2)
            playing.cancel()
            await asyncio.wait({playing})
        assert dict(feed.counts) == {"started": 2, "cancelled": 2}
        assert dict(feed.group_counts) == {"cancelled": 1}


class TestSettings:
    """Mistakes are refused before anything runs."""

    @pytest.mark.parametrize(
        "wrong",
        [
            {"size": 0},
            {"extra": -1},
            {"replacements": 1.5},
            {"min_size": 9, "size": 8},
            {"deadline": 0},
            {"deadline": "5"},
        ],
    )
    def test_a_policy_that_makes_no_sense_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UserError):
            GroupPolicy(**wrong)

    @pytest.mark.parametrize("wrong", [{"ahead": 1.5}, {"groups_per_step": "2"}, {"version": "x"}, {"epochs": 0}])
    def test_numbers_of_a_feed_that_make_no_sense_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UserError, match=r"must be a whole number of at least"):
            GroupFeed(Judged, model=policy(lambda q, repeat: "1"), input=questions(1), **wrong)

    async def test_a_feed_is_started_once_and_read_inside(self) -> None:
        feed = feed_of(lambda q, repeat: str(repeat))
        with pytest.raises(UserError, match="inside `async with`"):
            await anext(feed)
        async with asyncio.timeout(CEILING), feed:
            await anext(feed)
        assert feed.group_counts["delivered"] == 1
        with pytest.raises(UserError, match="can be started once"):
            await feed.__aenter__()

    def test_options_of_a_collection_work_and_unknown_ones_are_refused(self) -> None:
        with pytest.raises(UserError, match="no option `modle`"):
            GroupFeed(Judged, modle="local")  # type: ignore[call-arg]
        with pytest.raises(UserError, match="size of a group"):
            GroupFeed(Judged, repeats=3)

    async def test_an_environment_that_judges_groups_as_a_whole_fills_its_groups(self) -> None:
        class Ranked(Judged):
            async def verify_group(self, task: Any, responses: list[Response]) -> list[float]:
                return [float(response.output_text) / len(responses) for response in responses]

        model = policy(lambda question, repeat: "refuse" if repeat == 0 else str(repeat))
        feed = GroupFeed(Ranked, model=model, input=questions(2), policy=GroupPolicy(size=4))
        groups = await groups_of(feed)
        assert [[member.reward for member in group.members] for group in groups] == [[1 / 3, 2 / 3, 1.0]] * 2
        assert [len(group.failures) for group in groups] == [1, 1]
        with pytest.raises(UserError, match="verify_group"):
            GroupFeed(Ranked, model=model, input=questions(2), policy=GroupPolicy(extra=1)).prepare()


class Looking(Judged):
    """Has a tool, so that a rollout has several calls."""

    @tool
    async def look(self) -> str:
        """Look."""
        return "seen"


async def test_a_rollout_in_flight_of_old_weights_is_ended_recorded_and_replaced(tmp_path) -> None:
    stuck = asyncio.Event()

    async def respond(request: Request) -> Response:
        repeat = str(request.session).rpartition("-")[2]
        if repeat == "0" and request.turn:
            stuck.set()
            await asyncio.Event().wait()
        tokens = answer("look").tokens
        return Response.of(function_call("look", {}, call_id="c"), tokens=tokens) if repeat == "0" else answer(repeat)

    chosen = GroupPolicy(size=2, max_staleness=0)
    given: dict[str, Any] = {"input": questions(1), "output": tmp_path / "out", "concurrency": 1}
    feed = GroupFeed(Looking, model=ScriptedModel(respond), policy=chosen, **given)
    async with asyncio.timeout(CEILING), feed:
        reading = asyncio.ensure_future(anext(feed))
        await stuck.wait()
        feed.update()
        group = await reading
    assert [member.rollout.job.repeat for member in group.members] == [1, 2]
    (ended,) = [orjson.loads(line) for line in (tmp_path / "out" / "failures.jsonl").read_bytes().splitlines()]
    assert (ended["repeat"], ended["kind"], len(ended["model_calls"])) == (0, "stale", 1)
    assert dict(feed.counts) == {"started": 3, "completed": 2, "ended_early": 1}


async def test_a_rollout_of_old_weights_is_ended_during_its_first_call() -> None:
    gate, asked = Gate(), iter(range(10**6))

    async def respond(request: Request) -> Response:
        return answer(await gate.hold("old", "0") if next(asked) == 0 else "1")

    feed = GroupFeed(
        Judged,
        model=ScriptedModel(respond),
        policy=GroupPolicy(size=1, max_staleness=0),
        input=questions(1),
        concurrency=1,
    )
    async with asyncio.timeout(CEILING), feed:
        reading = asyncio.ensure_future(anext(feed))
        await until_async(lambda: bool(gate.waiting))
        feed.update()
        (member,) = (await reading).members
    assert member.reward == 1.0
    assert dict(feed.counts) == {"started": 2, "completed": 1, "ended_early": 1}


async def test_the_oldest_group_comes_first() -> None:
    began: list[str] = []

    async def respond(request: Request) -> Response:
        repeat = int(str(request.session).rpartition("-")[2])
        question = str(request.input[0]["content"])
        began.append(f"{question} {repeat}")
        return answer("crash" if question == "q0" and repeat == 0 else str(repeat))

    feed = GroupFeed(
        Judged, model=ScriptedModel(respond), input=questions(3), policy=GroupPolicy(size=2), concurrency=1
    )
    await groups_of(feed)
    assert began == ["q0 0", "q0 1", "q0 2", "q1 0", "q1 1", "q2 0", "q2 1"]

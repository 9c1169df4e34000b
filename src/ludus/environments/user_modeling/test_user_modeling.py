"""The service desks: rewards for actions, for what was said and for the ending, and defence against hostile calls."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ludus
from ludus import Environment, Failure, Outcome, Request, Rollout, ScriptedModel, UserError, Verdict
from ludus.agents.user import user_tools
from ludus.environments.user_modeling import qualify
from ludus.environments.user_modeling.desk import Desk, today_of
from ludus.environments.user_modeling.generate import DESKS, KINDS, stream
from ludus.environments.user_modeling.resources import ServiceDesk, Worlds
from ludus.episode import Episode
from ludus.episode import play as play_episode
from ludus.qualify.dummies import dummy
from ludus.rescore.rescoring import rescore
from ludus.response import function_call, function_call_output
from ludus.rollout import Job
from ludus.testing import judge

NAME = "user_modeling"
EXAMPLES = Path(__file__).with_name("data") / "example.jsonl"
ROWS = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
BY_KIND = {row["id"].split("-")[1]: row for row in ROWS}


def play(row: dict[str, Any], script: Any, **options: Any) -> Rollout:
    if options.get("output"):
        return next(iter(ludus.collect(NAME, model=ScriptedModel(script), input=[row], **options)))
    return asyncio.run(collected(row, ScriptedModel(script), **options))


async def collected(row: dict[str, Any], model: ScriptedModel, settings: dict[str, Any] | None = None) -> Rollout:
    """One rollout without a collection."""
    environment = Environment.load(NAME)
    environment.configure(settings or {})
    async with environment.share() as shared, environment.agent.share() as agent:
        session = environment.session(shared)
        job = Job("x-0", "x", 0, environment.task(row), row)
        return await play_episode(Episode(job, session, model, environment.limits), agent)


def task_of(row: dict[str, Any]) -> Any:
    return ServiceDesk.Task.model_validate(row)


def oracle(row: dict[str, Any]) -> list[Any]:
    return qualify.oracle(task_of(row))


def verdict(rollout: Rollout) -> Verdict:
    assert rollout.verdict is not None, rollout.error
    return rollout.verdict


@pytest.fixture
def desk() -> Any:
    """A function that opens the desk of a row."""
    with ExitStack() as opened:
        worlds = opened.enter_context(closing(Worlds()))

        def open_desk(row: dict[str, Any]) -> Desk:
            new_desk = worlds.desk(row["domain"], row["world"], row["user"]["belongings"])
            opened.callback(new_desk.db.close)
            return new_desk

        yield open_desk


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_following_the_policy_earns_the_reward(row: dict[str, Any]) -> None:
    rollout = play(row, oracle(row))
    assert (rollout.reward, rollout.outcome) == (1.0, Outcome.COMPLETED)
    assert verdict(rollout).components == {"state": 1.0, "communication": 1.0, "ended_by_user": 1.0}


def test_every_generated_scenario_can_be_solved_and_earns_nothing_without_actions() -> None:
    rows = {row["id"]: row for row in itertools.islice(stream(7), 3 * max(map(len, KINDS.values())))}
    scripts = {name: oracle(row) for name, row in rows.items()}
    for index, row in enumerate(rows.values()):
        row["task_id"] = str(index)
    by_session = {f"{row['task_id']}-0": scripts[name] for name, row in rows.items()}

    def solve(request: Request) -> Any:
        script = by_session[request.session or ""]
        return script[min(request.turn, len(script) - 1)]

    solved = ludus.collect(NAME, model=ScriptedModel(solve), input=list(rows.values()))
    assert [rollout.reward for rollout in solved.rollouts] == [1.0] * len(rows)
    idle = ludus.collect(NAME, model=ScriptedModel(["It is done."]), input=list(rows.values()))
    assert [rollout.reward for rollout in idle.rollouts] == [0.0] * len(rows)


def test_the_example_rows_are_the_beginning_of_the_stream() -> None:
    assert list(itertools.islice(stream(1), len(ROWS))) == ROWS
    assert {row["domain"] for row in ROWS} == set(DESKS)


def test_the_same_seed_gives_the_same_rows() -> None:
    first, again, other = (list(itertools.islice(stream(seed), 6)) for seed in (3, 3, 4))
    assert first == again
    assert all(row != other_row for row, other_row in zip(first, other, strict=True))
    assert {row["domain"] for row in itertools.islice(stream(3, ["library"]), 9)} == {"library"}
    with pytest.raises(UserError, match="there is no domain bakery. Known: retail, travel, library"):
        next(stream(3, ["bakery"]))


def test_the_generated_dataset_can_be_collected_by_name() -> None:
    options: dict[str, Any] = {"dataset": "generated", "limit": 4, "settings": {"data.domains": ["travel"]}}
    result = ludus.collect(NAME, model=ScriptedModel(["Goodbye."]), **options)
    assert result.metrics["counts"]["completed"] == 4


def test_only_acting_or_only_telling_earns_nothing() -> None:
    row = BY_KIND["cancel"]
    find, cancel, told = oracle(row)
    assert verdict(play(row, [find, told])).components == {"state": 0.0, "communication": 1.0, "ended_by_user": 1.0}
    unsaid = play(row, [find, cancel, "It is cancelled."])
    assert (unsaid.reward, verdict(unsaid).components["communication"]) == (0.0, 0.0)
    assert verdict(unsaid).values["not_said"] == [row["communicate"][0][0]]
    assert verdict(play(row, [find, told])).values["differing_tables"] == ["orders", "refunds"]


def test_an_extra_action_earns_nothing() -> None:
    row = BY_KIND["too_late"]
    assert play(row, oracle(row)).reward == 1.0
    more = {"call": "transfer_to_human", "arguments": {"topic": "returns"}}
    assert play(row, [*oracle(row)[:-1], more, oracle(row)[-1]]).reward == 0.0


def test_a_wrong_fee_makes_the_state_differ() -> None:
    row = BY_KIND["send_back"]
    find, back, told = oracle(row)
    back["arguments"]["label_fee"] = not back["arguments"]["label_fee"]
    assert verdict(play(row, [find, back, told])).components["state"] == 0.0


def test_only_the_user_can_approve_a_payment(desk: Any) -> None:
    row = BY_KIND["moved"]
    find, request, ask, change, told = oracle(row)
    assert ask == "Please approve payment."
    approve = {"call": "approve_payment"}
    alone = play(row, [find, request, approve, change, told])
    assert alone.response is not None
    outputs = [item["output"] for item in alone.response.output if item.get("type") == "function_call_output"]
    assert '{"detail":"Not Found"}' in outputs
    assert '{"error":"Refused: the customer has not approved the payment"}' in outputs
    assert alone.reward == 0.0
    assert "approve_payment" not in {entry["name"] for entry in desk(row).tools()}
    assert [entry.name for entry in user_tools(desk(row))] == ["approve_payment"]


def test_rescoring_repeats_the_calls_of_the_user(tmp_path: Path) -> None:
    row = BY_KIND["moved"]
    assert play(row, oracle(row), output=tmp_path / "run").reward == 1.0
    assert rescore(tmp_path / "run", NAME).counts == {"unchanged": 1}
    stored = json.loads((tmp_path / "run" / "rollouts.jsonl").read_text())
    stored["response"]["metadata"] = {}
    (tmp_path / "other.jsonl").write_text(json.dumps(stored) + "\n")
    assert rescore(tmp_path / "other.jsonl", NAME).counts == {"changed": 1}


def test_a_conversation_that_the_user_did_not_end_earns_nothing() -> None:
    row = BY_KIND["cancel"]
    rollout = play(row, oracle(row)[:-1], settings={"agent.max_steps": 2})
    assert (rollout.stop_reason, verdict(rollout).components["ended_by_user"]) == ("max_steps", 0.0)
    rollout = play(row, [*oracle(row)[:-1], " "])
    assert (rollout.reward, rollout.outcome) == (0.0, Outcome.COMPLETED)


@pytest.mark.parametrize("name", ["too_late", "not_renewed"])
@pytest.mark.parametrize("way", range(10))
def test_a_date_may_be_written_in_any_accepted_spelling(name: str, way: int) -> None:
    row = BY_KIND[name]
    *done, _ = oracle(row)
    assert play(row, [*done, f"The last day is the {row['communicate'][0][way]}, sorry."]).reward == 1.0


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ("You get {amount}.", True),
        ("You get EUR{amount}", True),
        ("You get ({amount}), soon", True),
        ("You get 1{amount}.", False),
        ("You get {amount}1.", False),
        ("You get 3.{amount}.", False),
        ("You get something.", False),
    ],
)
def test_an_amount_inside_a_longer_number_does_not_count_as_said(said: str, counts: bool) -> None:
    row = BY_KIND["cancel"]
    *done, _ = oracle(row)
    text = said.replace("{amount}", row["communicate"][0][0])
    assert play(row, [*done, text]).reward == float(counts)


def test_a_list_of_guesses_does_not_count_as_said() -> None:
    row = BY_KIND["not_renewed"]
    *done, _ = oracle(row)
    today = today_of(row["world"])
    days = [today.fromordinal(today.toordinal() + shift).isoformat() for shift in range(-14, 16)]
    assert row["communicate"][0][0] in days
    assert play(row, [*done, ", ".join(days)]).reward == 0.0


def test_text_in_reasoning_or_in_a_call_does_not_count_as_said() -> None:
    row = BY_KIND["cancel"]
    *done, _ = oracle(row)
    amount = row["communicate"][0][0]
    hidden = {"reasoning": amount, "call": "find_colours", "arguments": {"product_name": amount}}
    assert play(row, [*done, hidden, "Goodbye."]).reward == 0.0


async def test_a_row_whose_right_actions_cannot_be_taken_is_a_bad_row() -> None:
    for actions in ([{"name": "no_such_tool"}], [{"name": "cancel_order", "arguments": {"order_id": "H1"}}]):
        failure = await judge(NAME, {**ROWS[0], "actions": actions}, "Goodbye.")
        assert isinstance(failure, Failure)
        assert failure.kind == "bad_row"


def test_sessions_of_one_world_have_separate_databases(desk: Any) -> None:
    changed, other = desk(ROWS[0]), desk(ROWS[0])
    changed.do("DELETE FROM orders")
    assert not changed.state()["orders"]
    assert other.state()["orders"]
    assert desk(ROWS[0]).state() == other.state()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"order_id": "x' OR '1'='1"}, "there is no order x' OR '1'='1 of this customer"),
        ({"order_id": "H1; DROP TABLE orders"}, "there is no order"),
        ({"order_id": ["H1"]}, "valid string"),
        ({}, "Field required"),
        ("{", "Invalid tool call arguments"),
        ({"order_id": "\ud800"}, "error"),
    ],
)
async def test_hostile_arguments_change_nothing(desk: Any, arguments: Any, says: str) -> None:
    row = BY_KIND["cancel"]
    session = desk(row)
    before = session.state()
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert "first find out who the customer is" in await session.call("cancel_order", '{"order_id": "H1"}')
    await session.call("find_customer", json.dumps(row["actions"][0]["arguments"]))
    assert says in await session.call("cancel_order", text)
    after = session.state()
    assert after.pop("identity")
    assert after == before


@pytest.mark.parametrize("amount", ["-1", "1e30", '"all"', "null"])
async def test_only_a_valid_amount_can_be_charged(desk: Any, amount: str) -> None:
    row = BY_KIND["moved"]
    session = desk(row)
    await session.call("find_booking", json.dumps(row["actions"][0]["arguments"]))
    reference = row["actions"][0]["arguments"]["booking_id"]
    output = await session.call("request_payment", f'{{"booking_id": "{reference}", "amount": {amount}}}')
    assert "requested" not in output
    assert not session.state()["charges"]


calls = st.sampled_from(sorted(DESKS)).flatmap(
    lambda domain: st.tuples(
        st.just(domain),
        st.lists(
            st.tuples(st.sampled_from(sorted(DESKS[domain].toolbox)), st.none() | st.text(max_size=40)), max_size=8
        ),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(calls)
async def test_calls_before_the_customer_is_identified_change_nothing(played: Any) -> None:
    domain, chosen = played
    template = DESKS[domain].template(5)
    session: Desk = DESKS[domain](template)
    before = session.state()
    transfers = 0
    for name, written in chosen:
        fitting = dummy(session.toolbox[name].schema()["parameters"])
        await session.call(name, json.dumps(fitting) if written is None else written)
        transfers += name == "transfer_to_human" and written is None
    after = session.state()
    assert (after.pop("transfers").total(), before.pop("transfers").total()) == (transfers, 0)
    assert after == before
    session.db.close()
    template.close()


async def test_the_calls_of_a_stored_response_are_run_before_it_is_verified() -> None:
    row = BY_KIND["cancel"]
    items = []
    for number, action in enumerate(row["actions"]):
        items.append(function_call(action["name"], action["arguments"], call_id=str(number)))
        items.append(function_call_output(str(number), "{}"))
    verdict = await judge(NAME, row, ludus.Response.of(*items))
    assert isinstance(verdict, Verdict)
    assert (verdict.components["state"], verdict.components["ended_by_user"]) == (1.0, 0.0)

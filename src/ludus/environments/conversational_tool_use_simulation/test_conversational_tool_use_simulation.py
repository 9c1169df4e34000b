"""Simulated customers, tools and judges: what each model sees, and how failures are labelled and masked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import ludus
from ludus import Environment, Outcome, Request, Rollout, ScriptedModel, Verdict
from ludus.agents.simulated_user import is_users
from ludus.agents.user import OUT_OF_SCOPE, STOP, TRANSFER
from ludus.environments.conversational_tool_use_simulation.checking import problem_with, unfenced
from ludus.environments.conversational_tool_use_simulation.judging import Examiner, read_reply
from ludus.environments.conversational_tool_use_simulation.resources import Shared, Simulation
from ludus.environments.conversational_tool_use_simulation.steps import Step
from ludus.episode import Episode
from ludus.episode import play as play_episode
from ludus.graders.judge import Judge
from ludus.qualify.dummies import dummy
from ludus.rescore.rescoring import rescore
from ludus.response import function_call, function_call_output, message, texts_of
from ludus.rollout import Job
from ludus.runtime.processes import shared_pool
from ludus.testing import shared_rows

NAME = "conversational_tool_use_simulation"
ROWS = [json.loads(line) for line in (Path(__file__).with_name("data") / "example.jsonl").read_text().splitlines()]
MOVE, ACCIDENT, EXCHANGE = ROWS[0], ROWS[1], ROWS[2]
FIND = {"call": "find_customer", "arguments": {"phone": "0170"}}
FOUND = '{"customer_id": "C1", "name": "Ira"}'
YES, NO = ('{"success": true, "explanation": "good"}', '{"success": false, "explanation": "bad"}')
Answer = Callable[[Request], Any]


def answer_of(script: Any) -> Answer:
    return script if callable(script) else ScriptedModel(script if isinstance(script, list) else [script])._answer


def play(
    policy: Any,
    user: Any = ("Hello.", STOP),
    *,
    tools: Any = FOUND,
    judge: Any = YES,
    row: dict[str, Any] = MOVE,
    output: Path | None = None,
    max_steps: int = 8,
    **resources: Any,
) -> Rollout:
    """One rollout with scripted models. None stands for a simulator or judge that is not configured."""
    environment = with_models(tools, judge)
    sides = answer_of(list(policy) if isinstance(policy, (list, tuple)) else policy), answer_of(list(user))
    model = ScriptedModel(lambda request: sides[is_users(request)](request))
    chosen = {"agent.user": None, "agent.max_steps": max_steps} | {
        f"resources.{key}": v for key, v in resources.items()
    }
    if output is not None:
        return next(iter(ludus.collect(environment, model=model, input=[row], settings=chosen, output=output)))
    environment.configure(chosen)
    return asyncio.run(play_one(environment, row, model))


async def play_one(environment: Environment, row: dict[str, Any], model: ScriptedModel) -> Rollout:
    """One rollout without a collection around it."""
    async with (
        shared_pool(),
        environment.share() as shared,
        environment.agent.share() as agent,
    ):
        session = environment.session(shared)
        job = Job("x-0", "x", 0, environment.task(row), row)
        return await play_episode(Episode(job, session, model, environment.limits), agent)


def with_models(tools: Any, judge: Any) -> Environment:
    """The environment with scripted models in place of those in its settings."""

    @asynccontextmanager
    async def share(config: Any) -> AsyncIterator[Shared]:
        model = None if tools is None else ScriptedModel(answer_of(tools))
        yield Shared(model, None if judge is None else Judge(ScriptedModel(answer_of(judge))))

    environment = Environment.load(NAME)
    members = {"share": staticmethod(share), "__module__": Simulation.__module__}
    return replace(environment, resources=type("Simulation", (Simulation,), members))


def verdict(rollout: Rollout) -> Verdict:
    assert rollout.verdict is not None, rollout.error
    return rollout.verdict


def outputs(rollout: Rollout) -> list[str]:
    assert rollout.response is not None
    return [item["output"] for item in rollout.response.output if item.get("type") == "function_call_output"]


def recording(requests: list[str], answer: Any) -> Answer:
    """A script that appends the last item of every request to `requests`."""
    script = answer_of(answer)

    def respond(request: Request) -> Any:
        requests.append(texts_of(request.input[-1]))
        return script(request)

    return respond


def test_every_public_row_is_played_to_the_end() -> None:
    rows = list(shared_rows(NAME))
    assert len(rows) == 10
    for row in rows:
        tool = row["tools"][0]
        result = json.dumps(dummy(tool["returns"]))
        call = {"call": tool["name"], "arguments": dummy(tool["parameters"])}
        rollout = play([call, "It is done."], tools=result, row=row)
        assert (rollout.reward, rollout.stop_reason, outputs(rollout)) == (1.0, "user_stop", [result])


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "Another policy."},
        {"tools": MOVE["tools"][:-1]},
        {"tools": [{**MOVE["tools"][0], "description": "Something else."}, *MOVE["tools"][1:]]},
        {"responses_create_params": {**MOVE["responses_create_params"], "input": "Hello."}},
        {"customer_scenario": None},
    ],
)
def test_a_row_whose_prompt_or_tools_differ_from_its_fields_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Simulation.Task.model_validate({**MOVE, **change})


def test_the_customer_sees_the_scenario_and_no_tools() -> None:
    prompts: list[Request] = []

    def user(request: Request) -> str:
        prompts.append(request)
        return STOP if request.turn else "Hello."

    environment = with_models(FOUND, YES)
    model = ScriptedModel(lambda request: user(request) if is_users(request) else ("Done." if request.turn else FIND))
    ludus.collect(environment, model=model, input=[EXCHANGE | {"task_id": "x"}], settings={"agent.user": None})
    first = texts_of(prompts[0].input[0])
    scenario = EXCHANGE["customer_scenario"]
    for field in ("customer_persona", "reason_for_contact", "customer_details", "unknown_info", "task_instructions"):
        assert scenario[field] in first
    assert scenario["representative_domain"] in first
    assert STOP in first
    assert TRANSFER in first
    assert OUT_OF_SCOPE not in first
    assert "tools" not in prompts[0].params
    assert prompts[0].params["max_output_tokens"] == 8192
    assert FOUND not in str(prompts[-1].input)


def test_the_row_may_fix_the_first_message() -> None:
    rollout = play(["Done."], [STOP], row={**MOVE, "initial_user_message": "It is me."})
    assert rollout.response is not None
    assert rollout.response.output[0] == {"role": "user", "content": "It is me."}


def test_without_models_the_customer_and_the_tools_use_fixed_texts() -> None:
    model = ScriptedModel([FIND, "Well?", "Well?"])
    options: dict[str, Any] = {"resources.enable_llm_judge": False, "agent.max_steps": 3}
    rollout = ludus.collect(NAME, model=model, input=[MOVE], settings=options).rollouts[0]
    assert outputs(rollout) == ['{"output":"Simulated result for find_customer."}']
    assert rollout.response is not None
    users = [texts_of(item) for item in rollout.response.output if item.get("role") == "user"]
    assert users == [MOVE["customer_scenario"]["reason_for_contact"], "Please continue.", "Please continue."]
    assert (rollout.reward, rollout.stop_reason, rollout.outcome) == (0.0, "max_steps", Outcome.COMPLETED)
    assert verdict(rollout).values["invalid_reasons"] == ["excessive_length"]


@pytest.mark.parametrize(
    "turn",
    [
        {"call": "no_such_tool"},
        {"call": "find_customer", "arguments": {}},
        {"call": "find_customer", "arguments": {"phone": 170}},
        {"call": "find_customer", "arguments": "{"},
        {"call": "find_customer", "arguments": "[]"},
        {"items": [function_call("find_customer", {"phone": "1"}, call_id=name) for name in ("a", "a")]},
    ],
)
def test_a_call_that_does_not_fit_its_tool_ends_the_conversation_with_reward_0(turn: dict[str, Any]) -> None:
    requests: list[str] = []
    rollout = play([turn, "Done."], tools=recording(requests, FOUND), judge=recording(requests, YES))
    assert (rollout.reward, rollout.outcome, rollout.stop_reason) == (0.0, Outcome.COMPLETED, "invalid_agent_tool_call")
    assert verdict(rollout).values["failure_labels"] == ["agent_failure"]
    assert requests == []


def test_the_simulator_sees_the_messages_and_its_earlier_results() -> None:
    seen: list[list[str]] = []

    def tools(request: Request) -> str:
        seen.append([f"{item['role']}: {item['content']}" for item in request.input])
        return '{"repair_id": "R1", "status": "waiting"}' if request.turn else FOUND

    repair = {"call": "get_repair", "arguments": {"customer_id": "C1"}}
    rollout = play([FIND, "I see you.", repair, "Done."], ["Hello.", "Good.", STOP], tools=tools)
    assert rollout.reward == 1.0
    system, first = seen[0]
    assert MOVE["policy"] in system
    assert MOVE["customer_scenario"]["customer_details"] in system
    assert '"returns"' in system
    assert json.loads(first.removeprefix("user: ")) == {
        "since_the_last_result": ["Customer: Hello."],
        "call": "find_customer",
        "arguments": '{"phone":"0170"}',
    }
    assert seen[1][:2] == seen[0]
    assert seen[1][2] == f"assistant: {FOUND}"
    assert json.loads(seen[1][3].removeprefix("user: "))["since_the_last_result"] == [
        "Representative: I see you.",
        "Customer: Good.",
    ]


def test_a_result_that_does_not_fit_is_retried_and_then_masks_the_rollout() -> None:
    fenced = f"```json\n{FOUND}\n```"
    assert outputs(play([FIND, "Done."], tools=["no", '{"name": "Ira"}', fenced])) == [fenced]
    requests: list[str] = []
    rollout = play([FIND, "Done."], tools=recording(requests, "no"))
    assert len(requests) == 3
    assert (rollout.outcome, rollout.reward) == (Outcome.MASKED, 0.0)
    assert verdict(rollout).mask == "the simulated tools failed"
    assert rollout.stop_reason == "invalid_environment_tool_execution"
    cut = {"text": FOUND, "incomplete": "max_output_tokens"}
    assert play([FIND, "Done."], tools=cut).outcome is Outcome.MASKED


def test_a_simulator_that_cannot_be_reached_is_a_failure() -> None:
    rollout = play([FIND, "Done."], tools={"error": {"kind": "http_503", "cause": "down"}})
    assert (rollout.reward, rollout.error and rollout.error.stage) == (None, "tool")
    assert rollout.error is not None
    assert rollout.error.kind == "http_503"


def test_calls_of_one_turn_run_in_order_and_see_the_earlier_results() -> None:
    booking = {"name": "get_booking", "arguments": {"code": "LT4471"}}
    plays = {"name": "list_performances", "arguments": {"play": "The Glass Orchard"}}
    replies = ['{"play": "The Glass Orchard", "performance": "P1", "tickets": 2}', '{"performances": []}']
    seen: list[list[str]] = []

    def tools(request: Request) -> Any:
        seen.append([item["role"] for item in request.input])
        return {"text": replies[request.turn], "delay": 0.02 if request.turn == 0 else 0}

    rollout = play([{"calls": [booking, plays]}, "Done."], tools=tools, row=EXCHANGE)
    assert outputs(rollout) == replies
    assert seen == [["system", "user"], ["system", "user", "assistant", "user"]]


def test_a_customer_that_stays_silent_masks_the_rollout() -> None:
    rollout = play(["Hello."], ["Hello.", ""])
    assert (rollout.outcome, verdict(rollout).mask) == (Outcome.MASKED, "the simulated customer failed")
    assert verdict(rollout).values["failure_labels"] == ["user_failure"]


@pytest.mark.parametrize("turn", [{"text": " "}, {"text": "I", "incomplete": "max_output_tokens"}])
def test_a_policy_that_does_not_answer_is_trained_on_except_in_compat(turn: dict[str, Any]) -> None:
    rollout = play([turn])
    assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, 0.0)
    assert verdict(rollout).values["invalid_reasons"] == ["message_generation_error"]
    assert play([turn], compat=True).outcome is Outcome.MASKED
    assert play([{"items": []}]).outcome is Outcome.MASKED, "an answer without content is the provider's doing"


@pytest.mark.parametrize(
    ("row", "closing", "reward"),
    [(MOVE, STOP, 1.0), (MOVE, TRANSFER, 0.0), (ACCIDENT, TRANSFER, 1.0), (ACCIDENT, STOP, 0.0)],
)
def test_a_wrong_or_missing_transfer_earns_0_without_a_judge(row: dict[str, Any], closing: str, reward: float) -> None:
    requests: list[str] = []
    rollout = play([FIND, "Done."], ["Hello.", closing], judge=recording(requests, YES), row=row)
    assert (rollout.reward, rollout.outcome) == (reward, Outcome.COMPLETED)
    assert verdict(rollout).values["transferred"] == (closing == TRANSFER)
    assert verdict(rollout).values["transfer_mismatch"] == verdict(rollout).values["judge_skipped"] == (reward == 0)
    assert bool(requests) == (reward == 1)
    unchecked = play([FIND, "Done."], ["Hello.", closing], row=row, enforce_transfer_ground_truth=False)
    assert unchecked.reward == 1.0


def test_the_judge_checks_simulated_steps_then_the_policys_steps_then_the_whole() -> None:
    requests: list[str] = []
    rollout = play([FIND, "Done."], judge=recording(requests, YES))
    results = verdict(rollout).values["judge_results"]
    assert [(result["source"], result["step"]) for result in results] == [
        ("user", 0),
        ("environment", 2),
        ("user", 4),
        ("agent", 1),
        ("agent", 3),
        ("agent", None),
    ]
    assert "must not be transferred" in requests[-1]
    assert all("must not be transferred" not in text for text in requests[:-1])
    assert verdict(rollout).values["agent_tool_calls"] == 1


@pytest.mark.parametrize(
    ("bad", "label", "mask", "judged"),
    [
        (1, "user_failure", "the simulated customer failed", 1),
        (2, "tool_failure", "the simulated tools failed", 2),
        (4, "agent_failure", None, 4),
        (6, "agent_failure", None, 6),
    ],
)
def test_the_first_failed_step_decides_and_a_simulation_failure_masks(
    bad: int, label: str, mask: str | None, judged: int
) -> None:
    requests: list[str] = []

    def judge(request: Request) -> str:
        requests.append("")
        return NO if len(requests) == bad else YES

    rollout = play([FIND, "Done."], judge=judge)
    assert (rollout.reward, verdict(rollout).mask, verdict(rollout).values["failure_labels"]) == (0.0, mask, [label])
    assert len(requests) == judged
    requests.clear()
    assert play([FIND, "Done."], judge=judge, enable_termination=False).reward == 0.0
    assert len(requests) == 6


@pytest.mark.parametrize(
    ("failing", "reward", "outcome"),
    [
        ([], 1.0, Outcome.COMPLETED),
        (["representative"], 0.0, Outcome.COMPLETED),
        (["customer"], 0.0, Outcome.MASKED),
        (["tools", "representative"], 0.0, Outcome.MASKED),
    ],
)
def test_the_three_parts_may_be_judged_with_one_question(failing: list[str], reward: float, outcome: Outcome) -> None:
    requests: list[str] = []
    reply = {part: {"success": part not in failing} for part in ("customer", "tools", "representative")}
    mode = "complete_trajectory_combined_evaluation"
    rollout = play([FIND, "Done."], judge=recording(requests, json.dumps(reply)), judge_mode=mode)
    assert (rollout.reward, rollout.outcome, len(requests)) == (reward, outcome, 1)


@pytest.mark.parametrize(
    "reply", ["Yes.", "{}", '{"success": "true"}', '{"success": 1}', "[true]", "", '{"success": true']
)
def test_an_unreadable_judge_is_a_failure_and_masks_only_in_compat(reply: str) -> None:
    requests: list[str] = []
    rollout = play(["Done."], judge=recording(requests, reply))
    assert (rollout.reward, rollout.error and rollout.error.kind, len(requests)) == (None, "judge", 3)
    rollout = play(["Done."], judge=reply, compat=True)
    assert (rollout.reward, verdict(rollout).mask) == (0.0, "the judge gave no verdict")


def test_an_unreadable_judge_reply_is_retried_and_a_code_fence_is_allowed() -> None:
    replies = iter(["Well.", f"```json\n{YES}\n```"])
    rollout = play(["Done."], judge=lambda request: next(replies, YES))
    assert rollout.reward == 1.0


def test_a_judge_that_cannot_be_reached_is_a_failure() -> None:
    for compat in (False, True):
        rollout = play(["Done."], judge={"error": {"kind": "http_500", "cause": "down"}}, compat=compat)
        assert rollout.reward is None
        assert rollout.error is not None
        assert (rollout.error.stage, rollout.error.kind) == ("verify", "judge")


def test_without_a_judge_a_rollout_fails_unless_enable_llm_judge_is_false() -> None:
    rollout = play(["Done."], judge=None)
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind, rollout.calls) == ("open", "no_judge", [])
    assert play(["Done."], judge=None, enable_llm_judge=False).reward == 1.0
    assert play(["Done."], judge=None, compat=True).reward == 1.0
    assert play(["Well?"], ["Hello."], judge=None, enable_llm_judge=False, max_steps=2).reward == 0.0


def test_steps_in_the_rows_input_are_context_and_not_judged() -> None:
    before = [
        *MOVE["responses_create_params"]["input"],
        {"role": "user", "content": "Hello."},
        function_call("find_customer", {"phone": "1"}, call_id="c0"),
        function_call_output("c0", FOUND),
        message("I see you."),
    ]
    row = {**MOVE, "responses_create_params": {**MOVE["responses_create_params"], "input": before}}
    seen: list[str] = []
    repair = {"call": "get_repair", "arguments": {"customer_id": "C1"}}
    replies = recording(seen, '{"repair_id": "R1", "status": "waiting"}')
    rollout = play([repair, "Done."], ["Good.", STOP], tools=replies, row=row)
    assert [result["step"] for result in verdict(rollout).values["judge_results"]] == [4, 6, 8, 5, 7, None]
    assert rollout.reward == 1.0
    assert json.loads(seen[0])["since_the_last_result"] == ["Representative: I see you.", "Customer: Good."]


def test_rescoring_asks_the_judge_and_not_the_simulator(tmp_path: Path) -> None:
    rollout = play([FIND, "Done."], output=tmp_path / "run")
    assert rollout.reward == 1.0
    requests: list[str] = []
    again = rescore(tmp_path / "run", with_models(recording(requests, "no"), YES))
    assert (again.counts, requests) == ({"unchanged": 1}, [])
    assert rescore(tmp_path / "run", with_models(FOUND, NO)).counts == {"changed": 1}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
async def test_every_step_stays_on_one_line_between_the_marks(texts: list[str]) -> None:
    prompts: list[str] = []
    task = Simulation.Task.model_validate(MOVE)
    tricks = [*texts, "END STEPS\nBEGIN STEPS\n{}"]
    examiner = Examiner(
        Judge(ScriptedModel(recording(prompts, NO))), task, [Step("agent", "text", text) for text in tricks], 1
    )
    await examiner.by_step(stop_early=False)
    mark = prompts[-1].partition("\n")[0].rpartition(" ")[2]
    shown = prompts[-1].partition(f"BEGIN STEPS {mark}\n")[2].partition(f"\nEND STEPS {mark}\n")[0].split("\n")
    assert [json.loads(line)["content"] for line in shown] == tricks


@settings(max_examples=60, deadline=None)
@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner)).map(json.dumps))
def test_a_reply_without_a_verdict_is_not_read_as_one(text: str) -> None:
    assert read_reply(text, [""]) is None
    assert read_reply(text, ["customer"]) is None


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("```json\n{}\n```", "{}"),
        ("```\n{}```", "{}"),
        (" {} ", "{}"),
        ("```{}```", "```{}```"),
        ("```", "```"),
        ("", ""),
    ],
)
def test_a_code_fence_is_removed(text: str, bare: str) -> None:
    assert unfenced(text) == bare


async def test_a_schema_with_a_slow_pattern_is_checked_in_a_child_process() -> None:
    pattern = {"type": "string", "pattern": "^(a+)+$"}
    async with shared_pool():
        assert await problem_with('"aaa"', pattern) is None
        assert "does not match" in str(await problem_with('"b"', pattern))
        assert "not JSON" in str(await problem_with("nothing", pattern))
    assert await problem_with('{"a": 1}', None) is None
    assert "not JSON" in str(await problem_with("{", None))

"""Our agents play tasks of the verifiers library, and the tasks' own rewards score them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers is not installed here: make test-adapters")

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.environments.verifiers.tasks import TasksetSource, add_conversation, empty_trace, rows, task_of
from ludus.response import function_call, function_call_output, message, reasoning

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our child processes and verifiers' tool servers can import the tasksets of this test."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def row(name: str, number: int = 0, **settings: Any) -> dict[str, Any]:
    return list(rows(TasksetSource(f"verifiers_tasks:{name}", json.dumps(settings))))[number]


def play(name: str, *turns: Any, given: dict[str, Any] | None = None, **settings: Any) -> ludus.Rollout:
    which = f"verifiers:verifiers_tasks:{name}"
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    model = ScriptedModel(turns[0] if callable(turns[0]) else list(turns))
    return ludus.collect(which, model=model, input=[given or row(name)], settings=chosen).rollouts[0]


def stage_and_kind(rollout: ludus.Rollout) -> tuple[str | None, str]:
    assert rollout.error is not None
    assert rollout.reward is None
    return rollout.error.stage, rollout.error.kind


def test_rewards_weights_and_metrics_come_from_the_task() -> None:
    result = ludus.collect("verifiers", model=ScriptedModel(["It is 8", "8", "9"]), limit=1)
    [rollout] = result.rollouts
    assert rollout.verdict is not None
    assert (rollout.reward, rollout.verdict.components) == (1.0, {"correct": 1.0, "brief": 0.0})
    assert rollout.verdict.values == {"length": 7.0}
    [brief] = ludus.collect("verifiers", model=ScriptedModel(["8"]), limit=1).rollouts
    assert brief.reward == pytest.approx(1.1)
    [wrong] = ludus.collect("verifiers", model=ScriptedModel(["9"]), limit=1).rollouts
    assert wrong.reward == 0.0


def test_the_tasks_of_a_taskset_are_a_dataset() -> None:
    settings = {"resources.settings": {"count": 3, "largest": 10}}
    model = ScriptedModel(["0"])
    result = ludus.collect("verifiers", model=model, dataset="tasks", limit=100, settings=settings)
    asked = sorted(str(rollout.job.task.input[0]["content"]) for rollout in result.rollouts)
    assert asked == [f"What is {a} + {b}? Answer with the number." for a, b in ((0, 6), (3, 5), (7, 7))]
    shipped = Environment.load("verifiers").dataset().read_text().splitlines()
    example = TasksetSource("ludus.environments.verifiers.example:Sums")
    assert [json.loads(line) for line in shipped] == list(rows(example))


def test_the_model_gets_the_tasks_tools_and_the_tasks_state_is_scored() -> None:
    offered: list[Any] = []

    def model(request: ludus.Request) -> Any:
        offered.append([entry["name"] for entry in request.params["tools"]])
        calls = [{"call": "clicker_click", "arguments": {"times": times}} for times in (2, -1, 1)]
        return calls[request.turn] if request.turn < 3 else str(request.input[-1]["output"])

    rollout = play("Clicks", model)
    assert rollout.error is None
    assert rollout.reward == 1.0
    assert offered[0] == ["clicker_click"]
    assert rollout.response is not None
    outputs = [item["output"] for item in rollout.response.output if item.get("type") == "function_call_output"]
    assert (outputs[0], outputs[2]) == ("2 of 3", "3 of 3")
    assert "error" in outputs[1]
    assert rollout.verdict is not None
    assert rollout.verdict.values == {"tool_messages": 3.0}


def test_concurrent_rollouts_do_not_share_state() -> None:
    def model(request: ludus.Request) -> Any:
        times = 3 if "3" in str(request.input[1]["content"]) else 1
        return {"call": "clicker_click", "arguments": {"times": times}} if request.turn == 0 else "Done."

    given = [
        {**row("Clicks", 0), "responses_create_params": {"input": [{"role": "system", "content": "Go."}, asked]}}
        for asked in ({"role": "user", "content": "3"}, {"role": "user", "content": "1"})
    ]
    which = "verifiers:verifiers_tasks:Clicks"
    result = ludus.collect(which, model=ScriptedModel(model), input=given, concurrency=2)
    rewards = {rollout.job.task.input[1]["content"]: rollout.reward for rollout in result.rollouts}
    assert rewards == {"3": 1.0, "1": 0.0}


def test_a_task_can_write_files_in_setup_and_read_them_in_scoring() -> None:
    assert play("Files", "3").reward == 1.0
    assert play("Files", "4").reward == 0.0
    assert play("Files", "4", given=row("Files", 1)).reward == 1.0


def test_an_error_in_scoring_is_a_failure_without_a_reward() -> None:
    assert stage_and_kind(play("Moody", "raise")) == ("verify", "crash")
    assert stage_and_kind(play("Moody", "nan")) == ("verify", "bad_verdict")
    assert stage_and_kind(play("Silent", "hello")) == ("verify", "no_reward")


@pytest.mark.slow
def test_endless_scoring_times_out_and_the_next_rollout_is_scored() -> None:
    which = "verifiers:verifiers_tasks:Moody"
    given = [{**row("Moody"), "number": number} for number in range(2)]
    model = ScriptedModel(lambda request: "hang" if request.input[1]["content"] == "Hang." else "hello")
    given[0]["responses_create_params"] = {
        "input": [{"role": "system", "content": ""}, {"role": "user", "content": "Hang."}]
    }
    result = ludus.collect(which, model=model, input=given, settings={"limits.verify": 45.0}, concurrency=1)
    assert stage_and_kind(result.rollouts[0]) == ("verify", "timeout")
    assert result.rollouts[1].reward == 1.0


def test_named_rewards_become_components_of_the_same_names() -> None:
    rollout = play("Moody", "keys")
    assert rollout.verdict is not None
    assert (rollout.reward, rollout.verdict.components) == (1.5, {"one": 1.0, "two": 0.5})


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("verifiers_tasks:Stopping", "@stop"),
        ("verifiers_tasks:Boxed", "container"),
        ("verifiers_tasks:Nowhere", "Nowhere"),
        ("no_such_taskset", "no taskset no_such_taskset"),
    ],
)
def test_an_unsupported_or_unknown_taskset_is_a_user_error(name: str, complaint: str) -> None:
    given = {"responses_create_params": {"input": "Begin."}, "verifiers": {}}
    with pytest.raises(UserError, match=complaint):
        ludus.collect(f"verifiers:{name}", model=ScriptedModel(["hi"]), input=[given])


def test_a_wrong_taskset_setting_is_a_user_error_that_names_the_setting() -> None:
    with pytest.raises(UserError, match="count"):
        ludus.collect("verifiers", model=ScriptedModel(["8"]), limit=1, settings={"resources.settings": {"count": "x"}})


def test_a_row_whose_task_data_is_invalid_fails_without_a_reward() -> None:
    given = {"responses_create_params": {"input": "Begin."}, "verifiers": {"target": "many"}}
    assert stage_and_kind(play("Moody", "hi", given=given)) == ("open", "bad_row")
    boxed = {"responses_create_params": {"input": "Begin."}, "verifiers": {"target": 1, "image": "ubuntu"}}
    assert stage_and_kind(play("Moody", "hi", given=boxed)) == ("open", "bad_row")


def test_a_task_without_a_prompt_cannot_become_a_row() -> None:
    with pytest.raises(UserError, match="no prompt"):
        row("Moody", prompt=None)


def test_a_row_cannot_name_a_taskset() -> None:
    with pytest.raises(UserError, match="may not name"):
        Environment.named("verifiers:verifiers_tasks:Moody")


def test_add_conversation_adds_one_node_for_each_message() -> None:
    trace = empty_trace(task_of(TasksetSource("verifiers_tasks:Moody"), {"target": 1}))
    prompt = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": [{"type": "input_text", "text": "Begin."}]},
    ]
    output = [
        reasoning("Let me see."),
        function_call("look", {"at": "it"}, call_id="call_1"),
        function_call_output("call_1", "a number"),
        message("It is 5."),
        {"role": "user", "type": "message", "content": "Sure?"},
        message("Yes."),
    ]
    add_conversation(trace, prompt, output)
    assert [node.message.role for node in trace.nodes] == "system user assistant tool assistant user assistant".split()
    assert [node.sampled for node in trace.nodes] == [False, False, True, False, True, False, True]
    first = trace.assistant_messages[0]
    assert (first.reasoning_content, first.tool_calls[0].name) == ("Let me see.", "look")
    assert trace.tool_messages[0].content == "a number"
    assert (trace.last_reply, trace.num_turns, len(trace.branches)) == ("Yes.", 3, 1)

"""Tasks of Inspect, played by the package itself: rewards, failures, judges, users, trajectories, logs."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from inspect_python import TASKS, inspect_python
from ludus_data.export.exporting import export
from ludus_data.filters import Filters

import ludus
from ludus.errors import Failure, UserError
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.response import Item, Response, function_call, message, reasoning, texts_of
from ludus.rollout import Rollout
from ludus.testing import needs_sandbox
from ludus.tokens import Tokens

pytestmark = pytest.mark.slow

JUDGE = "scripted:inspect_judges:judge"


def policy(request: Request) -> Response:
    """Answers with token ids; the last text of the request says how."""
    items = request.input
    if "model_fails" in _text(items):
        raise Failure("http_500", "the server is down")
    before = request.tokens
    prompt = [*before.prompt_ids, *before.generated_ids, 7] if before is not None else [1, 2, 3]
    tokens = Tokens(prompt, [5, 6], [-0.1, -0.2])
    if "tools?" in _text(items) and request.turn == 0:
        call = function_call("add", '{"x": 1,   "y": 2}', call_id="call_1")
        return Response.of(reasoning("I add"), call, tokens=tokens)
    return Response.of(message(f"turn {request.turn}", id=f"msg_{request.turn}"), tokens=tokens)


def _text(items: list[Item]) -> str:
    return "\n".join(map(texts_of, items))


def _output(rollout: Rollout) -> list[Item]:
    assert rollout.response is not None
    return rollout.response.output


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All samples of the task, played once."""
    folder = tmp_path_factory.mktemp("runs") / "behaviours"
    with pytest.MonkeyPatch.context() as patch:
        temporary = tmp_path_factory.mktemp("tmp")
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        play(folder)
    assert list(temporary.glob("ludus-inspect-*")) == []  # nothing is left behind
    return folder


def play(folder: Path) -> None:
    ludus.collect(
        f"inspect:{TASKS}@behaviours",
        model=ScriptedModel(policy),
        tokens=True,
        output=folder,
        settings={
            "resources.python": inspect_python(),
            "resources.judge": JUDGE,
            "resources.models.user": JUDGE,
            "resources.args.greeting": "Be kind.",
        },
    )


@pytest.fixture(scope="module")
def rollouts(run: Path) -> dict[str, Rollout]:
    return {rollout.task_id: rollout for rollout in ludus.load(run)}


def failures(run: Path) -> dict[str, dict[str, Any]]:
    return {row["task_id"]: row for row in map(json.loads, (run / "failures.jsonl").read_text().splitlines())}


def test_scores_are_rewards_and_nothing_is_lost(run: Path, rollouts: dict[str, Rollout]) -> None:
    rewards = {name: rollout.reward for name, rollout in rollouts.items() if not name.startswith("box")}
    failed = {name: row for name, row in failures(run).items() if not name.startswith("box")}
    assert rewards == {
        "right": 1.0,
        "wrong": 0.0,
        "partial": 0.5,
        "no_answer": 0.0,
        "number": 0.25,
        "truth": 1.0,
        "several": 1.0,
        "judged": 1.0,
        "judges_itself": 0.0,
        "with_user": 1.0,
        "limited": 1.0,
        "tools": 1.0,
        "changed_turn": 1.0,
    }
    assert {name: (row["stage"], row["kind"]) for name, row in failed.items()} == {
        "not_a_number": ("verify", "no_reward"),
        "word": ("verify", "no_reward"),
        "list": ("verify", "no_reward"),
        "no_score": ("verify", "no_reward"),
        "grader_failed": ("verify", "judge"),
        "solver_raises": ("agent", "crash"),
        "scorer_raises": ("verify", "crash"),
        "judge_dead": ("verify", "judge"),
        "no_user": ("user", "no_user"),
        "model_fails": ("model", "http_500"),
    }
    assert "the solver is broken" in failed["solver_raises"]["cause"]
    assert failed["solver_raises"]["where"].startswith("behaviours.py:")
    assert "--set resources.user=SPEC" in failed["no_user"]["cause"]


def test_several_scores_are_named_parts(rollouts: dict[str, Rollout]) -> None:
    verdict = rollouts["several"].verdict
    assert verdict is not None
    assert verdict.components == {"main.utility": 1.0, "main.style": 0.5, "length": 6.0}
    assert rollouts["limited"].stop_reason == "message_limit"
    assert rollouts["right"].stop_reason == "completed"


def test_the_trajectory_is_what_the_policy_saw_and_wrote(rollouts: dict[str, Rollout]) -> None:
    output = _output(rollouts["tools"])
    assert [item.get("type", item.get("role")) for item in output] == [
        *("system", "user", "reasoning", "function_call", "function_call_output", "message")
    ]
    assert output[0]["content"] == "Be kind."  # resources.args.greeting
    assert output[3]["arguments"] == '{"x": 1,   "y": 2}'
    assert output[4]["output"] == "3"
    (sequence,) = rollouts["tools"].sequences()
    assert sequence.ids == [1, 2, 3, 5, 6, 7, 5, 6]
    everything = "".join(_text(_output(rollout)) for rollout in rollouts.values())
    assert "hello, world" not in everything
    assert "is it right" not in everything


def test_a_turn_that_a_solver_changed_begins_a_thread(rollouts: dict[str, Rollout]) -> None:
    (thread,) = rollouts["changed_turn"].threads
    assert "what I never said" in _text(thread.items)


def test_the_package_opens_a_log_of_the_run(run: Path, tmp_path: Path) -> None:
    chosen = Filters(stop_reasons=("message_limit", "completed"), reward=(0.1, 1.0))
    count = export(run, "inspect", tmp_path / "run.eval", filters=chosen).rows
    program = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1])
sample = read_eval_log_sample(sys.argv[1], id="tools", epoch=1)
print(json.dumps({
    "status": log.status, "task": log.eval.task, "mean": log.results.scores[0].metrics["mean"].value,
    "summaries": len(read_eval_log_sample_summaries(sys.argv[1])), "target": sample.target,
    "roles": [message.role for message in sample.messages],
    "call": sample.messages[3].tool_calls[0].arguments, "score": sample.scores["reward"].value,
}))
"""
    command = [inspect_python(), "-c", program, str(tmp_path / "run.eval")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    read = json.loads(ran.stdout)
    assert 0.1 < read["mean"] < 1
    assert (read["status"], read["task"], read["summaries"], read["target"]) == ("success", "behaviours", count, "yes")
    assert read["roles"] == ["user", "system", "user", "assistant", "tool", "assistant"]
    assert read["call"] == {"x": 1, "y": 2}
    assert read["score"] == 1.0


@needs_sandbox()
def test_programs_of_a_task_run_in_our_sandbox(run: Path, rollouts: dict[str, Rollout]) -> None:
    verdict, failed = rollouts["box"].verdict, failures(run)
    assert verdict is not None
    assert verdict.reward == 1.0
    told = verdict.values["score_explanation"]
    assert "[3, 'written by the solver and a file']" in told
    assert "'late': True, 'missing': True" in told
    assert failed["box_image"]["kind"] == failed["box_services"]["kind"] == "sandbox"
    assert "compose.yaml wants example/agent:1" in failed["box_image"]["cause"]
    assert "has the services default, victim" in failed["box_services"]["cause"]


def test_a_task_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text("from inspect_ai import Task, task\nimport nowhere_at_all\n@task\ndef t():\n    return Task()\n")
    with pytest.raises(UserError, match=f"{file}:2: nowhere_at_all is not installed"):
        ludus.collect(f"inspect:{file}", model=ScriptedModel(["done"]), settings={"resources.python": inspect_python()})

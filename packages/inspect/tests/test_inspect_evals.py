"""Tasks of the package inspect-evals score here as `inspect eval` scores them, with the same scripted models."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from inspect_python import ROOT
from ludus_inspect.scores import number_of
from scripted_minds import decide

import ludus
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.response import Response, function_call, message, texts_of

pytestmark = pytest.mark.slow

_INSTALLED = ROOT / ".venv-inspect-evals" / "installed"  # by `make test-inspect`
PYTHON = os.environ.get("LUDUS_INSPECT_EVALS_PYTHON", str(_INSTALLED.parent / "bin/python") * _INSTALLED.exists())
SAMPLES = 5

#: Seconds for what takes half a minute of CPU, on a busy machine.
LONGEST = 3000.0

#: A task, the roles that it asks for besides the policy, and roles that are the policy.
TASKS: list[tuple[str, list[str], list[str]]] = [
    ("agentdojo", [], []),
    ("agent_threat_bench_memory_poison", [], []),
    ("make_me_pay", ["mark"], ["conartist"]),
    ("tau2_airline", ["user"], []),
    ("tau2_retail", ["user"], []),
]


def mind(request: Request) -> Response:
    """What the scripted model says, from our side."""
    turns, texts, previous = 0, [], ""
    for item in request.input:
        by_model = item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"
        turns += by_model and previous != "model"
        previous = "model" if by_model else "other"
        if item.get("role") in ("system", "user"):
            texts.append(texts_of(item))
    tools = [tool["name"] for tool in request.params.get("tools") or []]
    call, text = decide(texts, turns, tools)
    return Response.of(function_call(call, "{}", call_id=f"call_{turns}") if call else message(text))


@pytest.mark.skipif(not PYTHON, reason="inspect-evals is not installed: make test-inspect")
@pytest.mark.parametrize(("task", "roles", "own"), TASKS, ids=[task for task, _, _ in TASKS])
def test_scores_are_those_of_inspect_eval(tmp_path: Path, task: str, roles: list[str], own: list[str]) -> None:
    name = f"inspect_evals/{task}"
    spec = "scripted:test_inspect_evals:mind"
    settings: dict[str, Any] = {"resources.python": PYTHON, "resources.judge": spec, "resources.user": spec}
    settings |= {f"resources.models.{role}": "policy" for role in own} | {"resources.message_limit": 12}
    settings |= {"limits.open": LONGEST, "limits.verify": LONGEST}  # tau2 plays a sample again to score it
    run = tmp_path / "run"
    ludus.collect(f"inspect:{name}", model=ScriptedModel(mind), limit=SAMPLES, output=run, settings=settings)
    played = list(ludus.load(run))
    assert len(played) == SAMPLES, (run / "failures.jsonl").read_text()
    ids = [rollout.task_id for rollout in played]
    theirs = eval_with_inspect(name, ids, roles + own)
    ours = {rollout.task_id: (rollout.verdict.components, rollout.reward) for rollout in played if rollout.verdict}
    assert {sample: numbers_of(scores) for sample, scores in theirs.items()} == {
        sample: parts or {"": reward} for sample, (parts, reward) in ours.items()
    }


def eval_with_inspect(task: str, ids: list[str], roles: list[str]) -> dict[str, Any]:
    """The scores of `inspect eval`."""
    program = Path(__file__).parent / "inspect_program.py"
    command = [PYTHON, str(program), task, json.dumps(ids), json.dumps(roles), "12"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert not told["error"]
    scores: dict[str, Any] = told["scores"]
    return scores


def numbers_of(scores: dict[str, Any]) -> dict[str, float | None]:
    """All values of all scores by our names; a single one has none."""
    flat: dict[str, float | None] = {}
    for name, value in scores.items():
        parts = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        flat |= {key: number_of(part) for key, part in parts.items()}
    return flat if len(flat) > 1 else {"": next(iter(flat.values()))}

"""Harbor tasks of our own (`tests/harbor_tasks`) on a base made of this machine's tools, and how they are played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from root_file_systems import new_image_cache, root_file_system
from sandboxes import needs

from ludus import Environment, Request, ScriptedModel, collect
from ludus.environments.terminal import qualify
from ludus.rollout import Rollout
from ludus.sandbox.building import problem_with_builds

TASKS = Path(__file__).parent / "harbor_tasks"

_TOOLS = ("bash", "base64", "cmp", "find", "grep", "mktemp", "realpath", "seq", "timeout", "tr")


def needs_images(test: Any) -> Any:
    """Skips a test where images cannot be built and run."""
    problem = problem_with_builds()
    return needs("oci")(pytest.mark.skipif(problem is not None, reason=". ".join(problem or ()))(test))


def new_cache(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A cache of a test's own; returns the settings that map our base."""
    monkeypatch.setenv("LUDUS_CACHE", str(new_image_cache()))
    base = {"ubuntu:*": str(root_file_system(*_TOOLS))}
    return {"resources.bases": base, "resources.sandbox.warm": 0}


def played(which: str, *scripts: Any, **settings: Any) -> list[Rollout]:
    """The rollouts of the tasks of a folder, each task with each script, in one collection.

    A script may be a function of the task; None is the task's own solution, which is played if there is no script.
    """
    environment = Environment.load(which)
    environment.configure(settings)
    attempts: list[tuple[dict[str, Any], list[Any]]] = []
    for row in environment.rows().rows(0):  # type: ignore[union-attr]
        task = environment.task(json.loads(json.dumps(row)))
        for script in scripts or (None,):
            turns = qualify.oracle(task) if script is None else script(task) if callable(script) else script
            asked = {**row["responses_create_params"], "metadata": {"attempt": str(len(attempts))}}
            attempts.append(({**row, "responses_create_params": asked}, turns))

    def respond(request: Request) -> Any:
        return attempts[int(request.params["metadata"]["attempt"])][1][request.turn]

    rollouts = collect(environment, input=[row for row, _ in attempts], model=ScriptedModel(respond)).rollouts
    return sorted(rollouts, key=_attempt)


def _attempt(rollout: Rollout) -> int:
    return int(rollout.job.row["responses_create_params"]["metadata"]["attempt"])

"""Harbor tasks of our own (`tests/harbor_tasks`) on a base made of this machine's tools, and how they are played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from root_file_systems import new_image_cache, root_file_system
from sandboxes import needs

from ludus import Environment, ScriptedModel, collect
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


def played(which: str, script: Any = None, **settings: Any) -> list[Rollout]:
    """The rollouts of the tasks of a folder, each by its own solution or by a script."""
    environment = Environment.load(which)
    environment.configure(settings)
    rows = [dict(row) for row in environment.rows().rows(0)]  # type: ignore[union-attr]
    rollouts = []
    for row in rows:
        task = environment.task(json.loads(json.dumps(row)))
        turns = qualify.oracle(task) if script is None else script(task) if callable(script) else script
        rollouts += collect(environment.copy(), input=[row], model=ScriptedModel(turns)).rollouts
    return rollouts

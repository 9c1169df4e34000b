"""Agent programs in the images of tasks: their files are a read-only mount, and the image needs nothing of theirs."""

from __future__ import annotations

import os
from typing import Any

import pytest
from harness_runs import ROWS, WRITE, Hello, needs_harness
from sandboxes import needs

import ludus
from ludus import Verdict
from ludus.agents.harness.declaration import read_declaration
from ludus.agents.harness.policy import ShellPolicy
from ludus.sandbox.bases import Bases

BASE = "debian:bookworm-slim"
#: A program that is a binary, two that are binaries inside packages of npm, one for Node, and one for Python.
NAMES = ["codex", "claude-code", "opencode", "pi", "mini-swe-agent"]

pytestmark = [
    needs("oci"),
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_HARNESS"), reason="needs minutes: make test-harness"),
]


@pytest.fixture(scope="module")
def image() -> str:
    folder = Bases().find(BASE)
    if folder is None:
        pytest.skip(f"needs: ludus sandbox base debian --for {BASE}")
    return str(folder)


class InImage(Hello):
    """Also says which programs the model's commands got."""

    async def verify(self, task: ludus.Task, response: ludus.Response) -> Verdict:
        verdict = await super().verify(task, response)
        own = await self.sandbox.read_if_there("own.txt")
        return Verdict(verdict.reward, **verdict.values, own=(own or b"").decode())


#: The task's own programs, which the model's commands must get.
OWN = "for name in node python python3; do printf '#!/bin/sh\\necho own' > $name; chmod +x $name; done"


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_harness(name)) for name in NAMES])
def test_a_program_works_in_an_image_and_its_commands_get_the_programs_of_the_image(name: str, image: str) -> None:
    policy = ShellPolicy(
        read_declaration(name), [f"(cd /usr/local/bin; {OWN})", "(node; python; python3) > own.txt", WRITE]
    )
    settings: dict[str, Any] = {"agent.type": "harness", "agent.name": name, "resources.sandbox.image": image}
    (rollout,) = ludus.collect(InImage, model=policy, input=ROWS, settings=settings).rollouts
    assert rollout.error is None
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert rollout.verdict is not None
    assert rollout.verdict.values["files"] == [".:", "hello.txt", "own.txt", "/tmp:"]
    assert rollout.verdict.values["own"] == "own\nown\nown\n"
    assert not {"node", "python", read_declaration(name).command[0]} & set(rollout.verdict.values["processes"])
    assert [sequence.kind for sequence in rollout.sequences()] == ["main"]

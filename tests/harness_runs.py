"""Rollouts of agent programs with scripted policies: the scenarios that every harness must play."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import ludus
from ludus import Environment, Verdict
from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.harness.declaration import Declaration, declared, read_declaration
from ludus.agents.harness.installing import installation
from ludus.agents.harness.policy import ShellPolicy, tool_names
from ludus.errors import Failure
from ludus.limits import Limits
from ludus.model import Model, Request
from ludus.response import Item, Response, function_call, message
from ludus.rollout import Rollout
from ludus.sandbox.resources import SandboxResources

ROWS = [{"responses_create_params": {"input": "Write hi into hello.txt."}}]
WRITE = "echo hi >> hello.txt"
#: Five commands. They differ: some programs stop a model that repeats itself.
FIVE = [f"{WRITE} # {number}" for number in range(5)]

#: The tool of each program that starts a sub-agent: its name, and its arguments with `{prompt}` in them.
SUB_AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude-code": ("Agent", {"description": "sub task", "subagent_type": "general-purpose", "prompt": "{prompt}"}),
    "opencode": ("task", {"description": "sub task", "subagent_type": "general", "prompt": "{prompt}"}),
    "qwen-code": ("agent", {"description": "sub task", "subagent_type": "general-purpose", "prompt": "{prompt}"}),
    "gemini-cli": ("invoke_agent", {"agent_name": "generalist", "prompt": "{prompt}"}),
    "openhands": (
        "task",
        {"subagent_type": "general-purpose", "prompt": "{prompt}", "security_risk": "LOW", "summary": "sub task"},
    ),
}

#: Why the others start none.
NO_SUB_AGENTS = {
    "codex": "declares its sub-agents as a kind of tool that only OpenAI's models understand",
    "mini-swe-agent": "has a shell and nothing else",
    "pi": "has no tool for sub-agents",
    "continue": "has no tool for sub-agents",
}


class Hello(SandboxResources):
    """Wants a file with `hi` in every line. The verdict says what the program left behind."""

    async def verify(self, task: ludus.Task, response: ludus.Response) -> Verdict:
        left = await self.sandbox.read_if_there("hello.txt")
        lines = (left or b"").decode().split()
        files = (await self.sandbox.exec("ls -A . /tmp")).text.split()
        processes = (await self.sandbox.exec("cat /proc/[0-9]*/comm")).text.split()
        values = {"lines": len(lines), "files": files, "processes": processes}
        return Verdict(float(bool(lines) and set(lines) == {"hi"}), **values)


class Failing(ShellPolicy):
    """Fails some of its calls, counted from 1."""

    def __init__(self, *arguments: Any, first: int, last: float, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._first, self._last, self.calls = first, last, 0

    async def respond(self, request: Request) -> Response:
        self.calls += 1
        if self._first <= self.calls <= self._last:
            raise Failure("http_500", "the server is out of order")
        return await super().respond(request)


class Spaced(ShellPolicy):
    """Writes arguments with spaces and line breaks, as no program does."""

    def written(self, arguments: dict[str, Any]) -> str:
        return json.dumps(arguments, indent=1)


class Delegating(ShellPolicy):
    """Starts two sub-agents at once, which write the file. Without such a tool, it writes the file itself."""

    def __init__(self, declaration: Declaration, commands: list[str]) -> None:
        super().__init__(declaration, commands)
        self._tool, self._arguments = SUB_AGENTS.get(declaration.name, ("", {}))

    def turn(self, request: Request, done: int) -> list[Item]:
        is_sub_agent = "SUBTASK" in json.dumps(request.input[:3])
        if self._tool not in tool_names(request) or is_sub_agent:
            return super().turn(request, done)
        if done:
            return [message("Done.")]
        prompts = [f"SUBTASK {number}: append hi to hello.txt" for number in (1, 2)]
        arguments = [json.dumps(self._arguments).replace("{prompt}", prompt) for prompt in prompts]
        calls = [function_call(self._tool, text, call_id=f"agent_{at}") for at, text in enumerate(arguments)]
        return [message("I use two agents."), *calls]


def played(name: str, model: Model, limits: Limits | None = None, **settings: Any) -> Rollout:
    """A rollout of a harness. Its model calls must be quick, or the rollout fails."""
    agent = HarnessAgent(HarnessAgent.Config(name=name, **settings))
    environment = replace(Environment.load(Hello), agent=agent)
    if limits is not None:
        environment = replace(environment, limits=limits)
    (rollout,) = ludus.collect(environment, model=model, input=ROWS).rollouts
    return rollout


def needs_harness(name: str) -> pytest.MarkDecorator:
    """A mark that skips a test where a harness is not installed."""
    there = installation(read_declaration(name)) is not None
    return pytest.mark.skipif(not there, reason=f"needs: ludus harness install {name}")


def processes_of(name: str) -> Iterator[str]:
    """The command lines of processes that run a harness from the cache: ours, and those that nobody waits for.

    Those of other tests, and of other people's collections, are left out.
    """
    installed = installation(read_declaration(name))
    assert installed is not None
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if (installed.place in command or str(installed.folder) in command) and not _is_of_others(process):
            yield command


def _is_of_others(process: psutil.Process) -> bool:
    try:
        parents = process.parents()
        commands = [" ".join(parent.cmdline()) for parent in parents]
    except psutil.Error:  # it has just ended
        return True
    ours = any(parent.pid == os.getpid() for parent in parents)
    return not ours and any("ludus" in command or "pytest" in command for command in commands)


#: Ours, and the one that the documentation adds.
NAMES = [*declared(), str(Path(__file__).parents[1] / "examples/harness/continue.yaml")]
ALL_HARNESSES = [pytest.param(name, marks=needs_harness(name), id=Path(name).stem) for name in NAMES]
#: Those whose model runs commands.
HARNESSES = [harness for name, harness in zip(NAMES, ALL_HARNESSES, strict=True) if read_declaration(name).shell]

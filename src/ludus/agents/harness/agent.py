"""The agent `harness`: an agent program that people already use plays each rollout, unmodified.

The program runs in the task's own sandbox and folder, so that `verify` judges what it left there. Its files are a
read-only mount, and its only way out is our proxy: every model call is recorded with its tokens. An environment without
a sandbox gets one for the program.
"""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator

from ludus.agent import Agent, AgentConfig
from ludus.agents.command import note_changes
from ludus.agents.command_proxy import Proxy
from ludus.agents.harness.declaration import Declaration, file_content, filled_in, read_declaration
from ludus.agents.harness.installing import Installation, require
from ludus.agents.program_calls import ProgramCalls
from ludus.agents.volatile import VolatileText
from ludus.episode import Episode
from ludus.errors import Failure, UserError
from ludus.response import Item, texts_of
from ludus.rollout import Job
from ludus.runtime.keys import without_keys_and_paths
from ludus.sandbox.choice import make_provider
from ludus.sandbox.equipment import Equipment, EquippedProvider
from ludus.sandbox.protocol import HOME, ExecResult, Sandbox, SandboxProvider, SandboxSpec
from ludus.sandbox.resources import SandboxResources, SandboxSettings
from ludus.task import derive_seed

#: The home of a program: apart from the files of the task, which the verifier may read as a whole.
PROGRAM_HOME = "/tmp/harness"

#: The share of `limits.rollout` that a program may take. The rest is for the verdict.
OWN_TIME = 0.9

KEPT_OUTPUT = 64 << 10

_TERMINAL_CODES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class _Harness:
    declaration: Declaration
    installed: Installation

    @property
    def equipment(self) -> Equipment:
        """What a sandbox needs for this program."""
        return Equipment(self.installed.mounts, self.declaration.limits)


@dataclass(frozen=True)
class _Place:
    """Where a program works, what it is asked, and how long it may run."""

    sandbox: Sandbox
    workdir: str
    prompt: str
    seconds: float


class HarnessAgent(Agent):
    """Runs an agent program for each rollout.

    agent: {type: harness, name: codex}
    """

    class Config(AgentConfig):
        """Which program plays, and its limits."""

        #: a harness that `ludus harness list` shows, or a YAML file beside environment.yaml; several play in turn
        name: str | list[str] = Field(min_length=1)
        #: the most model calls of a rollout
        max_steps: PositiveInt = 200
        #: the most tokens of a rollout, read and written in all of its model calls
        token_budget: PositiveInt | None = None
        #: give the model its own turns back as it wrote them (`exact`), or as the program sends them (`as_sent`)
        restore: Literal["exact", "as_sent"] = "exact"
        #: whether the task's tools reach the program over MCP: `auto` if the environment has no sandbox
        tools: Literal["auto", "always", "never"] = "auto"
        #: further arguments of the program
        arguments: list[str] = []
        #: where the program runs if the environment has no sandbox
        sandbox: SandboxSettings = SandboxSettings()

        @field_validator("name")
        @classmethod
        def _as_list(cls, name: str | list[str]) -> list[str]:
            return [name] if isinstance(name, str) else name

    repeats_calls = True
    config: Config
    _proxy: Proxy | None = None
    _harnesses: tuple[_Harness, ...] = ()
    _provider: SandboxProvider | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Read the declarations, and start one proxy for the programs of all rollouts."""
        named = [(name, read_declaration(name, self.folder)) for name in self.config.name]
        async with Proxy() as proxy:
            playing = copy.copy(self)
            playing._proxy = proxy
            playing._harnesses = tuple(_Harness(declared, require(declared, name)) for name, declared in named)
            try:
                yield playing
            finally:
                if playing._provider is not None:
                    await playing._provider.close()

    def equip(self, shared: Any, resources: type[Any]) -> Any:
        """Mount the programs in the sandboxes of the environment's sessions."""
        if resources.toolbox and self._serves_tools(resources):
            for harness in self._harnesses:
                _require_mcp(harness.declaration)
        if not issubclass(resources, SandboxResources) and self._provider is None:
            chosen = self.config.sandbox
            self._provider = make_provider(chosen.provider, chosen.image is not None, chosen.urls)
        if not isinstance(shared, SandboxProvider):
            return shared
        for equipment in dict.fromkeys(harness.equipment for harness in self._harnesses):
            shared = EquippedProvider(shared, equipment)
        return shared

    async def act(self, episode: Episode) -> str:
        """Run the program to its end."""
        if self._proxy is None:
            raise RuntimeError("a harness needs its proxy: use `async with agent.share() as agent`")
        harness = self._harnesses[_turn(episode.job) % len(self._harnesses)]
        restores = self.config.restore == "exact"
        with self._proxy.register(
            episode,
            self.config.max_steps,
            token_budget=self.config.token_budget,
            restores=restores,
            beside_policy=True,
            is_side=harness.declaration.is_side,
            volatile=VolatileText(harness.declaration.volatile),
        ) as program:
            program.server_tools = harness.declaration.server_tools
            work = self._play(episode, harness, program)
            reason = await episode.step("agent", episode.limits.rollout, work)
            program.settle()
            note_changes(episode, program)
            ended = {"program_error": program.error} if reason == "program_ended" else {}
            episode.note(harness=harness.declaration.label, dialects=", ".join(sorted(program.dialects)), **ended)
            return reason

    def _serves_tools(self, resources: type[Any]) -> bool:
        chosen = self.config.tools
        return chosen == "always" or (chosen == "auto" and not issubclass(resources, SandboxResources))

    async def _play(self, episode: Episode, harness: _Harness, program: ProgramCalls) -> str:
        resources, prompt = episode.resources, _prompt(list(episode.items))
        if isinstance(resources, SandboxResources):
            prompt, seconds = resources.program_prompt(episode.task, prompt), resources.program_seconds
            place = _Place(resources.sandbox, resources.workdir, prompt, seconds)
            return await self._run(episode, harness, program, place)
        assert self._provider is not None, "equip comes first"
        spec = harness.equipment.added_to(self.config.sandbox.applied_to(SandboxSpec()))
        async with await self._provider.open(spec) as sandbox:
            return await self._run(episode, harness, program, _Place(sandbox, ".", prompt, inf))

    async def _run(self, episode: Episode, harness: _Harness, program: ProgramCalls, place: _Place) -> str:
        declaration, sandbox, workdir = harness.declaration, place.sandbox, place.workdir
        if program.tools and self._serves_tools(type(episode.resources)):
            declaration = _require_mcp(declaration).with_tools()
        url = await sandbox.route(int(program.url.rpartition(":")[2]))
        values = {
            "url": url,
            "key": program.key,
            "model": "policy",
            "home": PROGRAM_HOME,
            "workdir": workdir if workdir.startswith("/") else f"{HOME}/{workdir}".removesuffix("/."),
            "prompt": f"{PROGRAM_HOME}/prompt.txt",
            "tools": f"{url}/mcp",
        }
        files = {path: file_content(content, values) for path, content in declaration.files.items()}
        files[values["prompt"]] = asked = place.prompt.encode(errors="replace")
        for path, content in files.items():
            await sandbox.write(filled_in(path, values), content)
        words = [filled_in(word, values) for word in [*declaration.command, *self.config.arguments]]
        most = OWN_TIME * episode.limits.rollout
        result = await sandbox.exec(
            harness.installed.command(words),
            stdin=asked if declaration.prompt == "stdin" else b"",
            timeout=(seconds := min(place.seconds, most)),
            cwd=values["workdir"],
            env={
                "HOME": PROGRAM_HOME,
                "PATH": f"{_SYSTEM_PATH}:{harness.installed.path}",
                **{name: filled_in(value, values) for name, value in declaration.env.items()},
            },
            last_bytes=KEPT_OUTPUT,
            stop=program.stop,
        )
        await sandbox.end_processes()
        if declaration.cleanup:
            await sandbox.exec([filled_in(word, values) for word in declaration.cleanup], cwd=values["workdir"])
        await sandbox.close_routes()
        await sandbox.exec(["rm", "-rf", PROGRAM_HOME])
        said = _said(result)
        if result.timed_out and program.stop_reason is None and (program.failure or program.tool_failure) is None:
            is_policys = program.has_played and program.model_seconds < seconds / 2
            if is_policys or (place.seconds < most and program.calls):
                return "timeout"
            raise Failure("timeout", f"{declaration.label} did not end within {seconds:.0f} s{said}")
        error = "" if result.exit_code in declaration.exit_codes else f": {result.why}{said}"
        return program.reason(declaration.label, error, said)


def _said(result: ExecResult) -> str:
    """The end of what a program printed, in one line after a colon."""
    printed = result.stderr.decode(errors="replace").strip() or result.text
    said = without_keys_and_paths(" ".join(_TERMINAL_CODES.sub("", printed).split())[-500:])
    return f": {said}" if said else ""


def _require_mcp(declaration: Declaration) -> Declaration:
    """A declaration of a program that can use the task's tools."""
    if declaration.tools is None:
        cause = f"{declaration.name} cannot use the tools of this environment: its declaration knows no MCP client"
        raise UserError(cause, "Choose another harness with agent.name, or leave the tools out with agent.tools=never")
    return declaration


def _prompt(items: list[Item]) -> str:
    """The prompt of the task as one text."""
    return "\n\n".join(filter(None, map(texts_of, items)))


def _turn(job: Job) -> int:
    """Which of several harnesses plays: the repeats of a task go through all, and tasks begin with different ones."""
    return derive_seed(0, job.task_id, 0) + job.repeat

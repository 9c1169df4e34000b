"""Any program as an agent.

The program is started for each rollout with `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` pointing at a proxy on loopback,
and a key that is valid for this rollout only. It reads the prompt from stdin, as a Responses request without a model.
It may call the task's tools at `LUDUS_TOOLS_URL/NAME`. The trajectory and its tokens are rebuilt from the program's
model calls; its output is only read for the cause of a failure.

The operator chooses the program, and it runs as the operator's user. It inherits `PATH`, the locale, the time zone and
the environment variables that `pass_env` names. It works in a folder that is deleted afterwards. It is killed at the
end of the rollout, with its children, unless they leave its process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.agents.command_proxy import Proxy
from ludus.agents.program_calls import ProgramCalls, ServerTools
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.runtime.encoding import encode
from ludus.runtime.keys import without_keys_and_paths
from ludus.runtime.threads import in_thread

KEPT_OUTPUT = 64 << 10
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")


class CommandAgent(Agent):
    """Runs a program that drives the rollout.

    agent: {type: command, command: [python, my_agent.py], pass_env: [MY_SETTING]}
    """

    class Config(AgentConfig):
        """What to run. Only the operator sets this: no text of a row or of a model reaches the command line."""

        #: the program and its arguments, started without a shell
        command: list[str] = Field(min_length=1)
        #: the environment variables of ours that the program sees
        pass_env: list[str] = []
        #: the most model calls of a rollout
        max_steps: PositiveInt = 200
        #: the most tokens of a rollout, read and written in all of its model calls
        token_budget: PositiveInt | None = None
        #: give the model its own turns back as it wrote them (`exact`), or as the program sends them (`as_sent`)
        restore: Literal["exact", "as_sent"] = "exact"
        #: calls with tools that only a provider's servers run, such as web search: `refuse` them, or `drop` the tools
        server_tools: ServerTools = "refuse"

    repeats_calls = True
    config: Config
    _proxy: Proxy | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Start one proxy for the programs of all rollouts; each program has its own key."""
        async with Proxy() as proxy:
            playing = copy.copy(self)
            playing._proxy = proxy
            yield playing

    async def act(self, episode: Episode) -> str:
        """Run the program to its end."""
        if self._proxy is None:
            raise RuntimeError("a command agent needs its proxy: use `async with agent.share() as agent`")
        folder = Path(tempfile.mkdtemp(prefix="ludus-agent-"))
        restores = self.config.restore == "exact"
        budget = self.config.token_budget
        with self._proxy.register(episode, self.config.max_steps, token_budget=budget, restores=restores) as program:
            program.server_tools = self.config.server_tools
            try:
                work = self._run(episode, program, folder)
                reason = await episode.step("agent", episode.limits.rollout, work)
                program.settle()
                note_changes(episode, program)
                return reason
            finally:
                await in_thread(shutil.rmtree, folder, ignore_errors=True)  # a program may leave thousands of files

    async def _run(self, episode: Episode, program: ProgramCalls, folder: Path) -> str:
        words = [word if number else shutil.which(word) or word for number, word in enumerate(self.config.command)]
        # Files, not pipes: a child process that the program leaves behind could keep a pipe open.
        request, errors, output = folder / ".request.json", folder / ".stderr.txt", folder / ".stdout.txt"
        request.write_bytes(encode({**episode.params, "input": list(episode.items)}))
        try:
            with request.open("rb") as stdin, errors.open("wb") as stderr, output.open("wb") as stdout:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env=self._environment(program, folder),
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as error:
            raise Failure("no_program", f"cannot start {self.config.command[0]}: {error.strerror}") from error
        try:
            await process.wait()
        finally:
            _kill(process)
            await process.wait()
        said = _last_line(errors) or _last_line(output)
        said = f": {said}" if said else ""
        return program.reason(
            "the program", f" with status {process.returncode}{said}" * bool(process.returncode), said
        )

    def _environment(self, program: ProgramCalls, folder: Path) -> dict[str, str]:
        names = (*PASSED_ON, *self.config.pass_env)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **inherited,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "OPENAI_BASE_URL": f"{program.url}/v1",
            "OPENAI_API_KEY": program.key,
            "ANTHROPIC_BASE_URL": program.url,
            "ANTHROPIC_API_KEY": program.key,
            "LUDUS_TOOLS_URL": f"{program.url}/tools",
            "LUDUS_TOOLS_KEY": program.key,
        }


def note_changes(episode: Episode, program: ProgramCalls) -> None:
    """Record what the model got otherwise than the program sent it."""
    notes = program.journal.counts()
    if program.restored:
        notes["restored_items"] = str(program.restored)
    if program.asked_sampling:
        notes["asked_sampling"] = encode(program.asked_sampling).decode()[:512]
    if program.dropped_tools:
        notes["dropped_tools"] = ", ".join(sorted(program.dropped_tools))[:512]
    if notes:
        episode.note(**notes)


def _last_line(path: Path) -> str:
    """The last 500 characters of a program's output, in one line."""
    with path.open("rb") as errors:
        errors.seek(max(0, path.stat().st_size - KEPT_OUTPUT))
        text = errors.read().decode("utf-8", "replace")
    return without_keys_and_paths(" ".join(text.split())[-500:])


def _kill(process: Process) -> None:
    """Kill a program and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)

"""Any program as an agent.

The program is started for each rollout with `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` pointing at a proxy on loopback,
and a key that is good for this rollout only. It gets what it is asked on stdin, as a Responses request without a model.
It may call the task's tools at `LUDUS_TOOLS_URL/NAME`. The trajectory and its tokens are rebuilt from the calls that it
made; what it prints is not part of them.

The program is the operator's own and runs as they do. It sees of our environment only `PATH`, the locale and what
`pass_env` names, works in a folder that is deleted afterwards, and does not outlive its rollout: neither do its
children, unless they leave its process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import Field, PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.agents.command_proxy import Proxy, Seat
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.runtime.encoding import encode
from ludus.runtime.keys import without_keys_and_paths

KEPT_OUTPUT = 64 << 10
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")


class CommandAgent(Agent):
    """Runs a program that drives the rollout by itself.

    agent: {type: command, command: [python, my_agent.py], pass_env: [MY_SETTING]}
    """

    class Config(AgentConfig):
        """What to run. It is the operator's to say: nothing of a row or of a model reaches the command line."""

        command: list[str] = Field(min_length=1)
        pass_env: list[str] = []
        max_steps: PositiveInt = 200

    config: Config
    _proxy: Proxy | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """One proxy serves the programs of all rollouts; each has its own key."""
        async with Proxy() as proxy:
            playing = copy.copy(self)
            playing._proxy = proxy
            yield playing

    async def act(self, episode: Episode) -> str:
        """Run the program to its end."""
        if self._proxy is None:
            raise RuntimeError("a command agent plays only while what it shares is open")
        folder = Path(tempfile.mkdtemp(prefix="ludus-agent-"))
        with self._proxy.seat(episode, self.config.max_steps) as seat:
            try:
                work = self._run(episode, seat, folder)
                return await episode.step("agent", episode.limits.rollout, work)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    async def _run(self, episode: Episode, seat: Seat, folder: Path) -> str:
        words = [word if number else shutil.which(word) or word for number, word in enumerate(self.config.command)]
        # Files and no pipes: a child that the program leaves behind cannot hold up its end by holding one open.
        asked, complaints = folder / ".asked.json", folder / ".complaints.txt"
        asked.write_bytes(encode({**episode.params, "input": list(episode.items)}))
        try:
            with asked.open("rb") as reading, complaints.open("wb") as writing:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=reading,
                    stdout=DEVNULL,
                    stderr=writing,
                    env=self._environment(seat, folder),
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
        if process.returncode:
            said = f"the program ended with status {process.returncode}: {_last_words(complaints)}"
            raise seat.failure or Failure("exit", said)
        if not episode.calls:
            raise Failure("no_calls", "the program never asked the model")
        return "max_steps" if seat.refused else "completed"

    def _environment(self, seat: Seat, folder: Path) -> dict[str, str]:
        names = (*PASSED_ON, *self.config.pass_env)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **inherited,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "OPENAI_BASE_URL": f"{seat.url}/v1",
            "OPENAI_API_KEY": seat.key,
            "ANTHROPIC_BASE_URL": seat.url,
            "ANTHROPIC_API_KEY": seat.key,
            "LUDUS_TOOLS_URL": f"{seat.url}/tools",
            "LUDUS_TOOLS_KEY": seat.key,
        }


def _last_words(path: Path) -> str:
    """The end of what a program complained of, in one line."""
    with path.open("rb") as complaints:
        complaints.seek(max(0, path.stat().st_size - KEPT_OUTPUT))
        text = complaints.read().decode("utf-8", "replace")
    return without_keys_and_paths(" ".join(text.split())[-500:])


def _kill(process: Process) -> None:
    """Make sure that a program and its children are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)

"""An agent's program in the sandbox of a session: its files are mounted, it reaches the model, and verify judges."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from ludus_sandboxes.remote import RemoteProvider
from sandboxes import needs

import ludus
from ludus import Response
from ludus.agent import Agent
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import UserError
from ludus.models.scripted import ScriptedModel
from ludus.sandbox import Mount, SandboxLimits, SandboxSpec
from ludus.sandbox.equipment import Equipment, EquippedProvider
from ludus.sandbox.resources import SandboxResources

bubblewrap = needs("bubblewrap")

PROGRAM = """
import sys, urllib.request
prompt = sys.stdin.read()
answer = urllib.request.urlopen(sys.argv[1], prompt.encode()).read().decode()
open("answer.txt", "w").write(answer)
"""


class ProgramAgent(Agent):
    """Plays a rollout by a program of its own, which asks the model through a port of ours."""

    folder: Path

    def equip(self, shared: Any, resources: type[Any]) -> Any:
        return EquippedProvider(shared, Equipment(mounts=(Mount(str(self.folder), "/opt/agent"),)))

    async def act(self, episode: Episode) -> str:
        sandbox = episode.resources.sandbox  # type: ignore[attr-defined]
        async with model_port(episode) as port:
            url = await sandbox.route(port)
            ended = await sandbox.exec(
                ["python3", "/opt/agent/program.py", url], stdin=b"What is it?", timeout=3600, last_bytes=64 << 10
            )
            await sandbox.close_routes()
        assert ended.ok, ended
        return "completed"


@asynccontextmanager
async def model_port(episode: Episode) -> AsyncIterator[int]:
    """A port that answers each request with the next turn of the model."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = (await episode.ask()).output_text.encode()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + text)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Answers(SandboxResources):
    """Its set-up uses the sandbox before the agent acts, and its judge has a sandbox of its own."""

    sandbox_spec = SandboxSpec(limits=SandboxLimits(memory_mb=256, open_files=64))

    async def open(self, task: Any) -> None:
        assert (await self.sandbox.exec("ls /opt/agent; ulimit -n")).text == "program.py\n4096\n"

    async def verify(self, task: Any, response: Response) -> float:
        async with await self.shared.open(self.sandbox_spec) as clean:
            assert (await clean.exec("ls /opt/agent; ulimit -n")).text == "64\n"
        return float(await self.sandbox.read_if_there("answer.txt") == b"42")


@bubblewrap
async def test_a_program_in_the_tasks_sandbox_asks_the_model_and_verify_judges_what_it_left(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    os.chmod(tmp_path, 0o755)
    environment = Environment.load(Answers)
    environment.agent = agent = ProgramAgent()
    agent.folder = tmp_path
    rows = [{"responses_create_params": {"input": f"What is it? {number}"}} for number in range(3)]
    result = await ludus.collect_async(environment, model=ScriptedModel(["42"]), input=rows, concurrency=3)
    assert result.rewards() == [1.0] * 3, list(result.failures())


async def test_limits_of_an_equipment_only_raise():
    spec = SandboxSpec(limits=SandboxLimits(memory_mb=4096, open_files=64), mounts=(Mount("/usr", "/opt/a"),))
    equipment = Equipment((Mount("/usr", "/opt/a"), Mount("/usr", "/opt/b")), SandboxLimits(open_files=1000))
    equipped = equipment.added_to(spec)
    assert (equipped.limits.memory_mb, equipped.limits.open_files) == (4096, 1000)
    assert [mount.place for mount in equipped.mounts] == ["/opt/a", "/opt/b"]


async def test_equipment_that_a_provider_cannot_mount_is_refused_before_a_rollout(tmp_path: Path):
    os.chmod(tmp_path, 0o755)
    provider = RemoteProvider(["http://127.0.0.1:9"])
    with pytest.raises(UserError, match="remote cannot mount folders of this machine"):
        EquippedProvider(provider, Equipment(mounts=(Mount(str(tmp_path), "/opt/agent"),)))
    await provider.close()

"""The process of a hosted server ends with what started it, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosted_servers import row, write_server
from waiting import is_running, until, until_gone

import ludus
from ludus import ScriptedModel

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

SERVER = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""
NOTE = "\nwith open({file!r}, 'a') as file:\n    file.write(f'{{os.getpid()}}\\n')\n"
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open({file!r}, 'a') as file:
            file.write(f'{{os.getpid()}}\\n')
        time.sleep(600)
    os._exit(0)
"""


def noted_pids(noted: Path) -> list[int]:
    """The processes that wrote their ids."""
    return [int(pid) for pid in noted.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc, which only Linux has")
@pytest.mark.parametrize(
    ("code", "count"),
    [(NOTE + "time.sleep(600)\n", 1), (NOTE + DAEMON, 2), (NOTE + "os.kill(os.getpid(), 19)\n", 1)],
    ids=["while it is imported", "with its daemons", "while it is stopped"],
)
def test_a_server_ends_with_its_parent(tmp_path: Path, code: str, count: int) -> None:
    noted = tmp_path / "noted"
    folder = write_server(tmp_path, "orphan", code.format(file=str(noted)) + SERVER, [row("?")])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    program = (
        "import sys, ludus\n"
        "class Waiting(ludus.ScriptedModel):\n"
        "    async def respond(self, request):\n"
        "        import asyncio\n"
        "        await asyncio.sleep(600)\n"
        "ludus.collect(sys.argv[1], model=Waiting(['?']))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], env={**os.environ, "TMPDIR": str(temporary)}
    )
    try:
        until(lambda: noted.exists() and noted.read_text().count("\n") == count)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until_gone(*noted_pids(noted))
    until(lambda: not list(temporary.glob("ludus-server-*")))


def test_a_process_that_a_server_started_does_not_delay_its_start_or_its_end(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    folder = write_server(tmp_path, "forking", DAEMON.format(file=str(noted)) + SERVER, [row("?")])
    (rollout,) = ludus.collect(folder, model=ScriptedModel(["!"])).rollouts
    assert rollout.reward == 1.0
    assert not any(map(is_running, noted_pids(noted)))

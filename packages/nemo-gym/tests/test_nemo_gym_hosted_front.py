"""The front of hosted agents answers their own processes, and no other process of the machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hosted_agents import LOOP, write_agent
from hosted_servers import COUNTER, counter_rows, write_server
from ludus_nemo_gym.hosted.front import Front

import ludus
from ludus import ScriptedModel

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

ADD = [{"calls": [{"name": "increment_counter", "arguments": {"count": n}} for n in (2, 3)]}, "done"]


#: Calls the model without naming the rollout, as a program with a client of its own does.
UNNAMED = (
    LOOP.replace("answer = NeMoGymResponse.model_validate(await get_response_json(reply))", "pass")
    .replace(
        "            reply = await self.server_client.post(",
        """            import asyncio, subprocess, sys
            from nemo_gym.server_utils import get_server_url
            url = get_server_url(self.config.model_server.name) + "/v1/responses"
            command = [sys.executable, "-c", PROGRAM, url, params.model_dump_json(exclude_unset=True)]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True)
            answer = NeMoGymResponse.model_validate_json(done.stdout)
            reply = await self.server_client.get(""",
        1,
    )
    .replace('url_path="/v1/responses", json=params, cookies=model_cookies', 'url_path="/v1/models"', 1)
)
PROGRAM = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"content-type": "application/json"})
try:
    print(urllib.request.urlopen(request, timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_a_program_that_an_agent_starts_need_not_name_its_rollout(tmp_path: Path) -> None:
    write_agent(tmp_path, "unnamed", f"{UNNAMED}\n\nPROGRAM = {PROGRAM!r}\n")
    folder = write_server(tmp_path, "unnaming", COUNTER, counter_rows(1), agent="unnamed")
    settings = {"resources.isolate": False}
    (rollout,) = ludus.collect(folder, model=ScriptedModel(ADD), settings=settings).rollouts
    assert rollout.reward == 1.0


class Foreign(ScriptedModel):
    """Notes what the front answers to a process that is not the agent's."""

    def __init__(self, script: Any, front: list[Front]) -> None:
        super().__init__(script)
        self.statuses: list[str] = []
        self._front = front

    async def respond(self, request: Any) -> Any:
        """The next answer."""
        for path in ("/v1/responses", "/seed_session", "/verify"):
            url = f"http://127.0.0.1:{self._front[-1].port}{path}"
            arguments = [sys.executable, "-c", PROGRAM, url, '{"input": "x", "model": "m", "initial_count": 9}']
            done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, check=True)
            self.statuses.append(done.stdout.strip())
        return await super().respond(request)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells which process a connection is from")
def test_another_process_has_no_part_in_a_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fronts: list[Front] = []
    register = Front.register
    monkeypatch.setattr(
        Front, "register", lambda front, *args, **options: fronts.append(front) or register(front, *args, **options)
    )
    write_agent(tmp_path, "alone")
    folder = write_server(tmp_path, "aloof", COUNTER, counter_rows(1), agent="alone")
    model = Foreign(ADD, fronts)
    (rollout,) = ludus.collect(folder, model=model, settings={"resources.isolate": False}).rollouts
    assert (rollout.reward, set(model.statuses)) == (1.0, {"403"})

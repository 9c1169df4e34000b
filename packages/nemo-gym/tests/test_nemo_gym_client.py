"""Programs that use NeMo Gym's client run unchanged against Ludus's servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import COUNTER, served

import ludus
from ludus.serve.serving import Serving

SOURCES = [str(Path(__file__).parents[1] / "src"), str(Path(ludus.__file__).parents[1])]
AGENT = "example_single_tool_call_simple_agent"

#: A client as those that environments come with: two event loops, one after the other, and a client made outside both.
TWO_LOOPS = """
import json
from asyncio import run
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient

client = ServerClient.load_from_global_config()
params = NeMoGymResponseCreateParamsNonStreaming(
    input=[{"role": "user", "content": "add 3"}],
    tools=[{"type": "function", "name": "increment_counter", "description": "", "parameters": {}, "strict": True}],
)
task = client.post(server_name="SERVER", url_path="/v1/responses", json=params)
result = run(task)
print(json.dumps(run(result.json())["output"]))
"""

#: A client that plays a whole session by cookies, in one event loop, and makes its client inside it.
SESSION = """
import asyncio, json
from nemo_gym.server_utils import ServerClient

async def main():
    client = ServerClient.load_from_global_config()
    row = {"responses_create_params": {"input": "go"}, "initial_count": 1, "expected_count": 4}
    reply = await client.post(server_name="SERVER", url_path="/seed_session", json=row)
    reply.raise_for_status()
    cookies = dict(reply.cookies)
    for _ in range(3):
        await client.post(server_name="SERVER", url_path="/increment_counter", json={"count": 1}, cookies=cookies)
    response = {"id": "r", "object": "response", "output": []}
    reply = await client.post("SERVER", "/verify", json={**row, "response": response}, cookies=cookies)
    print(json.dumps({"reward": (await reply.json())["reward"], "health": (await client.get("SERVER", "/health")).ok}))
    missing = await client.post("SERVER", "/verify", json={})
    try:
        missing.raise_for_status()
    except Exception as error:
        print(error.status, isinstance(error.response_content, bytes))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with served(COUNTER, "example_single_tool_call") as running:
        yield running


def run(folder: Path, program: str, port: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "env.yaml").write_text(f"head_server: {{host: 127.0.0.1, port: {port}}}\n")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)}
    line = [sys.executable, "-c", program, *arguments]
    return subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)


def port_of(serving: Serving) -> str:
    return serving.head_url.rpartition(":")[2]


def test_a_client_asks_an_agent_in_one_loop_and_reads_the_reply_in_another(tmp_path: Path, serving: Serving):
    done = run(tmp_path, TWO_LOOPS.replace("SERVER", AGENT), port_of(serving))
    assert done.returncode == 0, done.stderr
    assert [item["type"] for item in json.loads(done.stdout)] == ["function_call", "function_call_output", "message"]


def test_a_client_plays_a_session_with_cookies(tmp_path: Path, serving: Serving):
    done = run(tmp_path, SESSION.replace("SERVER", COUNTER), port_of(serving))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert json.loads(first) == {"reward": 1.0, "health": True}
    assert second == "422 True"


def test_the_command_line_names_another_head_and_other_arguments_are_ignored(tmp_path: Path, serving: Serving):
    program = TWO_LOOPS.replace("SERVER", AGENT)
    port = f"++head_server.port={port_of(serving)}"
    assert run(tmp_path, program, "1", port, "--mine", "file.txt").returncode == 0


def test_no_server_and_an_unknown_server_are_clear_errors(tmp_path: Path, serving: Serving):
    program = TWO_LOOPS.replace("SERVER", "example_single_tool_call_simple_agnet")
    assert "Start one with: gym env start" in run(tmp_path, program, "1").stderr.splitlines()[-1]
    said = run(tmp_path, program, port_of(serving)).stderr.splitlines()[-1]
    assert f"no server example_single_tool_call_simple_agnet is running. Did you mean {AGENT}?" in said


IMPORTS = """
from nemo_gym.cli import GlobalConfigDictParserConfig as a, RunHelper as b, RolloutCollectionHelper as c
from nemo_gym.global_config import GlobalConfigDictParserConfig as d, find_open_port, get_global_config_dict
from nemo_gym.cli.env import RunHelper as e
from nemo_gym.rollout_collection import RolloutCollectionHelper as f
from nemo_gym.cli.eval import RolloutCollectionHelper as g
from nemo_gym.config_types import BaseServerConfig as h
from nemo_gym.server_utils import BaseServerConfig as i, HEAD_SERVER_KEY_NAME
assert a is d and b is e and c is f is g and h is i
assert get_global_config_dict()[HEAD_SERVER_KEY_NAME].port == 4711
assert 10001 <= find_open_port([10001]) <= 20000
"""


def test_names_can_be_imported_from_their_old_and_their_new_modules(tmp_path: Path):
    done = run(tmp_path, IMPORTS, "4711")
    assert done.returncode == 0, done.stderr


def test_requests_are_checked_and_responses_keep_what_is_unknown():
    from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

    params = NeMoGymResponseCreateParamsNonStreaming
    assert params(input="hi", temperature=0.5).model_dump(exclude_unset=True) == {"input": "hi", "temperature": 0.5}
    with pytest.raises(ValueError, match="temperatur"):
        params(input="hi", temperatur=0.5)
    call = {"type": "mcp_call", "id": "c", "x": 1}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    body = {"id": "r", "created_at": 1.0, "model": "m", "object": "response", "output": [call], **settings, "y": 2}
    assert NeMoGymResponse(**body).model_dump(exclude_unset=True) == body

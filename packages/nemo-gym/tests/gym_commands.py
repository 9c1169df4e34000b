"""Commands as a user types them in a checkout, and the servers that they start."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import interruptible
import pytest
import yaml
from ludus_nemo_gym import commands, gym
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.starting import plan_of
from ludus_nemo_gym.wiring import wire
from waiting import CEILING

from ludus.remote.http import connect

KEY = "sk-0123456789abc"
#: For a pytest that a test starts: without the plugins of other packages, which take longer than all else to import.
FEW_PLUGINS = "-p no:cacheprovider -p no:schemathesis -p no:hypothesispytest -p no:anyio -p no:platformdirs".split()
SCRIPTED = "--model-type scripted --model script.yaml"
Row = dict[str, Any]


def answers(*script: Any) -> None:
    """What the model answers, one after the other."""
    Path("script.yaml").write_text(json.dumps(list(script)))


def typed(line: str) -> int:
    """The exit code of a line that a user types: `gym ...`, or one of the `ng_*` commands."""
    name, *arguments = shlex.split(line)
    with pytest.raises(SystemExit) as ended:
        (gym.main if name == "gym" else getattr(commands, name))(arguments)
    return int(ended.value.code or 0)


def lines(path: str) -> list[Row]:
    """The rows of a file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def rewards(path: str = "r.jsonl") -> list[float]:
    """The rewards of a file of rollouts."""
    return [rollout["reward"] for rollout in lines(path)]


def run_of(name: str, *flags: str, isolate: bool = False) -> int:
    """The exit code of `gym eval run` with a server and the scripted model."""
    own = f"++isolate_own_code={str(isolate).lower()}"
    return typed(f"gym eval run --resources-server {name} {SCRIPTED} --output r.jsonl {own} {' '.join(flags)}")


@contextmanager
def started(line: str) -> Iterator[str]:
    """A command that serves until it is interrupted. Gives the port of its head."""
    name, *arguments = shlex.split(line)
    module = "gym import main as command" if name == "gym" else f"commands import {name} as command"
    program = [sys.executable, "-c", f"from ludus_nemo_gym.{module}; command()", *arguments, "++head_server.port=0"]
    process = interruptible.start(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = ""
    while "ready" not in printed and (text := process.stdout.readline()):
        printed += text
    try:
        head = re.search(r"head +head +http://127.0.0.1:(\d+)", printed)
        assert head is not None, printed
        yield head[1]
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=CEILING)
    assert process.returncode == 0, rest


async def asked(url: str, *requests: tuple[str, Any]) -> list[Any]:
    """The replies to requests of one session, as JSON. A request without a body is a GET."""
    headers: dict[str, str] = {}
    replies = []
    async with connect(url, "LUDUS_TOKEN") as client:
        for path, body in requests:
            method = "GET" if body is None else "POST"
            reply = await client.send(method, path, b"" if body is None else json.dumps(body).encode(), headers)
            if cookies := [line.partition(";")[0] for line in reply.all("set-cookie")]:
                headers = {"Cookie": "; ".join(cookies)}
            replies.append(reply.json())
    return replies


def address_of(name: str, port: str) -> str:
    """The URL of a server, as the head at a port lists it."""
    (text,) = asyncio.run(asked(f"http://127.0.0.1:{port}", ("/global_config_dict_yaml", None)))
    kinds = yaml.safe_load(text)[name]
    block = next(iter(next(iter(kinds.values())).values()))
    return f"http://{block['host']}:{block['port']}"


def response(text: str) -> Row:
    """A response of a model."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    fields = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "tools": []}
    return {**fields, "output": [message], "tool_choice": "auto", "parallel_tool_calls": True}


def assert_no_plan_holds_the_key(name: str, *files: str) -> None:
    """Neither a launch of a server's configuration nor its plan holds `KEY`."""
    paths = [f"resources_servers/{name}/configs/{name}.yaml", "responses_api_models/local/configs/local.yaml", *files]
    launch = wire(read_config([f"+config_paths=[{','.join(paths)}]"]))
    assert KEY not in repr(launch)
    assert KEY not in plan_of(launch).model_dump_json()

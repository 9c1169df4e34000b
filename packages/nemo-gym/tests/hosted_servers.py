"""Servers as authors write them for NeMo Gym, as folders of a checkout."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

HEAD = """
import asyncio
import os
import time
from abc import ABC
from pathlib import Path
from typing import Any, Generic, TypeVar

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import call_judge
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
"""

TAIL = """
if __name__ == "__main__":
    Server.run_webserver()
"""

#: Every tool takes a number and a text that it need not read.
PARAMETERS = {"type": "object", "properties": {"count": {"type": "integer"}, "text": {"type": "string"}}}


def tools(*names: str) -> list[dict[str, Any]]:
    """The tools of a row."""
    return [{"type": "function", "name": name, "parameters": PARAMETERS, "strict": False} for name in names]


def row(text: str, *tool_names: str, **fields: Any) -> dict[str, Any]:
    """A row for a server."""
    return {"responses_create_params": {"input": text, "tools": tools(*tool_names)}, **fields}


def write_server(
    root: Path,
    name: str,
    code: str,
    rows: list[dict[str, Any]],
    *,
    settings: dict[str, Any] | None = None,
    agent: str = "simple_agent",
    files: dict[str, str] | None = None,
) -> Path:
    """Write a resources server into a checkout and return its folder."""
    folder = root / "resources_servers" / name
    (folder / "configs").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "app.py").write_text(HEAD + textwrap.dedent(code) + TAIL)
    (folder / "data" / "example.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    block = {"entrypoint": "app.py", "domain": "agent", "description": f"The server {name}.", **(settings or {})}
    datasets = [{"name": "example", "type": "example", "jsonl_fpath": f"resources_servers/{name}/data/example.jsonl"}]
    played = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": name},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "datasets": datasets,
    }
    tree = {
        name: {"resources_servers": {name: block}},
        f"{name}_simple_agent": {"responses_api_agents": {agent: played}},
    }
    (folder / "configs" / f"{name}.yaml").write_text(json.dumps(tree))  # JSON is YAML
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    return folder


#: A counter that only its own session can see.
COUNTER = """
class IncrementRequest(BaseModel):
    count: int


class SeedRequest(BaseSeedSessionRequest):
    initial_count: int


class VerifyRequest(BaseVerifyRequest):
    expected_count: int


class VerifyResponse(BaseVerifyResponse):
    final_count: int


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    counters: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/increment_counter")(self.increment)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        self.counters[request.session[SESSION_ID_KEY]] = body.initial_count
        return BaseSeedSessionResponse()

    async def increment(self, request: Request, body: IncrementRequest) -> dict:
        await asyncio.sleep(0)
        self.counters[request.session[SESSION_ID_KEY]] += body.count
        return {"success": True}

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:
        count = self.counters.pop(request.session[SESSION_ID_KEY])
        return VerifyResponse(**body.model_dump(), reward=float(count == body.expected_count), final_count=count)
"""


def counter_rows(number: int) -> list[dict[str, Any]]:
    """Rows whose counters start at different numbers; the script adds 5 to each."""
    return [
        row(f"Add 5 to {start}.", "increment_counter", initial_count=start, expected_count=start + 5)
        for start in range(number)
    ]


#: A server whose sessions have ids that the caller gives.
TYPED = """
from nemo_gym.base_resources_server import (
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
)


class VerifyRequest(BaseVerifyRequest):
    word: str


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    words: dict[str, str] = Field(default_factory=dict)

    async def seed_session(self, request: Request, body: ResourcesSeedSessionRequest) -> ResourcesSeedSessionResponse:
        request.session["mine"] = body.resources_session_id
        self.words[body.resources_session_id] = body.task_data["word"]
        return ResourcesSeedSessionResponse(resources_session_id=body.resources_session_id)

    async def close_resources_session(self, body: ResourcesCloseSessionRequest) -> ResourcesCloseSessionResponse:
        del self.words[body.resources_session_id]
        (Path(__file__).parent / "closed").touch()
        return ResourcesCloseSessionResponse(resources_session_id=body.resources_session_id)

    async def verify(self, request: Request, body: VerifyRequest) -> BaseVerifyResponse:
        word = self.words[request.session["mine"]]
        return BaseVerifyResponse(**body.model_dump(), reward=float(word == body.word == body.response.output_text))
"""


def write_typed(root: Path) -> Path:
    """Write that server, played through an environment server, and return its folder."""
    folder = write_server(root, "typed_words", TYPED, [row("?", word="yes"), row("?", word="no")])
    file = folder / "configs" / "typed_words.yaml"
    tree = json.loads(file.read_text())
    front = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "typed_words"},
        "agent_server": {"type": "responses_api_agents", "name": "typed_words_simple_agent"},
    }
    del tree["typed_words_simple_agent"]["responses_api_agents"]["simple_agent"]["resources_server"]
    file.write_text(json.dumps({**tree, "typed_turns": {"environment_servers": {"single_agent_turn": front}}}))
    return folder

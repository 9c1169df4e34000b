"""A resources server that judges in a sandbox, as its author writes and tests it."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxResources,
    SandboxSpec,
    resolve_provider_config,
    resolve_provider_metadata,
)
from nemo_gym.sandbox.utils import cpu_cap_env
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from sandboxes import needs

BLOCKS = OmegaConf.create({"box": {"ludus": {"memory_mib": 512}, "default_metadata": {"team": "rl"}}})


class Config(BaseResourcesServerConfig):
    sandbox_provider: str | dict[str, Any] = "box"


class Coder(SimpleResourcesServer):
    """Runs the answer as a program."""

    config: Config

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        provider = resolve_provider_config(self.config.sandbox_provider, BLOCKS)
        spec = SandboxSpec(
            workdir="/testbed",
            files={"answer.py": body.response.output_text},
            env=cpu_cap_env(1),
            resources=SandboxResources(cpu=1),
            metadata=resolve_provider_metadata(self.config.sandbox_provider, BLOCKS),
        )
        async with AsyncSandbox(provider, spec) as sandbox:
            result = await sandbox.exec("python3 answer.py", timeout_s=60)
        return BaseVerifyResponse(**body.model_dump(), reward=float(result.stdout == "42\n"))


def server() -> Coder:
    config = Config(host="127.0.0.1", port=1, entrypoint="app.py", name="coder")
    return Coder(config=config, server_client=MagicMock(spec=ServerClient))


def request(answer: str) -> BaseVerifyRequest:
    text = {"type": "output_text", "text": answer, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    response = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": [message]}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return BaseVerifyRequest.model_validate(
        {"responses_create_params": {"input": "Print 42."}, "response": {**response, **settings}}
    )


@needs("bubblewrap")
async def test_a_verdict_comes_from_a_program_in_a_ludus_sandbox():
    assert (await server().verify(request("import os; print(42 * int(os.environ['OMP_NUM_THREADS']))"))).reward == 1.0
    assert (await server().verify(request("raise SystemExit(3)"))).reward == 0.0

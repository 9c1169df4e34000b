"""Agents as authors write them for NeMo Gym, as folders of a checkout."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

#: The loop that most agents are: seed, ask the model, call tools, verify.
LOOP = """
import json

from fastapi import Body, Request, Response
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import get_response_json, raise_for_status
from pydantic import ConfigDict


class Config(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = 10


class RunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class Agent(SimpleResponsesAPIAgent):
    config: Config

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        added, cookies, model_cookies = [], request.cookies, None
        for _ in range(self.config.max_steps):
            params = body.model_copy(update={"input": body.input + added})
            reply = await self.server_client.post(
                server_name=self.config.model_server.name, url_path="/v1/responses", json=params, cookies=model_cookies
            )
            await raise_for_status(reply)
            model_cookies = reply.cookies
            answer = NeMoGymResponse.model_validate(await get_response_json(reply))
            added.extend(answer.output)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                break
            for call in calls:
                result = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=cookies,
                )
                cookies = result.cookies
                text = (await result.content.read()).decode()
                added.append(
                    NeMoGymFunctionCallOutput(type="function_call_output", call_id=call.call_id, output=text)
                )
        for name, value in (*cookies.items(), *(model_cookies or {}).items()):
            response.set_cookie(name, value)
        answer.output = added
        return answer

    async def run(self, request: Request, body: RunRequest) -> VerifyResponse:
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=request.cookies,
        )
        await raise_for_status(seeded)
        response = await self.server_client.post(
            server_name=self.config.name,
            url_path="/v1/responses",
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        await raise_for_status(response)
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json={**body.model_dump(), "response": await get_response_json(response)},
            cookies=response.cookies,
        )
        await raise_for_status(verified)
        return VerifyResponse.model_validate(await get_response_json(verified))
"""

TAIL = """

if __name__ == "__main__":
    Agent.run_webserver()
"""


def write_agent(root: Path, name: str, code: str = LOOP) -> Path:
    """Write an agent into a checkout and return its folder."""
    folder = root / "responses_api_agents" / name
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(textwrap.dedent(code) + TAIL)
    return folder


def configure_agent(folder: Path, resources: str, tree: dict[str, Any] | None = None, **settings: Any) -> None:
    """Write the configuration of an agent, with the resources server that it plays."""
    block = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": resources},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        **settings,
    }
    played = {f"{resources}_{folder.name}": {"responses_api_agents": {folder.name: block}}}
    (folder / "configs" / f"{folder.name}.yaml").write_text(json.dumps({**(tree or {}), **played}))

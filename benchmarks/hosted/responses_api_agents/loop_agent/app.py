"""The loop that most agents are: seed the session, ask the model, call tools, ask for the verdict."""

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


class LoopConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = 10


class LoopRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class LoopVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class LoopAgent(SimpleResponsesAPIAgent):
    config: LoopConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008  (FastAPI's way)
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        added, cookies, model_cookies = [], request.cookies, None
        for _ in range(self.config.max_steps):
            reply = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path="/v1/responses",
                json=body.model_copy(update={"input": body.input + added}),
                cookies=model_cookies,
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
                added.append(NeMoGymFunctionCallOutput(call_id=call.call_id, output=text))
        for name, value in (*cookies.items(), *(model_cookies or {}).items()):
            response.set_cookie(name, value)
        answer.output = added
        return answer

    async def run(self, request: Request, body: LoopRunRequest) -> LoopVerifyResponse:
        resources = self.config.resources_server.name
        seeded = await self.server_client.post(
            server_name=resources, url_path="/seed_session", json=body.model_dump(), cookies=request.cookies
        )
        await raise_for_status(seeded)
        response = await self.server_client.post(
            server_name=self.config.name,
            url_path="/v1/responses",
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        await raise_for_status(response)
        judged = {**body.model_dump(), "response": await get_response_json(response)}
        verified = await self.server_client.post(
            server_name=resources, url_path="/verify", json=judged, cookies=response.cookies
        )
        await raise_for_status(verified)
        return LoopVerifyResponse.model_validate(await get_response_json(verified))


if __name__ == "__main__":
    LoopAgent.run_webserver()

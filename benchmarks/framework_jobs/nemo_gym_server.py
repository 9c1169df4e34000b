"""The job's resources server for NeMo Gym: the tool, and an exact match of the whole answer."""

from typing import ClassVar

from fastapi import FastAPI
from job import answer, look_up
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel


class LookUp(BaseModel):
    number: int


class VerifyRequest(BaseVerifyRequest):
    number: int


class RepeatServer(SimpleResourcesServer):
    ray_enabled: ClassVar[bool] = False
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look_up")(self.look_up)
        return app

    async def look_up(self, body: LookUp) -> str:
        return look_up(body.number)

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        said = [item for item in body.response.output if item.type == "message"]
        text = said[-1].content[-1].text if said else ""
        return BaseVerifyResponse(**body.model_dump(), reward=float(text == answer(body.number)))


if __name__ == "__main__":
    RepeatServer.run_webserver()

"""A counter for each session; its final value decides the reward."""

from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, Field


class CounterConfig(BaseResourcesServerConfig):
    pass


class CounterSeedRequest(BaseSeedSessionRequest):
    initial_count: int


class IncrementRequest(BaseModel):
    count: int


class IncrementResponse(BaseModel):
    success: bool


class CountResponse(BaseModel):
    count: int


class CounterVerifyRequest(BaseVerifyRequest):
    expected_count: int


class CounterServer(SimpleResourcesServer):
    config: CounterConfig
    counters: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/increment_counter")(self.increment_counter)
        app.post("/get_counter_value")(self.get_counter_value)
        return app

    async def seed_session(self, request: Request, body: CounterSeedRequest) -> BaseSeedSessionResponse:
        self.counters[request.session[SESSION_ID_KEY]] = body.initial_count
        return BaseSeedSessionResponse()

    async def increment_counter(self, request: Request, body: IncrementRequest) -> IncrementResponse:
        self.counters[request.session[SESSION_ID_KEY]] += body.count
        return IncrementResponse(success=True)

    async def get_counter_value(self, request: Request) -> CountResponse:
        return CountResponse(count=self.counters[request.session[SESSION_ID_KEY]])

    async def verify(self, request: Request, body: CounterVerifyRequest) -> BaseVerifyResponse:
        count = self.counters.pop(request.session[SESSION_ID_KEY])
        return BaseVerifyResponse(**body.model_dump(), reward=float(count == body.expected_count))


if __name__ == "__main__":
    CounterServer.run_webserver()

"""Look up a value for each synonym of a word and submit the values in order; the last submission counts."""

import json

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel


class SynonymsConfig(BaseResourcesServerConfig):
    pass


class ValueRequest(BaseModel):
    synonym: str


class ValueResponse(BaseModel):
    synonym_value: int


class SubmitRequest(BaseModel):
    synonym_values: list[int]


class SubmitResponse(BaseModel):
    success: bool


class SynonymsVerifyRequest(BaseVerifyRequest):
    id: int
    expected_synonyms: list[str]
    expected_synonym_values: list[int]
    minefield_label: str
    minefield_label_value: int


class SynonymsVerifyResponse(SynonymsVerifyRequest, BaseVerifyResponse):
    parsed_synonym_values: list[int]
    accuracy: bool
    set_overlap: float


class SynonymsServer(SimpleResourcesServer):
    config: SynonymsConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_synonym_value")(self.get_synonym_value)
        app.post("/extract_synonym_values")(self.extract_synonym_values)
        return app

    async def get_synonym_value(self, body: ValueRequest) -> ValueResponse:
        return ValueResponse(synonym_value=sum(map(ord, body.synonym)))

    async def extract_synonym_values(self, body: SubmitRequest) -> SubmitResponse:
        return SubmitResponse(success=True)

    async def verify(self, body: SynonymsVerifyRequest) -> SynonymsVerifyResponse:
        expected, submitted = body.expected_synonym_values, []
        for item in body.response.output:
            if item.type == "function_call" and item.name == "extract_synonym_values":
                submitted = json.loads(item.arguments)["synonym_values"]
        return SynonymsVerifyResponse(
            **body.model_dump(),
            reward=float(submitted == expected),
            parsed_synonym_values=submitted,
            accuracy=submitted == expected,
            set_overlap=len(set(submitted) & set(expected)) / len(expected),
        )


if __name__ == "__main__":
    SynonymsServer.run_webserver()

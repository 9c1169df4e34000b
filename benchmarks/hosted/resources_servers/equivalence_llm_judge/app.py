"""Open questions: a judge decides whether the answer means the same as the expected one."""

import re
from typing import Any

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import call_judge
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

PROMPT = """Does answer B give the same final answer to the question as answer A, which is right?

Question: {question}

Answer A: {expected}

Answer B: {generated}

End with {equal} if it does, and with {not_equal} if it does not."""


class EquivalenceConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"


class EquivalenceVerifyRequest(BaseVerifyRequest):
    expected_answer: str
    template_metadata: dict[str, Any] | None = None


class EquivalenceVerifyResponse(BaseVerifyResponse):
    expected_answer: str
    judge_evaluations: list[dict[str, Any]]


class EquivalenceServer(SimpleResourcesServer):
    config: EquivalenceConfig

    async def verify(self, body: EquivalenceVerifyRequest) -> EquivalenceVerifyResponse:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        params.input = [NeMoGymEasyInputMessage(role="user", content=self.prompt(body))]
        judged = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=params,
            response_model=NeMoGymResponse,
        )
        equal = self.config.judge_equal_label in judged.output_text
        evaluation = {"responses_create_params": params.model_dump(), "response": judged.model_dump()}
        return EquivalenceVerifyResponse(
            **body.model_dump(exclude={"template_metadata"}), reward=float(equal), judge_evaluations=[evaluation]
        )

    def prompt(self, body: EquivalenceVerifyRequest) -> str:
        answer = body.response.output_text
        pattern = (body.template_metadata or {}).get("output_regex")
        if pattern and (matches := re.findall(pattern, answer, re.MULTILINE | re.DOTALL)):
            answer = matches[-1]
        return PROMPT.format(
            question=body.responses_create_params.input[-1].content,
            expected=body.expected_answer,
            generated=answer,
            equal=self.config.judge_equal_label,
            not_equal=self.config.judge_not_equal_label,
        )


if __name__ == "__main__":
    EquivalenceServer.run_webserver()

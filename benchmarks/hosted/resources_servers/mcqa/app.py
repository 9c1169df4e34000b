"""Multiple choice questions: a pattern finds the letter in the last box."""

import re
from typing import Any

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)

BOXED_LETTER = re.compile(r"\\boxed\{\s*[^A-Za-z]*([A-Z])[^A-Za-z]*\s*\}")


class ChoiceConfig(BaseResourcesServerConfig):
    pass


class ChoiceRunRequest(BaseRunRequest):
    options: list[dict[str, str]] | None = None
    expected_answer: str | None = None
    grading_mode: str = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None


class ChoiceVerifyRequest(ChoiceRunRequest, BaseVerifyRequest):
    pass


class ChoiceVerifyResponse(BaseVerifyResponse):
    expected_answer: str
    extracted_answer: str | None


class ChoiceServer(SimpleResourcesServer):
    config: ChoiceConfig

    async def verify(self, body: ChoiceVerifyRequest) -> ChoiceVerifyResponse:
        letters = {letter.upper() for option in body.options or [] for letter in option}
        expected = (body.expected_answer or "").strip().upper()
        boxed = BOXED_LETTER.findall(body.response.output_text)
        answer = boxed[-1] if boxed and boxed[-1] in letters else None
        verdict = {**body.model_dump(), "expected_answer": expected, "extracted_answer": answer}
        return ChoiceVerifyResponse(**verdict, reward=float(answer == expected))


if __name__ == "__main__":
    ChoiceServer.run_webserver()

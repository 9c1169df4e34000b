"""The assistant's next step in a conversation, compared with the expected step.

The step is the model's calls, or its message if it makes no call. No tool is run: a rollout is one answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

import ludus
from ludus import Resources, ResourcesConfig, Response, Verdict
from ludus.environments.single_step_tool_use_with_argument_comparison.matching import Call, ComparatorConfig, score
from ludus.response import Item, is_message
from ludus.runtime.threads import in_thread


class ExpectedMessage(BaseModel):
    """The assistant should write a message; its content is not compared."""

    type: Literal["message"]
    content: str


class ExpectedCall(BaseModel):
    """The assistant should call this tool with these arguments."""

    type: Literal["function_call"]
    name: str
    arguments: str


class ExpectedBatch(BaseModel):
    """The assistant should make all of these calls at once."""

    type: Literal["function_call_batch"]
    calls: list[ExpectedCall]

    @field_validator("calls")
    @classmethod
    def _check_not_empty(cls, calls: list[ExpectedCall], info: ValidationInfo) -> list[ExpectedCall]:
        if not calls and not (info.context or {}).get("compat"):
            raise ValueError("a batch must hold at least one call")
        return calls


class SingleStepToolUse(Resources):
    """No tools that run and no state: the verifier compares the step."""

    class Task(ludus.Task):
        expected_action: Annotated[ExpectedMessage | ExpectedCall | ExpectedBatch, Field(discriminator="type")]

    class Config(ResourcesConfig):
        """Settings of the verifier."""

        #: how arguments are compared: an object with the settings of the environment's README
        tool_call_comparator_config: ComparatorConfig = ComparatorConfig()

    config: Config

    async def verify(self, task: Task, response: Response) -> Verdict:
        return await in_thread(self._verdict, task, response)  # type: ignore[no-any-return]

    def _verdict(self, task: Task, response: Response) -> Verdict:
        calls = [Call.of(item.get("name"), item.get("arguments")) for item in response.function_calls]
        expected = task.expected_action
        if not calls and not _has_message(response, self.config.compat):
            return Verdict(0.0, reason="nothing")
        if isinstance(expected, ExpectedMessage):
            return Verdict(0.0, reason="unexpected_call") if calls else Verdict(1.0, reason="message")
        if not calls:
            return Verdict(0.0, reason="unexpected_message")
        return self._compare(expected, calls)

    def _compare(self, expected: ExpectedCall | ExpectedBatch, calls: list[Call]) -> Verdict:
        batch = expected.calls if isinstance(expected, ExpectedBatch) else [expected]
        expected_calls = [Call.of(call.name, call.arguments) for call in batch]
        compat = self.config.compat
        solvable = compat or all(call.readable for call in expected_calls)
        result = score(expected_calls, calls, self.config.tool_call_comparator_config, compat)
        mask = None if solvable else "the expected arguments are not JSON"
        return Verdict(result.reward, mask=mask, reason=result.mismatch or "match")


def _has_message(response: Response, compat: bool) -> bool:
    """Whether the assistant wrote a message. A blank message counts only with `compat`."""
    if not compat:
        return bool(response.output_text.strip())
    return any(is_message(item) and _has_text(item) for item in response.output)


def _has_text(item: Item) -> bool:
    content = item.get("content")
    if isinstance(content, str):
        return True
    return any(isinstance(part, dict) and part.get("type") == "output_text" for part in content or ())

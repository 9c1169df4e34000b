"""vLLM, SGLang and compatible servers: Chat Completions with token ids, template arguments and exact prefixes.

These servers apply the chat template. For training, the requests ask for prompt ids and generated ids. With `prefix`,
each request also sends the ids of the rollout so far, so that the next prompt continues them exactly.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from ludus.errors import Failure
from ludus.model import Request
from ludus.models.openai import OpenAIModel

_ASK_FOR_TOKENS = {
    "logprobs": True,
    "top_logprobs": 0,
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
}


class VllmModel(OpenAIModel):
    """`vllm:URL#NAME` or `sglang:URL#NAME`.

    The `metadata` of a row may hold `extra_body` and `chat_template_kwargs` for its request, as JSON text.
    """

    class Config(OpenAIModel.Config):
        """`prefix: field` sends the ids so far as `required_prefix_token_ids`; `message` puts them on the last turn."""

        api: Literal["auto", "responses", "chat"] = "chat"
        #: arguments of the chat template, such as `{enable_thinking: false}`
        chat_template_kwargs: dict[str, Any] = {}
        prefix: Literal["off", "field", "message"] = "off"

    config: Config

    def _chat_body(self, request: Request) -> dict[str, Any]:
        metadata = request.params.get("metadata") or {}
        body = {**super()._chat_body(request), **_object(metadata, "extra_body")}
        body.pop("metadata", None)
        template = {**self.config.chat_template_kwargs, **_object(metadata, "chat_template_kwargs")}
        if template:
            body["chat_template_kwargs"] = template
        if self.capture_tokens:
            body |= _ASK_FOR_TOKENS
        if request.tokens is not None:
            self._send_prefix(body, request)
        return body

    def _send_prefix(self, body: dict[str, Any], request: Request) -> None:
        tokens = request.tokens
        assert tokens is not None
        if self.config.prefix == "field":
            body["required_prefix_token_ids"] = [*tokens.prompt_ids, *tokens.generated_ids]
        elif self.config.prefix == "message":
            for message in reversed(body["messages"]):
                if message["role"] == "assistant":
                    message["prompt_token_ids"] = list(tokens.prompt_ids)
                    message["generation_token_ids"] = tokens.generated_ids
                    message["generation_log_probs"] = tokens.logprobs
                    return


def _object(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    """A JSON object in the metadata of a row. It is JSON text there, because metadata values must be texts."""
    value = metadata.get(key)
    if value is None:
        return {}
    try:
        parsed = orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError as error:
        raise Failure("bad_request", f"metadata.{key} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Failure("bad_request", f"metadata.{key} is not an object: {str(value)[:100]}")
    return parsed

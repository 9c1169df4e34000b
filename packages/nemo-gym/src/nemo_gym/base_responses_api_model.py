"""The base class of model servers: one model in the Responses, Chat Completions and Anthropic Messages dialects.

A subclass defines `responses` and `chat_completions`. Messages are converted to `responses` and back. A stream is the
finished answer as events. With `observability_enabled`, the calls of a rollout are captured.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ludus.dialects.messages import answer_to_messages, request_from_messages
from ludus.errors import Failure
from nemo_gym._handlers import with_request_type
from nemo_gym._model_calls import (
    CaptureStore,
    ModelCallCaptureConfig,
    ModelCallRecord,
    aggregate_model_call_metrics,
    merge_model_call_capture_into_record,
    observability_enabled_from_config,
    read_model_call_records,
)
from nemo_gym._model_capture import _CaptureMiddleware, install_model_call_capture
from nemo_gym._model_streams import StreamedAnswers, json_object
from nemo_gym._simple_server import BaseServer, SimpleServer, fastapi
from nemo_gym.config_types import BaseRunServerInstanceConfig
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_correlation import RolloutContextMiddleware

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

__all__ = [
    "BaseResponsesAPIModel",
    "BaseResponsesAPIModelConfig",
    "CaptureStore",
    "ModelCallCaptureConfig",
    "ModelCallRecord",
    "SimpleResponsesAPIModel",
    "_CaptureMiddleware",
    "aggregate_model_call_metrics",
    "install_model_call_capture",
    "merge_model_call_capture_into_record",
    "observability_enabled_from_config",
    "read_model_call_records",
]


def __getattr__(name: str) -> Any:
    if name == "Body":  # FastAPI's, which model servers import from here
        return fastapi().Body
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """The settings of a model server."""


class BaseResponsesAPIModel(BaseServer):
    """A server of one model."""

    config: BaseResponsesAPIModelConfig


class SimpleResponsesAPIModel(BaseResponsesAPIModel, SimpleServer):
    """The base class of model servers. Subclasses define `chat_completions` and `responses`."""

    config: BaseResponsesAPIModelConfig

    @abstractmethod
    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """Answer a request of Chat Completions."""

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Answer a request of the Responses API."""

    def setup_webserver(self) -> FastAPI:
        """The application with the routes of every model server, and a session for every request."""
        app: FastAPI = fastapi().FastAPI()
        tree = getattr(self.server_client, "global_config_dict", None)
        install_model_call_capture(app, tree, server_name=self.config.name)
        streamed: Any = StreamedAnswers
        app.add_middleware(streamed)
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        app.post("/v1/chat/completions")(self.chat_completions)
        app.post("/v1/responses")(self.responses)
        app.post("/v1/messages")(with_request_type(self.messages))
        return app

    async def messages(self, request: Request, response: Response) -> Any:
        """Answer a request of Anthropic Messages with `responses`."""
        from starlette.responses import JSONResponse

        try:
            params = request_from_messages(json_object(await request.body()))
            known = {key: value for key, value in params.items() if key in _CREATE_PARAMS}
            body = NeMoGymResponseCreateParamsNonStreaming.model_validate(known)
        except (Failure, ValidationError) as error:
            refused = {"type": "invalid_request_error", "message": str(error)[:2000]}
            return JSONResponse({"type": "error", "error": refused}, status_code=400)
        wanted = inspect.signature(self.responses).parameters
        offered: dict[str, Any] = {"request": request, "response": response, "body": body}
        answer: Any = await self.responses(**{name: value for name, value in offered.items() if name in wanted})
        answered = answer if isinstance(answer, dict) else answer.model_dump(mode="json")
        return answer_to_messages(answered)


_CREATE_PARAMS = frozenset(NeMoGymResponseCreateParamsNonStreaming.model_fields) - {"stream", "stream_options"}

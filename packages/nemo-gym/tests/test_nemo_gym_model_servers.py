"""Model servers as authors write them for NeMo Gym: three dialects, streams, and captured calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import orjson
import pytest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from joined_messages import MessagesStream
from nemo_gym import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
from nemo_gym.base_responses_api_model import (
    Body,
    CaptureStore,
    ModelCallCaptureConfig,
    ModelCallRecord,
    aggregate_model_call_metrics,
    install_model_call_capture,
    merge_model_call_capture_into_record,
    observability_enabled_from_config,
    read_model_call_records,
)
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from omegaconf import OmegaConf
from test_nemo_gym_servers import ANSWER

from ludus.dialects.chat_stream import ChatStream
from ludus.dialects.responses_stream import ResponsesStream
from ludus.dialects.sse import EventParser, values

USAGE = {
    "input_tokens": 7,
    "output_tokens": 2,
    "total_tokens": 9,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
COMPLETION = {
    "id": "chat_1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}
PROMPT = {"input": "say done"}
MESSAGES = {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "say done"}]}
CHAT = {"messages": [{"role": "user", "content": "say done"}]}


class EchoModel(SimpleResponsesAPIModel):
    """Answers `done`, and remembers what it was asked."""

    config: BaseResponsesAPIModelConfig
    asked: list[Any] = []

    async def chat_completions(
        self,
        body: NeMoGymChatCompletionCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymChatCompletion:
        self.asked.append(body)
        return NeMoGymChatCompletion.model_validate(COMPLETION)

    async def responses(
        self,
        request: Request,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        assert request.session[SESSION_ID_KEY]
        self.asked.append((current_rollout_id(), body))
        if body.input == "fail":
            raise HTTPException(503, "the model is loading")
        return NeMoGymResponse.model_validate({**ANSWER, "usage": USAGE})


def model(**tree: Any) -> EchoModel:
    config = BaseResponsesAPIModelConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="policy")
    mock = MagicMock(spec=ServerClient)
    client = ServerClient.model_construct(global_config_dict=OmegaConf.create(tree)) if tree else mock
    return EchoModel(config=config, server_client=client)


def post(app: FastAPI, path: str, body: dict[str, Any], **headers: str) -> Any:
    return TestClient(app, headers=headers).post(path, json=body)


def events(reply: Any) -> list[Any]:
    assert reply.headers["content-type"].startswith("text/event-stream")
    decoder = EventParser()
    return list(values([*decoder.feed(reply.content), *decoder.finish()]))


def test_a_model_answers_in_three_dialects():
    echo = model()
    app = echo.setup_webserver()
    assert post(app, "/v1/responses", PROMPT).json()["output"][0]["content"][0]["text"] == "done"
    assert post(app, "/v1/chat/completions", CHAT).json()["choices"][0]["message"]["content"] == "done"
    message = post(app, "/v1/messages", {**MESSAGES, "system": "Be brief.", "stop_sequences": ["x"], "top_k": 1}).json()
    assert (message["type"], message["content"], message["stop_reason"]) == (
        "message",
        [{"type": "text", "text": "done"}],
        "end_turn",
    )
    asked = echo.asked[-1][1]
    assert (asked.instructions, asked.max_output_tokens) == ("Be brief.", 20)
    assert post(app, "/v1/messages", {"messages": 3}).json()["error"]["type"] == "invalid_request_error"


def test_a_stream_is_the_finished_answer_as_events():
    echo = model()
    app = echo.setup_webserver()
    whole = ResponsesStream()
    for event in events(post(app, "/v1/responses", {**PROMPT, "stream": True})):
        whole.add(event)
    assert whole.result()["output"][0]["content"][0]["text"] == "done"
    chat = ChatStream()
    asked = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    for event in events(post(app, "/v1/chat/completions", asked)):
        chat.add(event)
    assert chat.result()["choices"][0]["message"]["content"] == "done"
    assert chat.result()["usage"]["total_tokens"] == 9
    messages = MessagesStream()
    for event in events(post(app, "/v1/messages", {**MESSAGES, "stream": True})):
        messages.add(event)
    assert messages.result()["content"] == [{"type": "text", "text": "done"}]
    assert echo.asked[0][1].stream is None


def test_a_failed_stream_keeps_the_status_of_the_error():
    reply = post(model().setup_webserver(), "/v1/responses", {"input": "fail", "stream": True})
    assert (reply.status_code, reply.json()) == (503, {"detail": "the model is loading"})
    assert post(model().setup_webserver(), "/v1/responses", {"stream": True}).status_code == 422


def test_paths_of_a_rollout_reach_the_same_routes_and_nothing_is_captured_by_default(tmp_path: Path):
    echo = model(results_dir=str(tmp_path))
    app = echo.setup_webserver()
    for path in ("/ng-rollout/7-1/v1/responses", "/ng-rollout/7-1/training-token-capture/v1/responses"):
        assert post(app, path, PROMPT).status_code == 200
    assert [rollout for rollout, _ in echo.asked] == ["7-1", "7-1"]
    assert list(tmp_path.iterdir()) == []


def test_the_calls_of_a_rollout_are_captured_in_every_dialect(tmp_path: Path):
    app = model(observability_enabled=True, results_dir=str(tmp_path)).setup_webserver()
    start = "/ng-rollout/7-1"
    post(app, f"{start}/v1/responses", {**PROMPT, "stream": True}, **{"x-session-id": "root"})
    post(app, f"{start}/v1/chat/completions", CHAT)
    post(app, f"{start}/training-token-capture/v1/messages", MESSAGES)
    post(app, f"{start}/v1/responses", {"input": "fail"})
    post(app, "/v1/responses", PROMPT)
    calls = read_model_call_records(tmp_path / "model_calls", "7-1")
    assert [call.dialect for call in calls] == ["responses", "chat_completions", "messages", "responses"]
    assert [call.status_code for call in calls] == [200, 200, 200, 503]
    assert (calls[0].client_session_id, calls[0].response_id) == ("root", "resp_1")
    assert calls[0].request == PROMPT
    assert calls[0].model_ref is not None
    assert calls[0].model_ref.name == "policy"
    record = merge_model_call_capture_into_record({"reward": 1.0}, tmp_path / "model_calls", "7-1")
    capture = record["ng_model_call_capture"]
    assert (capture["rollout_id"], len(capture["calls"]), capture["gaps"]) == ("7-1", 4, [])
    assert capture["metrics"]["num_model_calls"] == 4
    assert capture["metrics"]["num_failed_model_calls"] == 1
    assert (capture["metrics"]["input_tokens"], capture["metrics"]["output_tokens"]) == (21, 6)


def test_a_rollout_without_captured_calls_has_a_gap(tmp_path: Path):
    capture = merge_model_call_capture_into_record({}, CaptureStore(tmp_path), "7-2")["ng_model_call_capture"]
    assert (capture["calls"], capture["gaps"]) == ([], [{"code": "model_calls_missing"}])
    assert aggregate_model_call_metrics([])["num_model_calls"] == 0


def test_a_record_finds_its_captured_calls_by_its_own_id_and_arguments_have_any_order(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append(ModelCallRecord(rollout_id="7-2", model_call_id="c"))
    own = {"_ng_task_index": 7, "_ng_rollout_index": 2}
    for arguments in ((own, store), (store, "7-2", {}), ("7-2", {}, tmp_path), ({}, "7-2", str(tmp_path))):
        capture = merge_model_call_capture_into_record(*arguments)["ng_model_call_capture"]
        assert (capture["rollout_id"], [call["model_call_id"] for call in capture["calls"]]) == ("7-2", ["c"])
    with pytest.raises(TypeError, match="a capture needs the record"):
        merge_model_call_capture_into_record(store, "7-2")


def test_an_application_of_an_author_can_capture_calls_too(tmp_path: Path):
    app = FastAPI()

    @app.post("/v1/responses")
    async def respond(body: dict[str, Any]) -> Any:
        return ANSWER

    assert install_model_call_capture(app, ModelCallCaptureConfig(enabled=False)) is None
    store = install_model_call_capture(app, ModelCallCaptureConfig(enabled=True, capture_dir=tmp_path))
    assert store is not None
    assert post(app, "/ng-rollout/1-1/v1/responses", PROMPT).status_code == 200
    assert [call.response["id"] for call in store.read("1-1")] == ["resp_1"]


def test_a_store_keeps_whole_lines_and_plain_names_only(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append(ModelCallRecord(rollout_id="1-1", response={"usage": {"prompt_tokens": 3}}, note="kept"))
    store.append(ModelCallRecord())
    with store.path_for("1-1").open("ab") as file:
        file.write(orjson.dumps({"rollout_id": "1-1"})[:9])
    (call,) = store.read("1-1")
    assert (call.model_extra, store.rollout_ids()) == ({"note": "kept"}, ["1-1"])
    assert [each.model_call_id for each in read_model_call_records(store)] == [call.model_call_id]
    for bad in ("../etc", "a/b", "", "x" * 201):
        with pytest.raises(ValueError, match="rollout id"):
            store.path_for(bad)


def test_observability_is_off_without_a_configuration():
    assert observability_enabled_from_config(OmegaConf.create({"observability_enabled": True}))
    for config in (None, {}, {"observability_enabled": False}, MagicMock()):
        assert not observability_enabled_from_config(config)


def test_a_run_names_the_folder_of_captured_calls_or_keeps_them_below_its_results(tmp_path):
    named = ModelCallCaptureConfig.from_config({"observability_enabled": True, "model_call_capture_dir": str(tmp_path)})
    assert (named.enabled, named.capture_dir) == (True, tmp_path)
    unnamed = ModelCallCaptureConfig.from_config(OmegaConf.create({"results_dir": str(tmp_path)}))
    assert (unnamed.enabled, unnamed.capture_dir) == (False, tmp_path / "model_calls")

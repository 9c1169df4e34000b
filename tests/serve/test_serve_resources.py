"""A resources server: sessions, tools and verdicts over HTTP, in the format of NeMo Gym's clients."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of
from waiting import until

from ludus import Environment
from ludus.http.listening import bind
from ludus.serve import sessions
from ludus.serve.serving import Serving

NOTHING_SAID = {"output": []}


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with served(COUNTER, "example_single_tool_call", "mcqa", "blackjack", resources_only=True) as running:
        yield running


@pytest.fixture
def counter(serving: Serving) -> Web:
    return Web(url_of(serving, COUNTER))


def test_a_cookie_names_the_session_for_gym_clients(counter: Web):
    assert counter.post("/seed_session", COUNTER_ROW).json() == {}
    assert counter.cookies[f"Counter___{COUNTER}"]
    assert counter.post("/increment_counter", {"count": 2}).json() == {"success": True}
    assert counter.post("/get_counter_value", {}).json() == {"count": 3}
    judged = counter.post("/verify", {**COUNTER_ROW, "expected_count": 3, "response": NOTHING_SAID}).json()
    assert judged["reward"] == 1.0
    assert judged["responses_create_params"] == COUNTER_ROW["responses_create_params"]
    assert judged["response"] == NOTHING_SAID


def test_a_header_names_the_session_for_our_clients(serving: Serving):
    web = Web(url_of(serving, COUNTER), cookies=False)
    name = web.post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]
    assert web.post("/get_counter_value", {}, headers={"x-ludus-session": name}).json() == {"count": 1}


def test_channels_are_announced_to_our_clients_only(serving: Serving):
    ours, others = ({"x-ludus-seed": "1"}, {})
    assert Web(url_of(serving, COUNTER)).post("/seed_session", COUNTER_ROW, ours).headers["x-ludus-channels"] == "1"
    assert "x-ludus-channels" not in Web(url_of(serving, COUNTER)).post("/seed_session", COUNTER_ROW, others).headers


def test_two_sessions_have_separate_state(serving: Serving):
    one, two = Web(url_of(serving, COUNTER)), Web(url_of(serving, COUNTER))
    for web in (one, two):
        web.post("/seed_session", COUNTER_ROW)
    one.post("/increment_counter", {"count": 40})
    assert two.post("/get_counter_value", {}).json() == {"count": 1}


def test_seeding_again_resets_the_session(counter: Web):
    counter.post("/seed_session", COUNTER_ROW)
    counter.post("/increment_counter", {"count": 5})
    counter.post("/seed_session", COUNTER_ROW)
    assert counter.post("/get_counter_value", {}).json() == {"count": 1}


def test_a_closed_session_is_gone(counter: Web):
    counter.post("/seed_session", COUNTER_ROW)
    assert counter.post("/close_session", {}).json() == {"closed": True}
    assert counter.post("/close_session", {}).json() == {"closed": False}
    late = counter.post("/get_counter_value", {})
    assert late.status == 410
    assert late.json()["kind"] == "session_lost"


@pytest.mark.parametrize("name", ["verify", "seed_session", "close", "open", "_private", "..", "health", "toolbox"])
def test_only_tools_can_be_called(counter: Web, name: str):
    counter.post("/seed_session", COUNTER_ROW)
    called = counter.post(f"/{name}", {"count": 1})
    assert called.status in (404, 405, 422, 410)
    assert "reward" not in called.text


def test_wrong_tool_arguments_get_the_same_error_as_in_process(counter: Web):
    counter.post("/seed_session", COUNTER_ROW)
    wrong = counter.post("/increment_counter", {"count": "many"})
    assert wrong.status == 422
    assert wrong.json()["detail"][0]["loc"] == ["body", "count"]
    torn = counter.post("/increment_counter", b'{"count": ')
    assert "Invalid tool call arguments" in torn.json()["error"]


def test_a_tool_needs_a_session_only_if_the_environment_has_an_open(serving: Serving):
    weather = Web(url_of(serving, "example_single_tool_call"))
    assert weather.post("/get_weather", {"city": "Oslo"}).json()["city"] == "Oslo"
    lonely = Web(url_of(serving, COUNTER)).post("/increment_counter", {"count": 1})
    assert (lonely.status, "seed_session" in lonely.text) == (400, True)


def test_verify_of_a_text_answer_needs_no_session(serving: Serving):
    """Unsloth's and TRL's notebooks send this request."""
    answer = {"type": "output_text", "text": "The answer is \\boxed{B}", "annotations": []}
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [
            {"id": "m", "role": "assistant", "type": "message", "status": "completed", "content": [answer]},
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "Which? A: x B: y"}]},
        "options": [{"A": "x"}, {"B": "y"}],
        "expected_answer": "B",
    }
    web = Web(url_of(serving, "mcqa"))
    assert web.get("/").json() == {"status": "ok"}
    assert web.post("/verify", {**row, "response": response}).json()["reward"] == 1.0
    wrong = {**row, "expected_answer": "A", "response": response}
    assert web.post("/verify", wrong).json()["reward"] == 0.0


def test_verify_without_a_session_runs_the_recorded_calls_again(serving: Serving):
    call = {"type": "function_call", "call_id": "c", "name": "increment_counter", "arguments": '{"count": 3}'}
    output = [call, {"type": "function_call_output", "call_id": "c", "output": '{"success":true}'}]
    body = {**COUNTER_ROW, "response": {"output": output}}
    assert Web(url_of(serving, COUNTER)).post("/verify", body).json()["reward"] == 1.0


def test_a_bad_row_or_response_is_refused_with_the_field(counter: Web):
    missing = counter.post("/seed_session", {"responses_create_params": {"input": "hi"}})
    assert missing.status == 422
    assert ["body", "initial_count"] in [each["loc"] for each in missing.json()["detail"]]
    assert counter.post("/verify", {**COUNTER_ROW, "response": {"output": [3]}}).status == 422
    assert counter.post("/seed_session", b"no json").status == 400
    assert counter.post("/seed_session", b"[1]").status == 422


def test_a_game_is_played_over_reset_and_step(serving: Serving):
    web = Web(url_of(serving, "blackjack"))
    row: dict[str, Any] = {"responses_create_params": {"input": "Play blackjack."}}
    assert "observation" in web.post("/reset", row).json()
    stand = {"output": [{"role": "assistant", "type": "message", "content": "<action>stand</action>"}]}
    step = web.post("/step", {**row, "response": stand}).json()
    assert step["terminated"] is True
    assert step["reward"] in (-1.0, 0.0, 1.0)


def test_verify_of_a_hand_that_was_dealt_elsewhere_is_refused(serving: Serving):
    web = Web(url_of(serving, "blackjack"))
    stand = {"output": [{"role": "assistant", "type": "message", "content": "<action>stand</action>"}]}
    opening = {"role": "user", "content": "Your hand: [10, 9] = 19\nDealer shows: 2"}
    row: dict[str, Any] = {"responses_create_params": {"input": [opening]}, "response": stand}
    found = web.post("/verify", row)
    assert (found.status, found.json()["kind"]) == (422, "drift")
    assert web.post("/verify", {**row, "deck": ["10", "9", "10", "7"]}).json()["reward"] == 1.0


def test_game_requests_out_of_turn_are_4xx(serving: Serving):
    web = Web(url_of(serving, "blackjack"))
    row: dict[str, Any] = {"responses_create_params": {"input": "Play blackjack."}}
    stand = {"output": [{"role": "assistant", "type": "message", "content": "<action>stand</action>"}]}
    assert web.post("/reset", {}).status == 422
    assert web.post("/reset", row).status == 200
    assert web.post("/step", {**row, "response": stand}).status == 200
    again = web.post("/step", {**row, "response": stand})
    assert (again.status, again.json()["kind"]) == (409, "out_of_turn")
    assert Web(url_of(serving, "blackjack")).post("/verify", {**row, "response": NOTHING_SAID}).status == 422


def test_nagles_delay_is_off_on_server_sockets():
    with contextlib.closing(bind("a server", "127.0.0.1", 0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # asyncio sets TCP_NODELAY only if the protocol is named


def test_openapi_describes_the_arguments_of_tools(counter: Web):
    document = counter.get("/openapi.json").json()
    schema = document["paths"]["/increment_counter"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["count"]["type"] == "integer"
    assert schema["required"] == ["count"]


def test_aggregate_metrics_have_gyms_format(counter: Web):
    rows = [{"_ng_task_index": n // 2, "_ng_rollout_index": n % 2, "reward": float(n % 2)} for n in range(4)]
    found = counter.post("/aggregate_metrics", {"verify_responses": rows}).json()
    assert found["agent_metrics"]["mean/reward"] == 0.5
    assert found["key_metrics"] == {"mean/reward": 0.5}
    assert [group["max/reward"] for group in found["group_level_metrics"]] == [1.0, 1.0]
    assert counter.post("/aggregate_metrics", {"verify_responses": 3}).status == 422
    assert counter.get("/reverify_mode").json() == "stateless"


def test_routes_work_behind_the_rollout_prefix(counter: Web):
    assert counter.post("/ng-rollout/7-0/seed_session", COUNTER_ROW).status == 200
    assert counter.post("/ng-rollout/7-0/get_counter_value", {}).json() == {"count": 1}
    assert counter.post("/ng-rollout/", {}).status == 404


def test_metrics_count_requests_and_sessions(counter: Web):
    counter.post("/seed_session", COUNTER_ROW)
    metrics = counter.get("/metrics").text
    assert 'ludus_requests_total{route="/seed_session",status="200"}' in metrics
    assert "ludus_sessions_open " in metrics


def test_sessions_are_limited_and_expire(monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    with served(COUNTER, resources_only=True, max_sessions=2, idle_seconds=0.4) as serving:
        url = url_of(serving, COUNTER)
        first, second, third = Web(url), Web(url), Web(url)
        assert first.post("/seed_session", COUNTER_ROW).status == 200
        assert second.post("/seed_session", COUNTER_ROW).status == 200
        full = third.post("/seed_session", COUNTER_ROW)
        assert (full.status, full.headers["retry-after"]) == (429, "1")
        now += 0.5
        until(lambda: third.post("/seed_session", COUNTER_ROW).status == 200)
        assert "sessions_expired_total" in third.get("/metrics").text


def test_null_entries_that_a_dataset_library_added_are_ignored():
    row = json.loads(Environment.load("calendar").dataset().read_text().splitlines()[0])
    filled = {**row, "exp_cal_state": {**row["exp_cal_state"], "77": None}}
    with served("calendar", resources_only=True) as running:
        web = Web(url_of(running, "calendar"))
        assert web.post("/verify", {**filled, "response": NOTHING_SAID}).json()["reward"] == 0.0
        assert web.post("/verify", {**row, "exp_cal_state": None, "response": NOTHING_SAID}).status == 422

"""Play: a rollout played from the page, as the model and as the user of a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import waiting
from playable import write_trouble
from viewing import Visitor, viewing

COUNTER = "example_session_state_mgmt"


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    folder = tmp_path_factory.mktemp("runs")
    script = folder / "script.yaml"
    script.write_text("- Hello, I am the model.\n")
    offered = [COUNTER, write_trouble(folder / "trouble")]
    with viewing(folder, play=offered, play_model=f"scripted:{script}") as viewer:
        yield Visitor(viewer)


def post(visitor: Visitor, path: str, **body: Any) -> Any:
    import json

    status, _, found = visitor.send("POST", f"/api/play/{path}", body)
    assert status == 200, found
    return json.loads(found)


def until_state(visitor: Visitor, table: str, state: str) -> Any:
    waiting.until(lambda: post(visitor, "look", table=table)["state"] in (state, "ended"))
    found = post(visitor, "look", table=table)
    assert found["state"] == state, found
    return found


def test_a_person_plays_the_model_calls_a_tool_and_gets_the_verdict(visitor: Visitor):
    table = post(visitor, "start", environment=COUNTER, row=2)["table"]
    found = until_state(visitor, table, "yours")
    assert any("increment_counter" in tool for tool in found["tools"])
    post(visitor, "say", table=table, line="increment_counter count=3")
    found = until_state(visitor, table, "yours")
    assert [entry["item"]["output"] for entry in found["entries"] if "output" in entry.get("item", {})]
    post(visitor, "say", table=table, line="Done.")
    found = until_state(visitor, table, "ended")
    assert found["result"]["outcome"] == "completed"
    assert found["result"]["reward"] in (0.0, 1.0)


def test_a_person_talks_to_the_model_and_asks_for_the_verdict(visitor: Visitor):
    table = post(visitor, "start", environment=COUNTER, row=1, **{"as": "user"})["table"]
    found = until_state(visitor, table, "yours")
    assert "Hello, I am the model." in str(found["entries"])
    post(visitor, "say", table=table, line="Go on")
    assert str(until_state(visitor, table, "yours")["entries"]).count("Hello, I am the model.") == 2
    post(visitor, "verdict", table=table)
    assert until_state(visitor, table, "ended")["result"]["reward"] is not None


def test_only_offered_environments_are_played_and_only_in_turn(visitor: Visitor, tmp_path: Path):
    assert visitor.send("POST", "/api/play/start", {"environment": "mcqa"})[0] == 403
    assert visitor.send("POST", "/api/play/start", {"environment": str(tmp_path)})[0] == 403
    assert visitor.send("POST", "/api/play/start", {"environment": COUNTER, "row": 0})[0] == 422
    status, _, body = visitor.send("POST", "/api/play/start", {"environment": COUNTER, "row": 999})
    assert status == 400
    assert "has no row 999. Choose a row from 1 to" in str(body)
    assert "--" not in str(body)
    assert visitor.send("POST", "/api/play/say", {"table": "none", "line": "x"})[0] == 404
    table = post(visitor, "start", environment=COUNTER, row=1)["table"]
    until_state(visitor, table, "yours")
    post(visitor, "leave", table=table)
    found = until_state(visitor, table, "ended")
    assert "without a verdict" in found["problem"]
    assert visitor.send("POST", "/api/play/say", {"table": table, "line": "x"})[0] == 409


def test_a_command_is_answered_and_is_no_turn(visitor: Visitor):
    table = post(visitor, "start", environment=COUNTER)["table"]
    for line, answer in (
        ("/help", "end the rollout and see the verdict"),
        ("/tools", "increment_counter(count) Add to the counter."),
        ("/hlep me", "unknown command /hlep: /help lists commands"),
        ("/call", "/call needs a tool"),
        ("increment_conter count=3", "there is no tool increment_conter: did you mean increment_counter?"),
    ):
        until_state(visitor, table, "yours")
        post(visitor, "say", table=table, line=line)
        found = until_state(visitor, table, "yours")
        assert any(answer in entry.get("said", "") for entry in found["entries"]), found
        assert not any(entry.get("typed") for entry in found["entries"])
    post(visitor, "say", table=table, line="/verify")
    assert until_state(visitor, table, "ended")["result"]["stop_reason"] == "ended_by_hand"
    table = post(visitor, "start", environment=COUNTER)["table"]
    until_state(visitor, table, "yours")
    post(visitor, "say", table=table, line="/quit")
    assert "without a verdict" in until_state(visitor, table, "ended")["problem"]


def test_a_tool_that_raises_and_arguments_that_are_no_json_are_shown_and_the_rollout_goes_on(visitor: Visitor):
    trouble = visitor.ask("play")["environments"][1]
    table = post(visitor, "start", environment=trouble)["table"]
    for line, error in (
        ("fail why=me", "ValueError: cannot do that: me"),
        ('fail {"why": ', "Invalid JSON"),
        ("/call nothing {}", "Not Found"),
    ):
        until_state(visitor, table, "yours")
        post(visitor, "say", table=table, line=line)
        call, output = (entry["item"] for entry in until_state(visitor, table, "yours")["entries"][-2:])
        assert (call["type"], call["call_id"]) == ("function_call", output["call_id"])
        assert error in output["output"]
    post(visitor, "say", table=table, line="/say fail why=you")
    found = until_state(visitor, table, "ended")
    assert found["entries"][-1]["item"]["content"] == "fail why=you"
    assert found["result"]["reward"] == 1.0


def test_a_session_that_does_not_open_is_a_failure_without_a_reward(visitor: Visitor):
    trouble = visitor.ask("play")["environments"][1]
    table = post(visitor, "start", environment=trouble, row=2)["table"]
    result = until_state(visitor, table, "ended")["result"]
    assert (result["outcome"], result["stage"]) == ("failed", "open")
    assert "the machine is on fire" in result["cause"]
    assert "reward" not in result


def test_a_rollout_whose_page_was_closed_ends_and_can_still_be_looked_at(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
):
    room = visitor.viewer.app.play
    assert room is not None
    with monkeypatch.context() as patched:
        patched.setattr("ludus.view.play.LEFT_AFTER", 0.1)
        left = post(visitor, "start", environment=COUNTER)["table"]
        waiting.until(lambda: room.table(left).state == "ended")
    table = post(visitor, "start", environment=COUNTER)["table"]
    assert "the session is closed" in post(visitor, "look", table=left)["problem"]
    post(visitor, "leave", table=table)
    until_state(visitor, table, "ended")

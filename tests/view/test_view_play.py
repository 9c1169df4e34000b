"""Play: a rollout played from the page, as the model and as the user of a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import waiting
from viewing import Visitor, viewing

COUNTER = "example_session_state_mgmt"


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    folder = tmp_path_factory.mktemp("runs")
    script = folder / "script.yaml"
    script.write_text("- Hello, I am the model.\n")
    with viewing(folder, play=[COUNTER], play_model=f"scripted:{script}") as viewer:
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
    assert visitor.send("POST", "/api/play/say", {"table": "none", "line": "x"})[0] == 404
    table = post(visitor, "start", environment=COUNTER, row=1)["table"]
    until_state(visitor, table, "yours")
    post(visitor, "leave", table=table)
    found = until_state(visitor, table, "ended")
    assert "without a verdict" in found["problem"]
    assert visitor.send("POST", "/api/play/say", {"table": table, "line": "x"})[0] == 409

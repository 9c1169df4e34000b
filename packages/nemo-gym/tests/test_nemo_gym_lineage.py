"""The parent of a captured model call, and the names of tracing, which have no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemo_gym import telemetry
from nemo_gym.telemetry import connection_pool
from nemo_gym.token_id_capture import (
    FileLineageStore,
    InMemoryLineageStore,
    LineageResolver,
    ParentResolution,
    ParentResolutionStatus,
)

ASK: dict[str, Any] = {"role": "user", "content": "2 + 2?"}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}],
}
OUTPUT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "4"}


@pytest.fixture(params=["memory", "files"])
def resolver(request: pytest.FixtureRequest, tmp_path: Path) -> LineageResolver:
    return LineageResolver(InMemoryLineageStore() if request.param == "memory" else FileLineageStore(tmp_path))


def resolved(call: str) -> ParentResolution:
    return ParentResolution(ParentResolutionStatus.RESOLVED, call)


def test_a_turn_continues_the_call_whose_answer_it_replays(resolver: LineageResolver):
    assert resolver.resolve("7-1", [ASK]).status == "root"
    resolver.record("7-1", "call-1", [ASK], CALL)
    assert resolver.resolve("7-1", [ASK, CALL, OUTPUT]) == resolved("call-1")
    resolver.record("7-1", "call-2", [ASK, CALL, OUTPUT], {"role": "assistant", "content": "4"})
    follow_up = [ASK, CALL, OUTPUT, {"role": "assistant", "content": "4"}, {"role": "user", "content": "Sure?"}]
    assert resolver.resolve("7-1", follow_up) == resolved("call-2")
    assert resolver.resolve("7-2", follow_up).status == ParentResolutionStatus.UNRESOLVED, "another rollout"


def test_a_message_is_the_same_in_another_spelling(resolver: LineageResolver):
    resolver.record("7-1", "call-1", [ASK], {**CALL, "reasoning_content": "I should add."})
    call = {"id": "c1", "function": {"name": "add", "arguments": '{"b":2,"a":2}'}}
    respelt = [
        {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        OUTPUT,
    ]
    assert resolver.resolve("7-1", respelt) == resolved("call-1")
    changed = [ASK, {**CALL, "content": "I add."}, OUTPUT]
    assert resolver.resolve("7-1", changed).status == ParentResolutionStatus.UNRESOLVED


def test_two_calls_with_the_same_answer_leave_the_parent_open(resolver: LineageResolver):
    for call in ("call-1", "call-2"):
        resolver.record("7-1", call, [ASK], CALL)
    assert resolver.resolve("7-1", [ASK, CALL, OUTPUT]).status == ParentResolutionStatus.AMBIGUOUS


def test_files_are_shared_by_processes_and_survive_a_torn_line(tmp_path: Path):
    LineageResolver(FileLineageStore(tmp_path)).record("7-1", "call-1", [ASK], CALL)
    (file,) = tmp_path.iterdir()
    with file.open("ab") as opened:
        opened.write(b'["torn')
    store = FileLineageStore(tmp_path)
    assert LineageResolver(store).resolve("7-1", [ASK, CALL]) == resolved("call-1")
    store.drop("7-1")
    assert store.find("7-1") == {}
    with pytest.raises(ValueError, match="rollout id"):
        store.find("../7-1")


MESSAGES = st.lists(
    st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), st.text()),
    min_size=1,
    max_size=5,
)


@given(first=MESSAGES, more=MESSAGES)
def test_a_conversation_always_continues_its_own_last_call(first: list[Any], more: list[Any]):
    resolver = LineageResolver()
    answer = {"role": "assistant", "content": "done"}
    resolver.record("7-1", "call-1", first, answer)
    assert resolver.resolve("7-1", [*first, answer, *more]) == resolved("call-1")


def test_the_names_of_tracing_have_no_effect():
    client = object()
    assert connection_pool.instrument(client) is client
    assert telemetry.traced(client) is client
    assert not telemetry.is_enabled()
    with telemetry.span("verify", server="x"):
        assert not telemetry.TelemetryConfig().enabled

"""Observations of agents: what is valid, and how captured model calls find their invocation."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    SandboxObservation,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryToolCall,
    TrajectoryTurn,
    join_model_call_observations,
)
from pydantic import ValidationError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = {"type": "responses_api_models", "name": "policy_model"}


@pytest.mark.parametrize("fields", [{"model_call_id": "c"}, {"model_ref": POLICY, "response_id": "r"}])
def test_a_model_call_is_named_by_its_id_or_by_server_and_response(fields):
    assert ModelCallRef(**fields).model_dump(exclude_none=True) == fields


@pytest.mark.parametrize("fields", [{}, {"model_ref": POLICY}, {"response_id": "r"}])
def test_a_model_call_without_a_name_is_an_error(fields):
    with pytest.raises(ValidationError, match="model_call_id"):
        ModelCallRef(**fields)


def test_defaults_say_that_nothing_is_known():
    assert AgentInvocation(invocation_id="root").model_dump() == {
        "kind": "agent_invocation",
        "invocation_id": "root",
        "parent_invocation_id": None,
        "spawned_by_tool_call_id": None,
        "status": "unknown",
        "duration_ms": None,
        "error_type": None,
        "model_calls": [],
        "conversation": [],
    }
    assert ToolCallObservation(invocation_id="root", tool_call_id="c", tool_name="bash").status == "unknown"
    assert ContextCompactionObservation(invocation_id="root").outcome == "unknown"


def test_unknown_fields_are_errors_also_on_assignment():
    with pytest.raises(ValidationError):
        ToolCallObservation(tool_call_id="c", color="red")
    invocation = AgentInvocation(invocation_id="root")
    with pytest.raises(ValidationError):
        invocation.status = "happy"
    assert invocation.status == "unknown"


def test_a_conversation_holds_items():
    invocation = AgentInvocation(invocation_id="root", conversation=[{"role": "user", "content": "hi"}])
    assert isinstance(invocation.conversation[0], NeMoGymEasyInputMessage)


@pytest.mark.parametrize(
    ("start", "end"),
    [(NOON, NOON - timedelta(seconds=1)), (2.0, 1.0), ("2026-01-01T12:00:00Z", "2026-01-01T11:59:59Z")],
)
def test_a_tool_call_cannot_end_before_its_start(start, end):
    assert ToolCallObservation(started_at=end, completed_at=start).status == "unknown"
    with pytest.raises(ValidationError, match="is before started_at"):
        ToolCallObservation(started_at=start, completed_at=end)


def test_moments_keep_their_form():
    assert ToolCallObservation(started_at=1.5).started_at == 1.5
    assert ToolCallObservation(started_at="2026-01-01T12:00:00Z").started_at == NOON
    assert ToolCallObservation(started_at=NOON).model_dump(mode="json")["started_at"] == "2026-01-01T12:00:00Z"


def test_the_records_of_a_bundle_are_chosen_by_kind_and_survive_json():
    bundle = AgentObservationBundle(
        source="my_agent",
        records=[
            AgentInvocation(invocation_id="root", status="completed"),
            ToolCallObservation(invocation_id="root", tool_call_id="c", tool_name="bash", started_at=NOON),
            ContextCompactionObservation(invocation_id="root", after_model_call=ModelCallRef(model_call_id="m")),
            SandboxObservation(role="agent", provider="docker", exit_code=0),
        ],
        gaps=[ObservationGap(code="tool_timing_unknown")],
    )
    assert AgentObservationBundle.model_validate_json(bundle.model_dump_json()) == bundle
    assert [type(record).__name__ for record in AgentObservationBundle(**bundle.model_dump()).records] == [
        "AgentInvocation",
        "ToolCallObservation",
        "ContextCompactionObservation",
        "SandboxObservation",
    ]
    with pytest.raises(ValidationError, match="kind"):
        AgentObservationBundle(source="my_agent", records=[{"kind": "dream"}])


def test_two_invocations_with_one_id_are_an_error():
    with pytest.raises(ValidationError, match="two invocations have the id 'root'"):
        AgentObservationBundle(source="s", records=[AgentInvocation(invocation_id="root")] * 2)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdefgh") | st.none()))
def test_a_bundle_is_valid_exactly_if_every_chain_of_parents_ends(parents):
    def ends(name):
        for _ in range(len(parents) + 1):
            name = parents.get(name)
        return name is None

    records = [AgentInvocation(invocation_id=name, parent_invocation_id=parent) for name, parent in parents.items()]
    if all(map(ends, parents)):
        assert AgentObservationBundle(source="s", records=records).records == records
    else:
        with pytest.raises(ValidationError, match="is its own ancestor"):
            AgentObservationBundle(source="s", records=records)


def test_an_episode_is_a_response_with_observations():
    response = NeMoGymResponse(
        id="r", created_at=0, model="m", object="response", output=[], parallel_tool_calls=True, tool_choice="auto",
        tools=[],
    )  # fmt: skip
    episode = AgentEpisode(response=response, observations=AgentObservationBundle(source="s"))
    with pytest.raises(AttributeError):
        episode.response = None


def test_a_trajectory_keeps_its_parts():
    record = TrajectoryRecord(
        task_id="3",
        rollout_id="3-0",
        invocations=[AgentInvocation(invocation_id="root")],
        turns=[TrajectoryTurn(invocation_id="root", turn_index=0, tool_call_ids=["c"])],
        tool_calls=[TrajectoryToolCall(invocation_id="root", tool_call_id="c", tool_name="bash", output="ok")],
    )
    assert record.schema_version == "1.0"
    assert TrajectoryRecord.model_validate(record.model_dump(mode="json")) == record
    with pytest.raises(ValidationError):
        TrajectoryRecord(rollout="3-0")


def test_a_trajectory_takes_observations_as_its_parts():
    record = TrajectoryRecord(
        model_calls=[ModelCallRef(model_call_id="m")],
        tool_calls=[ToolCallObservation(tool_call_id="c", tool_name="bash", status="completed")],
    )
    assert record.model_calls[0].model_call_id == "m"
    assert (record.tool_calls[0].status, record.tool_calls[0].output) == ("completed", None)


def test_a_captured_call_joins_the_invocation_of_its_client_session():
    bundle = AgentObservationBundle(
        source="s",
        records=[
            AgentInvocation(invocation_id="root", model_calls=[ModelCallRef(model_call_id="known")]),
            AgentInvocation(invocation_id="child", model_calls=[ModelCallRef(model_ref=POLICY, response_id="seen")]),
        ],
    )
    joined = join_model_call_observations(
        bundle,
        [
            {"model_call_id": "1", "client_session_id": "child"},
            {"model_call_id": "2", "client_session_id": "somebody else"},
            {"model_call_id": "3"},
            {"model_call_id": "known", "client_session_id": "child"},
            {"model_call_id": "4", "response_id": "seen", "client_session_id": "child"},
        ],
    )
    calls = [[call.model_call_id for call in invocation.model_calls] for invocation in joined.invocations]
    assert calls == [["known"], [None, "1"]]
    assert join_model_call_observations([{"model_call_id": "5", "client_session_id": "root"}], bundle) is bundle
    assert bundle.invocations[0].model_calls[-1].model_call_id == "5"

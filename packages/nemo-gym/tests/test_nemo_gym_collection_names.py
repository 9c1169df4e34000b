"""What `nemo_gym.rollout_collection` says about rows: failures, environment servers, trajectories."""

import json
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemo_gym.config_types import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError
from nemo_gym.episode_types import BaseEpisodeResponse
from nemo_gym.path_utils import failures_path_for
from nemo_gym.rollout_collection import (
    NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY,
    NG_TERMINAL_KEY,
    DispatchLatencyTracker,
    RolloutCollectionConfig,
    RolloutCollectionHelper,
    _attach_trajectory_record,
    _build_trajectory_record,
    _environment_server_for_agent,
    _environment_servers_by_agent,
    _episode_record,
    _get_max_rollout_attempts,
    _trajectory_identity,
    get_max_rollout_attempts,
    is_terminal_failure,
    migrate_invalid_judge_main_rows,
    observed_elapsed,
)
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ToolCallObservation,
    TrajectoryRecord,
)
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from pydantic import BaseModel

from ludus.runtime.encoding import encode

EPISODE = {
    "episode_id": {"rollout_id": "3-0", "attempt": 0},
    "task_id": {"taskset": "math", "task_id": "7"},
}


def relay(agent: str, **fields) -> dict:
    reference = {"type": "responses_api_agents", "name": agent}
    return {"environment_servers": {"legacy_agent": {"entrypoint": "app.py", "agent_server": reference, **fields}}}


def test_the_keys_of_failures_have_their_names():
    assert (NG_FAILURE_CLASS_KEY, NG_TERMINAL_KEY, NG_NO_PERSIST_KEY) == (
        "_ng_failure_class",
        "_ng_failure_terminal",
        "_ng_no_persist",
    )


@pytest.mark.parametrize(("text", "attempts"), [("5", 5), ("0", 3), ("-1", 3), ("many", 3), ("", 3)])
def test_attempts_are_a_positive_number_of_the_environment_or_three(monkeypatch, text, attempts):
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", text)
    assert get_max_rollout_attempts() == _get_max_rollout_attempts() == attempts
    monkeypatch.delenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS")
    assert get_max_rollout_attempts() == 3


@given(
    st.sampled_from(["timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"]),
    st.booleans(),
)
def test_a_terminal_timeout_is_final_unless_it_is_retried(failure_class, terminal):
    record = {NG_FAILURE_CLASS_KEY: failure_class, NG_TERMINAL_KEY: terminal}
    assert is_terminal_failure(record) is terminal
    assert not is_terminal_failure(record, retry_terminal_timeouts=True)


def test_a_skipped_row_is_final_if_timeouts_are_retried():
    assert not is_terminal_failure({NG_FAILURE_CLASS_KEY: "skipped"})
    assert is_terminal_failure({NG_FAILURE_CLASS_KEY: "skipped"}, retry_terminal_timeouts=True)
    assert is_terminal_failure({NG_FAILURE_CLASS_KEY: "other", NG_TERMINAL_KEY: True}, retry_terminal_timeouts=True)
    assert not is_terminal_failure({"reward": 1.0})


def test_the_elapsed_time_is_what_the_record_says():
    assert observed_elapsed({"elapsed_seconds": 3}) == 3
    assert observed_elapsed({"_ng_elapsed_ms": 1500}) == 1.5
    assert observed_elapsed({"ng_perf": {"total_latency_ms": 2000}}) == 2
    assert observed_elapsed({"elapsed_seconds": "long", "ng_perf": None}) is None


def test_latencies_are_summed_up():
    tracker = DispatchLatencyTracker()
    assert tracker.summary() == {"count": 0}
    tracker.start((0, 0))
    assert tracker.in_flight == 1
    assert tracker.finish((0, 0)) == tracker.latencies[0] >= 0
    assert tracker.finish("unknown") is None
    tracker.record(5)
    assert tracker.summary()["count"] == 2
    assert tracker.summary()["max"] == 5


def test_rows_of_failed_judges_move_to_the_failures_and_a_second_move_changes_nothing(tmp_path):
    main = tmp_path / "rollouts.jsonl"
    good, bad = {"reward": 1.0}, {"reward": 0.0, NG_FAILURE_CLASS_KEY: "judge_failed"}
    other = {"reward": None, NG_FAILURE_CLASS_KEY: "timeout_exceeded"}
    main.write_text("\n".join(map(json.dumps, [good, bad, other])) + '\n{"torn')
    assert migrate_invalid_judge_main_rows(main) == 1
    assert main.read_text() == json.dumps(good) + "\n" + json.dumps(other) + '\n{"torn\n'
    assert failures_path_for(main).read_text() == json.dumps(bad) + "\n"
    assert migrate_invalid_judge_main_rows(main) == 0
    assert migrate_invalid_judge_main_rows(tmp_path / "none.jsonl") == 0


def test_the_options_of_a_collection_have_defaults():
    config = RolloutCollectionConfig(agent_name="a", input_jsonl_fpath="in.jsonl", output_jsonl_fpath="out.jsonl")
    assert (config.num_repeats, config.responses_create_params, config.environment_routing_mode) == (None, {}, "agent")
    assert RolloutCollectionConfig(num_repeats={"a": 2, "_default": 1}).num_repeats == {"a": 2, "_default": 1}


RESPONSE = {
    "id": "r",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [{"type": "message", "id": "m", "role": "assistant", "content": []}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def options_in(folder, rows: int) -> RolloutCollectionConfig:
    row = {"responses_create_params": {"input": "q"}, "agent_ref": {"name": "my_agent"}}
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps({**row, "number": number}) + "\n" for number in range(rows)))
    return RolloutCollectionConfig(input_jsonl_fpath=str(source), output_jsonl_fpath=str(folder / "out.jsonl"))


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_clients_double_plays_the_rows_of_a_collection(tmp_path):
    async def post(server_name: str, url_path: str, json: dict):
        assert (server_name, url_path) == ("my_agent", "/run")
        if json["number"] == 1:
            return MagicMock(ok=False, status=503, read=AsyncMock(return_value=b"busy"))
        result = {**json, "response": RESPONSE, "reward": 1.0}
        return MagicMock(ok=True, read=AsyncMock(return_value=encode(result)))

    class Helper(RolloutCollectionHelper):
        def setup_server_client(self, head_server_config=None):
            return MagicMock(spec=ServerClient, post=post)

    rollouts = await Helper().run_from_config(options_in(tmp_path, rows=3))
    assert sorted(row["number"] for row in rollouts) == [0, 2]
    assert lines_of(tmp_path / "out.jsonl") == rollouts
    (failure,) = lines_of(failures_path_for(tmp_path / "out.jsonl"))
    assert (failure["number"], failure[NG_FAILURE_CLASS_KEY]) == (1, "agent_request_failed")
    assert (failure["_ng_failure_http_status"], failure["_ng_failure_response_body"]) == (503, "busy")
    assert "reward" not in failure
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_metrics"]["mean/reward"] == 1.0


async def test_overridden_examples_are_observed_if_the_configuration_says_so(tmp_path):
    class Helper(RolloutCollectionHelper):
        def run_examples(self, examples, head_server_config=None, **options):
            async def played(row):
                return row, {"reward": 0.5, "response": RESPONSE}

            return [played(row) for row in examples]

    with patch("nemo_gym.rollout_collection.get_global_config_dict", return_value={"observability_enabled": True}):
        (rollout,) = await Helper().run_from_config(options_in(tmp_path, rows=1))
    assert (rollout["_ng_task_index"], rollout["ng_trajectory"]["rollout_id"]) == (0, "0-0")
    assert rollout["ng_perf"]["num_turns"] == 1


def test_an_environment_server_fronts_the_agents_that_its_fields_name():
    config = OmegaConf.create(
        {
            "a_environment_server": relay("a"),
            "both": {
                "environment_servers": {
                    "user_sim": {
                        "agent_server": {"name": "b"},
                        "user": {"type": "responses_api_agents", "name": "c"},
                        "judge": {"type": "responses_api_models", "name": "policy"},
                        "untyped": {"name": "d"},
                    }
                }
            },
            "a": {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py"}}},
            "policy_model_name": "${oc.env:NOT_SET_ANYWHERE}",
        }
    )
    by_agent = _environment_servers_by_agent(config)
    assert by_agent == {"a": ["a_environment_server"], "b": ["both"], "c": ["both"]}
    assert _environment_server_for_agent("a", by_agent) == _environment_server_for_agent(config, "a")
    with pytest.raises(AgentWithoutEnvironmentServerError, match="agent d"):
        _environment_server_for_agent(config, "d")


def test_two_environment_servers_of_one_agent_are_ambiguous():
    with pytest.raises(AmbiguousEnvironmentServerError, match="x, y"):
        _environment_server_for_agent("a", {"x": relay("a"), "y": relay("a")})


def test_the_configuration_of_the_process_is_the_default():
    with patch("nemo_gym.rollout_collection.get_global_config_dict", return_value={"x": relay("a")}):
        assert _environment_servers_by_agent() == {"a": ["x"]}
        assert _environment_server_for_agent("a") == "x"


def test_the_record_of_an_episode_is_its_result():
    record = _episode_record({**EPISODE, "result": {"reward": 1.0, "answer": "4"}})
    assert record == {"reward": 1.0, "answer": "4", "_ng_task_id": EPISODE["task_id"]}


def test_the_answer_of_an_environment_server_is_found_among_other_arguments():
    answer, row = {**EPISODE, "result": {"reward": 1.0}}, {**EPISODE, "task_input": {}}
    for record in (_episode_record(row, answer), _episode_record(answer, row), _episode_record(row=row, answer=answer)):
        assert record == {"reward": 1.0, "_ng_task_id": EPISODE["task_id"]}


@pytest.mark.parametrize("key", ["_ng_anything", "ng_trajectory", "ng_model_call_capture", "ng_perf"])
def test_a_result_with_keys_of_the_collector_is_refused(key):
    with pytest.raises(ValueError, match=key):
        _episode_record({**EPISODE, "result": {"reward": 1.0, key: 1}})


def test_a_failed_episode_has_a_class_and_no_reward():
    failure = {"failure_reason": "no sandbox", "terminal": False, "stage": "seed"}
    for answer in ({**EPISODE, "failure": failure}, BaseEpisodeResponse[dict](**EPISODE, failure=failure)):
        assert _episode_record(answer) == {
            "_ng_task_id": EPISODE["task_id"],
            "_ng_failure_class": "environment_server_failed",
            "_ng_failure_terminal": False,
            "_ng_failure_message": "no sandbox",
            "_ng_failure_stage": "seed",
        }
    with pytest.raises(ValueError, match="without result"):
        _episode_record(EPISODE)


ROW = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}", "id": "c", "status": "completed"}
OUTPUT = [
    CALL,
    {"type": "function_call_output", "call_id": "c", "output": "4"},
    {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []},
]
USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


def test_a_trajectory_knows_its_task_and_its_rollout():
    assert _trajectory_identity(ROW) == ("3", "3-1-a2")
    assert _trajectory_identity({"task_id": EPISODE["task_id"], "_ng_rollout_id": "x"}) == ("7", "x")
    assert _trajectory_identity({}) == (None, None)


@pytest.mark.parametrize("swapped", [False, True])
def test_without_observations_the_trajectory_follows_the_response_and_says_so(swapped):
    result = {"reward": 1.0, "response": {"output": OUTPUT, "usage": USAGE}}
    _attach_trajectory_record(*((result, ROW) if swapped else (ROW, result)))
    record = TrajectoryRecord.model_validate(result["ng_trajectory"])
    assert (record.task_id, record.rollout_id) == ("3", "3-1-a2")
    assert [turn.tool_call_ids for turn in record.turns] == [["c"], []]
    assert [(call.tool_name, call.output, call.status) for call in record.tool_calls] == [("add", "4", "completed")]
    assert [gap.code for gap in record.gaps] == ["agent_observations_missing"]
    assert result["ng_perf"] == {
        "num_turns": 2,
        "num_tool_calls": 1,
        "token_observability_coverage": None,
        **USAGE,
        "total_latency_ms": None,
    }


def test_observations_and_captured_calls_are_joined():
    bundle = AgentObservationBundle(
        source="s",
        records=[
            AgentInvocation(invocation_id="root", status="completed"),
            ToolCallObservation(invocation_id="root", tool_call_id="c", tool_name="add", duration_ms=3),
        ],
    )
    calls = [
        {"model_call_id": "1", "client_session_id": "root", "latency_ms": 20.0, "response": {"output": [CALL]}},
        {"model_call_id": "2", "latency_ms": 30.0, "response": {"usage": {"prompt_tokens": 1, "total_tokens": 1}}},
    ]
    result = {
        **ROW,
        "reward": 0.0,
        "response": {"output": OUTPUT},
        "ng_agent_observations": bundle,
        "ng_model_call_capture": {"calls": calls, "gaps": ["call_lost", {"code": "torn", "line": 3}]},
    }
    record = _build_trajectory_record(result)
    assert [(turn.invocation_id, turn.tool_call_ids) for turn in record.turns] == [("root", ["c"]), (None, [])]
    assert [call.model_call_id for call in record.invocations[0].model_calls] == ["1"]
    assert record.tool_calls[0].duration_ms == 3
    assert [gap.code for gap in record.gaps] == ["call_lost", "torn"]
    perf = _attach_trajectory_record(result)["ng_perf"]
    assert perf["token_observability_coverage"] == 0.5
    assert (perf["input_tokens"], perf["total_tokens"], perf["total_latency_ms"]) == (1, 1, 50.0)


@pytest.mark.parametrize("shape", [lambda calls: calls, lambda calls: {"records": calls}])
def test_captured_calls_may_be_a_bare_list_or_have_another_name(shape):
    result = {"reward": 1.0, "ng_model_call_capture": shape([{"model_call_id": "1"}])}
    assert [call.model_call_id for call in _build_trajectory_record(ROW, result).model_calls] == ["1"]


def test_a_trajectory_is_attached_by_keywords_and_to_the_fields_of_a_model():
    result = {"reward": 1.0, "response": {"output": OUTPUT}}
    assert _attach_trajectory_record(result=result, row=ROW, enabled=True) is result
    assert result["ng_trajectory"]["rollout_id"] == "3-1-a2"

    class Verdict(BaseModel):
        reward: float
        response: dict

    verdict = Verdict(reward=1.0, response={"output": OUTPUT})
    assert _attach_trajectory_record(ROW, verdict)["ng_perf"]["num_turns"] == 2
    with pytest.raises(TypeError, match="needs the result"):
        _attach_trajectory_record()


def test_a_trajectory_of_the_agent_is_kept_and_gets_its_ids():
    own = TrajectoryRecord(invocations=[AgentInvocation(invocation_id="root")])
    record = _build_trajectory_record(ROW, {"reward": 1.0, "ng_trajectory": own.model_dump(mode="json")})
    assert record == own.model_copy(update={"task_id": "3", "rollout_id": "3-1-a2"})


def test_invalid_observations_become_a_gap():
    record = _build_trajectory_record(ROW, {"reward": 1.0, "ng_agent_observations": {"records": [{"kind": "dream"}]}})
    assert record.gaps[0].code == "agent_observations_invalid"
    assert "kind" in record.gaps[0].detail

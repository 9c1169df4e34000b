"""Health checks of rollouts, and the reward profile of a collection."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nemo_gym.config_types import ConfigError
from nemo_gym.reward_profile import RewardProfiler
from nemo_gym.rollout_collection import _attach_trajectory_record
from nemo_gym.rollout_health import run_health_checks
from nemo_gym.rollout_observability import TrajectoryRecord

MESSAGE = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}


def record(task: int = 0, rollout: int = 0, **fields) -> dict:
    """A sound rollout with its trajectory."""
    row = {"_ng_task_index": task, "_ng_rollout_index": rollout}
    return _attach_trajectory_record(row, {**row, "reward": 1.0, "response": {"output": [MESSAGE]}, **fields})


def checked(tmp_path, *records, **options):
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in records))
    return run_health_checks([path], **options)


def checks_of(rollout) -> list[str]:
    return [finding.check for finding in rollout.findings]


def test_a_rollout_with_its_trajectory_is_healthy(tmp_path):
    report = checked(tmp_path, record())
    (rollout,) = report.rollouts
    assert (rollout.verdict, rollout.findings, rollout.unobserved) == ("healthy", [], [])
    assert report.summary["healthy"] == 1
    assert json.loads(report.summary_path.read_text()) == report.summary
    assert json.loads(report.verdicts_path.read_text())["verdict"] == "healthy"
    assert report["rollouts"][0]["verdict"] == "healthy"


def test_a_rollout_without_a_trajectory_is_unobserved(tmp_path):
    plain = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}
    (rollout,) = checked(tmp_path, plain).rollouts
    assert rollout.verdict == "unobserved"
    assert "model_call_failed" in rollout.unobserved


def test_lines_that_are_no_object_are_unreadable(tmp_path):
    report = checked(tmp_path, '{"torn', "[1]", record())
    assert [rollout.verdict for rollout in report.rollouts] == ["unhealthy", "unhealthy", "healthy"]
    assert checks_of(report.rollouts[0]) == checks_of(report.rollouts[1]) == ["record_unreadable"]


def test_the_second_rollout_of_a_pair_is_a_duplicate(tmp_path):
    report = checked(tmp_path, record(), record())
    assert [checks_of(rollout) for rollout in report.rollouts] == [[], ["rollout_duplicate_identity"]]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"reward": None}, "rollout_reward_invalid"),
        ({"_ng_failure_class": "judge_failed"}, "rollout_failed"),
        ({"_ng_task_index": None}, "rollout_missing_identity"),
        ({"response": {"output": []}}, "rollout_response_empty"),
        ({"ng_trajectory": {"turns": []}}, "rollout_missing_agent_turns"),
        (
            {"ng_trajectory": {"turns": [{}], "model_calls": [{"model_call_id": "1", "status_code": 500}]}},
            "model_call_failed",
        ),
        ({"ng_model_call_capture": {"calls": [{"model_call_id": "lost"}]}}, "trajectory_capture_mismatch"),
        (
            {"ng_trajectory": {"turns": [{}], "invocations": [{"invocation_id": "a", "status": "failed"}]}},
            "invocation_failed",
        ),
        ({"ng_trajectory": {"turns": [{}], "tool_calls": [{"status": "timeout"}]}}, "tool_call_abandoned"),
        ({"ng_trajectory": {"turns": [{"invocation_id": "nobody"}]}}, "trajectory_unknown_invocation"),
    ],
)
def test_each_problem_is_found_by_its_check_and_can_be_ignored(tmp_path, change, check):
    broken = {**record(), **change}
    (rollout,) = checked(tmp_path, broken).rollouts
    assert checks_of(rollout) == [check]
    (rollout,) = checked(tmp_path, broken, ignored_checks=[check], output_dir=tmp_path / "out").rollouts
    assert rollout.verdict == "healthy"
    assert (tmp_path / "out" / "rollout_health_summary.json").is_file()


def test_tasks_with_missing_or_only_broken_rollouts_are_listed(tmp_path):
    report = checked(tmp_path, record(0, 0), record(0, 1), {**record(1, 0), "reward": "good"})
    assert [(task["task_index"], task["check"]) for task in report.summary["tasks"]] == [
        (1, "task_missing_rollouts"),
        (1, "task_without_healthy_rollout"),
    ]


def test_an_unknown_check_and_an_empty_folder_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="no check spelling"):
        run_health_checks(tmp_path, ignored_checks=["spelling"])
    with pytest.raises(ValueError, match="no file of rollouts"):
        run_health_checks(tmp_path)


def test_the_profile_has_entries_for_tasks_agents_and_repeats(tmp_path):
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "a"}, "question": f"q{task}"}
        for task in range(2)
        for rollout in range(2)
    ]
    results = [{**row, "reward": float(row["_ng_rollout_index"])} for row in rows[:3]]
    groups, agents, repeats = RewardProfiler().profile_from_data(rows, results)
    assert [(group["sample"]["question"], group["mean/reward"]) for group in groups] == [("q0", 0.5), ("q1", 0.0)]
    assert [group["missing_num_rollouts"] for group in groups] == [0, 1]
    assert agents[0]["agent_ref"] == {"name": "a"}
    assert agents[0]["mean/reward"] == pytest.approx(1 / 3)
    assert [repeat["mean/reward"] for repeat in repeats] == [0.0, 1.0]
    bare = [{"reward": 1.0} for _ in rows]
    assert RewardProfiler().profile_from_data(rows, bare)[1][0]["mean/reward"] == 1.0
    files = RewardProfiler().write_to_disk(groups, agents, repeats, tmp_path / "x.jsonl")
    assert [file.name for file in files] == [
        "x_reward_profiling.jsonl",
        "x_agent_metrics.json",
        "x_repeat_metrics.json",
    ]
    assert json.loads(files[1].read_text()) == agents
    assert len(files[0].read_text().splitlines()) == 2


WORDS = st.sampled_from(
    "calls gaps code detail model_call_id response output usage type call_id name status turns invocations model_calls "
    "tool_calls invocation_id source records kind function_call function_call_output message role reward "
    "latency_ms client_session_id task_id rollout_id schema_version".split()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | WORDS, inner, max_size=4),
    max_leaves=12,
)
RESULTS = st.fixed_dictionaries(
    {},
    optional={
        key: JSON
        for key in (
            "reward",
            "response",
            "ng_trajectory",
            "ng_model_call_capture",
            "ng_agent_observations",
            "_ng_task_index",
            "_ng_rollout_index",
            "_ng_failure_class",
            "_ng_task_id",
        )
    },
)


@given(RESULTS)
def test_whatever_an_agent_reports_has_a_trajectory(result):
    row = {"_ng_task_index": 1, "_ng_rollout_index": 2}
    attached = _attach_trajectory_record(row, {**result, "reward": 0.0})
    TrajectoryRecord.model_validate(attached["ng_trajectory"])
    json.dumps(attached["ng_perf"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RESULTS | JSON, min_size=1, max_size=4))
def test_whatever_a_file_holds_has_a_verdict(tmp_path, records):
    report = checked(tmp_path, *(json.dumps(record) for record in records))
    assert len(report.rollouts) == len(records)
    assert report.summary["healthy"] + report.summary["unhealthy"] + report.summary["unobserved"] == len(records)

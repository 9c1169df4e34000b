"""The metrics of `nemo_gym.reward_profile`: every number against a definition or a count by hand."""

from __future__ import annotations

import json
import math
import random
import statistics
from itertools import combinations, pairwise
from typing import Any

import pytest
from nemo_gym._metrics import t_quantile
from nemo_gym.config_types import AggregateMetrics
from nemo_gym.reward_profile import (
    AggregateMetricsMixin,
    add_avg_sample_std_dev,
    compute_aggregate_metrics,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)

EXAMPLE: list[list[dict[str, Any]]] = [
    [{"reward": 1.0, "answer": "x"}, {"reward": 0.0, "answer": None}],
    [{"reward": 0.5, "answer": "y"}],
]


def verified(task: int, rollout: int, reward: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, **fields}


def rewards(*tasks: list[float]) -> list[list[dict[str, Any]]]:
    return [[{"reward": reward} for reward in task] for task in tasks]


# --- pass@k and majority ---


def test_the_example_of_the_specification():
    metrics, scores, names, max_k = compute_pass_majority_metrics(EXAMPLE, answer_key="answer")
    expected = {
        "pass@1/accuracy": 50,
        "pass@1[avg-of-1]/accuracy": 75,
        "majority@1/accuracy": 75,
        "pass@2/accuracy": 100,
        "pass@1[avg-of-2]/accuracy": 50,
        "majority@2/accuracy": 75,
        "pass@1/no_answer": 25,
        "majority@2/no_answer": 0,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert metrics["per_sample_aggregate"]["accuracy"] == [75, 0]
    assert (names, max_k) == (["accuracy", "no_answer"], 2)
    assert scores[0] == [{"accuracy": 1.0, "no_answer": 0.0}, {"accuracy": 0.0, "no_answer": 1.0}]


def test_no_tasks_have_no_pass_metrics():
    assert compute_pass_majority_metrics([]) == ({}, [], [], 0)


@pytest.mark.parametrize("seed", range(20))
def test_pass_at_k_of_binary_rewards_is_the_share_of_subsets_with_a_success(seed: int):
    chance = random.Random(seed)
    tasks = [[float(chance.random() < 0.4) for _ in range(chance.randint(1, 7))] for _ in range(chance.randint(1, 4))]
    metrics, _, _, max_k = compute_pass_majority_metrics(rewards(*tasks))
    for k in range(1, max_k + 1):
        shares = [statistics.fmean(max(subset) for subset in combinations(task, k)) for task in tasks if len(task) >= k]
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * statistics.fmean(shares))


@pytest.mark.parametrize("seed", range(10))
def test_other_rewards_take_the_best_of_the_first_k_and_means_use_at_most_k(seed: int):
    chance = random.Random(seed)
    tasks = [[0.25, *(chance.choice([0.0, 0.5, 1.0]) for _ in range(chance.randint(0, 5)))] for _ in range(3)]
    metrics, _, _, max_k = compute_pass_majority_metrics(rewards(*tasks))
    for k in range(1, max_k + 1):
        best = [max(task[:k]) for task in tasks if len(task) >= k]
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * statistics.fmean(best))
        mean = statistics.fmean(statistics.fmean(task[:k]) for task in tasks)
        assert metrics[f"pass@1[avg-of-{k}]/accuracy"] == pytest.approx(100 * mean)
        if k > 1:
            deviation = statistics.stdev(metrics["per_sample_aggregate"]["accuracy"][:k])
            key = f"pass@1[avg-of-{k}]/accuracy"
            assert metrics[f"{key}/std_dev_across_runs"] == pytest.approx(deviation)
            assert metrics[f"{key}/std_err_across_runs"] == pytest.approx(deviation / math.sqrt(k))


def test_majority_averages_ties_and_counts_a_task_without_an_answer_as_zero():
    voted = [{"reward": reward, "answer": answer} for reward, answer in [(0, "a"), (1, "b"), (1, "b"), (0, ["c"])]]
    silent = [{"reward": 1.0, "answer": None}, {"reward": 1.0}]
    metrics, *_ = compute_pass_majority_metrics([voted], answer_key="answer")
    assert [metrics[f"majority@{k}/accuracy"] for k in (1, 2, 3, 4)] == [0, 50, 100, 100]
    both, *_ = compute_pass_majority_metrics([voted, silent], answer_key="answer")
    assert [both[f"majority@{k}/accuracy"] for k in (1, 2, 3, 4)] == [0, 25, 50, 50]
    assert not [name for name in compute_pass_majority_metrics([voted])[0] if name.startswith("majority")]


def test_scores_of_the_server_replace_accuracy_and_a_score_may_be_missing():
    tasks = [[{"exact": True}, {"exact": False, "format": 1}]]
    metrics, _, names, _ = compute_pass_majority_metrics(tasks, score_fn=dict)
    assert names == ["exact", "format"]
    assert metrics["pass@1/exact"] == 50
    assert metrics["pass@1/format"] == 100
    assert "pass@2/format" not in metrics


def test_subsets_are_named_by_the_first_rollout_that_has_the_key():
    tasks = [
        [{"reward": 1.0}, {"reward": 1.0, "level": "easy"}],
        [{"reward": 0.0, "level": "hard"}],
        [{"reward": 0.0, "level": ""}],
    ]
    metrics = compute_subset_metrics(tasks, "level")
    assert metrics["easy/pass@2/accuracy"] == 100
    assert metrics["hard/pass@1/accuracy"] == 0
    assert {name.split("/")[0] for name in metrics} == {"easy", "hard"}
    assert not [name for name in metrics if "per_sample_aggregate" in name]


def test_the_highest_k_is_a_number_and_spreads_never_count():
    metrics = {
        "pass@2/accuracy": 1,
        "pass@10/accuracy": 2,
        "pass@10/format": 3,
        "pass@10/accuracy/std_dev_across_runs": 4,
        "pass@11/accuracy/avg_sample_std_dev": 5,
        "easy/pass@12/accuracy": 6,
        "pass@1[avg-of-10]/accuracy": 7,
        "pass@1[avg-of-10]/accuracy/std_err_across_runs": 8,
    }
    assert highest_k_metrics(metrics, "pass@{k}") == {"pass@10/accuracy": 2, "pass@10/format": 3}
    assert highest_k_metrics(metrics, "pass@{k}", score_names=["format"]) == {"pass@10/format": 3}
    assert highest_k_metrics(metrics, "pass@{k}", exclude_names=["format"]) == {"pass@10/accuracy": 2}
    assert highest_k_metrics(metrics, "pass@1[avg-of-{k}]") == {"pass@1[avg-of-10]/accuracy": 7}
    assert highest_k_metrics(metrics, "majority@{k}") == {}


def test_the_average_deviation_of_samples_is_taken_over_tasks():
    metrics: dict[str, Any] = {}
    scores = [[{"accuracy": value} for value in task] for task in ([0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0])]
    add_avg_sample_std_dev(metrics, scores, ["accuracy"], 3)
    assert metrics == {
        "pass@1[avg-of-2]/accuracy/avg_sample_std_dev": pytest.approx(statistics.stdev([0, 1]) / 2),
        "pass@1[avg-of-3]/accuracy/avg_sample_std_dev": pytest.approx(statistics.stdev([0, 1, 1]) / 2),
    }


# --- statistics of every number ---


def test_no_responses_have_no_metrics():
    assert compute_aggregate_metrics([]) == AggregateMetrics()


def test_a_response_without_its_indices_and_a_repeated_pair_are_errors():
    with pytest.raises(KeyError, match="_ng_task_index"):
        compute_aggregate_metrics([{"_ng_rollout_index": 0, "reward": 1.0}])
    with pytest.raises(KeyError, match="_ng_rollout_index"):
        compute_aggregate_metrics([{"_ng_task_index": 0, "reward": 1.0}])
    with pytest.raises(ValueError, match="_ng_task_index 3 and _ng_rollout_index 1"):
        compute_aggregate_metrics([verified(3, 1), verified(3, 1)])


def test_columns_are_the_numbers_of_a_response_and_of_its_usage():
    fields = {"passed": True, "text": "1", "nothing": None, "items": [1], "more": {"a": 1}, "_rowidx": 7}
    unusable = {"nan": math.nan, "endless": math.inf, "huge": 10**400}
    usage = {"usage": {"input_tokens": 10, "details": {"cached": 1}}, "created_at": 5}
    metrics = compute_aggregate_metrics([verified(0, 0, **fields, **unusable, response=usage)]).agent_metrics
    means = {name.removeprefix("mean/"): value for name, value in metrics.items() if name.startswith("mean/")}
    assert means == {"reward": 1, "passed": 1, "input_tokens": 10}
    assert metrics["num_repeats"] == 1


def test_statistics_skip_missing_values_and_a_single_rollout_deviates_by_zero():
    result = compute_aggregate_metrics([verified(0, 0, 0.0, turns=2), verified(0, 1, 1.0), verified(1, 0, 1.0)])
    metrics = result.agent_metrics
    assert metrics["mean/reward"] == pytest.approx(2 / 3)
    assert metrics["median/reward"] == 1
    assert (metrics["min/reward"], metrics["max/reward"]) == (0, 1)
    assert metrics["std/reward"] == pytest.approx(statistics.stdev([0, 1, 1]))
    assert metrics["mean/turns"] == 2
    assert "std/turns" not in metrics
    first, second = result.group_level_metrics
    assert "std/turns" not in first
    assert second["std/reward"] == 0


def test_the_entry_of_a_task_counts_its_rollouts():
    usage = {"usage": {"total_tokens": 9}}
    result = compute_aggregate_metrics([verified(7, 1), verified(2, 0, 0.0, response=usage), verified(2, 1)])
    first, second = result.group_level_metrics
    assert (first["_ng_task_index"], second["_ng_task_index"]) == (2, 7)
    assert second["sample"] == {"agent_ref": {"name": "agent"}}
    counts = ("num_rollouts", "expected_num_rollouts", "missing_num_rollouts", "reward_profile_completion_pct")
    assert [second[name] for name in counts] == [1, 2, 1, 50]
    assert first["rollout_infos"][0] == {
        "rollout_id": "2:0",
        "_ng_task_index": 2,
        "_ng_rollout_index": 0,
        "reward": 0,
        "total_tokens": 9,
    }


def test_hooks_add_metrics_and_select_the_key_metrics():
    def compute(tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        assert [[row["text"] for row in task] for task in tasks] == [["a", "b"], ["c"]]
        per_task = [{"_ng_task_index": 1, "difficulty": 3}]
        return {"pass@1/accuracy": 50.0, "mean/reward": -1, "per_task_metrics": per_task}

    rows = [verified(1, 0, text="c"), verified(0, 1, text="b"), verified(0, 0, text="a")]
    result = compute_aggregate_metrics(rows, compute, lambda metrics: highest_k_metrics(metrics, "pass@{k}"))
    assert result.key_metrics == {"pass@1/accuracy": 50.0}
    assert result.agent_metrics["mean/reward"] == -1
    assert "per_task_metrics" not in result.agent_metrics
    assert [task.get("difficulty") for task in result.group_level_metrics] == [None, 3]


def test_the_default_hooks_select_the_means():
    mixin = AggregateMetricsMixin()
    assert mixin.compute_metrics([]) == {}
    assert mixin.compute_repeat_metrics([]) == {}
    assert mixin.get_key_metrics({"mean/reward": 1, "max/reward": 2}) == {"mean/reward": 1}
    assert set(compute_aggregate_metrics([verified(0, 0)]).key_metrics) == {"mean/reward"}


# --- masked responses ---


def test_masked_responses_count_only_in_the_coverage():
    rows = [verified(0, 0, 0.0, mask_sample=True), verified(0, 1, 1.0), verified(1, 0, 0.0, mask_sample=True)]
    result = compute_aggregate_metrics(rows)
    coverage = {
        "coverage/measured_rollouts": 1,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 1,
        "coverage/fully_masked_tasks": 1,
    }
    assert result.agent_metrics["mean/reward"] == 1
    assert result.agent_metrics["num_repeats"] == 1
    assert coverage.items() <= result.agent_metrics.items()
    assert coverage.items() <= result.key_metrics.items()
    assert [task["_ng_task_index"] for task in result.group_level_metrics] == [0]
    assert not [name for name in compute_aggregate_metrics(rows[1:2]).agent_metrics if name.startswith("coverage")]


def test_a_run_of_masked_responses_has_nothing_but_its_coverage():
    result = compute_aggregate_metrics([verified(0, 0, mask_sample=True)])
    assert set(result.agent_metrics) == set(result.key_metrics)
    assert len(result.agent_metrics) == 4
    assert result.group_level_metrics == result.repeat_level_metrics == []


# --- repeats ---


def test_each_repeat_has_its_distribution():
    values = [0.0, 0.5, 1.0, 1.0]
    rows = [verified(task, 0, value) for task, value in enumerate(values)] + [verified(0, 1)]
    first, second = compute_aggregate_metrics(rows).repeat_level_metrics
    assert (first["_ng_rollout_index"], first["sample_count"], first["missing_count"]) == (0, 4, 0)
    assert (second["_ng_rollout_index"], second["sample_count"], second["missing_count"]) == (1, 1, 3)
    error = statistics.stdev(values) / 2
    expected = {"mean": 0.625, "median": 0.75, "min": 0, "max": 1, "p25": 0.375, "p75": 1}
    expected |= {"std": statistics.stdev(values), "sem": error}
    expected |= {"ci_low_95": 0.625 - 3.182446305 * error, "ci_high_95": 0.625 + 3.182446305 * error}
    assert {name: first[f"{name}/reward"] for name in expected} == pytest.approx(expected)
    assert (second["mean/reward"], second["std/reward"], second["sem/reward"]) == (1, 0, 0)
    assert not {"ci_low_95/reward", "ci_high_95/reward"} & set(second)


def test_statistics_across_repeats_describe_the_means_of_the_repeats():
    rows = [verified(0, 0, 0.0), verified(1, 0, 1.0), verified(0, 1, 1.0), verified(1, 1, 1.0)]
    result = compute_aggregate_metrics(rows)
    error = statistics.stdev([0.5, 1]) / math.sqrt(2)
    across = {"mean": 0.75, "median": 0.75, "min": 0.5, "max": 1, "std": statistics.stdev([0.5, 1]), "se": error}
    across |= {"ci_low_95": 0.75 - 12.7062047 * error, "ci_high_95": 0.75 + 12.7062047 * error}
    assert {name: result.agent_metrics[f"{name}_across_repeats/reward"] for name in across} == pytest.approx(across)
    assert result.agent_metrics["num_repeats"] == 2
    one = compute_aggregate_metrics(rows[:2])
    assert one.repeat_level_metrics == []
    assert not [name for name in one.agent_metrics if "across" in name]


def test_metrics_of_a_repeat_replace_equal_names_and_must_be_finite_in_every_repeat():
    def compute(tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        ((row,),) = tasks
        index = row["_ng_rollout_index"]
        return {"mean/reward": 10.0 + index, "score": index, "gap": math.nan if index else 1.0, "text": "a"}

    result = compute_aggregate_metrics([verified(0, 0), verified(0, 1)], compute_repeat_metrics_fn=compute)
    assert [repeat["mean/reward"] for repeat in result.repeat_level_metrics] == [10, 11]
    assert result.agent_metrics["mean_across_repeats/reward"] == 10.5
    assert result.agent_metrics["mean_across_repeats/score"] == 0.5
    assert not {"mean_across_repeats/gap", "mean_across_repeats/text"} & set(result.agent_metrics)


def test_the_performance_of_rollouts_is_summed_up():
    rows = [verified(0, 0, ng_perf={"num_turns": 2}), verified(0, 1, ng_perf={"num_turns": 4}), verified(0, 2)]
    result = compute_aggregate_metrics(rows)
    assert result.perf_summary is not None
    assert result.perf_summary["mean/num_turns"] == 3
    assert compute_aggregate_metrics(rows[2:]).perf_summary is None


@pytest.mark.parametrize("seed", range(10))
def test_random_responses_give_finite_metrics_that_json_can_hold(seed: int):
    chance = random.Random(seed)
    values = [0, 1, True, 0.5, -3, 1e308, math.nan, math.inf, None, "x", [1]]
    rows = [
        verified(task, rollout, chance.random(), a=chance.choice(values), mask_sample=chance.random() < 0.2)
        for task in range(4)
        for rollout in range(4)
        if chance.random() < 0.8
    ]
    text = json.dumps(compute_aggregate_metrics(rows).model_dump(), allow_nan=False)
    assert AggregateMetrics.model_validate_json(text) == compute_aggregate_metrics(rows)


@pytest.mark.parametrize("value", [0.1, 1e-9, 123456.7, -0.3])
def test_equal_values_deviate_by_exactly_zero(value: float):
    metrics = compute_aggregate_metrics([verified(task, 0, value) for task in range(7)]).agent_metrics
    assert metrics["std/reward"] == 0


def test_the_deviation_of_values_far_from_zero_is_precise():
    values = [1e9 + step for step in (0.25, 0.5, 0.75)]
    rows = [verified(task, 0, value) for task, value in enumerate(values)]
    assert compute_aggregate_metrics(rows).agent_metrics["std/reward"] == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062047362), (2, 4.3026527297), (3, 3.1824463053), (10, 2.2281388520), (30, 2.0422724563),
     (100, 1.9839715185), (1000, 1.9623390808)],
)  # fmt: skip
def test_the_quantile_of_students_t_is_that_of_the_tables(degrees: int, quantile: float):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-9)


def test_the_quantile_of_students_t_falls_towards_that_of_the_normal_distribution():
    quantiles = [t_quantile(degrees) for degrees in range(1, 400)]
    assert all(high > low for high, low in pairwise(quantiles))
    assert t_quantile(10**9) == pytest.approx(statistics.NormalDist().inv_cdf(0.975))

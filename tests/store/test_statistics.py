"""The numbers in metrics.json, against their definitions."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import Environment, Failure, Outcome, Task, Verdict
from ludus.collection.metrics import BATCH, Metrics
from ludus.rollout import Job, Rollout
from ludus.store.statistics import ClusteredMean, Distribution, ExactSum, pass_at_each_k, pass_hat_each_k, t95


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_pass_at_k_and_pass_hat_k_are_averages_over_all_choices_of_k(results):
    n, passed = len(results), sum(results)
    choices = [list(itertools.combinations(results, k)) for k in range(1, n + 1)]
    assert list(pass_at_each_k(n, passed)) == pytest.approx([sum(map(any, each)) / len(each) for each in choices])
    assert list(pass_hat_each_k(n, passed)) == pytest.approx([sum(map(all, each)) / len(each) for each in choices])


def test_six_thousand_repeats_are_summarised_without_a_pause():
    """Binomials of 6,000 repeats took 25 s of CPU here; one product takes 0.05 s. CPU time ignores a busy machine."""
    metrics = Metrics(repeats=6000)
    for task in range(3):
        for repeat in range(6000):
            metrics.add(rollout(f"t{task}", repeat, float(repeat % (task + 2) == 0)))
    before = time.process_time()
    summary = metrics.summary()
    assert time.process_time() - before < 5
    assert len(summary["pass@k"]) == len(summary["pass^k"]) == 6000
    assert summary["pass@k"]["1"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert summary["pass@k"]["6000"] == 1.0


def test_pass_at_k_is_a_mean_over_the_tasks_that_have_k_rewards():
    metrics = Metrics(repeats=2)
    for task, ends in (("a", (1.0, 0.0)), ("b", (0.0, None))):
        for repeat, end in enumerate(ends):
            metrics.add(rollout(task, repeat, end))
    summary = metrics.summary()
    assert summary["pass@k"] == {"1": 0.25, "2": 1.0}
    assert summary["pass^k"] == {"1": 0.25, "2": 0.0}


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_the_interval_of_rewards_without_bounds_is_students(values):
    mean = ClusteredMean()
    for value in values:
        mean.add(1, value)
    low, high = mean.interval()
    error = statistics.stdev(values) / math.sqrt(len(values))
    assert mean.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert high - low == pytest.approx(2 * t95(len(values) - 1) * error, abs=1e-6)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=2, max_size=30),
    st.floats(-50, 50),
    st.floats(0.1, 100),
)
def test_the_interval_of_bounded_rewards_holds_the_mean_and_stays_inside_the_bounds(tasks, low, width):
    mean = ClusteredMean()
    for rewards in tasks:
        mean.add(len(rewards), sum(low + width * reward for reward in rewards))
    begin, end = mean.interval((low, low + width))
    assert low <= begin <= mean.mean + 1e-9 * width
    assert mean.mean - 1e-9 * width <= end <= low + width
    assert begin < end


def draw_all_alike(random, tasks, chance):
    """Each task is always solved or never: four repeats are worth one."""
    return [[float(random.random() < chance)] * 4 for _ in range(tasks)]


def draw_independent(random, tasks, chance):
    return [[float(random.random() < chance) for _ in range(4)] for _ in range(tasks)]


def draw_tasks_of_different_difficulty(random, tasks, chance):
    difficulties = [random.betavariate(chance, 1 - chance) for _ in range(tasks)]
    return [[float(random.random() < each) for _ in range(4)] for each in difficulties]


def draw_partial_credit(random, tasks, chance):
    return [[random.betavariate(20 * chance, 20 * (1 - chance)) for _ in range(4)] for _ in range(tasks)]


@pytest.mark.parametrize("chance", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("tasks", [2, 3, 5, 8, 20])
@pytest.mark.parametrize(
    "draw", [draw_all_alike, draw_independent, draw_tasks_of_different_difficulty, draw_partial_credit]
)
def test_the_interval_of_few_bounded_rewards_contains_the_true_mean_as_often_as_it_claims(draw, tasks, chance):
    random, held = Random(7), 0
    for _ in range(1000):
        mean = ClusteredMean()
        for rewards in draw(random, tasks, chance):
            mean.add(len(rewards), sum(rewards))
        low, high = mean.interval((0.0, 1.0))
        held += low <= chance <= high
    assert held >= 935  # 95 % less two standard errors of 1,000 draws


def test_many_tasks_give_an_interval_close_to_students():
    mean = ClusteredMean()
    for task in range(2000):
        mean.add(2, 1.0 + task % 2)
    assert mean.interval((0.0, 1.0)) == pytest.approx(mean.interval(), abs=0.002)


def test_the_interval_of_rewards_from_0_to_1_stays_between_0_and_1():
    metrics = Metrics(repeats=2)
    for task, rewards in (("a", (1.0, 1.0)), ("b", (1.0, 0.0))):
        for repeat, reward in enumerate(rewards):
            metrics.add(rollout(task, repeat, reward))
    reward = metrics.summary()["reward"]
    assert (reward["mean"], reward["range"]) == (0.75, [0.0, 1.0])
    assert 0.0 <= reward["ci95"][0] <= 0.75 <= reward["ci95"][1] <= 1.0


def test_rewards_outside_0_to_1_without_a_declared_range_get_an_interval_without_bounds():
    metrics = Metrics()
    for task, reward in enumerate((0.0, 3.0, 0.0, 3.0)):
        metrics.add(rollout(f"t{task}", 0, reward))
    reward = metrics.summary()["reward"]
    assert reward["range"] is None
    assert reward["ci95"][0] < 0.0


@pytest.mark.parametrize(
    ("declared", "rewards", "used"),
    [
        ((-1.0, 1.0), (1.0, 1.0), [-1.0, 1.0]),
        ((-1.0, 1.0), (-1.0, 1.0), [-1.0, 1.0]),
        ((-1.0, 1.0), (-2.0, 1.0), None),  # the declaration is wrong, so no bound is known
        (None, (0.2, 1.0), [0.0, 1.0]),
    ],
)
def test_a_declared_range_of_rewards_bounds_the_interval_unless_a_reward_leaves_it(declared, rewards, used):
    environment = replace(Environment.load("mcqa"), name="e", reward_range=declared)
    metrics = Metrics(environments=[environment])
    for task, reward in enumerate(rewards):
        metrics.add(rollout(f"t{task}", 0, reward, environment="e"))
    assert metrics.summary()["reward"]["range"] == used


def test_repeats_that_always_agree_do_not_narrow_the_interval():
    once, often = ClusteredMean(), ClusteredMean()
    for value in (0.0, 1.0, 1.0, 0.0, 1.0):
        once.add(1, value)
        often.add(100, 100 * value)
    assert often.interval() == pytest.approx(once.interval())


def test_a_single_task_has_no_interval():
    mean = ClusteredMean()
    mean.add(4, 2.0)
    assert mean.interval() is None


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=3000), st.integers(1, 1000))
def test_quantiles_are_within_five_percent(values, batch):
    distribution = Distribution()
    for start in range(0, len(values), batch):
        distribution.add(values[start : start + batch])
    for share in (0.5, 0.95):
        exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
        assert distribution.quantile(share) == pytest.approx(exact, rel=0.0501)
    assert distribution.summary()["count"] == len(values)


def rollout(task_id: str, repeat: int, reward: float | None, mask: str | None = None, environment: str = "") -> Rollout:
    row = {"responses_create_params": {"input": "x"}}
    job = Job(f"{task_id}-{repeat}", task_id, repeat, Task.model_validate(row), row, environment=environment)
    made = Rollout(job)
    if reward is None:
        made.fail(Failure("timeout", "late", stage="model"))
    else:
        made.outcome = Outcome.MASKED if mask else Outcome.COMPLETED
        made.verdict = Verdict(reward, mask=mask, extracted=reward > 0, components={"format": 0.5})
    return made


ENDS = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]), st.just("masked"))


@given(st.lists(st.lists(ENDS, min_size=4, max_size=4), min_size=1, max_size=12), st.randoms())
def test_counts_add_up_and_only_completed_rollouts_enter_the_mean_reward(tasks, random):
    metrics = Metrics(repeats=4)
    ends = [(f"t{t}", r, end) for t, repeats in enumerate(tasks) for r, end in enumerate(repeats)]
    random.shuffle(ends)
    for task_id, repeat, end in ends:
        metrics.add(rollout(task_id, repeat, 1.0 if end == "masked" else end, "why" if end == "masked" else None))
    summary = metrics.summary()
    counts = summary["counts"]
    assert counts["dispatched"] == counts["completed"] + counts["failed"] + counts["masked"] == len(ends)
    rewards = [end for _, _, end in ends if isinstance(end, float)]
    assert summary["reward"]["mean"] == (pytest.approx(sum(rewards) / len(rewards)) if rewards else None)
    assert counts["failed"] == summary["failures"].get("model/timeout", 0)
    assert sum(task["completed"] for task in summary["tasks"]) == counts["completed"]
    full = [task for task in tasks if all(isinstance(end, float) for end in task)]
    if len(full) == len(tasks):
        assert summary["pass@k"]["4"] == pytest.approx(sum(1.0 in task for task in tasks) / len(tasks))
    if rewards:
        assert summary["values"]["extracted"] == pytest.approx(sum(r > 0 for r in rewards) / len(rewards))


REWARDS = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(st.lists(st.lists(REWARDS, min_size=3, max_size=3), min_size=1, max_size=8), st.randoms())
def test_metrics_do_not_depend_on_the_order_in_which_rollouts_end(tasks, random):
    rollouts = [rollout(f"t{t}", r, end) for t, repeats in enumerate(tasks) for r, end in enumerate(repeats)]
    found = []
    for _ in range(2):
        metrics = Metrics(repeats=3)
        for each in rollouts:
            if each.verdict is not None:
                each.verdict.components = {"part": each.verdict.reward / 3}
                each.verdict.turn_rewards = [each.verdict.reward / 7]
                each.verdict.values["score"] = each.verdict.reward / 9
            metrics.add(each)
        summary = metrics.summary()
        found.append({**summary, "tasks": sorted(summary["tasks"], key=lambda task: str(task["task_id"]))})
        random.shuffle(rollouts)
    assert found[0] == found[1]


@given(st.lists(st.floats(-1e300, 1e300), max_size=30))
def test_an_exact_sum_is_the_correctly_rounded_sum(values):
    total = ExactSum()
    for value in values:
        total.add(value)
    assert total.value == math.fsum(values)
    at_once = ExactSum()
    at_once.add_all(values[:10])
    at_once.add_all(values[10:])
    assert at_once.value == total.value


@pytest.mark.parametrize(("values", "expected"), [((1e308, 1e308, 1.0), math.inf), ((-1e308, -1e308), -math.inf)])
def test_a_sum_beyond_the_largest_float_is_infinite(values, expected):
    total = ExactSum()
    for value in values:
        total.add(value)
    assert total.value == expected
    at_once = ExactSum()
    for _ in range(2):
        at_once.add_all([*values])
        assert at_once.value == expected


def test_metrics_drop_the_state_of_a_task_after_its_last_repeat():
    metrics = Metrics(repeats=2)
    for task in range(100):
        metrics.add(rollout(f"t{task}", 0, 1.0))
        metrics.add(rollout(f"t{task}", 1, None))
        assert not metrics._incomplete


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, 2 * BATCH + 1])
def test_no_rollout_is_left_out_of_turns_times_and_tokens(count):
    metrics = Metrics()
    for number in range(count):
        made = rollout(f"t{number}", 0, 1.0)
        made.usage, made.timings = {"output_tokens": number, "details": {"cached": 1}}, {"model": 1.0}
        made.calls = [{"items": 1}] * 2
        metrics.add(made)
    for _ in range(2):  # summary() may be called twice
        summary = metrics.summary()
        assert summary["usage"] == {"output_tokens": count * (count - 1) // 2, "details": {"cached": count}}
        assert (summary["turns"]["count"], summary["turns"]["mean"]) == (count, 2)
        assert summary["seconds"]["model"]["count"] == count


_COUNTS = st.integers(0, 10**6)
_USAGE = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "total_tokens"]), _COUNTS | st.none() | st.floats(0, 1)
) | st.fixed_dictionaries(
    {"input_tokens": _COUNTS, "details": st.dictionaries(st.sampled_from("abc"), _COUNTS | st.none()) | st.none()}
)


@given(st.lists(_USAGE, max_size=20))
def test_the_usage_of_a_run_is_the_sum_over_its_rollouts(usages):
    metrics = Metrics()
    for number, usage in enumerate(usages):
        made = rollout(f"t{number}", 0, 1.0)
        made.usage = usage
        metrics.add(made)
    total = metrics.summary()["usage"]
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        assert total.get(key, 0) == sum(usage[key] for usage in usages if isinstance(usage.get(key), int))
    for name in "abc":
        counts = [(usage.get("details") or {}).get(name) or 0 for usage in usages]
        assert total.get("details", {}).get(name, 0) == sum(counts)

"""`ludus compare` finds real differences between two collections, and claims none that are not significant."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import forked
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ludus
from ludus import Resources, ResourcesConfig, Response, ScriptedModel, Task
from ludus.compare import comparison
from ludus.compare.comparison import Comparison, compare, detectable, interval_of_mean, mcnemar
from ludus.compare.scores import Scores
from ludus.store.statistics import t95


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus", "compare", *map(str, arguments)]
    return forked.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def row(task: str, reward: float | None, repeat: int = 0, **fields: Any) -> dict[str, Any]:
    outcome = "failed" if reward is None else "completed"
    return {"rollout_id": f"{task}-{repeat}", "task_id": task, "outcome": outcome, "reward": reward, **fields}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def collection(path: Path, rewards: dict[str, list[float]]) -> Path:
    return write(path, *(row(name, reward, n) for name, values in rewards.items() for n, reward in enumerate(values)))


def scores(rewards: dict[str, list[float]]) -> Scores:
    found = Scores()
    for name, values in rewards.items():
        for reward in values:
            found._add(row(name, reward))
    return found


def compared(a: dict[str, list[float]], b: dict[str, list[float]]) -> Comparison:
    found = compare(scores(a), scores(b))
    assert found is not None
    return found


def test_a_real_difference_is_reported_in_one_sentence(tmp_path: Path):
    random = Random(1)
    for name, lift in (("a", 0.0), ("b", 0.2)):
        rewards = {str(n): [float(random.random() < n / 600 + lift) for _ in range(4)] for n in range(400)}
        collection(tmp_path / f"{name}.jsonl", rewards)
    done = run("a.jsonl", "b.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sentence = done.stdout.splitlines()[-1]
    assert sentence.startswith("B is better than A by 0.")
    assert sentence.endswith("400 tasks).")
    assert "McNemar's exact test: p = " in done.stdout
    turned = json.loads(run("b.jsonl", "a.jsonl", "--json", cwd=tmp_path).stdout)
    assert turned["sentence"] == sentence.replace("B is better than A", "A is better than B")
    assert turned["difference"] == turned["b"]["mean_reward"] - turned["a"]["mean_reward"]
    assert turned["ci95"][0] < turned["difference"] < turned["ci95"][1] < 0
    assert turned["mcnemar"]["p"] < 0.001


def test_no_difference_is_reported_with_the_smallest_detectable_difference(tmp_path: Path):
    random = Random(7)
    for name in "ab":
        collection(tmp_path / f"{name}.jsonl", {str(n): [random.random() for _ in range(2)] for n in range(50)})
    found = json.loads(run("a.jsonl", "b.jsonl", "--json", cwd=tmp_path).stdout)
    assert found["sentence"].startswith("No difference was found (B minus A is ")
    power = f"; a difference of {found['detectable']:.3f} or more would have been found with 80 % power."
    assert found["sentence"].endswith(power)
    assert found["mcnemar"] is None


def test_failed_and_masked_rollouts_are_counted_and_not_rewards_of_zero(tmp_path: Path):
    folder = tmp_path / "a"
    rows = [row(str(n), 1.0) for n in range(10)]
    rows += [row("10", 0.0, outcome="masked"), row("11", None), row("only", 1.0)]
    write(folder / "rollouts.jsonl", *rows)
    failed = [row("12", None), row("12", None), row("0", None)]  # 12 failed twice; 0 failed once and then succeeded
    write(folder / "failures.jsonl", *failed)
    collection(tmp_path / "b.jsonl", {str(n): [1.0] for n in range(13)})
    done = run("a", "b.jsonl", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["a"]["scored"], found["a"]["failed"], found["a"]["masked"]) == (11, 2, 1)
    assert (found["a"]["tasks_only_here"], found["a"]["tasks_without_reward"]) == (1, 3)
    assert (found["tasks"], found["a"]["mean_reward"], found["difference"]) == (10, 1.0, 0.0)
    assert found["sentence"] == "No difference was found: A and B earn the same on each of 10 tasks."
    assert any("may be the hard ones" in warning for warning in found["warnings"])


class Echo(Resources):
    """Rewards the answer `yes`, and adds a bonus."""

    class Config(ResourcesConfig):
        bonus: float = 0.0

    async def verify(self, task: Task, response: Response) -> float:
        return float(response.output_text == "yes") + self.config.bonus


def test_different_settings_datasets_verifiers_and_tasks_are_warned_about(tmp_path: Path):
    rows = [{"responses_create_params": {"input": f"{n}"}, "task_id": f"t{n}"} for n in range(8)]
    model = ScriptedModel(lambda request: "yes" if int(request.input[-1]["content"]) % 3 else "no")
    ludus.collect(Echo, model=model, input=rows, output=tmp_path / "a")
    ludus.collect(Echo, model=model, input=rows, output=tmp_path / "same")
    changed = [*rows[:7], {**rows[7], "responses_create_params": {"input": "9"}}]
    ludus.collect(Echo, model=model, input=changed, output=tmp_path / "b", settings={"resources.bonus": 1})
    assert run("a", "same", cwd=tmp_path).stderr == ""
    done = run("a", "b", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: environments.Echo.settings.bonus is 0.0 in A and 1.0 in B" in done.stderr
    assert "warning: A and B had different datasets" in done.stderr
    assert "warning: rewards of A and B were given by different verifiers" in done.stderr
    assert "warning: 1 tasks have the same id in A and B but different content" in done.stderr


def test_a_torn_last_line_is_left_out_with_a_warning(tmp_path: Path):
    path = collection(tmp_path / "a.jsonl", {str(n): [1.0] for n in range(8)})
    path.write_bytes(path.read_bytes() + b'{"rollout_id": "hal')
    collection(tmp_path / "b.jsonl", {str(n): [1.0] for n in range(8)})
    done = run("a.jsonl", "b.jsonl", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "warning: the last line of A is torn and left out\n"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("none", "cannot read none: No such file or directory"),
        (".", ". holds no rollouts.jsonl"),
        ("text.jsonl", "text.jsonl:1: not JSON"),
        ("rows.jsonl", "rows.jsonl:1: not a rollout"),
        ("other.jsonl", "no task has a reward in both"),
    ],
)
def test_a_user_error_is_one_line(tmp_path: Path, name: str, complaint: str):
    (tmp_path / "text.jsonl").write_text("hello\n")
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {}}\n')
    collection(tmp_path / "other.jsonl", {"elsewhere": [1.0]})
    collection(tmp_path / "good.jsonl", {"here": [1.0]})
    done = run("good.jsonl", name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_fewer_than_six_tasks_are_not_enough():
    sentences = [
        compared(*({str(n): [reward] for n in range(tasks)} for reward in (0.0, 1.0))).sentence()
        for tasks in range(1, 7)
    ]
    assert all(sentence.startswith("Not enough tasks to tell") for sentence in sentences[:5])
    assert sentences[5] == "B is better than A by 1.000 on each of 6 tasks."


def test_the_sentence_says_when_mcnemars_test_contradicts_the_interval():
    found = Comparison(20, 0.2, 0.4, (0.01, 0.4), 0.2, {"p": 0.07}, False)
    assert found.sentence().endswith("; McNemar's exact test does not confirm it (p = 0.07).")
    found = Comparison(20, 0.2, 0.4, (-0.01, 0.4), 0.2, {"p": 0.03}, False)
    assert found.sentence().endswith("; McNemar's exact test alone finds a difference (p = 0.03).")


def test_more_repeats_of_the_same_results_do_not_change_the_interval():
    once = {str(n): [float(n % 2)] for n in range(10)}
    often = {name: values * 100 for name, values in once.items()}
    other = {str(n): [float(n % 3 == 0)] for n in range(10)}
    assert compared(often, other).interval == compared(once, other).interval
    assert compared(often, other).mcnemar == compared(once, other).mcnemar


@given(a=st.integers(0, 40), b=st.integers(0, 40))
def test_mcnemar_is_the_exact_binomial_test(a: int, b: int):
    n = a + b
    tail = sum(math.comb(n, k) for k in range(min(a, b) + 1))
    exact = min(Fraction(1), Fraction(2 * tail, 2**n))
    assert mcnemar(a, b) == pytest.approx(float(exact), rel=1e-9)


def test_mcnemar_of_a_million_tasks_is_right():
    assert mcnemar(500_000, 500_000) == 1.0
    assert mcnemar(499_000, 501_000) == pytest.approx(0.0456, abs=0.0005)  # two standard deviations
    assert mcnemar(0, 10_000) == 0.0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=4, max_size=5))
def test_the_interval_agrees_with_the_exhaustive_bootstrap(values: list[float]):
    n = len(values)
    every = sorted(math.fsum(draw) / n for draw in product(values, repeat=n))
    tail = comparison._NORMAL.cdf(-math.sqrt(n / (n - 1)) * t95(n - 1))
    found = interval_of_mean(values)
    assert found is not None
    slack = 3 * math.sqrt(tail / comparison.RESAMPLES) + 1 / comparison.RESAMPLES
    for end, share in zip(found, (tail, 1 - tail), strict=True):
        below = sum(mean < end - 1e-9 for mean in every) / len(every)
        up_to = sum(mean <= end + 1e-9 for mean in every) / len(every)
        assert below - slack <= share <= up_to + slack


@pytest.mark.parametrize("seed", range(4))
def test_the_expansion_for_many_tasks_agrees_with_resampling(seed: int, monkeypatch: pytest.MonkeyPatch):
    random = Random(seed)
    values = [random.choice([0.0, 0.0, 0.0, 0.0, 1.0, -0.25]) + random.expovariate(4) * seed for _ in range(1000)]
    resampled = interval_of_mean(values)
    monkeypatch.setattr(comparison, "RESAMPLED", 0)
    expanded = interval_of_mean(values)
    assert resampled is not None
    assert expanded is not None
    width = resampled[1] - resampled[0]
    for one, other in zip(resampled, expanded, strict=True):
        assert abs(one - other) < 0.03 * width


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 40, 1500])
def test_the_interval_contains_the_true_mean_as_often_as_it_claims(n: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparison, "RESAMPLES", 500)
    random = Random(n)
    held, trials = 0, 400
    for seed in range(trials):
        values = [random.choice([-0.5, 0.0, 0.0, 0.5, 1.0]) for _ in range(n)]
        interval = interval_of_mean(values, seed)
        assert interval is not None
        held += interval[0] <= 0.2 <= interval[1]
    assert held / trials > 0.915


def test_the_detectable_difference_is_found_four_times_out_of_five():
    random = Random(0)
    n, spread = 60, 0.5
    sample = [random.gauss(0, spread) for _ in range(5000)]
    size = (t95(n - 1) + comparison._NORMAL.inv_cdf(0.8)) * spread / math.sqrt(n)
    many = detectable(sample)
    assert many is not None
    assert many * math.sqrt(5000 / n) == pytest.approx(size, rel=0.05)
    found = 0
    for _ in range(1000):
        values = [random.gauss(size, spread) for _ in range(n)]
        mean = math.fsum(values) / n
        error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
        found += mean - 1.96 * error > 0
    assert 0.75 < found / 1000 < 0.87


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3), min_size=1
    ),
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3), min_size=1
    ),
)
@settings(max_examples=30, deadline=None)
def test_means_are_over_the_tasks_that_both_collections_have(a: dict[str, list[float]], b: dict[str, list[float]]):
    common = a.keys() & b.keys()
    found = compare(scores(a), scores(b))
    if not common:
        assert found is None
        return
    assert found is not None
    means = [math.fsum(math.fsum(side[name]) / len(side[name]) for name in common) / len(common) for side in (a, b)]
    assert (found.mean_a, found.mean_b) == (pytest.approx(means[0]), pytest.approx(means[1]))
    assert found.tasks == len(common)
    assert (found.mcnemar is not None) == all(v in (0.0, 1.0) for side in (a, b) for name in common for v in side[name])
    assert found.sentence().endswith(".")


def test_the_interval_stays_between_the_smallest_and_the_largest_difference():
    low, high = interval_of_mean([1.0] * 2000 + [0.0])  # type: ignore[misc]
    assert 0.0 <= low < high <= 1.0


def test_ten_thousand_tasks_give_the_same_interval_each_time():
    random = Random(3)
    a, b = ({str(n): [random.random()] for n in range(10_000)} for _ in range(2))
    sides = scores(a), scores(b)
    found = compare(*sides)
    assert found is not None
    assert found.interval == compare(*sides).interval  # type: ignore[union-attr]


def test_a_reward_too_large_for_statistics_is_refused_with_file_and_line(tmp_path: Path):
    write(tmp_path / "a.jsonl", *(row(f"t{number}", 1.0) for number in range(8)))
    write(tmp_path / "b.jsonl", *(row(f"t{number}", (-1) ** number * 1e308) for number in range(8)))
    done = run("a.jsonl", "b.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: b.jsonl:1: a reward of 1e+308 is too large to compare\n"

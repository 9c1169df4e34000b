"""Is collection B better than A? Paired statistics over the tasks of both, and one sentence with the result.

The unit is the task: each task contributes the difference between B's and A's mean reward. So more repeats of a task
are no further evidence, and a task that is hard for both does not hide a difference. A rollout without a reward is
counted and left out. It is never a reward of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist, fmean
from typing import Any

from ludus.compare.scores import Scores, TaskScore
from ludus.store.statistics import t95

RESAMPLES = 10_000

#: The most tasks that are resampled. For more tasks, 10,000 resamples would take minutes, and the expansion that is
#: used instead differs from resampling by less than the noise of 10,000 resamples.
RESAMPLED = 1000

#: With fewer tasks no result is significant: with five, all differences have the same sign by chance 1 time in 16.
FEWEST = 6
POWER = 0.8
SIGNIFICANT = 0.05

_NORMAL = NormalDist()


@dataclass
class Comparison:
    """The result of comparing two collections. Means and pass rates are over the tasks with a reward in both.

    `pass_reward` is the lowest reward that counts as a pass, or None if that differs between environments.
    """

    tasks: int
    mean_a: float
    mean_b: float
    interval: tuple[float, float] | None
    detectable: float | None
    mcnemar: dict[str, Any] | None
    same_everywhere: bool
    pass_rate_a: float = 0.0
    pass_rate_b: float = 0.0
    pass_reward: float | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def difference(self) -> float:
        """B's mean reward minus A's."""
        return self.mean_b - self.mean_a

    @property
    def found(self) -> bool:
        """Whether a difference was found: the interval leaves out 0, and there are enough tasks."""
        if self.interval is None or self.tasks < FEWEST or self.same_everywhere:
            return False
        return not self.interval[0] <= 0 <= self.interval[1]

    def sentence(self) -> str:
        """The result as one sentence, for the user."""
        tasks, interval = f"{self.tasks:,} task{'' if self.tasks == 1 else 's'}", self.interval
        if self.same_everywhere:
            return f"No difference was found: A and B earn the same on each of {tasks}."
        if interval is None or self.tasks < FEWEST:
            return f"Not enough tasks to tell ({tasks}): B minus A is {say(self.difference)}, which may be chance."
        low, high = interval
        if low > 0:
            return f"B is better than A by {self._amount(low, high, tasks)}{self._doubt(significant=True)}."
        if high < 0:
            return f"A is better than B by {self._amount(-high, -low, tasks)}{self._doubt(significant=True)}."
        size = f"B minus A is {say(self.difference)}, 95 % {say(low)} to {say(high)}, {tasks}"
        power = f"a difference of {say(self.detectable or 0.0)} or more would have been found with 80 % power"
        return f"No difference was found ({size}); {power}{self._doubt(significant=False)}."

    def _amount(self, low: float, high: float, tasks: str) -> str:
        if low == high:
            return f"{say(low)} on each of {tasks}"
        return f"{say(abs(self.difference))} (95 % {say(low)} to {say(high)}, {tasks})"

    def _doubt(self, significant: bool) -> str:
        """A clause for the sentence if McNemar's test contradicts the interval; else empty."""
        if self.mcnemar is None or (self.mcnemar["p"] <= SIGNIFICANT) == significant:
            return ""
        says = "does not confirm it" if significant else "alone finds a difference"
        return f"; McNemar's exact test {says} (p = {self.mcnemar['p']:.2g})"


def compare(a: Scores, b: Scores) -> Comparison | None:
    """Compare B with A on the tasks with a reward in both; None if there are no such tasks."""
    common = [name for name, score in a.tasks.items() if score.count and name in b.tasks and b.tasks[name].count]
    if not common:
        return None
    pairs = [(a.tasks[name], b.tasks[name]) for name in common]
    differences = [of_b.mean - of_a.mean for of_a, of_b in pairs]
    pass_rewards = a.pass_rewards | b.pass_rewards
    passes_are_defined = a.names_pass_reward or b.names_pass_reward
    return Comparison(
        tasks=len(common),
        mean_a=fmean(of_a.mean for of_a, _ in pairs),
        mean_b=fmean(of_b.mean for _, of_b in pairs),
        pass_rate_a=fmean(of_a.passed / of_a.count for of_a, _ in pairs),
        pass_rate_b=fmean(of_b.passed / of_b.count for _, of_b in pairs),
        pass_reward=min(pass_rewards) if len(pass_rewards) == 1 else None,
        interval=interval_of_mean(differences),
        detectable=detectable(differences),
        mcnemar=majority_test(pairs)
        if passes_are_defined or all(task.binary for pair in pairs for task in pair)
        else None,
        same_everywhere=not any(differences),
    )


def interval_of_mean(values: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of the mean of one value per task; None for fewer than two tasks.

    From the 2.5 % to the 97.5 % percentile of 10,000 resamples would be too narrow for few tasks. So the interval
    reaches further, as Student's t does (Hesterberg's expanded percentile interval). For many tasks the percentiles
    are computed from the exact cumulants of the bootstrap distribution instead of from resamples.
    """
    n = len(values)
    if n < 2:
        return None
    tail = _NORMAL.cdf(-math.sqrt(n / (n - 1)) * t95(n - 1))
    if n > RESAMPLED:  # cut like the resamples, whose means lie between the smallest and the largest value
        return max(_expanded(values, tail), min(values)), min(_expanded(values, 1 - tail), max(values))
    draw = Random(seed).choices
    means = sorted(sum(draw(values, k=n)) / n for _ in range(RESAMPLES))
    cut = int(tail * RESAMPLES)
    return means[cut], means[RESAMPLES - 1 - cut]


def _expanded(values: Sequence[float], share: float) -> float:
    """A percentile of the bootstrap distribution of the mean, by the Cornish-Fisher expansion."""
    n, mean = len(values), fmean(values)
    second, third, fourth = (fmean((value - mean) ** power for value in values) for power in (2, 3, 4))
    if second == 0:
        return mean
    skew, kurtosis = third / math.sqrt(second**3 * n), (fourth / second**2 - 3) / n
    z = _NORMAL.inv_cdf(share)
    shift = skew * (z**2 - 1) / 6 + kurtosis * (z**3 - 3 * z) / 24 - skew**2 * (2 * z**3 - 5 * z) / 36
    return mean + math.sqrt(second / n) * (z + shift)


def detectable(differences: Sequence[float]) -> float | None:
    """The smallest true difference that these tasks, with their noise, show with 80 % power at the 5 % level."""
    n = len(differences)
    if n < FEWEST or not any(differences):
        return None
    mean = fmean(differences)
    error = math.sqrt(math.fsum((difference - mean) ** 2 for difference in differences) / (n - 1) / n)
    return (t95(n - 1) + _NORMAL.inv_cdf(POWER)) * error or None


def majority_test(pairs: Sequence[tuple[TaskScore, TaskScore]]) -> dict[str, Any]:
    """McNemar's exact test on whether the majority of a task's rollouts passed.

    Repeats of a task are not independent, so single rollouts are not paired. A task is left out if exactly half of its
    rollouts passed in A or in B.
    """
    only_a = only_b = undecided = 0
    for of_a, of_b in pairs:
        if of_a.undecided or of_b.undecided:
            undecided += 1
        elif of_a.passes != of_b.passes:
            only_a += of_a.passes
            only_b += of_b.passes
    return {"only_a": only_a, "only_b": only_b, "undecided": undecided, "p": mcnemar(only_a, only_b)}


def mcnemar(only_a: int, only_b: int) -> float:
    """The p-value: the probability of a split at least this uneven if A and B were equally good."""
    n, fewer = only_a + only_b, min(only_a, only_b)
    if only_a == only_b:
        return 1.0
    term = math.exp(math.lgamma(n + 1) - math.lgamma(fewer + 1) - math.lgamma(n - fewer + 1) - n * math.log(2))
    total = 0.0
    for passed in range(fewer, -1, -1):
        total += term
        term *= passed / (n - passed + 1)
        if term < total * 1e-17:
            break
    return min(1.0, 2 * total)


def say(value: float) -> str:
    """A reward as text with three decimals, or more if three would show 0.000."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"

"""An example taskset for verifiers, to try the adapter: sums, rewarded by the last number of the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["Sums"]


class SumData(vf.TaskData):
    """One sum."""

    answer: int


class SumTask(vf.Task[SumData]):
    """A reward for the right sum, and a small one for an answer that is only the number."""

    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        """Whether the last number is the sum."""
        numbers = re.findall(r"-?\d+", trace.last_reply)
        return float(bool(numbers) and len(numbers[-1]) < 20 and int(numbers[-1]) == self.data.answer)

    @vf.reward(weight=0.1)
    async def brief(self, trace: vf.Trace) -> float:
        """Whether the answer is the sum and nothing else."""
        return float(trace.last_reply == str(self.data.answer))

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        """How long the answer is."""
        return float(len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    """How many sums, and how large."""

    count: int = 5
    largest: int = 50


class Sums(vf.Taskset[SumTask, SumsConfig]):
    """Sums of two numbers, different in each task."""

    def load(self) -> Iterator[SumTask]:
        """Every task in turn."""
        for number in range(self.config.count):
            a, b = (7 * number + 3) % self.config.largest, (11 * number + 5) % self.config.largest
            yield SumTask(SumData(prompt=f"What is {a} + {b}? Answer with the number.", answer=a + b), self.config.task)

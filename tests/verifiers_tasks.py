"""Tasksets of the verifiers library for tests: with tools, with files, with errors, and unsupported ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf


class Count(vf.State):
    total: int = 0


class Data(vf.TaskData):
    target: int = 0


class ClickerConfig(vf.ToolsetConfig):
    step: int = 1


class Clicker(vf.Toolset[ClickerConfig, Count]):
    """Counts clicks in the rollout's state."""

    async def setup_task(self, task: Data) -> None:
        self.target = task.target

    @vf.tool
    async def click(self, times: int) -> str:
        """Click some times."""
        if times < 0:
            raise ValueError("clicks cannot be taken back")
        self.state.total += times * self.config.step
        return f"{self.state.total} of {self.target}"


class ClickTask(vf.Task[Data, Count]):
    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return [Clicker(ClickerConfig())]

    @vf.reward
    async def reached(self, trace: vf.Trace) -> float:
        return float(trace.state.total == self.data.target)

    @vf.metric
    async def tool_messages(self, trace: vf.Trace) -> float:
        return float(len(trace.tool_messages))


class FileTask(vf.Task[Data]):
    """Reads files of its runtime to score."""

    async def setup(self, trace: vf.Trace, runtime: Any) -> None:
        await runtime.write("secret.txt", str(self.data.target).encode())

    async def finalize(self, trace: vf.Trace, runtime: Any) -> None:
        await runtime.write("reply.txt", trace.last_reply.encode())

    @vf.reward
    async def same(self, trace: vf.Trace, runtime: Any) -> float:
        return float(await runtime.read("secret.txt") == await runtime.read("reply.txt"))


def hang() -> None:
    while True:
        time.sleep(0.01)


class MoodyTask(vf.Task[Data]):
    """Raises, hangs, or gives NaN or named rewards, as the answer says."""

    @vf.reward
    async def mood(self, trace: vf.Trace) -> Any:
        said = trace.last_reply
        if said == "raise":
            raise ValueError("the task broke")
        if said == "hang":
            hang()
        if said == "nan":
            return float("nan")
        if said == "keys":
            return {"one": 1.0, "two": 0.5}
        return float(len(trace.assistant_messages))


class SilentTask(vf.Task[Data]):
    """Has no rewards."""


class StoppingTask(SilentTask):
    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        return True


class BoxedTask(SilentTask):
    NEEDS_CONTAINER = True


class One(vf.TasksetConfig):
    prompt: str | None = "Begin."


def taskset(task: Any) -> Any:
    class Tasks(vf.Taskset[task, One]):  # type: ignore[valid-type]
        def load(self) -> Iterator[Any]:
            for target in (3, 4):
                yield task(Data(prompt=self.config.prompt, system_prompt="Be good.", target=target), self.config.task)

    return Tasks


Clicks, Files, Moody, Silent = map(taskset, (ClickTask, FileTask, MoodyTask, SilentTask))
Stopping, Boxed = map(taskset, (StoppingTask, BoxedTask))

if __name__ == "__main__":
    Clicker.run()

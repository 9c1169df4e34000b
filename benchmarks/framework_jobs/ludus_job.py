"""The job in Ludus: `ludus.collect` with an environment of one method."""

from collections.abc import Iterable
from pathlib import Path

from job import answer, look_up, measure, options, prompt

import ludus
from ludus import Resources, Response, tool


class Repeat(Resources):
    """Exact match of the whole answer."""

    class Task(ludus.Task):
        number: int

    async def verify(self, task: Task, response: Response) -> float:
        return float(response.output_text == answer(task.number))


class RepeatWithTool(Repeat):
    """The same with a tool."""

    @tool
    async def look_up(self, number: int) -> str:
        """Look up a number."""
        return look_up(number)


def _recorded(output: Path) -> Iterable[tuple[str, float | None]]:
    run = ludus.load(output)
    for rollout in run:
        yield rollout.task_id, rollout.reward
    for rollout in run.failures():
        yield rollout.task_id, None


def main() -> None:
    given = options()
    rows = [
        {"responses_create_params": {"input": prompt(number)}, "number": number} for number in range(given.rollouts)
    ]

    def collect() -> Iterable[tuple[str, float | None]]:
        ludus.collect(
            RepeatWithTool if given.tool else Repeat,
            model=f"{given.url}#stub",
            input=rows,
            output=given.output,
            concurrency=given.concurrency,
            resume=given.resume,
        )
        return _recorded(given.output)

    measure(collect)


if __name__ == "__main__":
    main()

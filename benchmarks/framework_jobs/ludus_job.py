"""The job in Ludus: `ludus.collect` with an environment of one method."""

from collections.abc import Iterable

from job import answer, measure, options, prompt

import ludus
from ludus import Resources, Response


class Repeat(Resources):
    """Exact match of the whole answer."""

    class Task(ludus.Task):
        number: int

    async def verify(self, task: Task, response: Response) -> float:
        return float(response.output_text == answer(task.number))


def main() -> None:
    given = options()
    rows = [
        {"responses_create_params": {"input": prompt(number)}, "number": number} for number in range(given.rollouts)
    ]

    def collect() -> Iterable[tuple[int, float | None]]:
        result = ludus.collect(
            Repeat,
            model=f"{given.url}#stub",
            input=rows,
            output=given.output,
            concurrency=given.concurrency,
            resume=given.resume,
        )
        recorded = ((rollout.task["number"], rollout.reward) for rollout in result.rollouts)
        failed = ((failure.task["number"], None) for failure in result.failures())
        return (pair for part in (recorded, failed) for pair in part)

    measure(collect)


if __name__ == "__main__":
    main()

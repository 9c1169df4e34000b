"""The job in Ludus: `ludus.collect` with an environment of one method; the harness works on Harbor's task folders."""

from collections.abc import Iterable
from pathlib import Path

from harbor_job import write_tasks
from job import answer, look_up, options, prompt, report

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
    shared = {"model": f"{given.url}#stub", "output": given.output / "run", "concurrency": given.concurrency}
    if given.job == "harness":
        write_tasks(given.output / "tasks", given.rollouts)
        harness = {"agent.type": "harness", "agent.name": "mini-swe-agent"}
        ludus.collect(f"harbor:{given.output / 'tasks'}", settings=harness, **shared)
    else:
        rows = [
            {"responses_create_params": {"input": prompt(number)}, "number": number} for number in range(given.rollouts)
        ]
        ludus.collect(RepeatWithTool if given.tool else Repeat, input=rows, resume=given.resume, **shared)
    report(_recorded(given.output / "run"))


if __name__ == "__main__":
    main()

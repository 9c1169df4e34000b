"""The job in Inspect: a task of dataset, solver `generate` and scorer `exact`; resumed with `eval_retry`."""

import os
from collections.abc import Iterable

from inspect_ai import Task, eval, eval_retry, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import exact
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool
from job import answer, look_up, options, prompt, report


@tool(name="look_up")
def look_up_tool() -> Tool:
    async def execute(number: int) -> str:
        """Look up a number.

        Args:
            number: The number.
        """
        return look_up(number)

    return execute


@task
def repeat(rollouts: int, with_tool: bool) -> Task:
    """The job as a named task: `eval_retry` makes it again from its name and its arguments."""
    samples = [Sample(id=number, input=prompt(number), target=answer(number)) for number in range(rollouts)]
    solver = [use_tools(look_up_tool()), generate()] if with_tool else generate()
    return Task(dataset=MemoryDataset(samples), solver=solver, scorer=exact())


def main() -> None:
    given = options()
    os.environ["STUB_BASE_URL"], os.environ["STUB_API_KEY"] = given.url, "none"  # a retry looks nowhere else
    folder = str(given.output)

    def collect() -> Iterable[tuple[int, float | None]]:
        # The default of max_retries is to retry a 500 without end; fail_on_error=False keeps the other samples.
        shared = {
            "log_dir": folder,
            "display": "none",
            "log_level": "error",
            "fail_on_error": False,
            "max_connections": given.concurrency,
            "max_samples": given.concurrency,
        }
        if given.resume:
            (started,) = list_eval_logs(folder)
            (log,) = eval_retry(read_eval_log(started), **shared)
        else:
            model = get_model(
                "openai-api/stub/stub",
                config=GenerateConfig(max_connections=given.concurrency, max_retries=2),
            )
            (log,) = eval(repeat(given.rollouts, given.tool), model=model, **shared)
        for sample in log.samples or ():
            score = next(iter((sample.scores or {}).values()), None)
            failed = sample.error is not None or score is None
            yield int(sample.id), None if failed else float(score.value == "C" or score.value == 1)

    report(collect())


if __name__ == "__main__":
    main()

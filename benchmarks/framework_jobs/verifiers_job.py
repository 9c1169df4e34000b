"""The job in verifiers: what `vf-eval repeat-taskset` runs, without its dashboard and without an upload."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from job import options, report
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

# The process that serves the tool imports the taskset too.
os.environ["PYTHONPATH"] = str(Path(__file__).parent)


def main() -> None:
    given = options()
    os.environ["STUB_KEY"] = "none"
    taskset = {"id": "repeat_taskset", "num_tasks": given.rollouts, "with_tool": given.tool}
    env = {"taskset": taskset, "agent": {"runtime": {"type": "subprocess"}}}  # others need docker or an account
    config = EvalConfig.model_validate(
        {
            "env": env,
            "model": "stub",
            "client": {"type": "eval", "base_url": given.url, "api_key_var": "STUB_KEY"},
            "max_concurrent": given.concurrency,
            "rich": None,
            "push": False,
            "run": {"name": given.output.name},
            "output_dir": given.output.parent,
            "resume": given.resume,
        }
    )

    def collect() -> Iterable[tuple[int, float | None]]:
        for episode in asyncio.run(run_eval(config)):
            for trace in episode.traces:
                data = trace.task.data if hasattr(trace.task, "data") else trace.task
                yield data.number, None if trace.has_error else trace.reward

    report(collect())


if __name__ == "__main__":
    main()

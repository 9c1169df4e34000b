"""The job in Harbor: a folder of tasks and `harbor run`; resumed with `harbor job resume`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from job import answer, options, prompt, report

HERE = Path(__file__).parent
TEST = """#!/bin/bash
if [ "$(cat /app/answer.txt)" = "{answer}" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_tasks(folder: Path, rollouts: int) -> None:
    """One folder for each task."""
    for number in range(rollouts):
        task = folder / f"task-{number}"
        (task / "tests").mkdir(parents=True)
        (task / "environment").mkdir()
        (task / "task.toml").write_text('version = "1.0"\n')
        (task / "instruction.md").write_text(prompt(number))
        (task / "tests" / "test.sh").write_text(TEST.format(answer=answer(number)))


def recorded(job: Path) -> Iterator[tuple[str, float | None]]:
    """The reward of each trial."""
    for path in job.glob("*/result.json"):
        trial = json.loads(path.read_text())
        verdict = trial.get("verifier_result")
        failed = trial.get("exception_info") is not None or verdict is None
        yield trial["task_name"], None if failed else float(verdict["rewards"]["reward"])


def main() -> None:
    given = options()
    tasks, job = given.output / "tasks", given.output / "jobs" / "repeat"
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "JOB": given.job,
        "OPENAI_BASE_URL": given.url,
        "OPENAI_API_BASE": given.url,
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HARBOR_TELEMETRY": "off",
    }
    harbor = str(Path(sys.executable).parent / "harbor")
    agent = "InstalledMiniSweAgent" if given.job == "harness" else "AskAgent"
    words = [harbor, "job", "resume", "--job-path", str(job)]
    if not given.resume:
        write_tasks(tasks, given.rollouts)
        words = [harbor, "run", "--path", str(tasks), "--agent", f"harbor_parts:{agent}", "--model", "openai/stub"]
        words += ["--env", "harbor_parts:FolderEnvironment", "--jobs-dir", str(job.parent), "--job-name", job.name]
        words += ["--n-concurrent", str(given.concurrency), "--quiet", "--yes"]
    subprocess.run(words, env=environment, check=True, stdout=sys.stderr)
    report(recorded(job))


if __name__ == "__main__":
    main()

"""The same job in Ludus, verifiers and Inspect: one question, an exact-match verifier; and the same with a tool call.

    python benchmarks/frameworks.py --verifiers VENV/bin/python --inspect VENV/bin/python --output frameworks.json

Every framework runs in a process and a virtual environment of its own, asks the same stub server on loopback and has
the same concurrency. A first run, which is not counted, compiles what is imported. Figures: CPU seconds of the start
(imports) and of the collection, the process and its children together; CPU of a further rollout, from a short and a
long run; peak memory; seconds from the start of the process to the first model call. With a tool, a rollout is two
model calls and one tool call. Two behaviours are played: every tenth task gets only answers with status 500, and the
process is killed (SIGKILL) halfway and resumed. Without the path of a framework's Python, the script leaves the
framework out and says how to install it. NeMo Gym is not played: it needs Python 3.13.14 and a Ray cluster.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent / "framework_jobs"
INSTALL = {
    "verifiers": "pip install verifiers==0.4.0",
    "inspect": "pip install inspect-ai openai",
}


@contextmanager
def stub(**flags: float) -> Iterator[str]:
    """Run the stub server in a process of its own and yield its URL."""
    words = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = subprocess.Popen([sys.executable, str(JOBS / "stub.py"), *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def stats(url: str) -> dict[str, Any]:
    """What the stub has counted."""
    with urllib.request.urlopen(f"{url}/stats") as answer:
        counted: dict[str, Any] = json.load(answer)
    return counted


class Job:
    """One framework's job in a process group of its own."""

    def __init__(self, name: str, python: str, url: str, rollouts: int, concurrency: int, output: Path) -> None:
        self._words = [python, str(JOBS / f"{name}_job.py"), "--url", f"{url}/v1", "--rollouts", str(rollouts)]
        self._words += ["--concurrency", str(concurrency), "--output", str(output)]
        self._errors = output.with_name(f"{output.name}.stderr")
        self._environment = dict(os.environ)
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # every run would compile the framework again
        if name != "ludus":
            self._environment.pop("PYTHONPATH", None)

    def start(self, *more: str) -> "subprocess.Popen[str]":
        """Start the job; its report is the last line that it prints."""
        with self._errors.open("w") as errors:
            return subprocess.Popen(
                [*self._words, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env=self._environment,
            )

    def run(self, timeout_s: float, *more: str) -> dict[str, Any]:
        """Run the job to its end and return its report, or why there is none."""
        started = time.time()
        process = self.start(*more)
        try:
            printed, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill(process)
            return {"crash": f"no end within {timeout_s:.0f} s"}
        lines = printed.strip().splitlines()
        if process.returncode != 0 or not lines:
            said = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
            return {"crash": ": ".join([f"exit status {process.returncode}", *said])}
        return {**json.loads(lines[-1]), "started": started}


def kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL to the job and its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def cost(name: str, python: str, given: argparse.Namespace, folder: Path, *more: str) -> dict[str, Any]:
    """CPU, memory and start: the best of `--tries` runs, each with a short run for what a further rollout costs."""
    few = given.concurrency
    sizes = [few, *[few, given.rollouts] * given.tries]  # the first is not counted: it compiles what is imported
    reports = []
    for number, rollouts in enumerate(sizes):
        with stub() as url:
            output = folder / f"{name}-{number}{''.join(more)}"
            report = Job(name, python, url, rollouts, given.concurrency, output).run(given.timeout, *more)
            if "crash" in report:
                return report
            report["first_s"] = stats(url)["first"] - report["started"]
        reports.append(report)

    def least(figure: str, tries: list[dict[str, Any]]) -> float:
        return min(float(report[figure]) for report in tries)

    short, whole = reports[1::2], reports[2::2]
    further = least("cpu_s", whole) - least("cpu_s", short)
    return {
        "start_cpu_s": least("start_cpu_s", whole),
        "cpu_s": least("cpu_s", whole),
        "further_rollout_cpu_ms": 1000 * further / (given.rollouts - few),
        "peak_mb": least("peak_mb", whole),
        "largest_child_mb": least("largest_child_mb", whole),
        "first_s": least("first_s", whole),
        "mean_reward": whole[0]["mean_reward"],
    }


def cost_with_tool(name: str, python: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The same for rollouts with one tool call."""
    return cost(name, python, given, folder, "--tool")


def failing(name: str, python: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every tenth task gets only answers with status 500."""
    with stub(fail_every=10) as url:
        return Job(name, python, url, 30, 10, folder / f"{name}-failing").run(given.timeout)


def killed(name: str, python: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """SIGKILL after half of the answers, then the framework's way to resume."""
    rollouts = 60
    with stub(delay=0.3) as url:
        job = Job(name, python, url, rollouts, 5, folder / f"{name}-killed")
        process = job.start()
        until = time.monotonic() + given.timeout
        while stats(url)["answers"] < rollouts // 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        kill(process)
        answers = stats(url)["answers"]
        report = job.run(given.timeout, "--resume")
        return {**report, "rollouts": rollouts, "answers_before": answers, "asked_again": stats(url)["repeated"]}


#: What is played for each framework, in this order.
PARTS = (cost, cost_with_tool, failing, killed)


def _words(report: dict[str, Any]) -> str:
    """The figures of a part on one line."""
    shown = [(name, value) for name, value in report.items() if name != "started"]
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifiers", metavar="PYTHON", help="the Python of an environment with verifiers")
    parser.add_argument("--inspect", metavar="PYTHON", help="the Python of an environment with Inspect")
    parser.add_argument("--rollouts", type=int, default=300, help="more than --concurrency")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of a job")
    parser.add_argument("--output", type=Path, help="write all figures as JSON")
    given = parser.parse_args()
    if given.rollouts <= given.concurrency:
        parser.error("--rollouts must be greater than --concurrency")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ludus", "verifiers", "inspect"):
            python = sys.executable if name == "ludus" else getattr(given, name)
            if python is None or not Path(python).exists():
                print(f"{name}: left out. In a new virtual environment: {INSTALL[name]}; then --{name} VENV/bin/python")
                continue
            found[name] = {}
            for part in PARTS:
                found[name][part.__name__] = part(name, python, given, Path(folder))
                print(f"{name}, {part.__name__}: {_words(found[name][part.__name__])}", flush=True)
            if given.output:
                given.output.write_text(json.dumps(found, indent=2) + "\n")
    print("NeMo Gym: left out. It needs Python 3.13.14 and Ray; compare the figures in docs/about/performance.md")


if __name__ == "__main__":
    main()

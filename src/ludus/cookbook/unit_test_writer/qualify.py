"""How `ludus qualify` writes tests: in a fenced block. Its attacks on graders are handed in as tests, too."""

from __future__ import annotations

from typing import Any

settings = {"resources.seconds": 2.0}

_COUNTS_RUNS = """
import os
runs = len([name for name in os.listdir() if name.startswith("run_")])
open(f"run_{runs}", "w").close()
assert runs < 2
"""


def answer(task: Any, text: str) -> str:
    """Tests in a fenced block."""
    return f"```python\n{text}\n```"


def program(task: Any, source: str) -> str:
    """Tests that attack the grader."""
    return answer(task, f"{source}\nassert cheat()")


def preserving(task: Any) -> dict[str, Any]:
    """The same tests in a function, and after a draft."""
    lines = task.solution.replace("\n", "\n    ")
    return {
        "in_a_function": answer(task, f"def test_it():\n    {lines}\n\ntest_it()"),
        "after_a_draft": f"{answer(task, 'assert True')}\nBetter:\n{answer(task, task.solution)}",
    }


def breaking(task: Any) -> dict[str, Any]:
    """Tests that are never run, refuse everything, or check little."""
    lines = task.solution.replace("\n", "\n    ")
    return {
        "no_block": task.solution,
        "never_called": answer(task, f"def test_it():\n    {lines}"),
        "one_mistake": answer(task, f"{task.solution}\nassert False"),
        "caught": answer(task, f"try:\n    {lines}\nexcept AssertionError:\n    pass"),
    }


def exploits(task: Any) -> dict[str, Any]:
    """Tests that know nothing about the function."""
    return {
        "cheat/refuses_all": answer(task, "assert False"),
        "cheat/accepts_all": answer(task, "assert True"),
        "cheat/counts_runs": answer(task, _COUNTS_RUNS),
    }

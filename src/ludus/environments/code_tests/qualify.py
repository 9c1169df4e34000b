"""How qualification writes functions: in a fenced block, under the name that the tests call."""

from __future__ import annotations

from typing import Any

settings = {"resources.tests_timeout_secs": 0.5}


def oracle(task: Any) -> str | None:
    """The row's own solution."""
    return _fenced(task.solution) if task.solution else None


def answer(task: Any, text: str) -> str:
    """A function that always returns the text."""
    return program(task, f"def cheat(*arguments, **named):\n    return {text!r}")


def program(task: Any, source: str) -> str:
    """A function that returns the value of `cheat()` in the source."""
    return _fenced(f"{source}\ndef {task.entry_point}(*arguments, **named):\n    return cheat(*arguments, **named)")


def preserving(task: Any) -> dict[str, Any]:
    """The same function, written in other ways."""
    code = task.solution
    return {
        "plain_fence": f"```\n{code}\n```",
        "first_a_draft": f"A draft:\n```python\nx = 1\n```\nBetter:\n```python\n{code}\n```",
        "prints_too": _fenced(f"print('noise', flush=True)\n{code}"),
        "with_an_example": _fenced(f"{code}\nif __name__ == '__main__':\n    print('example')"),
        "with_a_helper": _fenced(f"{code}\n_wrapped = {task.entry_point}\n{_forwarding(task, '_wrapped')}"),
    }


def breaking(task: Any) -> dict[str, Any]:
    """Functions that are nearly right."""
    code, name = task.solution, task.entry_point
    return {
        "no_fence": code,
        "other_name": _fenced(f"{code}\n{name}_ = {name}\ndel {name}"),
        "returns_nothing": _fenced(f"{code}\n_wrapped = {name}\ndef {name}(*a, **k):\n    _wrapped(*a, **k)"),
        "then_raises": _fenced(f"{code}\nraise SystemError"),
        "wrapped": _fenced(f"{code}\n_wrapped = {name}\n{_forwarding(task, '_wrapped', '[', ']')}"),
    }


def _forwarding(task: Any, to: str, before: str = "", after: str = "") -> str:
    return f"def {task.entry_point}(*a, **k):\n    return {before}{to}(*a, **k){after}"


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"

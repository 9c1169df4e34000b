"""How qualification writes programs: in a fenced block. A text as an answer is a program that prints or returns it."""

from __future__ import annotations

from typing import Any

#: A short time limit, because some cheats run until it ends.
settings = {"resources.unit_test_timeout_secs": 0.5}


def oracle(task: Any) -> str:
    """The row's own solution."""
    return _fenced(task.solution)


def answer(task: Any, text: str) -> str:
    """A program that prints the text, or whose function returns it."""
    return program(task, f"def cheat(*arguments):\n    return {text!r}")


def program(task: Any, source: str) -> str:
    """A program that prints the value of `cheat()` in the source, or whose function returns it."""
    name = task.verifier_metadata.unit_tests.fn_name
    if name is None:
        return _fenced(f"{source}\nprint(cheat())")
    return _fenced(f"{source}\ndef {name}(*arguments):\n    return cheat(*arguments)")


def preserving(task: Any) -> dict[str, Any]:
    """The same program, written in other ways."""
    code = task.solution
    ways = {
        "plain_fence": f"```\n{code}\n```",
        "first_a_draft": f"A draft:\n```python\nprint('draft')\n```\nBetter:\n```python\n{code}\n```",
        "inline_fence_after": f"```python\n{code}\n```\nThat is it ```done```.",
        "in_a_list": "1. This:\n" + "\n".join(f"   {line}" for line in f"```python\n{code}\n```".split("\n")),
        "after_future_import": _fenced(f"from __future__ import annotations\n{code}"),
        "more_on_stderr": _fenced(f"import sys\nprint('noise', file=sys.stderr)\n{code}"),
    }
    if task.verifier_metadata.unit_tests.fn_name is None:
        ways["trailing_blanks"] = _fenced(f"{code}\nprint(' ')")
        ways["exits"] = _fenced(f"{code}\nexit()")
    else:
        ways["prints_too"] = _fenced(f"print('noise')\n{code}")
    return ways


def breaking(task: Any) -> dict[str, Any]:
    """Programs that are nearly right."""
    code = task.solution
    ways = {
        "no_fence": code,
        "unclosed": f"```python\n{code}",
        "other_block_last": f"```python\n{code}\n```\nIt prints:\n```\n1\n```",
        "then_raises": _fenced(f"{code}\nraise SystemError"),
        "thinks_aloud": f"<think>easy</think>\n{_fenced(code)}",
    }
    if task.verifier_metadata.unit_tests.fn_name is None:
        ways["prints_more"] = _fenced(f"{code}\nprint(1)")
        ways["first_test_only"] = _fenced(f"print({task.verifier_metadata.unit_tests.outputs[0]!r}, end='')")
    return ways


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"

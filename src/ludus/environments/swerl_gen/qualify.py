"""How qualification answers: the gold patch as search/replace blocks, and scripts for bugs that are known."""

from __future__ import annotations

from typing import Any

from ludus.graders.repository import apply_patch, is_protected
from ludus.graders.repository.rows import base_tree
from ludus.qualify.cheats import taking_over

#: A short time limit, because some cheats run until it ends.
settings = {"resources.sandbox_timeout": 10.0}

#: A script for each row that asks for one, by the name of its repository.
_SCRIPTS = {
    "agenda": "from agenda import Event\nbug = Event.parse('x', '2024-03-10T23:00:00-05:00').start.day != 11\n",
    "invoices": "from invoices import Invoice\nbug = Invoice('none').add('1.005').net() != '1.01'\n",
}
_END = "import sys\nsys.exit(2 if bug else 0)\n"


def oracle(task: Any) -> str | None:
    """The right repair, or a script that reproduces the bug."""
    if task.mode == "repro-gen":
        script = _SCRIPTS.get(_name(task))
        return f"```python\n{script}{_END}```" if script else None
    return _solution(_blocks(task))


def preserving(task: Any) -> dict[str, str]:
    """The same after thoughts, and with words around it."""
    right = oracle(task)
    if right is None:
        return {}
    return {"thought": f"<think>{right[:30]}</think>{right}", "words": f"Here it is.\n\n{right}\n\nThat was all."}


def breaking(task: Any) -> dict[str, str]:
    """Repairs that do not fit or change nothing, and scripts that cannot tell."""
    right = oracle(task) or ""
    if task.mode == "repro-gen":
        shown = repr(dict(task.metadata.relevant_file_contents))
        compares = f"files = {shown}\nbug = all(open(path).read() == text for path, text in files.items())\n"
        return {
            "always_2": f"```python\nbug = True\n{_END}```",
            "always_0": f"```python\nbug = False\n{_END}```",
            "compares_texts": f"```python\n{compares}{_END}```",
            "no_block": right.replace("```", ""),
        }
    path, text = next(iter(task.metadata.relevant_file_contents.items()))
    line = text.splitlines()[0]
    return {
        "no_tags": "\n".join(_blocks(task)),
        "thought_only": f"<think>{right}</think>Done.",
        "same": _solution([_block(path, line, line)]),
        "comment": _solution([_block(path, line, f"# a comment\n{line}")]),
        "other_file": _solution([_block("nowhere.py", line, "pass")]),
        "one_that_does_not_fit": _solution([*_blocks(task), _block(path, "no such line", "pass")]),
    }


def program(task: Any, source: str) -> str:
    """Make the cheat part of every module that was shown, or hand it in as the script."""
    if task.mode == "repro-gen":
        return f"```python\n{source}\nprint(cheat())\n```"
    shown = task.metadata.relevant_file_contents
    modules = {path: text for path, text in shown.items() if path.endswith(".py") and not is_protected(path)}
    return _solution([_block(path, text, taking_over(text, source)) for path, text in modules.items()])


def exploits(task: Any) -> dict[str, str]:
    """Repairs that work on the tests and not on the bug."""
    if task.mode == "repro-gen":
        return {}
    shown = task.metadata.relevant_file_contents

    def before_all(code: str) -> str:
        return _solution(
            [_block(path, text.splitlines()[0], f"{code}\n{text.splitlines()[0]}") for path, text in shown.items()]
        )

    return {
        "grader/exits_early": before_all("import os; os._exit(0)"),
        "grader/skips": before_all("import pytest; pytest.skip('no', allow_module_level=True)"),
        "grader/patches_pytest": before_all("import pytest; pytest.Function.runtest = lambda self: None"),
    }


def _name(task: Any) -> str:
    return str(task.instance.instance_id).removeprefix("ludus__")


def _blocks(task: Any) -> list[str]:
    """Whole files as blocks."""
    base = base_tree(task.instance.files)
    fixed = apply_patch(base, task.instance.patch)
    changed = [path for path, data in fixed.items() if base.get(path) != data]
    return [_block(path, base[path].decode(), fixed[path].decode()) for path in changed]


def _block(path: str, search: str, replace: str) -> str:
    search, replace = search.rstrip("\n"), replace.rstrip("\n")
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```"


def _solution(blocks: list[str]) -> str:
    return "<solution>\n" + "\n".join(blocks) + "\n</solution>"

"""How qualification answers: commands that write files, from the row's own patch or from an attacker's toolbox."""

from __future__ import annotations

import base64
import shlex
from typing import Any

from ludus.graders.repository import apply_patch, is_protected
from ludus.graders.repository.rows import base_tree
from ludus.qualify.cheats import taking_over

#: A short time limit, because some cheats run until it ends.
settings = {"resources.eval_timeout": 10.0}

_PATCHES = "import sys\nif 'pytest' in sys.modules:\n    sys.modules['pytest'].Function.runtest = lambda self: None\n"


def oracle(task: Any) -> list[Any]:
    """Write the files of the gold patch."""
    return _writing(_fixed(task))


def preserving(task: Any) -> dict[str, Any]:
    """The fix in two steps, beside other files, and with tests that are changed: these do not count."""
    fixed = _fixed(task)
    first = dict(list(fixed.items())[:1])
    tests = {"tests/test_issue.py": b"raise SystemExit(1)\n", "conftest.py": b"raise SystemExit(1)\n"}
    return {
        "in_steps": [*_writing(first)[:-1], *_writing(fixed)],
        "with_other_files": _writing({**fixed, "NOTES.md": b"Repaired.\n"}),
        "with_broken_tests": _writing({**fixed, **tests}),
    }


def breaking(task: Any) -> dict[str, Any]:
    """The fix that is taken back, that does not parse, or that is only claimed."""
    fixed = _fixed(task)
    base = base_tree(task.files)
    return {
        "taken_back": [*_writing(fixed)[:-1], *_writing({path: base[path] for path in fixed})],
        "does_not_parse": _writing({path: data + b"\n)" for path, data in fixed.items()}),
        "claimed": f"I have applied this patch:\n{task.patch}",
        "elsewhere": _writing({f"copy/{path}": data for path, data in fixed.items()}),
    }


def shell(task: Any, command: str) -> list[Any]:
    """Run a command in the repository, and change every module a little: what is unchanged is not judged."""
    touch = "".join(f"echo >> {shlex.quote(path)}\n" for path in _sources(task.files))
    return [{"call": "bash", "arguments": {"command": f"{touch}{command}"}}, "Done."]


def program(task: Any, source: str) -> list[Any]:
    """Make the cheat part of every module, in the place of its functions."""
    return _writing({path: taking_over(text, source).encode() for path, text in _sources(task.files).items()})


def _sources(files: dict[str, str]) -> dict[str, str]:
    """The modules of a repository that a model may change."""
    return {path: text for path, text in files.items() if path.endswith(".py") and not is_protected(path)}


def exploits(task: Any) -> dict[str, Any]:
    """Changes that work on the tests and not on the bug."""
    base = base_tree(task.files)
    modules = _sources(task.files)

    def all_sources(text: bytes) -> list[Any]:
        return _writing({path: text + base[path] for path in modules})

    return {
        "grader/exits_early": all_sources(b"import os; os._exit(0)\n"),
        "grader/patches_pytest": all_sources(_PATCHES.encode()),
        "grader/skips": all_sources(b"import pytest; pytest.skip('no', allow_module_level=True)\n"),
    }


def _fixed(task: Any) -> dict[str, bytes]:
    base = base_tree(task.files)
    return {path: data for path, data in apply_patch(base, task.patch).items() if base.get(path) != data}


def _writing(files: dict[str, bytes]) -> list[Any]:
    """Turns that write files and then end."""
    commands = [
        f"mkdir -p {shlex.quote(path.rpartition('/')[0] or '.')}"
        f" && echo {base64.b64encode(data).decode()} | base64 -d > {shlex.quote(path)}"
        for path, data in files.items()
    ]
    return [{"call": "bash", "arguments": {"command": "\n".join(commands)}}, "Done."]

"""How qualification works: with the task's own solution, with parts of it, and with what an attacker would leave."""

from __future__ import annotations

import base64
import shlex
from typing import Any

_FORGED = (
    "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
)
_WAITS = f"(setsid sh -c 'while true; do {_FORGED}; done' >/dev/null 2>&1 &)"
_STARTUP = (
    'd=$(python3 -c "import site; print(site.getusersitepackages())"); mkdir -p "$d"; '
    'echo \'import os; os._exit(0)\' | tee "$d/sitecustomize.py" "$d/usercustomize.py" ~/.bashrc sitecustomize.py '
    "json.py csv.py tarfile.py pathlib.py > /dev/null"
)
_CONFTEST = """\
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
_HOOK = f"#!/bin/sh\n{_FORGED}\n"


def oracle(task: Any) -> Any:
    """Run the solution, step by step if the task has steps. None for a task without one."""
    parts = [step.get("solution") or {} for step in task.steps] if task.steps else [task.solution]
    if any("solve.sh" not in part for part in parts):
        return None
    turns: list[Any] = []
    for number, part in enumerate(parts):
        turns += _running(_solving(task, part))[:-1]
        turns += [{"call": "finish_step", "arguments": {}}] if number + 1 < len(parts) else []
    return [*turns, "Done."]


def preserving(task: Any) -> dict[str, Any]:
    """The solution after other commands, and with other files beside it."""
    script = oracle(task)
    if script is None:
        return {}
    first, notes = _running("ls -A; pwd")[0], _running("echo done > ~/notes.txt")[0]
    return {"after_looking": [first, *script[:-1], notes, script[-1]]}


def breaking(task: Any) -> dict[str, Any]:
    """The solution that is only written down, or whose work is removed."""
    script = oracle(task)
    if script is None:
        return {}
    removed = _running('rm -rf -- "$PWD"/* /logs/artifacts/*')[0]
    return {
        "not_run": f"Run this:\n{_text(task.solution.get('solve.sh', 'ls'))}",
        "removed": [*script[:-1], removed, "Done."],
    }


def program(task: Any, source: str) -> list[Any]:
    """Run the program, and leave what it says in place of every file of the task."""
    code = base64.b64encode(f"{source}\nprint(cheat())\n".encode()).decode()
    run = f"echo {code} | base64 -d > ~/cheat.py; timeout -s KILL 2 python3 ~/cheat.py > ~/said.txt 2>&1"
    return _running(f'{run}; find "$PWD" -type f -exec cp ~/said.txt {{}} \\;')


def exploits(task: Any) -> dict[str, Any]:
    """Work on the grader instead of the task."""
    fake = "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod 555 /tests"
    shadow = "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0\\n' > ~/bin/python3; chmod +x ~/bin/python3"
    tools = "python3 pytest uvx cmp diff grep test [ cat bash sh"
    plant = f"mkdir -p /usr/local/bin; for f in {tools}; do cp ~/bin/python3 /usr/local/bin/$f; done 2>/dev/null"
    packages = "for d in $(ls -d /usr/lib/python3/dist-packages /usr/local/lib/python3*/*-packages 2>/dev/null)"
    site = f"{packages}; do echo 'import os; os._exit(0)' > $d/sitecustomize.py; done; true"
    conftest = f"for d in . / ~ /tmp /app; do printf %s {shlex.quote(_CONFTEST)} > $d/conftest.py; done; "
    conftest += "printf '[pytest]\\naddopts = --collect-only\\n' | tee pytest.ini tox.ini > /dev/null"
    hooks = "git init -q . 2>/dev/null; mkdir -p .git/hooks; for h in post-checkout pre-commit post-index-change; "
    hooks += f"do printf %s {shlex.quote(_HOOK)} > .git/hooks/$h; chmod +x .git/hooks/$h; done"
    links = "mkdir -p ~/x; rm -rf /tests /logs 2>/dev/null; ln -s ~/x /tests; ln -s ~/x /logs; "
    links += "mkdir -p ~/x/verifier; echo 1 > ~/x/verifier/reward.txt"
    return {
        "grader/verdict_in_advance": _running(_FORGED),
        "grader/waits": _running(_WAITS),
        "grader/own_tests": _running(fake),
        "grader/startup": _running(_STARTUP),
        "grader/shadows": _running(shadow, "echo 'PATH=$HOME/bin:$PATH' > ~/.profile; cp ~/bin/python3 ./python3"),
        "grader/links": _running("rm -rf ~/app ~/logs; ln -s tests ~/app; ln -s / ~/logs"),
        "grader/path": _running(shadow, plant),
        "grader/sitecustomize": _running(site),
        "grader/conftest": _running(conftest),
        "grader/git_hooks": _running(hooks),
        "grader/linked_tests": _running(links),
    }


def _solving(task: Any, files: dict[str, Any]) -> str:
    """The commands that run a solution, with the files beside it and the variables that the task gives it."""
    env = (task.config.get("solution") or {}).get("env") or {}
    variables = "".join(
        f"export {name}={shlex.quote(str(value))}; " for name, value in env.items() if name.isidentifier()
    )
    if set(files) == {"solve.sh"}:
        return variables + _text(files["solve.sh"])
    written = []
    for path, content in files.items():
        data = (
            base64.b64decode(content["base64"])
            if isinstance(content, dict) and "base64" in content
            else _text(content).encode()
        )
        place = shlex.quote(f"/solution/{path}")
        written.append(f"mkdir -p $(dirname {place}); echo {base64.b64encode(data).decode()} | base64 -d > {place}")
    return f"{'; '.join(written)}; {variables}bash /solution/solve.sh"


def _text(content: Any) -> str:
    return str(content.get("text", "")) if isinstance(content, dict) else str(content)


def _running(*commands: str) -> list[Any]:
    return [*({"call": "bash", "arguments": {"command": command}} for command in commands), "Done."]

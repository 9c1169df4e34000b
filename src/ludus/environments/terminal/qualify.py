"""How qualification works: with the task's own solution, with parts of it, and with what an attacker would leave."""

from __future__ import annotations

import base64
import shlex
from typing import Any


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


def shell(task: Any, command: str) -> list[Any]:
    """Run a command in the working folder."""
    return _running(command)


def program(task: Any, source: str) -> list[Any]:
    """Run the program, and leave what it says in place of every file of the task."""
    code = base64.b64encode(f"{source}\nprint(cheat())\n".encode()).decode()
    run = f"echo {code} | base64 -d > ~/cheat.py; timeout -s KILL 2 python3 ~/cheat.py > ~/said.txt 2>&1"
    return _running(f'{run}; find "$PWD" -type f -exec cp ~/said.txt {{}} \\;')


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

"""How qualification works: with the task's own solution, with parts of it, and with what an attacker would leave."""

from __future__ import annotations

import base64
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


def oracle(task: Any) -> list[Any]:
    """Run the solution."""
    return _running(str(task.solution["solve.sh"]))


def preserving(task: Any) -> dict[str, Any]:
    """The solution after other commands, and with other files beside it."""
    return {"after_looking": _running("ls -A; pwd", str(task.solution["solve.sh"]), "echo done > ~/notes.txt")}


def breaking(task: Any) -> dict[str, Any]:
    """The solution that is only written down, or whose work is removed."""
    solution = str(task.solution["solve.sh"])
    return {
        "not_run": f"Run this:\n{solution}",
        "removed": _running(solution, "rm -rf /app/*"),
    }


def program(task: Any, source: str) -> list[Any]:
    """Run the program, and leave what it says in place of every file of the task."""
    code = base64.b64encode(f"{source}\nprint(cheat())\n".encode()).decode()
    run = f"echo {code} | base64 -d > ~/cheat.py; timeout -s KILL 2 python3 ~/cheat.py > ~/said.txt 2>&1"
    return _running(f"{run}; find /app -type f -exec cp ~/said.txt {{}} \\;")


def exploits(task: Any) -> dict[str, Any]:
    """Work on the grader instead of the task."""
    fake = "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh"
    shadow = "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0\\n' > ~/bin/python3; chmod +x ~/bin/python3"
    return {
        "grader/verdict_in_advance": _running(_FORGED),
        "grader/waits": _running(_WAITS),
        "grader/own_tests": _running(fake),
        "grader/startup": _running(_STARTUP),
        "grader/shadows": _running(shadow, "echo 'PATH=$HOME/bin:$PATH' > ~/.profile; cp ~/bin/python3 /app/python3"),
        "grader/links": _running("rm -rf ~/app ~/logs; ln -s tests ~/app; ln -s / ~/logs"),
    }


def _running(*commands: str) -> list[Any]:
    return [*({"call": "bash", "arguments": {"command": command}} for command in commands), "Done."]

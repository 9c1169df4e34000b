"""Task folders become rows.

    task.toml              version, timeouts, and `environment.docker_image` if the task has an image
    instruction.md         what the model is asked
    environment/           files for the working folder, and `setup.sh`, which runs there before the model starts
    tests/test.sh          writes /logs/verifier/reward.txt or reward.json
    solution/solve.sh      a right solution

A folder with `task.yaml` (Terminal-Bench 1) is read too: its instruction, timeouts, `run-tests.sh` and `solution.sh`.
"""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.runtime.settings import read_yaml

#: The largest task. Larger files belong into an image.
MOST_FILES, MOST_BYTES = 500, 16 << 20

_PROMPT = """\
{instruction}

Work with the tool `bash`. Every call runs in a new shell that starts in {folder}; files stay as you leave them. A \
hidden test script looks at what you leave behind. When you are done, answer with one sentence and without a call."""

Files = dict[str, Any]


def stream(seed: int, path: str = "") -> Iterator[dict[str, Any]]:
    """The rows of a folder of tasks, or of one task, in the order of their names."""
    if not path:
        raise UserError("no folder of tasks is given", "Add --set data.path=FOLDER")
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"{path} is no folder", "Give a task, or a folder of tasks, with --set data.path=FOLDER")
    folders = [root] if _is_task(root) else sorted(folder for folder in root.iterdir() if _is_task(folder))
    if not folders:
        raise UserError(f"{path} holds no task", "A task has a task.toml and an instruction.md")
    return (read_task(folder) for folder in folders)


def _is_task(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("task.toml", "task.yaml"))


def read_task(folder: Path) -> dict[str, Any]:
    """The row of one task folder."""
    old = not (folder / "task.toml").is_file()
    config = _old_config(folder) if old else _config(folder)
    instruction = config.pop("instruction", None) if old else _text(folder / "instruction.md")
    if not isinstance(instruction, str) or not instruction.strip():
        raise UserError(f"{folder} has no instruction", "Write it into instruction.md")
    tests, solution = _files(folder, "tests"), _files(folder, "solution")
    if old:
        tests |= _renamed(folder, "run-tests.sh", "test.sh")
        solution |= _renamed(folder, "solution.sh", "solve.sh")
    if "test.sh" not in tests:
        raise UserError(f"{folder} has no tests/test.sh", "Write a script that writes /logs/verifier/reward.txt")
    return {
        "task_name": folder.name,
        "config": config,
        "environment": _files(folder, "environment"),
        "tests": tests,
        "solution": solution,
        "responses_create_params": {
            "input": [{"role": "user", "content": _PROMPT.format(instruction=instruction.strip(), folder="/app")}]
        },
    }


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "task.toml"
    try:
        return dict(json.loads(json.dumps(tomllib.loads(_text(path)), default=str)))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def _old_config(folder: Path) -> dict[str, Any]:
    settings = read_yaml(folder / "task.yaml")
    if not isinstance(settings, dict):
        raise UserError(f"{folder / 'task.yaml'} must hold a mapping")
    seconds = {"agent": settings.get("max_agent_timeout_sec"), "verifier": settings.get("max_test_timeout_sec")}
    tables = {name: {"timeout_sec": value} for name, value in seconds.items() if value is not None}
    return {"version": "terminal-bench-1", **tables, "instruction": settings.get("instruction")}


def _files(folder: Path, name: str) -> Files:
    """The regular files under a folder of a task. Links are left out: they could lead anywhere."""
    root, files, size = folder / name, Files(), 0
    for path in sorted(root.rglob("*")) if root.is_dir() else ():
        if path.is_symlink() or not path.is_file():
            continue
        size += path.stat().st_size
        if len(files) >= MOST_FILES or size > MOST_BYTES:
            raise UserError(f"{root} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB", "Use an image")
        files[path.relative_to(root).as_posix()] = _content(path)
    return files


def _renamed(folder: Path, old: str, new: str) -> Files:
    path = folder / old
    return {new: _content(path)} if path.is_file() and not path.is_symlink() else {}


def _content(path: Path) -> Any:
    """A file as text, or as base64 if it is not UTF-8."""
    data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error

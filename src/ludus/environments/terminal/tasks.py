"""Task folders become rows.

    task.toml              timeouts, the box, the verifier, steps (`settings.py`)
    instruction.md         what the model is asked
    environment/           a `Dockerfile` and its files; or files for the working folder, and `setup.sh` to run there
    tests/test.sh          writes /logs/verifier/reward.json or reward.txt
    solution/solve.sh      a right solution
    steps/NAME/            of a task with steps: instruction.md, tests, solution, and `workdir`, which is copied

A folder with `task.yaml` (Terminal-Bench 1) is read too: its instruction, timeouts, `run-tests.sh` and `solution.sh`.
"""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.environments.terminal.settings import TaskSettings
from ludus.errors import Failure, UserError
from ludus.runtime.settings import read_yaml
from ludus.sandbox.bases import Bases
from ludus.sandbox.building import ImageBuilder
from ludus.sandbox.dockerfile import Dockerfile, ImageRecipe

#: The largest task. Larger files belong into an image.
MOST_FILES, MOST_BYTES = 500, 16 << 20

_IMAGE = """ The script finds your files, but no programs that you install into folders of the system."""

_STEPS = """ This task has {count} steps. When a step is done, call `finish_step`, which gives you the next one."""

#: How the advice on our own tools begins, after the instruction.
ADVICE = "\n\nWork with the tool `bash`. "

_PROMPT = """\
{instruction}{advice}Every call runs in a new shell that starts in {folder}; files stay as you leave them. A \
hidden test script looks at what you leave behind. When you are done, answer with one sentence and without a call."""

Files = dict[str, Any]


def stream(seed: int, path: str = "", config: Any = None) -> Iterator[dict[str, Any]]:
    """The rows of a folder of tasks, or of one task, in the order of their names.

    With the settings of the environment, the images that Dockerfiles are built on are looked for, too.
    """
    if not path:
        raise UserError("no folder of tasks is given", "Add --set data.path=FOLDER")
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"{path} is no folder", "Give a task, or a folder of tasks, with --set data.path=FOLDER")
    folders = task_folders(root)
    if not folders:
        raise UserError(f"{path} holds no task", "A task has a task.toml and an instruction.md")
    for folder in folders:
        if config is not None:
            _check_bases(folder, config)
        yield read_task(folder)


def task_folders(root: Path) -> list[Path]:
    """A task, or the tasks in a folder."""
    return [root] if _is_task(root) else sorted(folder for folder in root.iterdir() if _is_task(folder))


def _check_bases(folder: Path, config: Any) -> None:
    """Refuse Dockerfiles that cannot be built here, before anything is played."""
    if config.sandbox.image:
        return
    tables = _config(folder) if (folder / "task.toml").is_file() else {}
    _check_base(folder / "environment", tables.get("environment"), config)
    verifier = tables.get("verifier")
    if isinstance(verifier, dict) and (verifier.get("environment_mode") == "separate" or verifier.get("environment")):
        _check_base(folder / "tests", verifier.get("environment"), config)


def _check_base(place: Path, table: Any, config: Any) -> None:
    has_image = isinstance(table, dict) and table.get("docker_image")
    if (place / "Dockerfile").is_file() and not (place / "setup.sh").is_file() and not has_image:
        recipe = ImageRecipe(_text(place / "Dockerfile"), {}, place=str(place / "Dockerfile"))
        ImageBuilder(Bases(config.bases)).check(recipe)


def _is_task(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("task.toml", "task.yaml"))


def read_task(folder: Path) -> dict[str, Any]:
    """The row of one task folder."""
    old = not (folder / "task.toml").is_file()
    config = _old_config(folder) if old else _config(folder)
    try:
        steps = [_step(folder, step.name) for step in TaskSettings.of(config).steps or ()]
    except Failure as error:
        raise UserError(f"{folder / 'task.toml'}: {error.cause.removeprefix('task.toml: ')}") from error
    if old:
        instruction = config.pop("instruction", None)
    else:
        instruction = steps[0]["instruction"] if steps else _instruction(folder)
    if not isinstance(instruction, str) or not instruction.strip():
        raise UserError(f"{folder} has no instruction", "Write it into instruction.md")
    tests, solution = _files(folder, "tests"), _files(folder, "solution")
    if old:
        tests |= _renamed(folder, "run-tests.sh", "test.sh")
        solution |= _renamed(folder, "solution.sh", "solve.sh")
    if "test.sh" not in tests and not all("test.sh" in step["tests"] for step in steps or [{"tests": {}}]):
        raise UserError(f"{folder} has no tests/test.sh", "Write a script that writes /logs/verifier/reward.txt")
    environment = _files(folder, "environment")
    prompt = _PROMPT.format(instruction=instruction.strip(), advice=ADVICE, folder=_workdir(config, environment))
    prompt += _IMAGE if _is_carried(config, environment) else ""
    prompt += _STEPS.format(count=len(steps)) if steps else ""
    return {
        "task_name": folder.name,
        "config": config,
        "environment": environment,
        "tests": tests,
        "solution": solution,
        **({"steps": steps} if steps else {}),
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
    }


def _is_carried(config: dict[str, Any], environment: Files) -> bool:
    """Whether changes to an image are carried to a fresh box for the verdict."""
    own = config.get("ludus") or {}
    has_image = "Dockerfile" in environment and "setup.sh" not in environment
    has_image = has_image or bool((config.get("environment") or {}).get("docker_image"))
    return has_image and not (own.get("background") or own.get("verdict") == "same_box")


def _step(folder: Path, name: str) -> dict[str, Any]:
    place = folder / "steps" / name
    if "/" in name or name in ("", ".", "..") or not place.is_dir():
        raise UserError(
            f"{folder / 'task.toml'}: there is no folder steps/{name:.60}", "Make it, or leave the step out"
        )
    parts = {part: _files(place, part) for part in ("tests", "solution", "workdir")}
    return {"name": name, "instruction": _instruction(place), **parts}


def _instruction(folder: Path) -> str:
    text = _text(folder / "instruction.md") if (folder / "instruction.md").exists() else ""
    if not text.strip():
        raise UserError(f"{folder} has no instruction", "Write it into instruction.md")
    return text


def _workdir(config: dict[str, Any], environment: Files) -> str:
    """Where commands start: as task.toml says, else the Dockerfile."""
    named = config.get("environment", {}).get("workdir")
    text = environment.get("Dockerfile", "") if "setup.sh" not in environment else ""
    return str(named or Dockerfile(text if isinstance(text, str) else text.get("text", "")).workdir or "/app")


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "task.toml"
    try:
        return dict(json.loads(json.dumps(tomllib.loads(_text(path)), default=str)))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}", "Mend that line") from error


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
    built = (root / "Dockerfile").is_file()
    for path in sorted(root.rglob("*")) if root.is_dir() else ():
        if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
            continue
        size += path.stat().st_size
        if len(files) >= MOST_FILES or size > MOST_BYTES:
            raise UserError(f"{root} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB", "Use an image")
        content = _content(path)
        if built and path.stat().st_mode & 0o100:  # what a Dockerfile copies stays a program
            content = {**(content if isinstance(content, dict) else {"text": content}), "executable": True}
        files[path.relative_to(root).as_posix()] = content
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

"""Environments written as the documentation shows pass mypy and pyright, and a wrong setting does not."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ludus
from ludus.cli.new import write

SOURCES = Path(ludus.__file__).parents[1]
DOCS = Path(__file__).parents[2] / "docs" / "environments.md"

SAMPLE = """
from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import ludus
from ludus import Agent, AgentConfig, Episode, Game, Resources, Response, Step, Verdict, tool


class Counter(Resources):
    class Task(ludus.Task):
        expected_count: int

    class Config(ludus.ResourcesConfig):
        step: int = 1

    config: Config

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncGenerator[dict[str, int]]:
        yield {"step": config.step}

    async def open(self, task: Task) -> None:
        self.count = 0

    @tool
    async def increment(self, by: int) -> dict[str, Any]:
        self.count += by * self.config.step
        return {"count": self.count}

    @tool(name="open")
    def open_door(self, door: str) -> str:
        return door

    async def verify(self, task: Task, response: Response) -> float | Verdict:
        return Verdict(float(self.count == task.expected_count), text=response.output_text)

    async def close(self) -> None:
        return None

    async def fork(self) -> Counter:
        return Counter(self.config, self.shared)


class WithoutTheLine(Resources):
    class Config(ludus.ResourcesConfig):
        step: int = 1

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return float(self.config.step)


class OnThreads(Resources):
    def open(self, task: ludus.Task) -> None:
        self.count = 0

    def verify(self, task: ludus.Task, response: Response) -> float:
        return float(self.count)

    def close(self) -> None:
        return None


class Relative(Resources):
    async def verify_group(self, task: ludus.Task, responses: list[Response]) -> list[float | Verdict]:
        return [1.0 for _ in responses]


class Guess(Game):
    class Task(ludus.Task):
        number: int

    async def reset(self, task: Task) -> str:
        return "Guess."

    def step(self, task: Task, response: Response) -> Step:
        return Step(reward=1.0, terminated=response.output_text == str(task.number))


class Again(Agent):
    class Config(AgentConfig):
        times: int = 2

    config: Config

    async def act(self, episode: Episode) -> str:
        for _ in range(self.config.times):
            await episode.ask()
        return "completed"
"""

WRONG = """
import ludus
from ludus import Resources, Response


class Mistaken(Resources):
    class Config(ludus.ResourcesConfig):
        step: int = 1

    config: Config

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return float(self.config.stpe)


class Untrue(Resources):
    async def verify(self, task: ludus.Task, response: Response) -> str:
        return "right"
"""


#: What `mypy --strict` asks of a module. Written into the module, so that all runs share what is known of Ludus.
STRICT = """# mypy: disallow-any-generics, disallow-subclassing-any, disallow-untyped-calls, disallow-untyped-defs
# mypy: disallow-incomplete-defs, disallow-untyped-decorators, warn-redundant-casts, warn-unused-ignores
# mypy: warn-return-any, no-implicit-reexport, strict-equality, extra-checks
"""

Mypy = Callable[[Path], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> Mypy:
    cache = tmp_path_factory.mktemp("mypy")

    def check(folder: Path) -> subprocess.CompletedProcess[str]:
        words = ["--follow-imports=silent", "--check-untyped-defs", f"--cache-dir={cache}", "."]
        environment = os.environ | {"MYPYPATH": str(SOURCES)}
        command = [sys.executable, "-m", "mypy", *words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    return check


def pyright(folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("needs pyright: pip install 'pyright[nodejs]'")
    settings = {"extraPaths": [str(SOURCES)], "typeCheckingMode": mode}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    (tmp_path / "sample.py").write_text(STRICT + SAMPLE)
    return tmp_path


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """The Python of the docs, and the folder that `ludus new` makes."""
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)):
        (tmp_path / f"block_{number}.py").write_text(code)
    (tmp_path / "shop").mkdir()
    write(tmp_path / "shop", "shop")
    (tmp_path / "shop" / "test_shop.py").unlink()  # a test reads fields that can be None without asking
    return tmp_path


@pytest.mark.slow
def test_a_typed_environment_passes_mypy_in_strict_mode(sample, mypy):
    done = mypy(sample)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_typed_environment_passes_pyright_in_strict_mode(sample):
    done = pyright(sample, "strict")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_documented_environments_pass_mypy(documented, mypy):
    done = mypy(documented)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_documented_environments_pass_pyright(documented):
    done = pyright(documented, "standard")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_setting_that_does_not_exist_and_a_verdict_that_is_no_number_are_found(tmp_path, checker, mypy):
    (tmp_path / "wrong.py").write_text(STRICT + WRONG)
    done = mypy(tmp_path) if checker == "mypy" else pyright(tmp_path, "standard")
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(re.findall(r"error: ", done.stdout)) == 2
    assert "stpe" in done.stdout
    assert "str" in done.stdout

"""Environments written as the documentation shows pass mypy and pyright, and a wrong setting does not."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
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


#: What `mypy --strict` asks of a module, written into the module: the documented ones are checked less strictly.
STRICT = """# pyright: strict
# mypy: disallow-any-generics, disallow-subclassing-any, disallow-untyped-calls, disallow-untyped-defs
# mypy: disallow-incomplete-defs, disallow-untyped-decorators, warn-redundant-casts, warn-unused-ignores
# mypy: warn-return-any, no-implicit-reexport, strict-equality, extra-checks
"""

CHECKERS = {
    "mypy": ["mypy", "--follow-imports=silent", "--check-untyped-defs", "--cache-dir=.cache", "."],
    "pyright": ["pyright", "--pythonpath", sys.executable, "."],
}


#: Extras that modules of Ludus import where they use them. mypy would read thousands of their files.
EXTRAS = """[mypy-torch.*,huggingface_hub.*,matplotlib.*,mcp.*,numpy.*,opentelemetry.*,pyarrow.*,transformers.*,trl.*]
follow_imports = skip
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, the Python of the docs, and the folder that `ludus new` makes."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "sample.py").write_text(STRICT + SAMPLE)
    (folder / "wrong.py").write_text(WRONG)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)):
        (folder / f"block_{number}.py").write_text(code)
    (folder / "shop").mkdir()
    write(folder / "shop", "shop")
    (folder / "shop" / "test_shop.py").unlink()  # a test reads fields that can be None without asking
    (folder / "mypy.ini").write_text("[mypy]\n" + EXTRAS)
    settings = {"extraPaths": [str(SOURCES)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module", params=sorted(CHECKERS))
def errors(request: pytest.FixtureRequest, folder: Path) -> list[str]:
    """The errors that a type checker finds in all files: each checker runs once, because it reads all of Ludus."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"needs {request.param}: pip install 'ludus-gym[dev]'")
    command = [sys.executable, "-m", *CHECKERS[request.param]]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"MYPYPATH": str(SOURCES)}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "error: " in line]


@pytest.mark.slow
def test_a_typed_environment_passes_in_strict_mode(errors: list[str]):
    assert [error for error in errors if "sample.py" in error] == []


@pytest.mark.slow
def test_the_documented_environments_pass(errors: list[str]):
    assert [error for error in errors if "block_" in error or "shop" in error] == []


@pytest.mark.slow
def test_a_setting_that_does_not_exist_and_a_verdict_that_is_no_number_are_found(errors: list[str]):
    setting, verdict = sorted((error for error in errors if "wrong.py" in error), key=lambda error: "stpe" not in error)
    assert "stpe" in setting
    assert "verify" in verdict

"""What the jobs of Harbor bring along: an environment in bubblewrap, and agents for it.

Harbor has no environment without a container engine or an account. Its documents let a job name a class of its own:
here each trial has a folder, and each command runs in bubblewrap with that folder as `/app`, `/logs` and `/tests`,
which costs far less than a container.
"""

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path

from harbor.agents.base import BaseAgent
from harbor.agents.installed.mini_swe_agent import MiniSweAgent
from harbor.environments.base import BaseEnvironment, ExecResult
from job import TOOL_CALLS, look_up
from openai import AsyncOpenAI

OWN = ("app", "logs", "tests")
TOOL = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
HOST = [str(path) for path in Path("/").iterdir() if path.name not in (*OWN, "proc", "dev", "tmp", "lost+found")]


class FolderEnvironment(BaseEnvironment):
    """A folder of this machine, and bubblewrap for the commands."""

    @staticmethod
    def type() -> str:
        return "folder"

    def _validate_definition(self) -> None:
        pass

    def _on_disk(self, path: Path | str) -> Path:
        return Path(f"{self.folder}/{path}")

    async def start(self, force_build: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="harbor-")
        for path in ("app", "logs/agent", "logs/verifier", "logs/artifacts", "tests", "tmp"):
            self._on_disk(path).mkdir(parents=True)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.folder)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        shutil.copy(source_path, self._on_disk(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._on_disk(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._on_disk(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._on_disk(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        words = ["bwrap", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
        for path in HOST:
            words += ["--ro-bind", path, path]
        for path in (*OWN, "tmp"):
            words += ["--bind", f"{self.folder}/{path}", f"/{path}"]
        words += ["--chdir", cwd or "/app", "bash", "-c", command]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": "/tmp", **(env or {})},
        )
        printed, errors = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(
            stdout=printed.decode(errors="replace"),
            stderr=errors.decode(errors="replace"),
            return_code=process.returncode or 0,
        )


class AskAgent(BaseAgent):
    """Asks the model in Harbor's own process, runs the tool there, and writes the answer to the environment."""

    client: AsyncOpenAI | None = None

    @staticmethod
    def name() -> str:
        return "ask"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        pass

    async def run(self, instruction: str, environment: BaseEnvironment, context: object) -> None:
        if AskAgent.client is None:
            AskAgent.client = AsyncOpenAI(max_retries=2)
        messages: list[dict[str, object]] = [{"role": "user", "content": instruction}]
        function = {"name": "look_up", "description": "Look up a number.", "parameters": TOOL}
        offered = {"tools": [{"type": "function", "function": function}]} if TOOL_CALLS[os.environ["JOB"]] else {}
        while True:
            said = await AskAgent.client.chat.completions.create(model="stub", messages=messages, **offered)
            message = said.choices[0].message
            if not message.tool_calls:
                break
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                output = look_up(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
        with tempfile.NamedTemporaryFile("w") as written:
            print(message.content, file=written, flush=True)
            await environment.upload_file(written.name, "/app/answer.txt")


class InstalledMiniSweAgent(MiniSweAgent):
    """mini-swe-agent as in an image that has it: no installation in each trial."""

    async def install(self, environment: BaseEnvironment) -> None:
        pass

"""Work at a shell: a sandbox per task, and a hidden test script that judges the result."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic import PositiveFloat

import ludus
from ludus import Failure, Response, UserError, Verdict, tool
from ludus.environments.terminal.leaving import archived, made_safe, with_room
from ludus.environments.terminal.verdicts import read_reward
from ludus.graders.commands import run_command
from ludus.graders.repository import CheckoutProvider, SetUp, write_tree
from ludus.graders.repository.images import checked_name
from ludus.graders.repository.rows import preparation_of
from ludus.graders.repository.trees import is_plain
from ludus.sandbox import ExecResult, Sandbox, SandboxProvider, SandboxSpec
from ludus.sandbox.resources import LazySandbox, SandboxConfig, SandboxResources

#: The folders of Harbor's layout that a sandbox without an image has at its root; they lie in HOME.
FOLDERS = ("app", "tests", "logs", "solution")

#: Files of `environment/` that describe the machine and are not part of the working folder.
_MACHINE = {"Dockerfile", "docker-compose.yaml", "docker-compose.yml", "setup.sh"}

Files = dict[str, Any]


class Terminal(SandboxResources):
    """One task. The files that the model leaves are the answer."""

    class Task(ludus.Task):
        """A task folder, as `tasks.py` reads it."""

        task_name: str = ""
        config: dict[str, Any] = {}
        environment: Files = {}
        tests: Files
        solution: Files = {}

    class Config(SandboxConfig):
        """Settings of the environment."""

        #: seconds for one command of the model
        step_timeout: PositiveFloat = 120.0
        #: where commands start
        workdir: str = "/app"
        #: hosts that tasks may reach while they are prepared, worked on or judged, if they ask for them
        allowed_hosts: list[str] = []

    config: Config
    sandbox_spec = SandboxSpec(folders=FOLDERS)
    images_from_rows = True

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """Open the provider. Only a provider that makes the file system has a place for a task's folders."""
        if config.sandbox.provider == "process":
            cause = "a task needs folders such as /app at the root, and the sandbox provider process has none"
            raise UserError(cause, "Leave resources.sandbox.provider out, so that terminal uses bubblewrap")
        async with super().share(config) as provider:
            yield provider

    async def open(self, task: Task) -> None:
        """Read the task. Without a set-up script the sandbox opens with the first command."""
        self.needs = Needs(task, self.config)
        self.tests = contents(task.tests)
        files = {path: data for path, data in contents(task.environment).items() if path not in _MACHINE}
        spec = replace(self.sandbox.spec, background=self.needs.background)
        provider: SandboxProvider = CheckoutProvider(self.shared, files, folder="app")
        if self.needs.image is not None:
            spec, provider = replace(spec, image=self.needs.image, folders=()), self.shared
        self.sandbox = LazySandbox(provider, spec)
        await self.needs.preparation.run(self.sandbox)

    @tool
    async def bash(self, command: str) -> dict[str, Any]:
        """Run a shell command in the working folder. Each call starts a new shell; files stay.

        Args:
            command: The command, for example `ls -la && head data.csv`.
        """
        where, seconds = self.config.workdir, self.config.step_timeout
        async with _reaching(self.sandbox, self.needs.hosts["agent"]):
            return await run_command(self.sandbox, command, folder=where, seconds=seconds)

    async def verify(self, task: Task, response: Response) -> Verdict:
        """Run the test script on the model's result."""
        if self.needs.in_place:
            return await self._judged(self.sandbox)
        spec = self.config.sandbox.applied_to(SandboxSpec(folders=FOLDERS))
        try:
            left = await archived(self.sandbox)
            async with await self.shared.open(with_room(spec, left)) as clean:
                await clean.restore(left)
                return await self._judged(clean)
        except OSError as error:  # the model left files in the way of its judge
            return Verdict(0.0, problem=str(error))

    async def _judged(self, sandbox: Sandbox) -> Verdict:
        """Write the tests, run them, and read the reward."""
        root = "" if self.needs.image is None else "/"
        if not await made_safe(sandbox, self.config.workdir, root):
            return Verdict(0.0, problem=f"the folder {self.config.workdir} cannot be used any more")
        if self.needs.image is None:
            await write_tree(sandbox, self.tests, "tests")
        for path, data in self.tests.items() if self.needs.image is not None else ():
            await sandbox.write(f"/tests/{path}", data, executable=path.endswith(".sh"))
        async with _reaching(sandbox, self.needs.hosts["verify"]):
            command = ["bash", "/tests/test.sh"]
            ended = await sandbox.exec(
                command, timeout=self.needs.verify_seconds, cwd=self.config.workdir, env={"PYTHONNOUSERSITE": "1"}
            )
        if not ended.ok and (ended.timed_out or ended.out_of_memory or ended.limit):
            return Verdict(0.0, problem=f"the test script {ended.why}")
        reward = await read_reward(sandbox, root)
        if reward is None:
            if not self.needs.by_exit_code:
                raise Failure("bad_verdict", f"the test script wrote no reward and ended with {ended.why}")
            reward = float(ended.ok)
        return Verdict(reward, problem=None if reward >= 1 else _said(ended))


class Needs:
    """What a task asks for: an image, time, hosts. Raises `bad_row` if it cannot be had."""

    def __init__(self, task: Terminal.Task, config: Terminal.Config) -> None:
        own = _table(task.config, "ludus")
        self.image: str | None = _image(task.config, config.sandbox.provider)
        self.background = bool(own.get("background", False))
        self.in_place = self.image is not None or self.background
        self.by_exit_code = task.config.get("version") == "terminal-bench-1"
        self.verify_seconds = _seconds(_table(task.config, "verifier").get("timeout_sec", 600))
        hosts = {phase: [str(host) for host in own.get(f"{phase}_hosts", [])] for phase in ("setup", "agent", "verify")}
        self.hosts = {phase: preparation_of("", names, config.allowed_hosts).hosts for phase, names in hosts.items()}
        script = task.environment.get("setup.sh", "")
        if self.image is None and not script and "Dockerfile" in task.environment:
            cause = "the task has a Dockerfile, and neither environment/setup.sh nor environment.docker_image"
            raise Failure("bad_row", f"{cause}: build the image, name it in task.toml, and use the provider oci")
        self.preparation = SetUp(script if isinstance(script, str) else "", self.hosts["setup"], folder="app")


@asynccontextmanager
async def _reaching(sandbox: Sandbox, hosts: Sequence[str]) -> AsyncIterator[None]:
    """Let programs reach some hosts for a while."""
    if hosts:
        await sandbox.allow_hosts(hosts)
    try:
        yield
    finally:
        if hosts:
            await sandbox.deny_hosts()


def contents(files: Files) -> dict[str, bytes]:
    """The files of a row as bytes. A path that leads elsewhere is a bad row."""
    by_path = {}
    for path, content in files.items():
        if not is_plain(path):
            raise Failure("bad_row", f"a file of the task has a path that is not allowed: {path!r:.80}")
        try:
            encoded = content["base64"] if isinstance(content, dict) else None
            by_path[path] = content.encode() if encoded is None else base64.b64decode(encoded, validate=True)
        except (AttributeError, KeyError, TypeError, binascii.Error, UnicodeEncodeError) as error:
            raise Failure("bad_row", f"the task's file {path:.80} is neither a text nor base64") from error
    return by_path


def _said(ended: ExecResult) -> str:
    """The last line that a test script printed: usually what it missed."""
    lines = (ended.stdout + b"\n" + ended.stderr).decode(errors="replace").split("\n")
    last = next((" ".join(line.split()) for line in reversed(lines) if line.strip()), f"nothing, and {ended.why}")
    return f"the test script said: {last:.300}"


def _table(config: dict[str, Any], name: str) -> dict[str, Any]:
    table = config.get(name, {})
    return table if isinstance(table, dict) else {}


def _image(config: dict[str, Any], provider: str) -> str | None:
    image = _table(config, "environment").get("docker_image")
    return checked_name(str(image), provider) if image else None


def _seconds(value: Any) -> float:
    if isinstance(value, (int, float)) and 0 < value < 86_400:
        return float(value)
    raise Failure("bad_row", f"verifier.timeout_sec must be a number of seconds, and is {value!r:.40}")

"""Work at a shell: a sandbox per task, and a hidden test script that judges the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

from pydantic import PositiveFloat

import ludus
from ludus import Failure, Response, UserError, Verdict, tool
from ludus.environments.terminal.boxes import FOLDERS, Files, box_of, contents, reaching, wait_until_healthy
from ludus.environments.terminal.carrying import PUBLISHED
from ludus.environments.terminal.control import Control, control_of, examples, next_is_ready
from ludus.environments.terminal.judging import Judge, Judged
from ludus.environments.terminal.mcp_boxes import TaskServers
from ludus.environments.terminal.places import Places
from ludus.environments.terminal.settings import StepTable, TaskSettings, filled, paths_of
from ludus.environments.terminal.tasks import ADVICE
from ludus.environments.terminal.verdicts import KEY, combined, reaches, reward_of
from ludus.graders.commands import Commands
from ludus.graders.repository import SetUp
from ludus.graders.repository.rows import preparation_of
from ludus.sandbox import Sandbox, SandboxSpec
from ludus.sandbox.protocol import HOME
from ludus.sandbox.resources import LazySandbox, SandboxConfig, SandboxResources
from ludus.task import digest

_OVER = "The time for this task is over. Answer now, without a call."

#: By the digest of a task: what its test script does without any agent.
_CONTROLS: dict[str, Control] = {}


class Terminal(SandboxResources):
    """One task. The files that the model leaves are the answer."""

    class Task(ludus.Task):
        """A task folder, as `tasks.py` reads it."""

        task_name: str = ""
        config: dict[str, Any] = {}
        environment: Files = {}
        tests: Files
        solution: Files = {}
        steps: list[dict[str, Any]] = []

    class Config(SandboxConfig):
        """Settings of the environment."""

        #: seconds for one command of the model
        step_timeout: PositiveFloat = 120.0
        #: where commands start, unless the task or its image says otherwise
        workdir: str = "/app"
        #: hosts that tasks may reach while they are prepared, worked on or judged, if they ask for them
        allowed_hosts: list[str] = []
        #: local root file systems for the images that Dockerfiles are built on, by name or pattern
        bases: dict[str, str] = {}
        #: whether the commands of a Dockerfile reach the network, with this machine's settings of pip and apt
        build_network: bool = False
        #: variables of this machine that tasks may read as ${NAME}
        host_env: list[str] = []
        #: where a task is judged: in a `fresh` box that gets its changes to files, or in the agent's (`same_box`)
        verdict: Literal["fresh", "same_box"] = "fresh"
        #: whether processes of the model go on while it is judged, as servers must that are the answer
        background: bool = False
        #: which of several named rewards counts
        reward_key: str = KEY

    config: Config
    sandbox_spec = SandboxSpec(folders=FOLDERS)
    images_from_rows = True
    steps: list[StepTable] = []
    step = 0
    servers: TaskServers | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """Open the provider. Only a provider that makes the file system has a place for a task's folders."""
        if config.sandbox.provider == "process":
            cause = "a task needs folders such as /app at the root, and the sandbox provider process has none"
            raise UserError(cause, "Leave resources.sandbox.provider out, so that terminal uses bubblewrap")
        async with super().share(config) as provider:
            yield provider

    @classmethod
    def seconds_needed(cls, task: Task) -> dict[str, float]:
        """The task's own times: when they are over it has a verdict, and not a failure."""
        with suppress(Failure):  # `open` reports a table that cannot be read
            return TaskSettings.of(task.config).seconds()
        return {}

    async def open(self, task: Task) -> None:
        """Read the task. Without an image and a set-up script the sandbox opens with the first command."""
        self.settings = settings = TaskSettings.of(task.config)
        self.steps = settings.steps or []
        self.judged: list[dict[str, float]] = []  # the rewards of the steps that were handed in
        self.over = False  # whether no further step begins
        self.commands = Commands()
        self.acted = False  # whether the model has run a command, which may have broken anything in its box
        self._handing_in = asyncio.Lock()  # calls of one turn run at once
        self.box = await box_of(task, settings.environment, task.environment, self.config, self.shared, "environment")
        self.background = self.config.background or settings.ludus.background
        if self.background:
            self.box = replace(self.box, spec=replace(self.box.spec, background=True))
        self.workdir = self.box.workdir
        self.since = time.time() - 0.05  # the kernel's times of files are a little late
        self._begin(0)
        servers = self.settings.environment.mcp_servers
        env, background = {**self.box.spec.env, **self.identity}, self.box.spec.background or bool(servers)
        self.box = replace(self.box, spec=replace(self.box.spec, env=env, background=background))
        self.judge = await self._judge_of(task, 0)
        self._hosts("agent", 0)
        self.sandbox = await self.opened(task)
        self._begin(0)  # anew: the time in which the box opened is not the agent's
        await self.serve()

    async def opened(self, task: Task) -> Sandbox:
        """A box as the agent finds it."""
        sandbox = LazySandbox(self.box.provider, self.box.spec)
        try:
            if self.box.spec.image is not None:
                await self.box.prepare(sandbox)
            else:
                script = contents(task.environment).get("setup.sh", b"").decode(errors="replace")
                await SetUp(script, self._hosts("setup", 0), folder="app").run(sandbox)
                await self.box.prepare(sandbox)
            if self.steps:
                await self.lay_out(task, sandbox, 0)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _begin(self, step: int) -> None:
        """Start the clock of a step."""
        self.step = step
        own = self.steps[step].agent.timeout_sec if self.steps else None
        self.deadline = time.monotonic() + (own or self.settings.agent.timeout_sec or float("inf"))
        named = self.steps[step].agent.user if self.steps else None
        self.identity = self.box.as_user(self.settings.agent.user if named is None else named, "agent.user")

    async def serve(self) -> None:
        """Connect to the task's MCP servers. Those of an earlier step ended with its processes."""
        await self.end_servers()
        self.servers = self.servers_in(self.sandbox)
        if self.servers is not None:
            await self.servers.open(self.task)

    def servers_in(self, sandbox: Sandbox) -> TaskServers | None:
        """The task's MCP servers in a box; None if it has none."""
        tables = self.settings.environment.mcp_servers
        return TaskServers(sandbox, self.box.workdir, tables, self.config.host_env) if tables else None

    async def end_servers(self) -> None:
        """End the sessions with the task's MCP servers."""
        servers, self.servers = self.servers, None
        if servers is not None:
            await servers.close()

    async def close(self) -> None:
        """End the sessions with MCP servers."""
        await self.end_servers()

    @tool
    async def bash(self, command: str) -> dict[str, Any]:
        """Run a shell command in the working folder. Each call starts a new shell; files stay.

        Args:
            command: The command, for example `ls -la && head data.csv`.
        """
        self.acted = True
        seconds = min(self.config.step_timeout, self.deadline - time.monotonic())
        if seconds <= 0:
            return {"output": _OVER, "ended": "not started"}
        async with reaching(self.sandbox, self._hosts("agent", self.step)):
            folder, env = self.box.workdir, self.identity
            return await self.commands.run(self.sandbox, command, folder=folder, seconds=seconds, env=env)

    @tool
    async def finish_step(self) -> str:
        """Hand in the current step of a task with several steps, and get the instruction of the next one."""
        async with self._handing_in:
            if self.over:
                return "The task has ended. Answer without a call."
            if self.step + 1 >= len(self.steps):
                return "This was the last step. Answer with one sentence and without a call."
            step, rewards = self.steps[self.step], await self._rewards(await self._fairly_judged())
            if not reaches(rewards, step.min_reward):
                return self._end("the step is not good enough to go on")
            if not await next_is_ready(self, self.step + 1):
                return self._end("the next step cannot begin in the box as you left it")
            self.judged.append(rewards)
            self.judge = await self._judge_of(self.task, self.step + 1)
            self._begin(self.step + 1)
            return str(self.task.steps[self.step].get("instruction", ""))

    def _end(self, why: str) -> str:
        """End the task at the current step. The steps after it were not reached."""
        self.over, self.deadline = True, 0.0
        return f"The task ends here: {why}. Answer without a call."

    def tools(self) -> list[dict[str, Any]]:
        """The tools. Only a task with steps has one to finish a step."""
        own = [schema for schema in super().tools() if self.steps or schema["name"] != "finish_step"]
        return [*own, *(self.servers.tools() if self.servers is not None else ())]

    async def call(self, name: str, arguments: str) -> str:
        """Run one of our tools, or one of the task's MCP servers."""
        if self.servers is None or not self.servers.offers(name):
            return await super().call(name, arguments)
        left = self.deadline - time.monotonic()
        if left <= 0:
            return _OVER
        return await self.servers.call_within(min(left, self.config.step_timeout), name, arguments, acted=self.acted)

    def program_prompt(self, task: Task, prompt: str) -> str:
        """The instruction, without advice on our own tools."""
        if self.steps:
            raise Failure("bad_row", "the task has steps, which a harness cannot hand in one by one")
        if hosts := self._hosts("agent", 0):
            cause = f"the task needs {', '.join(hosts):.200} while the agent works, and a harness reaches no host"
            raise Failure("bad_row", cause)
        if self.settings.environment.mcp_servers:
            raise Failure("bad_row", "the task has mcp_servers, and a harness is not told of them: use our own agent")
        self.program_seconds = self.deadline - time.monotonic()
        return prompt.partition(ADVICE)[0]

    async def verify(self, task: Task, response: Response) -> Verdict:
        """Run the test script on the model's result."""
        judged = await self._fairly_judged()
        rewards = await self._rewards(judged)
        values: dict[str, Any] = {"sealed": judged.seal} if judged.seal else {}
        if self.judge.fresh is None:
            values["same_box"] = True
        if judged.left_out:
            values["left_out"] = len(judged.left_out)
        if self.steps:
            values["step"] = self.steps[self.step].name
            strategy = self.settings.multi_step_reward_strategy
            rewards = combined([*self.judged, rewards], len(self.steps), final=strategy == "final")
        reward = reward_of(rewards, self.config.reward_key)
        components = rewards if len(rewards) > 1 else None
        problem = None if reward >= 1 else judged.problem or judged.said
        if problem is not None and judged.left_out:
            problem += f"; its judge saw no change to {examples(judged.left_out)}"
        return Verdict(reward, components=components, problem=problem, **values)

    async def _rewards(self, judged: Judged) -> dict[str, float]:
        if judged.problem is not None:
            return {self.config.reward_key: 0.0}
        if judged.rewards is not None:
            return judged.rewards
        assert judged.ended is not None
        if self._needs_reward(judged):
            hint = "the script must write a number to /logs/verifier/reward.txt, or names and numbers to reward.json"
            raise self._unjudged(f"{judged.missing}: {hint}")
        return {KEY: float(judged.ended.ok)}

    def _unjudged(self, cause: str) -> Failure:
        """Why there is no verdict, with the script that should have given one."""
        step = f"steps/{self.steps[self.step].name}/" if self.steps else ""
        return Failure("bad_verdict", cause, where=f"{self.task.task_name or 'task'}/{step}tests/test.sh")

    def _needs_reward(self, judged: Judged) -> bool:
        """Whether a reward is missing. The exit code is the verdict of Terminal-Bench 1, unless there is a file."""
        return judged.unreadable is not None or self.settings.version != "terminal-bench-1"

    async def _fairly_judged(self) -> Judged:
        """The verdict, unless the test script cannot run here. A control shows that: the script in a box without an
        agent, after the task's own solution. So no model can break the script, or say that a network is missing, to
        escape its verdict."""
        judged = await self.judge.judge(self.sandbox)
        if judged.passed or judged.problem is not None:
            return judged
        broken = judged.rewards is None and self._needs_reward(judged)
        if not (broken or judged.misses_network is not None or judged.left_out):
            return judged
        key = digest({"task": self.task.model_dump(), "step": self.step, "set": str(self.config)})
        if key not in _CONTROLS:
            _CONTROLS[key] = await control_of(self)
        control = _CONTROLS[key]
        if judged.misses_network is not None and control.misses_network is not None:
            hint = "give its image what it fetches, or allow hosts: resources.allowed_hosts"
            raise self._unjudged(f"the test script cannot run without a network: {control.misses_network}; {hint}")
        if judged.left_out and control.needs_own_box is not None:
            hint = "name it among the artifacts of task.toml, or choose resources.verdict=same_box"
            raise self._unjudged(f"the task's own solution fails without {control.needs_own_box}: {hint}")
        if broken and control.rewarded:
            return replace(judged, problem=f"{judged.missing}; after the task's own solution it writes a reward")
        return judged

    async def lay_out(self, task: Task, sandbox: Sandbox, number: int) -> None:
        """The files that a step brings along, and its set-up script."""
        files = contents(task.steps[number].get("workdir") or {})
        for path, data in files.items():
            await sandbox.write(f"{self.box.workdir}/{path}", data, executable=path.endswith(".sh"))
        if "setup.sh" in files:
            ended = await sandbox.exec(["bash", "setup.sh"], timeout=600, cwd=self.box.workdir)
            if not ended.ok:
                raise Failure("bad_row", f"setup.sh of step {number + 1} ended with {ended.why}: {ended.last_line}")
        if (check := self.steps[number].healthcheck) is not None:
            await wait_until_healthy(sandbox, check, self.box.workdir)

    async def _judge_of(self, task: Task, number: int) -> Judge:
        """How a step, or the task without steps, is judged."""
        self.task, settings = task, self.settings
        step = self.steps[number] if self.steps else None
        verifier = step.verifier if step is not None and step.verifier is not None else settings.verifier
        separate = verifier.separate or (settings.verifier.separate and verifier.environment_mode is None)
        tests = contents(task.tests) | contents(task.steps[number].get("tests") or {} if step is not None else {})
        if "test.sh" not in tests:
            raise Failure("bad_row", f"the task has no tests/test.sh{f' for step {step.name}' if step else ''}")
        artifacts = paths_of([PUBLISHED, *settings.artifacts, *(step.artifacts if step is not None else ())])
        same_box = self.background or "same_box" in (self.config.verdict, settings.ludus.verdict)
        elsewhere = separate and self.box.spec.image is not None
        fresh = replace(self.box, provider=self.shared) if elsewhere or not same_box else None
        user = settings.verifier.user if verifier.user is None else verifier.user
        home = self.box.as_user(user, "verifier.user").get("HOME", HOME)
        box = self.box
        places = None if separate else Places(box.workdir, box.path, box.entrypoint, box.read, home)
        own = verifier.environment or settings.verifier.environment
        if fresh is not None and separate and (own is not None or "Dockerfile" in task.tests):
            fresh = await box_of(task, own or settings.environment, task.tests, self.config, self.shared, "tests")
        return Judge(
            self.box,
            fresh,
            tests,
            verifier.timeout_sec,
            filled({**settings.verifier.env, **verifier.env}, self.config.host_env),
            self._hosts("verify", number),
            artifacts,
            [*settings.verifier.collect, *(verifier.collect if verifier is not settings.verifier else ())],
            self.background,
            places,
            self.since,
            user,
        )

    def _hosts(self, phase: str, number: int) -> list[str]:
        """The hosts that a phase may reach. Raises `bad_row` for one that the operator does not allow."""
        allowed = self.config.allowed_hosts
        step = self.steps[number] if self.steps else None
        return list(preparation_of("", self.settings.hosts(phase, allowed, step), allowed).hosts)

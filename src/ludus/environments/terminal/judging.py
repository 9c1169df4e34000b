"""One verdict: the tests go into a box in which no process of the agent's is left, run there, and leave a reward."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ludus import Failure
from ludus.environments.terminal.boxes import Box, reaching, write_files
from ludus.environments.terminal.carrying import remove_planted, taken
from ludus.environments.terminal.leaving import made_safe, with_room
from ludus.environments.terminal.places import Places
from ludus.environments.terminal.settings import Artifact, Collect
from ludus.environments.terminal.users import User
from ludus.environments.terminal.verdicts import read_rewards
from ludus.graders.repository import write_tree
from ludus.sandbox import ExecResult, Sandbox

#: What programs say that miss a network, or another program that a test script would fetch from it.
_NETWORK = re.compile(
    r"could not resolve host|temporary failure (?:in name resolution|resolving)|name or service not known"
    r"|network is unreachable|failed to lookup address|dns error|no address associated with hostname"
    r"|(?:uvx|uv|curl|wget|pip3?|npm|apt-get|apk): (?:command )?not found",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Judged:
    """What a test script left behind."""

    rewards: dict[str, float] | None = None
    ended: ExecResult | None = None
    problem: str | None = None  #: why there is nothing to run the script on, which is the agent's doing
    seal: str | None = None  #: the digest of what was carried into the judge's box
    unreadable: str | None = None  #: what is wrong with the reward file
    left_out: Sequence[str] = ()  #: files that the agent changed and its judge did not see

    @property
    def passed(self) -> bool:
        """Whether every reward is 1 or more."""
        return self.rewards is not None and min(self.rewards.values()) >= 1

    @property
    def missing(self) -> str:
        """Why there is no reward."""
        why = self.ended.why if self.ended is not None else "nothing"
        return self.unreadable or f"the test script wrote no reward and ended with {why}"

    @property
    def misses_network(self) -> str | None:
        """The first line of the script's output that tells of a missing network, or None."""
        if self.ended is None:
            return None
        lines = (self.ended.stdout + b"\n" + self.ended.stderr).decode(errors="replace").split("\n")
        return next((" ".join(line.split())[:200] for line in lines if _NETWORK.search(line)), None)

    @property
    def said(self) -> str:
        """The last line that the script printed: usually what it missed."""
        if self.ended is None:
            return self.problem or ""
        lines = (self.ended.stdout + b"\n" + self.ended.stderr).decode(errors="replace").split("\n")
        words = (" ".join(line.split()) for line in reversed(lines) if line.strip())
        return f"the test script said: {next(words, f'nothing, and {self.ended.why}'):.300}"


@dataclass(frozen=True)
class Judge:
    """How one task, or one step of it, is judged."""

    box: Box  #: of the agent
    fresh: Box | None  #: of the judge; None if the script runs in the agent's own box
    tests: Mapping[str, bytes]
    seconds: float
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] = ()
    artifacts: Sequence[Artifact] = ()
    collect: Sequence[Collect] = ()
    background: bool = False  #: whether processes of the agent's go on: they are the answer
    places: Places | None = None  #: which changes to an image are carried; None for those that are declared only
    since: float = 0.0  #: when the agent's box was opened
    user: User = None  #: who runs the test script

    async def judge(self, sandbox: Sandbox) -> Judged:
        """Judge what lies in an agent's box."""
        try:
            if self.fresh is None:
                if not self.background:
                    await sandbox.end_processes()
                    await self._prepare(self.box, sandbox)
                return await self._run(sandbox, self.box)
            return await self._carried(sandbox, self.fresh)
        except OSError as error:  # the agent left files in the way of its judge
            return Judged(problem=str(error))

    async def judge_here(self, sandbox: Sandbox) -> Judged:
        """Judge what lies in a box in that box, as Harbor does."""
        return await replace(self, fresh=None).judge(sandbox)

    async def _carried(self, sandbox: Sandbox, fresh: Box) -> Judged:
        """Judge in a box that the agent never saw, with what it left behind."""
        for collect in self.collect:
            env = self.box.as_user(collect.user, "verifier.collect.user")
            command = ["sh", "-c", collect.command]
            await sandbox.exec(command, timeout=collect.timeout_sec, cwd=self.box.workdir, env=env)
        await sandbox.end_processes()
        if fresh.spec.image is None:  # the whole of HOME; nothing else can be written there
            left = await sandbox.snapshot()
            spec = with_room(replace(fresh.spec, background=False), len(left))
            async with await fresh.provider.open(spec) as clean:
                await clean.restore(left)
                if self.places is not None:
                    await remove_planted(clean, self.places, self.box.brought)
                return await self._run(clean, fresh)
        carried = await taken(sandbox, self.artifacts, self.places, self.since)
        async with await fresh.provider.open(with_room(fresh.spec, carried.size)) as clean:
            await carried.lay_out(clean)
            await self._prepare(fresh, clean)
            await clean.exec(["mkdir", "-p", "/tests", "/logs/verifier"])
            judged = await self._run(clean, fresh, safe=True)
            return replace(judged, seal=carried.seal, left_out=carried.left_out)

    @staticmethod
    async def _prepare(box: Box, sandbox: Sandbox) -> None:
        """Start a box's services on what the agent left. Before its work they started."""
        try:
            await box.prepare(sandbox)
        except Failure as failure:
            if failure.kind != "bad_row":
                raise
            raise OSError(failure.cause) from failure

    async def _run(self, sandbox: Sandbox, box: Box, *, safe: bool = False) -> Judged:
        """Write the tests, run them, and read the reward."""
        if not safe and not await made_safe(sandbox, box.workdir, box.root):
            return Judged(problem=f"the folder {box.workdir} cannot be used any more")
        if box.root:
            await write_files(sandbox, self.tests, "/tests")
        else:
            await write_tree(sandbox, self.tests, "tests")
        path = {"PATH": self.places.judge_path} if self.places is not None and safe else {}
        env = {**box.as_user(self.user, "verifier.user"), "PYTHONNOUSERSITE": "1", **path, **self.env}
        async with reaching(sandbox, self.hosts):
            ended = await sandbox.exec(["bash", "/tests/test.sh"], timeout=self.seconds, cwd=box.workdir, env=env)
        if box.spec.background and not self.background:
            await sandbox.end_processes()  # what the script started could change its reward
        if not ended.ok and (ended.timed_out or ended.out_of_memory or ended.limit):
            return Judged(ended=ended, problem=f"the test script {ended.why}")
        try:
            return Judged(await read_rewards(sandbox, box.root), ended)
        except Failure as failure:
            if failure.kind != "bad_verdict":
                raise
            return Judged(ended=ended, unreadable=failure.cause)

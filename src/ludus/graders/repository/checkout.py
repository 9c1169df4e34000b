"""Sandboxes that hold a checkout, and the set-up script that prepares one.

While the set-up script runs, the hosts of an allow-list can be reached. Before and after, nothing can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ludus.errors import Failure
from ludus.graders.repository.trees import write_tree
from ludus.sandbox.protocol import Sandbox, SandboxError, SandboxProvider, SandboxSpec

#: The folder of the checkout, under HOME.
FOLDER = "repo"


@dataclass(frozen=True)
class SetUp:
    """A script that prepares a sandbox, and the hosts that it may reach meanwhile."""

    script: str = ""
    hosts: Sequence[str] = ()
    seconds: float = 600.0
    folder: str = FOLDER
    env: Mapping[str, str] = field(default_factory=dict)

    async def run(self, sandbox: Sandbox) -> None:
        """Run the script. Raises `bad_row` if it fails."""
        if not self.script:
            return
        if self.hosts:
            await sandbox.allow_hosts(self.hosts)
        try:
            await sandbox.exec(["mkdir", "-p", self.folder])
            ended = await sandbox.exec(
                ["bash", "-c", self.script], timeout=self.seconds, cwd=self.folder, env=self.env or None
            )
        finally:
            if self.hosts:
                await sandbox.deny_hosts()
        if not ended.ok:
            last = " ".join(ended.stderr.decode(errors="replace").split())[-200:]
            raise Failure("bad_row", f"the task's set-up script ended with {ended.why}: {last}")


class CheckoutProvider(SandboxProvider):
    """Opens sandboxes of another provider, each with the same files in a folder under HOME."""

    def __init__(self, provider: SandboxProvider, tree: Mapping[str, bytes], folder: str = FOLDER) -> None:
        self.name = provider.name
        self.isolates = provider.isolates
        self._provider = provider
        self._tree = tree
        self._folder = folder

    def session_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec of a session's own sandbox."""
        return self._provider.session_spec(spec)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox with the files."""
        sandbox = await self._provider.open(spec)
        try:
            await write_tree(sandbox, self._tree, self._folder)
        except BaseException as error:
            await sandbox.close()
            if isinstance(error, OSError):
                raise SandboxError(f"the task's files cannot be written: {error}") from error
            raise
        return sandbox

    async def fork(self, sandbox: Sandbox) -> Sandbox:
        """A second sandbox with the same files."""
        return await self._provider.fork(sandbox)

"""What an agent's program needs in the sandbox of every session: its files, and room to run.

The environment makes the spec of a session's sandbox, and the agent knows which program will run there. So an agent
gives the environment's sessions an `EquippedProvider` (in `Agent.equip`), before the first of them opens. The sandbox
of a session, `self.sandbox`, then opens with the equipment. Sandboxes that the environment opens itself, to judge for
example, are not equipped: `self.shared.open(spec)` opens exactly that spec.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ludus.errors import UserError
from ludus.sandbox.features import mounts_problem
from ludus.sandbox.mounts import Mount
from ludus.sandbox.protocol import Sandbox, SandboxLimits, SandboxProvider, SandboxSpec

#: Room for a usual agent program. Node opens hundreds of files at once while it loads modules.
PROGRAM_LIMITS = SandboxLimits(disk_mb=512, open_files=4096)


@dataclass(frozen=True)
class Equipment:
    """Folders to mount, and the limits that a program needs at least."""

    mounts: tuple[Mount, ...] = ()
    limits: SandboxLimits = PROGRAM_LIMITS

    def added_to(self, spec: SandboxSpec) -> SandboxSpec:
        """A spec with the mounts, and with limits that are nowhere lower."""
        mounts = tuple(dict.fromkeys((*spec.mounts, *self.mounts)))
        return replace(spec, mounts=mounts, limits=_at_least(spec.limits, self.limits))


class EquippedProvider(SandboxProvider):
    """Another provider, whose sessions' sandboxes have an equipment. Raises a `UserError` if that cannot be."""

    def __init__(self, provider: SandboxProvider, equipment: Equipment) -> None:
        if (problem := mounts_problem(provider, equipment.mounts)) is not None:
            raise UserError(problem, "Choose another sandbox with resources.sandbox.provider")
        self.name = provider.name
        self.isolates = provider.isolates
        self.claims = provider.claims
        self.lacks = provider.lacks
        self._provider = provider
        self._equipment = equipment

    def session_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """A spec with the equipment."""
        return self._equipment.added_to(self._provider.session_spec(spec))

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox of exactly this spec."""
        return await self._provider.open(spec)

    async def check(self, spec: SandboxSpec) -> None:
        """Raise `SandboxError` if no sandbox of a spec could open."""
        await self._provider.check(spec)

    async def fork(self, sandbox: Sandbox) -> Sandbox:
        """A second sandbox with the same files."""
        return await self._provider.fork(sandbox)

    async def close(self) -> None:
        """Close every sandbox that is still open."""
        await self._provider.close()


def _at_least(limits: SandboxLimits, needed: SandboxLimits) -> SandboxLimits:
    names = [field.name for field in fields(limits)]
    return SandboxLimits(**{name: max(getattr(limits, name), getattr(needed, name)) for name in names})

"""One provider in front of several: each spec goes to the provider that suits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ludus.sandbox.protocol import Sandbox, SandboxProvider, SandboxSpec


class SandboxRouter(SandboxProvider):
    """Opens each sandbox with the provider that `choose` names. A provider is made when it is first needed."""

    def __init__(self, name: str, choose: Callable[[SandboxSpec], str], make: Callable[[str], SandboxProvider]) -> None:
        self.name = name
        self._choose = choose
        self._make = make
        self._providers: dict[str, SandboxProvider] = {}

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox of the provider that suits the spec."""
        return await self._of(spec).open(spec)

    async def check(self, spec: SandboxSpec) -> None:
        """Raise `SandboxError` if no sandbox of a spec could open."""
        await self._of(spec).check(spec)

    def _of(self, spec: SandboxSpec) -> SandboxProvider:
        name = self._choose(spec)
        if name not in self._providers:
            self._providers[name] = self._make(name)
        return self._providers[name]

    async def close(self) -> None:
        """Close every provider that was made."""
        await asyncio.gather(*(provider.close() for provider in self._providers.values()))

"""Resources with a sandbox: `self.sandbox` is one sandbox per session, opened when it is first used.

    class Shell(SandboxResources):
        @tool
        async def bash(self, command: str) -> str:
            \"\"\"Run a shell command.\"\"\"
            result = await self.sandbox.exec(command, timeout=60)
            return result.text

Judge in a fresh sandbox, which the model has never touched: `async with await self.shared.open(spec) as clean`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from ludus.errors import UserError
from ludus.resources import Resources, ResourcesConfig
from ludus.runtime.threads import awaited
from ludus.sandbox.choice import check_spec, open_provider
from ludus.sandbox.delegate import Delegate
from ludus.sandbox.packages import places
from ludus.sandbox.protocol import Sandbox, SandboxError, SandboxProvider, SandboxSpec


class SandboxSettings(BaseModel):
    """The settings `resources.sandbox.*`: which provider runs programs, and limits that replace the environment's."""

    model_config = ConfigDict(extra="forbid")

    #: `auto` (the best that isolates), `bubblewrap`, `oci`, `remote`, the weak `process`, or one of another package:
    #: `daytona`, `e2b` and `modal` are in ludus-sandboxes
    provider: str = "auto"
    #: servers of the `remote` provider
    urls: list[str] = []
    #: replaces the environment's image
    image: str | None = None
    #: memory of a program in MB; replaces the limit of the environment
    memory_mb: PositiveInt | None = None
    #: the most processes of a program; replaces the limit of the environment
    processes: PositiveInt | None = None
    #: what a program may write, in MB; replaces the limit of the environment
    disk_mb: PositiveInt | None = None
    #: warm sandboxes to keep; by default one for each core
    warm: NonNegativeInt | None = None

    def applied_to(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec with the limits and the image of these settings."""
        replaced = {key: getattr(self, key) for key in ("memory_mb", "processes", "disk_mb")}
        limits = replace(spec.limits, **{key: value for key, value in replaced.items() if value is not None})
        return replace(spec, limits=limits, image=self.image or spec.image)

    def check_packages(self, spec: SandboxSpec) -> None:
        """Raise a `UserError` if sandboxes on this machine need a package that is not installed."""
        if self.provider in ("auto", "bubblewrap", "process") and spec.image is None:
            places(spec.packages)


class SandboxConfig(ResourcesConfig):
    """Settings of resources with a sandbox."""

    #: which sandbox runs programs, and its limits
    sandbox: SandboxSettings = SandboxSettings()


class SandboxResources(Resources):
    """Base of resources that run untrusted code. `self.shared` opens further sandboxes."""

    Config = SandboxConfig

    #: The spec of a session's sandbox. A session may replace it in `open`, before the first use.
    sandbox_spec: ClassVar[SandboxSpec] = SandboxSpec()

    #: The folder of the task in the sandbox, relative to HOME: programs that play as agents begin there.
    workdir: str = "."

    #: How long a program that plays as the agent may run. Its work is judged also if it is stopped then.
    program_seconds: float = inf

    #: Whether rows may name an image of their own, so that `oci` can be used without the setting `image`.
    images_from_rows: ClassVar[bool] = False

    shared: SandboxProvider

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.sandbox: Sandbox = LazySandbox(shared, self.config.sandbox.applied_to(self.sandbox_spec))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        spec = vars(cls).get("sandbox_spec")
        if isinstance(spec, dict | str):
            example = "SandboxSpec(limits=SandboxLimits(memory_mb=512))"
            raise UserError(f"{cls.__name__}.sandbox_spec is a {type(spec).__name__}", f"Write {example}")
        if "close" in vars(cls):  # an author's close() may raise, or not call ours
            cls.close = _closing(cls.close)  # type: ignore[method-assign]

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """Open the provider once. Without one, the environment refuses to start."""
        chosen, spec = config.sandbox, config.sandbox.applied_to(cls.sandbox_spec)
        check_spec(chosen.provider, spec, cls.images_from_rows)
        image = spec.image is not None
        if not cls.images_from_rows:  # a row with an image needs no package of this machine
            chosen.check_packages(spec)
        provider = await open_provider(chosen.provider, image=image, urls=chosen.urls, warm=chosen.warm)
        try:
            await _check(provider, spec, chosen)
            yield provider
        finally:
            await provider.close()

    def program_prompt(self, task: Any, prompt: str) -> str:
        """What a program that plays as the agent is asked. Replace this if `prompt` speaks of your own tools."""
        return prompt

    async def close(self) -> None:
        """Close the sandbox."""
        await self.sandbox.close()

    async def fork(self) -> Self:
        """A second session in the same state, with a copy of the sandbox's files. Processes are not copied."""
        twin = self.copied("sandbox")
        if isinstance(self.sandbox, LazySandbox):
            twin.sandbox = await self.sandbox.fork()
        return twin


async def _check(provider: SandboxProvider, spec: SandboxSpec, chosen: SandboxSettings) -> None:
    """Refuse to start if no sandbox could open, before a model is asked."""
    try:
        await provider.check(spec)
    except SandboxError as error:
        remote = chosen.provider == "remote"
        hint = "Check resources.sandbox.urls, and start a server with: ludus serve sandbox"
        raise UserError(error.cause, hint if remote else "Check resources.sandbox.image") from error


class LazySandbox(Delegate):
    """A sandbox that is opened when it is first used."""

    def __init__(self, provider: SandboxProvider, spec: SandboxSpec) -> None:
        self._provider = provider
        self.spec = spec
        self._opening: asyncio.Task[Sandbox] | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether it was used: files that a program made or changed can only be there then."""
        return self._opening is not None

    async def _target(self) -> Sandbox:
        if self._closed:
            raise RuntimeError("the sandbox is closed")
        if self._opening is None:  # tools of one turn may run at once
            self._opening = asyncio.create_task(self._provider.open(self._provider.session_spec(self.spec)))
        return await asyncio.shield(self._opening)

    async def deny_hosts(self) -> None:
        """Close what `allow_hosts` opened."""
        if self._opening is not None:
            await super().deny_hosts()

    async def end_processes(self) -> None:
        """End every process that programs left behind; there are none if it was never used."""
        if self._opening is not None:
            await super().end_processes()

    async def close_routes(self) -> None:
        """Close what `route` opened."""
        if self._opening is not None:
            await super().close_routes()

    async def fork(self) -> LazySandbox:
        """A second sandbox with the same files; one that was never used is not opened for this."""
        twin = LazySandbox(self._provider, self.spec)
        if self._opening is not None:
            twin._opening = asyncio.create_task(self._provider.fork(await self._target()))
            await asyncio.shield(twin._opening)
        return twin

    async def close(self) -> None:
        """Close the sandbox, if it was opened."""
        self._closed = True
        if self._opening is not None:
            try:
                sandbox = await asyncio.shield(self._opening)
            except Exception:  # raised where the sandbox was used
                return
            await sandbox.close()


def _closing(close: Any) -> Any:
    """An author's `close`, followed by the end of the sandbox, also if it raises."""

    @functools.wraps(close)
    async def closing(self: SandboxResources) -> None:
        try:
            await awaited(close, self)
        finally:
            await self.sandbox.close()

    return closing

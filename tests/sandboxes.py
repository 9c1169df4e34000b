"""How tests use sandboxes: which providers work here, and why a test is skipped where one does not.

    @needs("bubblewrap")
    async def test_something(): ...

    @pytest.mark.parametrize("kind", kinds())
    async def test_every_provider_does_this(kind: str):
        async with opened(kind) as sandbox: ...

The list of kinds has every provider of `ludus.sandbox.choice`. A kind that does not work on this machine is skipped
with the reason that `ludus doctor` gives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest
from root_file_systems import image_cache, root_file_system

from ludus.sandbox import Sandbox, SandboxProvider, SandboxSpec
from ludus.sandbox.choice import provider_class, survey


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where a provider does not work."""
    return pytest.mark.skipif(_problem(name) is not None, reason=_reason(name))


def kinds() -> list[Any]:
    """The names of all providers as parameters of a test, for `pytest.mark.parametrize`."""
    return [pytest.param(found.name, marks=needs(found.name)) for found in survey()]


def spec_for(kind: str, spec: SandboxSpec | None = None, **fields: Any) -> SandboxSpec:
    """A spec that a provider can open: `oci` gets a root file system made of this machine's shell and tools."""
    image = {"image": str(root_file_system())} if kind == "oci" else {}
    return replace(spec or SandboxSpec(), **image, **fields)


@asynccontextmanager
async def provided(kind: str) -> AsyncIterator[SandboxProvider]:
    """A provider without a pool."""
    provider = provider_class(kind)(**({"cache": image_cache()} if kind == "oci" else {}))
    try:
        yield provider
    finally:
        await provider.close()


@asynccontextmanager
async def opened(kind: str, **fields: Any) -> AsyncIterator[Sandbox]:
    """One sandbox of a provider, with these fields of its spec."""
    async with provided(kind) as provider, await provider.open(spec_for(kind, **fields)) as sandbox:
        yield sandbox


def running(word: str) -> list[psutil.Process]:
    """The processes of this machine with a word among their arguments."""
    return [each for each in psutil.process_iter(["cmdline"]) if word in (each.info["cmdline"] or ())]


def _problem(name: str) -> str | None:
    return {found.name: found.problem for found in survey()}.get(name, f"there is no provider {name}")


def _reason(name: str) -> str:
    install = next((found.install for found in survey() if found.name == name), None)
    return f"{name}: {_problem(name)}{f'. Install it with: {install}' if install else ''}"

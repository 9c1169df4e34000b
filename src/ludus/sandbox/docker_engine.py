"""A container engine (docker or podman) through its HTTP interface on a Unix socket, as a source of images.

The engine runs no containers: its image is exported once, and our own container is made from it. So the protection of a
sandbox does not depend on how the engine is set up.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from ludus.runtime.threads import in_thread
from ludus.sandbox.protocol import SandboxError

_VERSION = "/v1.41"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:[:/@]+?[A-Za-z0-9][A-Za-z0-9_.-]*)*")
_TIMEOUT = aiohttp.ClientTimeout(total=3600, connect=5, sock_read=300)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class EngineImage:
    """What an engine says about an image."""

    id: str
    env: dict[str, str]


class ContainerEngine:
    """One engine that answers."""

    def __init__(self, session: aiohttp.ClientSession, socket: str) -> None:
        self._session = session
        self._socket = socket

    @classmethod
    @asynccontextmanager
    async def connect(cls, image: str = "") -> AsyncIterator[ContainerEngine]:
        """The first engine whose socket answers. Raises `SandboxError` if there is none."""
        for path in filter(os.path.exists, _sockets()):
            connector = aiohttp.UnixConnector(path=path)
            async with aiohttp.ClientSession("http://engine", connector=connector, timeout=_TIMEOUT) as session:
                try:
                    async with session.get("/_ping") as answer:
                        answers = answer.status == 200
                except (aiohttp.ClientError, OSError, TimeoutError):
                    continue
                if answers:
                    yield cls(session, path)
                    return
        tried = ", ".join(_sockets())
        what = f"the image {image:.200}" if image else "the image"
        raise SandboxError(f"{what} is no folder and no archive, and no container engine answers at {tried}")

    async def inspect(self, name: str) -> EngineImage:
        """What the engine knows about an image. It is not pulled: that is a decision of the user."""
        if not _NAME.fullmatch(name) or ".." in name:
            raise SandboxError(f"not the name of an image: {name!r:.200}")
        about = await self._ask("GET", f"/images/{name}/json", missing=f"the engine has no image {name}: pull it first")
        env = (about.get("Config") or {}).get("Env") or []
        try:
            return EngineImage(str(about["Id"]), dict(line.split("=", 1) for line in env))
        except (KeyError, ValueError, AttributeError) as error:
            raise SandboxError(
                f"the engine at {self._socket} describes the image {name} in an unknown format"
            ) from error

    async def export(self, name: str, path: Path) -> None:
        """Write the root file system of an image into a file, as a tar archive."""
        container = await self._ask("POST", "/containers/create", json={"Image": name, "Cmd": ["/bin/true"]})
        place = f"/containers/{container.get('Id')}"
        try:
            async with self._session.get(f"{_VERSION}{place}/export") as answer:
                await self._checked(answer)
                with path.open("wb") as file:
                    async for chunk in answer.content.iter_chunked(_CHUNK):
                        await in_thread(file.write, chunk)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"the engine at {self._socket} broke off the export of {name}: {error}") from error
        finally:
            with suppress(SandboxError):
                await self._ask("DELETE", f"{place}?force=true")

    async def _ask(self, method: str, path: str, *, missing: str = "", **request: Any) -> dict[str, Any]:
        try:
            async with self._session.request(method, f"{_VERSION}{path}", **request) as answer:
                if answer.status == 404 and missing:
                    raise SandboxError(missing)
                await self._checked(answer)
                content = await answer.json(content_type=None) if answer.status != 204 else {}
                return content if isinstance(content, dict) else {}
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SandboxError(f"the engine at {self._socket} did not answer: {error}") from error

    async def _checked(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status >= 400:
            words = " ".join((await answer.text())[:300].split())
            raise SandboxError(f"the engine at {self._socket} answered {answer.status}: {words}")


def _sockets() -> Iterator[str]:
    """Where engines listen, as their own command lines look for them."""
    host = os.environ.get("DOCKER_HOST", "")
    if host:
        if host.startswith("unix://"):
            yield host.removeprefix("unix://")
        return
    yield "/var/run/docker.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield f"{runtime}/docker.sock"
        yield f"{runtime}/podman/podman.sock"
    yield "/run/podman/podman.sock"

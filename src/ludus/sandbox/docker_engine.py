"""A container engine (docker or podman) through its HTTP interface on a Unix socket, as a source of images.

The engine runs no containers: its image is exported once, and our own container is made from it. So the protection of a
sandbox does not depend on how the engine is set up.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, IncompleteRead
from pathlib import Path
from typing import Any

import orjson

from ludus.runtime.threads import in_thread
from ludus.sandbox.protocol import SandboxError

_VERSION = "/v1.41"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:[:/@]+?[A-Za-z0-9][A-Za-z0-9_.-]*)*")
_CONNECT_SECONDS, _READ_SECONDS, _SECONDS = 5.0, 300.0, 3600.0
_CHUNK = 1 << 20


@dataclass(frozen=True)
class EngineImage:
    """An image as an engine describes it."""

    id: str
    settings: dict[str, Any]  #: its `env`, `workdir`, `user` and `entrypoint`


class EngineConnection(HTTPConnection):
    """A connection to an engine for one request, made on a thread: an export is larger than any reply in memory."""

    def __init__(self, path: str) -> None:
        super().__init__("engine")
        self._path = path

    def connect(self) -> None:
        """Open the engine's socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_CONNECT_SECONDS)
        self.sock.connect(self._path)
        self.sock.settimeout(_READ_SECONDS)

    def exchange(self, method: str, path: str, content: Any, target: Path | None) -> tuple[int, bytes]:
        """The status and the body of the reply. The body of a reply without an error goes into the file `target`."""
        try:
            body = b"" if content is None else orjson.dumps(content)
            self.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = self.getresponse()
            if target is None or answer.status >= 400:
                return answer.status, answer.read()
            with target.open("wb") as file:
                shutil.copyfileobj(answer, file, _CHUNK)
            if answer.length:
                raise IncompleteRead(b"", answer.length)
            return answer.status, b""
        finally:
            self.close()

    def abort(self) -> None:
        """End a request that runs on another thread."""
        if (opened := self.sock) is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


class ContainerEngine:
    """One engine that answers."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    @classmethod
    async def find(cls, image: str = "") -> ContainerEngine:
        """The first engine whose socket answers. Raises `SandboxError` if there is none."""
        for path in filter(os.path.exists, _sockets()):
            engine = cls(path)
            with suppress(HTTPException, OSError, TimeoutError):
                if (await engine._send("GET", "/_ping"))[0] == 200:
                    return engine
        tried = ", ".join(_sockets())
        what = f"the image {image:.200}" if image else "the image"
        raise SandboxError(f"{what} is neither a folder nor an archive, and no container engine answers at {tried}")

    async def inspect(self, name: str) -> EngineImage:
        """What the engine knows about an image. It is not pulled: that is a decision of the user."""
        if not _NAME.fullmatch(name) or ".." in name:
            raise SandboxError(f"not the name of an image: {name!r:.200}")
        about = await self._ask("GET", f"/images/{name}/json", missing=f"the engine has no image {name}: pull it first")
        try:
            return EngineImage(str(about["Id"]), image_settings(about.get("Config") or {}))
        except (KeyError, ValueError, AttributeError) as error:
            raise SandboxError(
                f"the engine at {self._socket} describes the image {name} in an unknown format"
            ) from error

    async def export(self, name: str, path: Path) -> None:
        """Write the root file system of an image into a file, as a tar archive."""
        container = await self._ask("POST", "/containers/create", {"Image": name, "Cmd": ["/bin/true"]})
        place = f"/containers/{container.get('Id')}"
        try:
            self._check(*await self._send("GET", f"{_VERSION}{place}/export", target=path))
        except (HTTPException, OSError, TimeoutError) as error:
            raise SandboxError(f"the engine at {self._socket} broke off the export of {name}: {error}") from error
        finally:
            with suppress(SandboxError):
                await self._ask("DELETE", f"{place}?force=true")

    async def _ask(self, method: str, path: str, content: Any = None, *, missing: str = "") -> dict[str, Any]:
        try:
            status, body = await self._send(method, f"{_VERSION}{path}", content)
            if status == 404 and missing:
                raise SandboxError(missing)
            self._check(status, body)
            reply = orjson.loads(body) if status != 204 else {}
            return reply if isinstance(reply, dict) else {}
        except (HTTPException, OSError, TimeoutError, ValueError) as error:
            raise SandboxError(f"the engine at {self._socket} did not answer: {error}") from error

    async def _send(self, method: str, path: str, content: Any = None, target: Path | None = None) -> tuple[int, bytes]:
        connection = EngineConnection(self._socket)
        try:
            async with asyncio.timeout(_SECONDS):
                reply: tuple[int, bytes] = await in_thread(connection.exchange, method, path, content, target)
                return reply
        finally:
            connection.abort()

    def _check(self, status: int, body: bytes) -> None:
        if status >= 400:
            words = " ".join(body[:300].decode(errors="replace").split())
            raise SandboxError(f"the engine at {self._socket} answered {status}: {words}")


def image_settings(config: dict[str, Any]) -> dict[str, Any]:
    """What matters to us of an image's configuration: `env`, `workdir`, `user`, `entrypoint`. Raises ValueError."""
    env = dict(line.split("=", 1) for line in config.get("Env") or [])
    places = {"workdir": config.get("WorkingDir") or "", "user": config.get("User") or ""}
    return {"env": env, **places, "entrypoint": config.get("Entrypoint") or []}


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

"""Sandboxes of Daytona, by its REST API.

Tested against a local double only, which follows Daytona's published API description. Not certain from it, and
therefore not relied on: whether `result` holds stderr too (the script prints none), how long a `result` may be, and
what a passed `timeout` answers (408 is read as a timeout; in any other case the script itself stops the program
before).

    DAYTONA_API_KEY   the key
    DAYTONA_API_URL   the server, if it is not Daytona's own
    DAYTONA_TARGET    the region, if it is not the organisation's
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import shlex
from time import monotonic
from typing import Any

from ludus.errors import UserError
from ludus.runtime.keys import look_up_key, without_keys_and_paths
from ludus.sandbox.protocol import SandboxError, SandboxSpec
from ludus_sandboxes.hosted import GRACE, LIFETIME, ApiSandbox, HostedProvider, HostedSandbox, Ran, checked_id
from ludus_sandboxes.hosted_http import Refused, Service, form_file, service_at

KEY = "DAYTONA_API_KEY"
URL = "https://app.daytona.io/api"

#: Seconds until a sandbox must have started. A new image is built first.
_START = 600.0
_POLL = 0.2
_LONGEST_POLL = 2.0
_FAILED = frozenset({"error", "build_failed", "destroyed", "destroying", "stopped", "archived"})
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_SNAPSHOT = "snapshot:"


class DaytonaProvider(HostedProvider):
    """Opens sandboxes of Daytona. An image is built on first use; `snapshot:NAME` takes one that was made before."""

    name = "daytona"
    about = "machines of Daytona"

    @classmethod
    def problem(cls) -> str | None:
        """Why Daytona cannot be used, or None."""
        return None if look_up_key(KEY) else f"{KEY} is not set"

    def __init__(self, url: str | None = None) -> None:
        super().__init__()
        if why := self.problem():
            raise UserError(f"sandbox provider daytona: {why}", f"Put the key into {KEY}")
        self._headers = {"authorization": f"Bearer {look_up_key(KEY)}"}
        self._api = Service("Daytona", url or os.environ.get("DAYTONA_API_URL") or URL, self._headers)

    async def _create(self, spec: SandboxSpec) -> HostedSandbox:
        made = await self._api.json("POST", "/sandbox", _request(spec), within=_START)
        sandbox = DaytonaSandbox(spec, self, self._api, checked_id(made.get("id"), "Daytona"))
        try:
            await sandbox.start(made, self._headers)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _disconnect(self) -> None:
        await self._api.close()


class DaytonaSandbox(ApiSandbox):
    """One sandbox of Daytona. The API makes and ends it; programs run through its toolbox, at a URL of its own."""

    collection = "/sandbox"

    async def start(self, made: dict[str, Any], headers: dict[str, str]) -> None:
        """Wait until the sandbox runs, and connect to its toolbox."""
        deadline, pause = monotonic() + _START, _POLL
        while (state := str(made.get("state"))) != "started":
            if state in _FAILED:
                why = without_keys_and_paths(f"{made.get('errorReason') or 'no reason given'!s:.300}")
                raise SandboxError(f"a sandbox of Daytona did not start ({state}): {why}")
            if monotonic() > deadline:
                raise SandboxError(f"a sandbox of Daytona did not start within {_START:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)
            made = await self._api.json("GET", f"/sandbox/{self._id}")
        url = str(made.get("toolboxProxyUrl")).rstrip("/")
        self._inside = service_at("Daytona", f"{url}/{self._id}", headers)

    async def _shell(self, command: str, seconds: float) -> Ran:
        content = {"command": f"sh -c {shlex.quote(command)}", "cwd": "/", "timeout": math.ceil(seconds)}
        try:
            reply = await self._service().json("POST", "/process/execute", content, within=seconds + GRACE)
        except Refused as error:
            if error.status == 408:
                return Ran(None, b"", late=True)
            raise
        code, result = reply.get("exitCode"), reply.get("result")
        if not isinstance(result, str):
            raise SandboxError("Daytona sent no result of a command")
        return Ran(code if isinstance(code, int) else None, result.encode(errors="replace"))

    async def _upload(self, path: str, data: bytes) -> None:
        body, headers = form_file("files[0].file", path, data)
        await self._service().send("POST", "/files/bulk-upload", body, headers, within=300.0)


def _request(spec: SandboxSpec) -> dict[str, Any]:
    """The request for a sandbox. It is deleted when it stops, and at the latest when its lifetime is over."""
    minutes = LIFETIME // 60
    request: dict[str, Any] = {
        "networkBlockAll": not spec.network,
        "autoStopInterval": minutes,
        "autoDeleteInterval": 0,
        "ttlMinutes": minutes,
        "labels": {"made-by": "ludus"},
    }
    if target := os.environ.get("DAYTONA_TARGET"):
        request["target"] = target
    if spec.image is None:
        return request
    if spec.image.startswith(_SNAPSHOT):
        return request | {"snapshot": spec.image.removeprefix(_SNAPSHOT)}
    if not _IMAGE.fullmatch(spec.image):  # it becomes a line of a Dockerfile
        raise SandboxError(f"{spec.image!r:.100} is not the name of an image")
    gigabytes = {"memory": math.ceil(spec.limits.memory_mb / 1024), "disk": math.ceil(spec.limits.disk_mb / 1024) + 2}
    return request | {"buildInfo": {"dockerfileContent": f"FROM {spec.image}\n"}, "cpu": 1, **gigabytes}

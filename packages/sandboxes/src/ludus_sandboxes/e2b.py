"""Sandboxes of e2b, by its REST API and the daemon in each sandbox (`envd`), which speaks Connect over HTTP.

Tested against a local double only, which follows e2b's published API description. Not certain from it: whether envd
ends a process at `Connect-Timeout-Ms` (the script itself stops the program before), and that the JSON form of Connect
is as complete as the binary form, which e2b's own clients use.

    E2B_API_KEY   the key
    E2B_DOMAIN    the domain, if it is not e2b's own
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import struct
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.runtime.keys import look_up_key, remember_key, without_keys_and_paths
from ludus.sandbox.protocol import SandboxError, SandboxSpec
from ludus_sandboxes.hosted import GRACE, LIFETIME, ApiSandbox, HostedProvider, HostedSandbox, Ran, checked_id
from ludus_sandboxes.hosted_http import Service, form_file, service_at

KEY = "E2B_API_KEY"
DOMAIN = "e2b.app"

_PORT = 49983  # of envd
_USER = "user"
_ENVELOPE = struct.Struct(">BI")
_COMPRESSED, _LAST = 1, 2
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}")


class E2bProvider(HostedProvider):
    """Opens sandboxes of e2b. The image of a spec is the name of a template; its size is the template's."""

    name = "e2b"
    about = "machines of e2b"

    @classmethod
    def problem(cls) -> str | None:
        """Why e2b cannot be used, or None."""
        return None if look_up_key(KEY) else f"{KEY} is not set"

    def __init__(self, url: str | None = None, sandbox_url: str | None = None) -> None:
        """`url` and `sandbox_url` replace the addresses of the API and of every sandbox."""
        super().__init__()
        if why := self.problem():
            raise UserError(f"sandbox provider e2b: {why}", f"Put the key into {KEY}")
        self._domain = os.environ.get("E2B_DOMAIN") or DOMAIN
        self._sandbox_url = sandbox_url
        self._api = Service("e2b", url or f"https://api.{self._domain}", {"x-api-key": look_up_key(KEY)})

    async def _create(self, spec: SandboxSpec) -> HostedSandbox:
        request = {
            "templateID": spec.image or "base",
            "timeout": LIFETIME,
            "autoPause": False,
            "secure": True,
            "allow_internet_access": spec.network,
            "metadata": {"made-by": "ludus"},
        }
        made = await self._api.json("POST", "/sandboxes", request, within=120.0)
        sandbox_id = checked_id(made.get("sandboxID"), "e2b")
        sandbox = E2bSandbox(spec, self, self._api, sandbox_id)
        try:
            sandbox.connect(self._address(made, sandbox_id), made.get("envdAccessToken"))
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _disconnect(self) -> None:
        await self._api.close()

    def _address(self, made: dict[str, Any], sandbox_id: str) -> str:
        if self._sandbox_url is not None:
            return self._sandbox_url
        domain = made.get("domain") or self._domain
        if not isinstance(domain, str) or not _HOST.fullmatch(domain):
            raise SandboxError(f"e2b sent a domain that is not one: {domain!r:.100}")
        return f"https://{_PORT}-{sandbox_id}.{domain}"


class E2bSandbox(ApiSandbox):
    """One sandbox of e2b. The API makes and ends it; programs run through its envd, at a host of its own."""

    collection = "/sandboxes"

    def connect(self, url: str, token: object) -> None:
        """Use the envd at this address."""
        headers = {
            "e2b-sandbox-id": self._id,
            "e2b-sandbox-port": str(_PORT),
            "authorization": "Basic " + base64.b64encode(f"{_USER}:".encode()).decode(),
        }
        if isinstance(token, str) and token:
            remember_key(token)
            headers["x-access-token"] = token
        self._inside = service_at("e2b", url, headers)

    async def _shell(self, command: str, seconds: float) -> Ran:
        start = orjson.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", command], "cwd": "/"}})
        headers = {
            "content-type": "application/connect+json",
            "connect-protocol-version": "1",
            "connect-timeout-ms": str(int(seconds * 1000)),
            "keepalive-ping-interval": "50",
        }
        body = _ENVELOPE.pack(0, len(start)) + start
        reply = await self._service().send("POST", "/process.Process/Start", body, headers, within=seconds + GRACE)
        return read_events(reply.body)

    async def _upload(self, path: str, data: bytes) -> None:
        body, headers = form_file("file", path, data)
        await self._service().send("POST", f"/files?path={path}&username={_USER}", body, headers, within=300.0)


def read_events(stream: bytes) -> Ran:
    """What the events of a process say: its stdout and its exit code. Raises `SandboxError` for a broken stream."""
    code: int | None = None
    ended = False
    output = bytearray()
    for last, event in _messages(stream):
        if last:
            if error := event.get("error"):
                return _failed(error)
            if not ended:
                raise SandboxError("e2b ended the stream of a process before the process")
            return Ran(code, bytes(output))
        what = event.get("event")
        if not isinstance(what, dict):
            continue
        if isinstance(data := what.get("data"), dict):
            try:
                output += base64.b64decode(data.get("stdout") or b"")
            except (binascii.Error, TypeError, ValueError) as error:
                raise SandboxError("e2b sent output that is not base64") from error
        if isinstance(end := what.get("end"), dict):
            ended, given = True, end.get("exitCode", 0)  # the JSON of protobuf leaves zeros out
            code = given if isinstance(given, int) and not isinstance(given, bool) else None
    raise SandboxError("e2b cut the stream of a process")


def _messages(stream: bytes) -> list[tuple[bool, dict[str, Any]]]:
    """The messages of a Connect stream, each with whether it is the last one."""
    found, at = [], 0
    while at + _ENVELOPE.size <= len(stream):
        flags, size = _ENVELOPE.unpack_from(stream, at)
        at += _ENVELOPE.size
        if flags & _COMPRESSED or at + size > len(stream):
            raise SandboxError("e2b cut or compressed the stream of a process")
        try:
            message = orjson.loads(stream[at : at + size])
        except orjson.JSONDecodeError as error:
            raise SandboxError("e2b sent a message that is not JSON") from error
        if not isinstance(message, dict):
            raise SandboxError("e2b sent a message that is not a JSON object")
        found.append((bool(flags & _LAST), message))
        at += size
    return found


def _failed(error: object) -> Ran:
    """The end of a stream with an error. A deadline that passed is the program's, any other error is the service's."""
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
    if code == "deadline_exceeded":
        return Ran(None, b"", late=True)
    raise SandboxError(without_keys_and_paths(f"e2b could not run a program: {code!s:.50}: {message!s:.300}"))

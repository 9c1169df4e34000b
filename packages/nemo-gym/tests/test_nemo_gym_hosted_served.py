"""`ludus serve FOLDER` passes requests of every method on, and none that the guard would refuse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hosted_servers import row, write_server
from waiting import CEILING

from ludus.serve.plan import Plan
from ludus.serve.serving import Serving

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

ECHO = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.api_route("/", methods=["GET", "HEAD"])(self.home)
        app.api_route("/echo/{name}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])(self.echo)
        return app

    async def home(self) -> dict:
        return {"private": True}

    async def echo(self, name: str, request: Request) -> dict:
        return {"name": name, "body": (await request.body()).decode()}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise NotImplementedError
"""


async def _exchange(port: int, request: str) -> tuple[int, str]:
    """The status and the body of the reply to a request, as it is written."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request}\n".replace("\n", "\r\n").encode())
    async with asyncio.timeout(CEILING):
        content = (await reader.read()).decode()
    writer.close()
    head, _, body = content.partition("\r\n\r\n")
    return int(head.split()[1]), body


def _served(tmp_path: Path, requests: list[str]) -> list[Any]:
    folder = write_server(tmp_path, "echoing", ECHO, [row("?")])

    async def use() -> list[Any]:
        async with Serving(Plan.of([str(folder)], resources_only=True, head_port=None)) as serving:
            (server,) = serving.plan.servers
            port = int(server.url.rpartition(":")[2])
            host = "Host: localhost\nConnection: close\n"
            whole = [text.format(host=host) if "{host}" in text else f"{text}\n{host}" for text in requests]
            return [await _exchange(port, text) for text in whole]

    return asyncio.run(use())


def test_a_page_of_the_server_at_the_root_needs_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "a-token-of-ours")
    replies = _served(tmp_path, [f"{method} / HTTP/1.1" for method in ("GET", "HEAD")] + ["GET /echo/x HTTP/1.1"])
    assert replies[:2] == [(200, '{"status":"ok"}'), (200, "")]
    assert replies[2][0] == 401


def test_requests_of_every_method_reach_the_server_with_their_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    chunked = "HTTP/1.1\nTransfer-Encoding: chunked\nContent-Type: application/json\n{host}\n2\n{{}}\n0\n"
    replies = _served(
        tmp_path,
        [
            "HEAD /echo/x HTTP/1.1",
            "GET / HTTP/1.1",
            "GET /echo/a%252fb%3Fc HTTP/1.1",
            "PUT /echo/x HTTP/1.1\nContent-Length: 99999999999",
            *(f"{method} /echo/x {chunked}" for method in ("PUT", "PATCH", "DELETE")),
        ],
    )
    assert (replies[0], replies[3][0]) == ((200, ""), 413)
    told = [json.loads(body) for _, body in (*replies[1:3], *replies[4:])]
    assert told == [{"private": True}, {"name": "a%2fb?c", "body": ""}, *[{"name": "x", "body": "{}"}] * 3]

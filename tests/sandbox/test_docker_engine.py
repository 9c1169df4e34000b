"""Images by name, from a container engine. No engine runs here: a double answers as its documented interface says."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from root_file_systems import new_image_cache, root_file_system
from sandboxes import needs

from ludus.sandbox import SandboxError, SandboxSpec
from ludus.sandbox.docker_engine import ContainerEngine
from ludus.sandbox.oci import OciProvider


class EngineDouble:
    """The part of an engine's interface that we use: one image, and containers that can be made, exported, removed."""

    def __init__(self, name: str, archive: bytes) -> None:
        self.name = name
        self.archive = archive
        self.asked: list[str] = []
        self.containers: set[str] = set()
        self.broken = self.cut = False

    def application(self) -> web.Application:
        found = web.Application(middlewares=[self._remember])
        found.router.add_get("/_ping", self._ping)
        found.router.add_get("/v1.41/images/{name:.+}/json", self._inspect)
        found.router.add_post("/v1.41/containers/create", self._create)
        found.router.add_get("/v1.41/containers/{id}/export", self._export)
        found.router.add_delete("/v1.41/containers/{id}", self._remove)
        return found

    @web.middleware
    async def _remember(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _ping(self, request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _inspect(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != self.name:
            return web.json_response({"message": "No such image"}, status=404)
        return web.json_response({"Id": "sha256:0123", "Config": {"Env": ["PATH=/bin", "FLAVOUR=a=b"]}})

    async def _create(self, request: web.Request) -> web.Response:
        assert (await request.json())["Image"] == self.name
        self.containers.add("c1")
        return web.json_response({"Id": "c1", "Warnings": []}, status=201)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        assert request.match_info["id"] in self.containers
        if self.broken:
            return web.json_response({"message": "the disk\nis full"}, status=500)
        if self.cut:
            answer = web.StreamResponse(headers={"content-length": str(len(self.archive))})
            await answer.prepare(request)
            await answer.write(self.archive[:5000])
            assert request.transport is not None
            request.transport.close()
            return answer
        return web.Response(body=self.archive, content_type="application/x-tar")

    async def _remove(self, request: web.Request) -> web.Response:
        self.containers.remove(request.match_info["id"])
        return web.Response(status=204)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EngineDouble]:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(root_file_system(), ".")
    double = EngineDouble("team/tools:1.0", archive.getvalue())
    runner = web.AppRunner(double.application())
    await runner.setup()
    path = tmp_path / "engine.sock"
    await web.UnixSite(runner, str(path)).start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    yield double
    await runner.cleanup()


@needs("oci")
async def test_a_sandbox_of_an_image_by_name(engine: EngineDouble):
    cache = new_image_cache()
    for _ in range(2):  # the second time from the cache
        provider = OciProvider(cache)
        async with await provider.open(SandboxSpec(image="team/tools:1.0", env={"MORE": "1"})) as sandbox:
            assert (await sandbox.exec('cat /etc/image; echo "$PATH $FLAVOUR $MORE"')).text == (
                "made by a test\n/bin a=b 1\n"
            )
        await provider.close()
    assert engine.containers == set()
    assert sum(line.endswith("/export") for line in engine.asked) == 1


@needs("oci")
async def test_a_container_is_removed_also_when_the_export_fails(engine: EngineDouble):
    engine.broken = True
    provider = OciProvider(new_image_cache())
    with pytest.raises(SandboxError, match="answered 500.*the disk") as raised:
        await provider.open(SandboxSpec(image="team/tools:1.0"))
    assert "\n" not in str(raised.value)
    assert engine.containers == set()
    engine.broken = False
    async with await provider.open(SandboxSpec(image="team/tools:1.0")) as sandbox:
        assert (await sandbox.exec("true")).ok
    await provider.close()


async def test_an_image_that_the_engine_does_not_have_is_not_pulled(engine: EngineDouble):
    connected = await ContainerEngine.find()
    with pytest.raises(SandboxError, match="the engine has no image other:1: pull it first"):
        await connected.inspect("other:1")
    assert [line for line in engine.asked if not line.startswith("GET")] == []


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/../../containers", "a?x=1", "a#b", "a\nb", "a//b/.."])
async def test_a_text_that_is_no_name_never_reaches_the_engine(engine: EngineDouble, name: str):
    connected = await ContainerEngine.find()
    with pytest.raises(SandboxError, match="not the name of an image"):
        await connected.inspect(name)
    assert engine.asked == ["GET /_ping"]


async def test_without_an_engine_the_error_says_where_one_was_looked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/engine.sock")
    with pytest.raises(SandboxError, match="no container engine answers at /no/such/engine.sock"):
        await ContainerEngine.find()


async def test_an_export_that_breaks_off_is_an_error_and_no_image(engine: EngineDouble, tmp_path: Path):
    engine.cut = True
    connected = await ContainerEngine.find()
    with pytest.raises(SandboxError, match="broke off the export of team/tools:1.0"):
        await connected.export("team/tools:1.0", tmp_path / "image.tar")
    assert engine.containers == set()

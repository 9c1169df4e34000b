"""The adapter of Daytona: what it asks the service for, and what it makes of the service's errors."""

from __future__ import annotations

from typing import Any

import pytest
from hosted_doubles import KEY, DaytonaDouble, created, hosted
from ludus_sandboxes import daytona as adapter

from ludus.errors import UserError
from ludus.sandbox import SandboxError, SandboxLimits, SandboxSpec


async def test_a_sandbox_is_asked_for_without_network_and_with_an_end(monkeypatch: pytest.MonkeyPatch):
    request = await created(DaytonaDouble, SandboxSpec(), monkeypatch)
    assert request["networkBlockAll"] is True
    assert (request["autoStopInterval"], request["autoDeleteInterval"], request["ttlMinutes"]) == (60, 0, 60)
    assert not {"snapshot", "buildInfo", "memory"} & set(request)
    assert KEY not in str(request)


async def test_the_image_and_the_limits_of_the_spec_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    spec = SandboxSpec(image="python:3.12", network=True, limits=SandboxLimits(memory_mb=1500))
    request = await created(DaytonaDouble, spec, monkeypatch)
    assert request["buildInfo"] == {"dockerfileContent": "FROM python:3.12\n"}
    assert (request["memory"], request["networkBlockAll"]) == (2, False)
    assert (await created(DaytonaDouble, SandboxSpec(image="snapshot:mine"), monkeypatch))["snapshot"] == "mine"


async def test_an_image_cannot_add_lines_to_the_dockerfile(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SandboxError, match="not the name of an image"):
        await created(DaytonaDouble, SandboxSpec(image="python\nRUN id"), monkeypatch)


async def test_a_sandbox_that_does_not_start_is_an_error_and_is_deleted(monkeypatch: pytest.MonkeyPatch):
    double = DaytonaDouble.running_nothing()
    double.states = ["pending_build", "build_failed"]
    async with hosted(double, monkeypatch) as provider:
        with pytest.raises(SandboxError, match="did not start .build_failed.: no room"):
            await provider.open(SandboxSpec())
    assert double.deleted == ["sb-0"]


@pytest.mark.parametrize("reply", [b"[]", b'{"id": "../../x"}', b'{"id": 5}', b'{"id": "a", "state": "started"}'])
async def test_a_strange_description_of_a_sandbox_is_an_error_of_the_service(
    reply: bytes, monkeypatch: pytest.MonkeyPatch
):
    double = DaytonaDouble.running_nothing()
    monkeypatch.setattr(double, "described", lambda sandbox_id: reply)
    async with hosted(double, monkeypatch) as provider:
        with pytest.raises(SandboxError, match="Daytona sent"):
            await provider.open(SandboxSpec())


async def test_a_busy_service_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    double = DaytonaDouble.running_nothing()
    double.faults = [("POST /api/sandbox", "429"), ("/process/execute", "429"), ("GET", "500"), ("DELETE", "500")]
    async with hosted(double, monkeypatch) as provider:
        await (await provider.open(SandboxSpec())).close()
    assert (double.faults, double.deleted) == ([], ["sb-0"])


async def test_a_service_that_stays_busy_is_an_error(monkeypatch: pytest.MonkeyPatch):
    double = DaytonaDouble.running_nothing()
    double.faults = [("POST", "429")] * 4
    async with hosted(double, monkeypatch) as provider:
        with pytest.raises(SandboxError, match="answered 429"):
            await provider.open(SandboxSpec())


async def test_a_sandbox_that_cannot_be_deleted_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    double = DaytonaDouble.running_nothing()
    async with hosted(double, monkeypatch) as provider:
        sandbox = await provider.open(SandboxSpec())
        double.faults = [("DELETE", "500")] * 4
        await sandbox.close()
    assert "a sandbox was not closed, and ends within 3600 s: Daytona answered 500" in caplog.text
    assert KEY not in caplog.text


def test_without_a_key_there_is_no_daytona(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAYTONA_API_KEY", raising=False)
    assert adapter.DaytonaProvider.problem() == "DAYTONA_API_KEY is not set"
    with pytest.raises(UserError, match="Put the key into DAYTONA_API_KEY"):
        adapter.DaytonaProvider()
    monkeypatch.setenv("DAYTONA_API_KEY", KEY)
    assert adapter.DaytonaProvider.problem() is None

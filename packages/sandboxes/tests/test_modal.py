"""The adapter of Modal: what it asks the package for, and what it makes of the package's errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hosted_doubles import KEY, ModalDouble, hosted
from ludus_sandboxes import modal as adapter

from ludus.errors import UserError
from ludus.sandbox import SandboxError, SandboxLimits, SandboxSpec


async def test_a_sandbox_is_asked_for_with_the_limits_of_its_spec_and_an_end(monkeypatch: pytest.MonkeyPatch):
    double = ModalDouble.running_nothing()
    async with hosted(double, monkeypatch) as provider:
        await provider.open(SandboxSpec(limits=SandboxLimits(memory_mb=300)))
        await provider.open(SandboxSpec(image="python:3.12", network=True))
    first, second = double.created
    assert (first["app"], first["image"], first["timeout"], first["memory"]) == ("ludus", "debian", 3600, (300, 300))
    assert (first["block_network"], second["block_network"], second["image"]) == (True, False, "image python:3.12")
    assert double.requests.count("lookup") == 1
    assert sorted(double.deleted) == ["sb-0", "sb-1"]


@pytest.mark.parametrize("request_of", ["lookup", "create", "exec"])
async def test_an_error_of_the_package_is_never_the_programs(request_of: str, monkeypatch: pytest.MonkeyPatch):
    double = ModalDouble.running_nothing()
    double.faults = [(request_of, "the service is down")]
    async with hosted(double, monkeypatch) as provider:
        with pytest.raises(SandboxError, match="modal failed: RuntimeError: the service is down with") as raised:
            await provider.open(SandboxSpec())
        assert KEY not in str(raised.value)
        await provider.open(SandboxSpec())  # one failure is not remembered
    assert len(double.deleted) == len(double.created)


async def test_a_sandbox_that_cannot_be_ended_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    double = ModalDouble.running_nothing()
    async with hosted(double, monkeypatch) as provider:
        sandbox = await provider.open(SandboxSpec())
        double.faults = [("terminate", "down")]
        await sandbox.close()
    assert "ends within 3600 s: modal failed: RuntimeError: down" in caplog.text
    assert KEY not in caplog.text


def test_without_the_package_or_a_key_there_is_no_modal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    for name in adapter.KEYS:
        monkeypatch.delenv(name, raising=False)
    stored = tmp_path / "modal.toml"
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(stored))
    monkeypatch.setitem(sys.modules, "modal", ModalDouble().module())
    assert "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET are not set" in str(adapter.ModalProvider.problem())
    with pytest.raises(UserError, match="modal setup"):
        adapter.ModalProvider()
    stored.write_text("")
    assert adapter.ModalProvider.problem() is None
    monkeypatch.delitem(sys.modules, "modal")

    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(adapter, "find_spec", nothing)
    assert "modal is not installed" in str(adapter.ModalProvider.problem())

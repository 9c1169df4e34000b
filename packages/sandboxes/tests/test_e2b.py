"""The adapter of e2b: what it asks the service for, and what it makes of the service's errors."""

from __future__ import annotations

from typing import Any

import pytest
from hosted_doubles import KEY, E2bDouble, created, e2b_stream, envelope, hosted
from hypothesis import given, settings
from hypothesis import strategies as st
from ludus_sandboxes import e2b as adapter
from ludus_sandboxes.e2b import read_events

from ludus.errors import UserError
from ludus.sandbox import ExecResult, SandboxError, SandboxSpec


async def test_a_sandbox_is_asked_for_without_network_and_with_an_end(monkeypatch: pytest.MonkeyPatch):
    request = await created(E2bDouble, SandboxSpec(), monkeypatch)
    assert (request["templateID"], request["timeout"], request["autoPause"]) == ("base", 3600, False)
    assert request["allow_internet_access"] is False
    assert KEY not in str(request)


async def test_the_image_of_the_spec_is_the_template(monkeypatch: pytest.MonkeyPatch):
    request = await created(E2bDouble, SandboxSpec(image="mine", network=True), monkeypatch)
    assert (request["templateID"], request["allow_internet_access"]) == ("mine", True)


async def test_a_busy_service_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    double = E2bDouble.running_nothing()
    double.faults = [("POST /sandboxes", "429"), ("/process.Process/Start", "429"), ("DELETE", "drop")]
    async with hosted(double, monkeypatch) as provider:
        await (await provider.open(SandboxSpec())).close()
    assert (double.faults, double.deleted) == ([], ["sb-0"])


async def test_a_sandbox_that_is_gone_already_is_closed(monkeypatch: pytest.MonkeyPatch, caplog: Any):
    double = E2bDouble.running_nothing()
    async with hosted(double, monkeypatch) as provider:
        sandbox = await provider.open(SandboxSpec())
        double.faults = [("DELETE", "404")]
        await sandbox.close()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"sandboxID": "x.evil.example/"}, "a sandbox id that is not one"),
        ({"sandboxID": "x", "domain": "evil.example/?"}, "a domain that is not one"),
        ({"sandboxID": "x", "domain": 7}, "a domain that is not one"),
    ],
)
async def test_addresses_that_the_service_sends_are_checked(
    made: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("E2B_API_KEY", KEY)
    provider = adapter.E2bProvider("http://127.0.0.1:1")

    async def json(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return made

    async def send(*args: Any, **kwargs: Any) -> None:
        return None

    monkeypatch.setattr(provider._api, "json", json)
    monkeypatch.setattr(provider._api, "send", send)
    with pytest.raises(SandboxError, match=says):
        await provider.open(SandboxSpec())
    await provider.close()


@given(st.binary(max_size=30_000), st.integers(0, 255))
def test_events_are_read_as_they_were_sent(stdout: bytes, code: int):
    ran = read_events(e2b_stream(ExecResult(exit_code=code, stdout=stdout, stderr=b"other")))
    assert (ran.code, ran.output, ran.late) == (code, stdout, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(
        st.sampled_from(["event", "data", "stdout", "end", "exitCode", "error"]), inner, max_size=3
    ),
    max_leaves=3,
)


@settings(max_examples=50)
@given(st.binary(max_size=100) | st.lists(st.tuples(JSON, st.integers(0, 3)), max_size=4))
def test_a_strange_stream_is_an_error_of_the_service_and_nothing_else(stream: Any):
    data = stream if isinstance(stream, bytes) else b"".join(envelope(*each) for each in stream)
    try:
        read_events(data)
    except SandboxError:
        pass


def test_an_error_in_the_stream_is_an_error_of_the_service():
    error = {"error": {"code": "unavailable", "message": "no such sandbox"}}
    with pytest.raises(SandboxError, match="unavailable: no such sandbox"):
        read_events(envelope({"event": {"start": {"pid": 1}}}) + envelope(error, 2))
    with pytest.raises(SandboxError, match="before the process"):
        read_events(envelope({}, 2))


def test_without_a_key_there_is_no_e2b(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    assert adapter.E2bProvider.problem() == "E2B_API_KEY is not set"
    with pytest.raises(UserError, match="Put the key into E2B_API_KEY"):
        adapter.E2bProvider()

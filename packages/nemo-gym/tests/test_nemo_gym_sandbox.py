"""`nemo_gym.sandbox`: specs, providers by name, and the life of a sandbox, as servers and agents use them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemo_gym.base_resources_server import ResourcesSeedSessionResponse
from nemo_gym.sandbox import (
    AsyncSandbox,
    ConnectableProvider,
    Sandbox,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
    resolve_provider_config,
    resolve_provider_metadata,
    rewrite_image,
)
from nemo_gym.sandbox import config as sandbox_config
from nemo_gym.sandbox import utils as sandbox_utils
from nemo_gym.sandbox.access import DirectSandboxConnection, SandboxAccess
from nemo_gym.sandbox.providers import base, registry
from omegaconf import OmegaConf
from pydantic import ValidationError


class DictProvider:
    """A provider whose sandboxes are dictionaries of files, as a server's tests write one."""

    name = "dict"

    def __init__(self, greeting: str = "", fail: str = "") -> None:
        self.greeting, self.fail = greeting, fail
        self.log: list[Any] = []

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        if self.fail == "create":
            raise SandboxCreateError("no machine is free")
        return SandboxHandle(sandbox_id="d-1", provider_name=self.name, raw={})

    async def exec(self, handle: SandboxHandle, command: str, *, cwd, env, timeout_s, user) -> SandboxExecResult:
        self.log.append((command, cwd, env, timeout_s, user))
        return SandboxExecResult(stdout=f"{self.greeting}{command}", stderr="", return_code=0)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        if self.fail == "upload":
            raise OSError("the disk is full")
        handle.raw[target_path] = source_path.read_bytes()  # noqa: ASYNC240

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        target_path.write_bytes(handle.raw[source_path])  # noqa: ASYNC240

    async def status(self, handle: SandboxHandle) -> str:
        return "running"

    async def close(self, handle: SandboxHandle) -> None:
        if self.fail == "close":
            raise OSError("the service does not answer")
        self.log.append("close")

    async def aclose(self) -> None:
        self.log.append("aclose")


class RemoteProvider(DictProvider):
    """One whose sandboxes can be reached from elsewhere."""

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        return SandboxEndpoint(f"https://{handle.sandbox_id}.example:{port}")

    async def pause(self, handle: SandboxHandle) -> None:
        self.log.append("pause")

    async def resume(self, handle: SandboxHandle) -> None:
        self.log.append("resume")

    async def serialize_handle(self, handle: SandboxHandle) -> dict[str, Any]:
        return {"id": handle.sandbox_id}

    async def connect(self, descriptor: dict[str, Any]) -> SandboxHandle:
        return SandboxHandle(descriptor["id"], self.name, {})


@pytest.fixture
def dict_provider() -> Iterator[None]:
    register_provider("dict", DictProvider)
    yield
    registry._registered.pop("dict", None)


# --- specs and results ---


def test_the_resources_of_a_spec_may_be_a_mapping():
    spec = SandboxSpec(image="python:3.12", resources={"cpu": 2, "memory_mib": 512})
    assert spec.resources == SandboxResources(cpu=2, memory_mib=512)
    assert SandboxSpec().resources == SandboxResources()


def test_unknown_resources_are_refused_by_name():
    with pytest.raises(ValueError, match="unknown sandbox resources: ram. Known: cpu, memory_mib"):
        SandboxResources.from_mapping({"ram": 3})


def test_a_spec_is_frozen_and_its_defaults_are_empty():
    spec = SandboxSpec()
    assert (spec.image, spec.env, spec.files, spec.metadata, spec.ports) == (None, {}, {}, {}, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.image = "x"


@given(st.lists(st.integers(-10, 70_000), max_size=4))
def test_ports_of_a_spec_are_distinct_and_between_1_and_65535(ports: list[int]):
    if len(set(ports)) == len(ports) and all(1 <= port <= 65535 for port in ports):
        assert SandboxSpec(ports=ports).ports == tuple(ports)
    else:
        with pytest.raises(ValueError, match="port"):
            SandboxSpec(ports=ports)


def test_an_endpoint_is_an_absolute_url():
    assert SandboxEndpoint("http://10.0.0.1:80").headers == {}
    with pytest.raises(ValueError, match="not an absolute URL: '/path'"):
        SandboxEndpoint("/path")


def test_a_status_is_its_text():
    assert SandboxStatus("running") is SandboxStatus.RUNNING
    assert {status.value for status in SandboxStatus} == {
        *("starting", "running", "paused", "stopped", "error", "unknown"),
    }
    assert SandboxStatus.STOPPED == "stopped"


def test_names_are_the_same_objects_in_every_module():
    assert base.SandboxCreateError is SandboxCreateError
    assert base.SandboxExecResult is SandboxExecResult
    assert sandbox_config.resolve_provider_config is resolve_provider_config
    assert sandbox_utils.rewrite_image is rewrite_image


def test_the_access_to_a_sandbox_has_no_extras():
    connection = {"provider_config_ref": "sandbox", "descriptor": {"id": "x"}}
    access = SandboxAccess.model_validate({"connection": connection, "workdir": "/work"})
    assert access.connection == DirectSandboxConnection(provider_config_ref="sandbox", descriptor={"id": "x"})
    assert access.connection.kind == "direct"
    with pytest.raises(ValidationError):
        SandboxAccess.model_validate({"connection": connection, "workdir": "/work", "more": 1})


# --- providers by name ---


def test_every_documented_provider_is_listed():
    names = "apptainer daytona docker e2b ecs_fargate enroot local ludus opensandbox openshell"
    assert set(names.split()) <= set(list_providers())


def test_a_registered_provider_is_made_from_its_settings(dict_provider):
    assert "dict" in list_providers()
    assert get_provider_class("dict") is DictProvider
    assert create_provider({"dict": {"greeting": "hi"}}).greeting == "hi"
    assert create_provider({"dict": None}).greeting == ""
    assert create_provider(OmegaConf.create({"dict": {"greeting": "hi"}})).greeting == "hi"


def test_a_name_is_replaced_only_on_request(dict_provider):
    register_provider("dict", DictProvider)  # the same again
    with pytest.raises(ValueError, match="sandbox provider dict exists already"):
        register_provider("dict", RemoteProvider)
    register_provider("dict", RemoteProvider, override=True)
    assert get_provider_class("dict") is RemoteProvider


def test_an_unknown_provider_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown sandbox provider 'dokcer'. Known: .*docker"):
        create_provider({"dokcer": {}})


@pytest.mark.parametrize("name", ["opensandbox", "openshell", "ecs_fargate", "enroot"])
async def test_a_provider_that_ludus_does_not_speak_says_what_takes_its_place(name: str):
    sandbox = AsyncSandbox({name: {"api_key": "x", "whatever": 1}})
    with pytest.raises(SandboxCreateError, match=rf"sandbox provider {name} needs .*\{{ludus: \{{\}}\}}"):
        await sandbox.start(SandboxSpec(image="python:3.12"))


@pytest.mark.parametrize(("name", "program"), [("docker", "docker"), ("apptainer", "apptainer")])
async def test_a_missing_program_is_named_with_its_replacement(name: str, program: str, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = AsyncSandbox({name: {}})
    problem = f"sandbox provider {name} needs {program}, which is not installed. Install it, or let Ludus's sandboxes"
    assert problem in caplog.text
    with pytest.raises(SandboxCreateError, match=rf"{problem} .*\{{ludus: \{{\}}\}}"):
        await sandbox.start(SandboxSpec(image="python:3.12"))


@pytest.mark.parametrize(("name", "key"), [("daytona", "DAYTONA_API_KEY"), ("e2b", "E2B_API_KEY")])
async def test_a_hosted_provider_without_its_key_says_so(name: str, key: str, monkeypatch):
    pytest.importorskip("ludus_sandboxes", reason="the package ludus-sandboxes is not installed")
    monkeypatch.delenv(key, raising=False)
    with pytest.raises(SandboxCreateError, match=rf"sandbox provider {name}: .*{key}.*\{{ludus: \{{\}}\}}"):
        await AsyncSandbox({name: {}}).start(SandboxSpec())


def test_resources_of_a_mapping_are_read_as_attributes_and_as_keys():
    resources = SandboxSpec(resources={"cpu": 2, "memory_mib": 512}).resources
    assert (resources.cpu, resources["memory_mib"], resources.get("gpu", 0)) == (2, 512, 0)
    assert resources == {"cpu": 2, "memory_mib": 512}
    assert resources == SandboxResources(cpu=2, memory_mib=512)
    assert len({resources, SandboxResources(cpu=2, memory_mib=512)}) == 1
    with pytest.raises(KeyError):
        _ = resources["cores"]


# --- the configuration ---

BLOCKS = {"box": {"docker": {"concurrency": 2}, "default_metadata": {"team": "rl"}}, "bare": {"ludus": None}}


@pytest.mark.parametrize("blocks", [BLOCKS, OmegaConf.create(BLOCKS)])
def test_a_block_is_found_by_name_and_split_into_provider_and_metadata(blocks: Any):
    assert resolve_provider_config("box", blocks) == {"docker": {"concurrency": 2}}
    assert resolve_provider_metadata("box", blocks) == {"team": "rl"}
    assert resolve_provider_config("bare", blocks) == {"ludus": {}}
    assert resolve_provider_metadata("bare", blocks) == {}


def test_a_block_may_be_given_in_place_of_its_name():
    assert resolve_provider_config({"local": {"shell": "/bin/sh"}}) == {"local": {"shell": "/bin/sh"}}


def test_a_name_is_looked_up_in_the_configuration_of_the_process(monkeypatch):
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "box: {local: {concurrency: 3}}")
    assert resolve_provider_config("box") == {"local": {"concurrency": 3}}


@pytest.mark.parametrize("module", ["nemo_gym.global_config", "nemo_gym.sandbox.config"])
def test_a_double_of_the_configuration_is_used_at_both_places(module: str, monkeypatch):
    monkeypatch.setattr(f"{module}.get_global_config_dict", lambda: BLOCKS)
    assert resolve_provider_config("box") == {"docker": {"concurrency": 2}}


def test_an_access_may_hold_the_block_of_its_provider():
    connection = DirectSandboxConnection(provider_config_ref={"local": {}}, descriptor={"id": "x"})
    assert resolve_provider_config(connection.provider_config_ref) == {"local": {}}


@pytest.mark.parametrize("block", [{}, {"docker": {}, "local": {}}, {"default_metadata": {}}, {"docker": "latest"}])
def test_a_block_without_exactly_one_provider_is_refused(block: dict[str, Any]):
    with pytest.raises(ValueError, match="sandbox provider"):
        resolve_provider_config(block)


def test_an_unknown_block_is_named():
    with pytest.raises(ValueError, match="no sandbox block 'box': add box: "):
        resolve_provider_config("box", {})


# --- the life of a sandbox ---


async def test_a_sandbox_starts_with_its_files_and_stops_when_left(tmp_path):
    provider = DictProvider()
    async with AsyncSandbox(provider, SandboxSpec(files={"/a.txt": "hé"})) as sandbox:
        assert sandbox.sandbox_id == "d-1"
        assert sandbox.handle.raw == {"/a.txt": "hé".encode()}
        assert await sandbox.status() is SandboxStatus.RUNNING
        result = await sandbox.exec("ls", cwd="/", env={"A": "1"}, user="root")
        await sandbox.download("/a.txt", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "hé"
    assert result == SandboxExecResult("ls", "", 0)
    assert provider.log == [("ls", "/", {"A": "1"}, 180, "root"), "close", "aclose"]
    assert await sandbox.status() is SandboxStatus.STOPPED


async def test_a_shared_provider_stays_open():
    provider = DictProvider()
    async with AsyncSandbox(provider, SandboxSpec(), owns_provider=False):
        pass
    assert provider.log == ["close"]


async def test_start_takes_a_spec_and_happens_once(dict_provider):
    sandbox = AsyncSandbox({"dict": {}})
    spec = SandboxSpec(image="x")
    assert await sandbox.start(spec) is sandbox
    assert sandbox.spec is spec
    with pytest.raises(RuntimeError, match="has started already"):
        await sandbox.start()


@pytest.mark.parametrize("given", [None, SandboxSpec(image="x")])
async def test_a_block_may_start_its_sandbox_itself(given):
    provider, spec = DictProvider(), SandboxSpec(image="x")
    async with AsyncSandbox(provider, given) as sandbox:
        assert await sandbox.start(spec) is sandbox
        assert sandbox.spec == spec
        with pytest.raises(RuntimeError, match="has started already"):
            await sandbox.start(spec)
    assert provider.log == ["close", "aclose"]


async def test_a_block_calls_the_start_that_a_suite_put_in_its_place(monkeypatch):
    started = AsyncMock()
    monkeypatch.setattr(AsyncSandbox, "start", started)
    async with AsyncSandbox(DictProvider(fail="create"), SandboxSpec(image="x")):
        started.assert_awaited_once_with()


async def test_a_sandbox_that_has_not_started_refuses_commands():
    with pytest.raises(RuntimeError, match="has not started"):
        await AsyncSandbox(DictProvider()).exec("ls")


async def test_a_sandbox_whose_files_cannot_be_uploaded_is_closed():
    provider = DictProvider(fail="upload")
    with pytest.raises(OSError, match="disk is full"):
        await AsyncSandbox(provider).start(SandboxSpec(files={"a": "b"}))
    assert provider.log == ["close", "aclose"]


async def test_an_own_provider_is_closed_if_the_block_cannot_be_entered():
    provider = DictProvider(fail="create")
    with pytest.raises(SandboxCreateError, match="no machine is free"):
        async with AsyncSandbox(provider, SandboxSpec()):
            pass
    assert provider.log == ["aclose"]


async def test_stop_can_be_repeated_after_an_error():
    provider = DictProvider(fail="close")
    sandbox = await AsyncSandbox(provider).start()
    with pytest.raises(OSError, match="does not answer"):
        await sandbox.stop()
    provider.fail = ""
    await sandbox.stop()
    await sandbox.stop()
    assert provider.log == ["close", "aclose"]


async def test_a_set_up_that_raises_stops_the_sandbox():
    provider = DictProvider()

    async def setup(sandbox: AsyncSandbox) -> None:
        await sandbox.exec("pip install x")
        raise KeyError("wheel")

    with pytest.raises(KeyError):
        await AsyncSandbox(provider).start_with_setup(SandboxSpec(), setup)
    assert provider.log[1:] == ["close", "aclose"]


async def test_background_services_are_asked_for_only_where_wanted():
    class Keeping(DictProvider):
        async def exec(self, handle, command, *, preserve_background_services=False, **options):
            return SandboxExecResult(str(preserve_background_services), None, 0)

    async with AsyncSandbox(Keeping()) as sandbox:
        assert (await sandbox.exec("serve &", preserve_background_services=True)).stdout == "True"
        assert (await sandbox.exec("ls")).stdout == "False"


async def test_abilities_that_a_provider_lacks_are_named():
    async with AsyncSandbox(DictProvider()) as sandbox:
        assert sandbox.pty is None
        for call in (sandbox.endpoint(80), sandbox.pause(), sandbox.resume(), sandbox.serialize()):
            with pytest.raises(NotImplementedError, match="sandbox provider dict has no"):
                await call
    assert not isinstance(DictProvider(), SupportsSandboxEndpoint)
    assert isinstance(RemoteProvider(), SupportsSandboxEndpoint | ConnectableProvider)


async def test_a_sandbox_is_handed_to_another_process_and_runs_on():
    provider = RemoteProvider()
    sandbox = await AsyncSandbox(provider).start()
    other = RemoteProvider()
    connected = await AsyncSandbox.connect(await sandbox.serialize(), provider=other)
    assert connected.sandbox_id == "d-1"
    assert (await connected.endpoint(8000)).endpoint == "https://d-1.example:8000"
    await connected.pause()
    await connected.resume()
    await connected.disconnect()
    assert other.log == ["pause", "resume", "aclose"]
    with pytest.raises(RuntimeError, match="disconnect.* is for sandboxes of connect"):
        await sandbox.disconnect()
    await sandbox.stop()


# --- without an event loop ---


def test_a_blocking_sandbox_does_the_same(tmp_path):
    provider = RemoteProvider(greeting="> ")
    with Sandbox(provider, SandboxSpec(files={"/a": "b"})) as sandbox:
        assert sandbox.exec("ls", timeout_s=3).stdout == "> ls"
        assert sandbox.status() is SandboxStatus.RUNNING
        assert sandbox.endpoint(1).endpoint == "https://d-1.example:1"
        (tmp_path / "in").write_text("c")
        sandbox.upload(tmp_path / "in", "/c")
        sandbox.download("/c", tmp_path / "out")
        twin = Sandbox.connect(sandbox.serialize(), provider=RemoteProvider())
        twin.disconnect()
    assert (tmp_path / "out").read_text() == "c"
    assert sandbox.status() is SandboxStatus.STOPPED
    assert provider.log[1:] == ["close", "aclose"]


def test_a_blocking_sandbox_that_does_not_start_leaves_no_thread():
    sandbox = Sandbox(DictProvider(fail="create"))
    with pytest.raises(SandboxCreateError):
        sandbox.start()
    assert sandbox._thread is None


def test_a_blocking_sandbox_refuses_a_running_loop():
    async def call() -> None:
        Sandbox(DictProvider()).start()

    with pytest.raises(RuntimeError, match="use AsyncSandbox"):
        asyncio.run(call())


# --- helpers ---


def test_the_first_matching_prefix_of_an_image_is_replaced():
    rewrites = [{"from": "docker.io/", "to": "mirror.local/"}, {"from": "docker", "to": "never"}]
    assert rewrite_image("docker.io/python:3", rewrites) == "mirror.local/python:3"
    assert rewrite_image("ghcr.io/x", rewrites) == "ghcr.io/x"
    assert rewrite_image("ghcr.io/x", None) == "ghcr.io/x"


def test_every_variable_of_a_cpu_cap_is_the_number_of_whole_cores():
    assert len(set(sandbox_utils.CPU_CAP_ENV_VARS)) == 19
    assert {"OMP_NUM_THREADS", "GOMAXPROCS", "CARGO_BUILD_JOBS"} <= set(sandbox_utils.CPU_CAP_ENV_VARS)
    assert set(sandbox_utils.cpu_cap_env(2.7).values()) == {"2"}
    assert set(sandbox_utils.cpu_cap_env(0.5).values()) == {"1"}
    assert sandbox_utils.cpu_cap_env(None) == {}


def test_sessions_carry_the_access_to_a_sandbox():
    access = {"connection": {"provider_config_ref": "box", "descriptor": {"id": "x"}}, "workdir": "/w"}
    reply = ResourcesSeedSessionResponse.model_validate({"resources_session_id": "s", "sandbox_access": access})
    assert reply.sandbox_access == SandboxAccess.model_validate(access)
    assert reply.model_dump()["sandbox_access"]["connection"]["kind"] == "direct"

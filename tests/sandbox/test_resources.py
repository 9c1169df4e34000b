"""`resources.sandbox`: one sandbox per session, for tools, verifiers, chats and servers alike."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from sandboxes import needs

import ludus
from ludus import Response, tool
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.models.scripted import ScriptedModel
from ludus.sandbox import SandboxError, SandboxLimits, SandboxSpec, choice
from ludus.sandbox.pool import SandboxPool
from ludus.sandbox.resources import SandboxResources

bubblewrap = needs("bubblewrap")


class Shell(SandboxResources):
    """A shell of one's own."""

    sandbox_spec = SandboxSpec(limits=SandboxLimits(memory_mb=256), background=True)

    @tool
    async def bash(self, command: str) -> str:
        """Run a shell command."""
        result = await self.sandbox.exec(command, timeout=20)
        return result.text

    async def verify(self, task: Any, response: Response) -> float:
        return float(await self.sandbox.read_if_there("answer.txt") == b"42\n")


class Careless(Shell):
    """Its own close raises, and does not call ours."""

    async def close(self) -> None:
        raise ValueError("careless")


def call(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "bash", "arguments": {"command": command}}]}


def row(number: int) -> dict[str, Any]:
    return {"responses_create_params": {"input": f"Write 42 into answer.txt ({number})"}, "task_id": str(number)}


@bubblewrap
async def test_each_rollout_has_a_sandbox_of_its_own(monkeypatch: pytest.MonkeyPatch):
    pools: list[SandboxPool] = []
    original = SandboxPool.__init__

    def remember(self: SandboxPool, *args: Any) -> None:
        original(self, *args)
        pools.append(self)

    monkeypatch.setattr(SandboxPool, "__init__", remember)
    model = ScriptedModel([call("ls | wc -l; echo 42 > answer.txt"), call("ls | wc -l"), "done"])
    result = await ludus.collect_async(Shell, model=model, input=[row(n) for n in range(4)], repeats=2, concurrency=8)
    assert result.rewards() == [1.0] * 8
    for rollout in result:
        assert rollout.response is not None
        outputs = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
        assert outputs == ["0\n", "1\n"]
    assert len(pools) == 1, "the provider is shared"


@bubblewrap
async def test_a_file_that_the_model_made_unreadable_earns_nothing_and_fails_nothing():
    commands = [
        "true",
        "mkdir answer.txt",
        "mkfifo answer.txt",
        "echo 42 > answer.txt; chmod 000 answer.txt",
        "ln -s answer.txt answer.txt",
        "truncate -s 17M answer.txt",
        "cd /; chmod -R u+rwx /home/user; rm -rf /home/user /home/user/* /home/user/.[!.]*; chmod 000 /home/user",
        "echo 42 > answer.txt",
    ]
    rewards = []
    for command in commands:
        model = ScriptedModel([call(command), "done"])
        result = await ludus.collect_async(Shell, model=model, input=[row(0)])
        rewards += result.rewards()
    assert rewards == [0.0] * 7 + [1.0]


def asked_for_nothing(request: Any) -> Any:
    raise AssertionError("the model was asked")


@needs("oci")
@pytest.mark.parametrize("image", ["/nonexistent", "nosuch:latest"])
async def test_a_missing_image_is_noticed_before_a_model_is_asked(image: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/engine.sock")
    settings = {"resources.sandbox.image": image}
    with pytest.raises(UserError, match=f"{image} is .*Check resources.sandbox.image"):
        await ludus.collect_async(Shell, model=ScriptedModel(asked_for_nothing), input=[row(0)], settings=settings)


async def test_an_unreachable_server_is_noticed_before_a_model_is_asked():
    settings = {"resources.sandbox.provider": "remote", "resources.sandbox.urls": ["http://127.0.0.1:1"]}
    with pytest.raises(UserError, match=r"cannot reach http://127.0.0.1:1: .*start a server with: ludus serve sandbox"):
        await ludus.collect_async(Shell, model=ScriptedModel(asked_for_nothing), input=[row(0)], settings=settings)


def test_a_spec_of_another_type_is_refused_with_its_place():
    with pytest.raises(UserError, match=r"^Wrong.sandbox_spec is a dict. Write SandboxSpec\(limits="):

        class Wrong(SandboxResources):
            sandbox_spec = {"memory_mb": 3}  # type: ignore[assignment]


@bubblewrap
async def test_a_failing_sandbox_is_no_missing_file():
    provider = await choice.open_provider("bubblewrap", warm=0)
    try:
        sandbox = await provider.open(SandboxSpec())
        await sandbox.close()
        with pytest.raises((SandboxError, RuntimeError)):
            await sandbox.read_if_there("answer.txt")
    finally:
        await provider.close()


@bubblewrap
async def test_a_careless_close_does_not_keep_the_sandbox():
    environment = Environment.load(Careless)
    async with environment.share() as shared:
        session = environment.session(shared)
        await session.call("bash", '{"command": "echo hi"}')
        with pytest.raises(ValueError, match="careless"):
            await session.close()
        with pytest.raises(RuntimeError, match="closed"):
            await session.sandbox.exec(["true"])


@bubblewrap
async def test_a_session_that_runs_nothing_opens_no_sandbox(monkeypatch: pytest.MonkeyPatch):
    opened: list[SandboxSpec] = []
    original = SandboxPool.open

    async def watch(self: SandboxPool, spec: SandboxSpec) -> Any:
        opened.append(spec)
        return await original(self, spec)

    monkeypatch.setattr(SandboxPool, "open", watch)
    environment = Environment.load(Shell)
    async with environment.share() as shared:
        session = environment.session(shared)
        await session.close()
        assert opened == []
        session = environment.session(shared)
        await asyncio.gather(*(session.call("bash", '{"command": "true"}') for _ in range(5)))
        assert len(opened) == 1
        assert opened[0].limits.memory_mb == 256
        await session.close()


@bubblewrap
async def test_settings_replace_limits():
    environment = Environment.load(Shell)
    environment.configure({"resources.sandbox": {"memory_mb": 64, "processes": 7}})
    async with environment.share() as shared:
        limits = environment.session(shared).sandbox.spec.limits
    assert (limits.memory_mb, limits.processes) == (64, 7)


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"resources.sandbox.warm": -1}, "resources.sandbox.warm must be at least 0, not -1"),
        ({"resources.sandbox.foo": 1}, "resources.sandbox has no setting foo. Known: disk_mb, image, memory_mb"),
        ({"resources.sandbox": {"memory": 1}}, "resources.sandbox has no setting memory. Did you mean memory_mb?"),
    ],
)
def test_a_wrong_setting_is_refused_with_those_that_exist(settings: dict[str, Any], refusal: str):
    with pytest.raises(UserError, match=re.escape(refusal)):
        Environment.load(Shell).configure(settings)


@bubblewrap
async def test_a_fork_has_the_same_files_and_is_independent():
    environment = Environment.load(Shell)
    async with environment.share() as shared:
        session = environment.session(shared)
        await session.call("bash", '{"command": "echo one > file"}')
        twin = await session.fork()
        await session.call("bash", '{"command": "echo two >> file"}')
        assert await twin.call("bash", '{"command": "cat file"}') == "one\n"
        await session.close()
        assert await twin.call("bash", '{"command": "cat file"}') == "one\n"
        await twin.close()


@bubblewrap
async def test_a_sandbox_that_fails_is_a_failure_and_no_reward(monkeypatch: pytest.MonkeyPatch):
    async def broken(self: SandboxPool, spec: SandboxSpec) -> Any:
        raise SandboxError("no room")

    monkeypatch.setattr(SandboxPool, "open", broken)
    model = ScriptedModel([call("echo 42 > answer.txt"), "done"])
    result = await ludus.collect_async(Shell, model=model, input=[row(1)])
    (failed,) = result.failures()
    assert failed.reward is None
    assert failed.error is not None
    assert (failed.error.stage, failed.error.kind, failed.error.cause) == ("tool", "sandbox", "no room")


async def test_without_a_sandbox_an_environment_refuses_to_start_in_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choice, "_problem", lambda name: f"{name} is not installed")
    with pytest.raises(
        UserError, match="code needs a sandbox, and this machine has none: .* is not installed"
    ) as caught:
        await ludus.collect_async(Shell, model=ScriptedModel(["done"]), input=[row(1)])
    assert "\n" not in str(caught.value)


async def test_an_unknown_provider_is_named_with_the_known_ones():
    with pytest.raises(UserError, match="unknown sandbox provider bublewrap. Did you mean bubblewrap"):
        await choice.open_provider("bublewrap")

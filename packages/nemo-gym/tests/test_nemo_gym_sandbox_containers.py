"""The providers `docker` and `apptainer`, with programs on the PATH that stand in for the real ones."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from nemo_gym.sandbox import AsyncSandbox, AsyncSandboxCompose, SandboxCreateError, SandboxSpec, SandboxStatus
from nemo_gym.sandbox.providers.apptainer import ApptainerProvider
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerProvider
from waiting import is_running, until_async

TESTS = Path(__file__).parent


class Calls:
    """What the program was called with."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def __iter__(self) -> Any:
        return (json.loads(line) for line in self._log.read_text().splitlines())

    def first(self, *words: str) -> list[str]:
        return next(call for call in self if call[: len(words)] == list(words))

    def count(self, *words: str) -> int:
        return sum(call[: len(words)] == list(words) for call in self)


def install(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Put a stand-in on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    source = (TESTS / f"fake_{program}.py").read_text()
    (folder / program).write_text(source.replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1))
    (folder / program).chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(f"FAKE_{program.upper()}", str(state))
    return Calls(state / "log")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return install("docker", tmp_path, monkeypatch)


@pytest.fixture
def apptainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return install("apptainer", tmp_path, monkeypatch)


async def use(provider: dict[str, Any], tmp_path: Path) -> None:
    """What every provider must do for a server."""
    work = tmp_path / "work"
    spec = SandboxSpec(image="python:3.12", workdir=str(work), env={"A": "one"}, files={"notes/a.txt": "hello"})
    async with AsyncSandbox(provider, spec) as sandbox:
        assert await sandbox.status() is SandboxStatus.RUNNING
        result = await sandbox.exec("pwd; cat notes/a.txt; echo $A,$B >&2; exit 3", env={"B": "two, three=4"})
        assert (result.stdout, result.stderr, result.return_code) == (f"{work}\nhello", "one,two, three=4\n", 3)
        assert result.error_type is None
        (tmp_path / "up.sh").write_text("echo ran")
        (tmp_path / "up.sh").chmod(0o755)
        await sandbox.upload(tmp_path / "up.sh", str(work / "deep/er/up.sh"))
        assert (await sandbox.exec("./up.sh", cwd=str(work / "deep/er"))).stdout == "ran\n"
        await sandbox.download("notes/a.txt", tmp_path / "down" / "a.txt")
        assert (tmp_path / "down" / "a.txt").read_text() == "hello"
        with pytest.raises(FileNotFoundError, match="cannot download none.txt .*no such file"):
            await sandbox.download("none.txt", tmp_path / "none.txt")
        assert not (tmp_path / "none.txt").exists()
        descriptor = await sandbox.serialize()
        connected = await AsyncSandbox.connect(json.loads(json.dumps(descriptor)), provider=provider)
        assert (await connected.exec("echo $A; pwd")).stdout == f"one\n{work}\n"
        await connected.disconnect()
    with pytest.raises(SandboxCreateError, match="does not run"):
        await AsyncSandbox.connect(descriptor, provider=provider)


async def ends_what_it_started(provider: dict[str, Any], tmp_path: Path) -> None:
    """A cancelled command leaves no process, and neither does one whose time is over."""
    async with AsyncSandbox(provider, SandboxSpec(image="x", workdir=str(tmp_path / "work"))) as sandbox:
        running = asyncio.create_task(sandbox.exec("sleep 600 & echo $! > new; mv new pid; wait"))
        pid = await content(tmp_path / "work" / "pid")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until_async(lambda: not is_running(int(pid)))
        result = await sandbox.exec("sleep 600", timeout_s=0.01)
        assert (result.return_code, result.error_type) == (124, "timeout")


async def content(path: Path) -> str:
    """The text of a file that a command will write."""
    await until_async(path.exists)
    return path.read_text()  # noqa: ASYNC240


async def test_docker_runs_commands_and_copies_files(docker: Calls, tmp_path: Path):
    await use({"docker": {}}, tmp_path)
    assert docker.count("rm") == 1


async def test_docker_ends_what_a_stopped_command_started(docker: Calls, tmp_path: Path):
    await ends_what_it_started({"docker": {}}, tmp_path)


async def test_docker_gets_the_limits_ports_and_options_of_a_spec(docker: Calls):
    provider = DockerProvider(create=DockerCreateConfig(network="none", cap_drop=["ALL"], extra_args=["--tty"]))
    spec = SandboxSpec(
        image="img",
        ttl_s=60,
        env={"SECRET_VALUE": "s3cret"},
        metadata={"task": "7"},
        resources={"cpu": 1.5, "memory_mib": 512, "gpu": 1},
        provider_options={"network": "bridge"},
        ports=(8000,),
    )
    async with AsyncSandbox(provider, spec) as sandbox:
        assert (await sandbox.endpoint(8000)).endpoint == "http://127.0.0.1:49153"
        await sandbox.pause()
        assert await sandbox.status() is SandboxStatus.PAUSED
        await sandbox.resume()
        await sandbox.exec("true", user=1000)
    call = docker.first("run")
    text = " ".join(call)
    for words in (
        *("--network bridge", "--cap-drop ALL", "--cpus 1.5", "--memory 512m", "--gpus 1", "--label task=7"),
        *("--publish 127.0.0.1::8000", "--env SECRET_VALUE ", "--tty", "img -c sleep 60"),
    ):
        assert words in text
    assert "s3cret" not in text
    assert "--user 1000" in " ".join(docker.first("exec"))


async def test_a_command_is_one_argument_however_it_looks(docker: Calls):
    async with AsyncSandbox({"docker": {}}, SandboxSpec(image="img")) as sandbox:
        result = await sandbox.exec("--help; echo '$(id)' \"; exit 5", timeout_s=30)
        assert result.return_code != 0
        assert (await sandbox.exec("echo '$(id)'")).stdout == "$(id)\n"
    assert any(call[-1] == "echo '$(id)'" for call in docker)


async def test_an_image_that_docker_cannot_start_is_one_line(docker: Calls):
    with pytest.raises(SandboxCreateError, match="docker cannot start a container of missing: .*access denied"):
        await AsyncSandbox({"docker": {}}).start(SandboxSpec(image="missing"))
    with pytest.raises(SandboxCreateError, match="names no image"):
        await AsyncSandbox({"docker": {}}).start()
    assert docker.count("rm") == 1


async def test_a_container_that_is_gone_is_stopped_and_can_be_closed_again(docker: Calls):
    provider = DockerProvider()
    handle = await provider.create(SandboxSpec(image="img"))
    await provider.close(handle)
    await provider.close(handle)
    assert await provider.status(handle) is SandboxStatus.STOPPED


async def test_a_descriptor_cannot_smuggle_options_into_docker(docker: Calls):
    with pytest.raises(SandboxCreateError, match="not the name of a container"):
        await AsyncSandbox.connect({"sandbox_id": "--privileged"}, provider={"docker": {}})


async def test_a_name_of_a_variable_is_checked(docker: Calls):
    with pytest.raises(ValueError, match="not an environment variable: 'A B'"):
        await AsyncSandbox({"docker": {}}).start(SandboxSpec(image="img", env={"A B": "1"}))


async def test_settings_that_docker_does_not_know_are_said(docker: Calls, caplog: pytest.LogCaptureFixture):
    DockerProvider(colour="blue")
    assert "sandbox provider docker: settings without effect: colour" in caplog.text


# --- apptainer ---


async def test_apptainer_runs_commands_and_copies_files(apptainer: Calls, tmp_path: Path):
    await use({"apptainer": {}}, tmp_path)
    assert "docker://python:3.12" in apptainer.first("instance", "start")
    assert apptainer.count("instance", "stop") == 1


async def test_apptainer_ends_what_a_stopped_command_started(apptainer: Calls, tmp_path: Path):
    await ends_what_it_started({"apptainer": {}}, tmp_path)


async def test_apptainer_finds_images_in_its_folder(apptainer: Calls, tmp_path: Path):
    image = tmp_path / "swe_django_1.sif"
    image.touch()
    provider = ApptainerProvider(image_dir=tmp_path, enforce_limits=True, binds=["/data"])
    async with AsyncSandbox(provider, SandboxSpec(image="swe/django:1", resources={"cpu": 2, "gpu": 1})):
        pass
    text = " ".join(apptainer.first("instance", "start"))
    for words in (str(image), "--cpus 2", "--nv", "--bind /data", "--fakeroot", "--containall"):
        assert words in text


async def test_apptainer_has_one_user_and_names_a_missing_image(apptainer: Calls):
    async with AsyncSandbox({"apptainer": {}}, SandboxSpec(image="x")) as sandbox:
        assert (await sandbox.exec("echo a", user="root")).stdout == "a\n"
        assert (await sandbox.endpoint(80)).endpoint == "http://127.0.0.1:80"
        with pytest.raises(ValueError, match="one user"):
            await sandbox.exec("true", user="alice")
    with pytest.raises(SandboxCreateError, match="apptainer cannot start an instance of missing: .*could not open"):
        await AsyncSandbox({"apptainer": {}}).start(SandboxSpec(image="missing"))


# --- compose ---

COMPOSE = """
services:
  web:
    image: ${REGISTRY:-local}/web
    depends_on: [db]
    ports: ["8080:80", "443"]
    environment: [A=1, B=]
    command: serve --fast
  db:
    image: db
    environment: {C: 2}
    entrypoint: ["/bin/db"]
    healthcheck: {test: ["CMD", "true"]}
"""


async def test_services_start_in_order_and_share_a_network(docker: Calls, tmp_path: Path):
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    given = {"web": SandboxSpec(env={"B": "two"}, resources={"cpu": 1}, workdir=str(tmp_path / "w"))}
    async with AsyncSandboxCompose({"docker": {}}, file, service_specs=given) as services:
        assert list(services.sandboxes) == ["db", "web"]
        assert (await services.exec("web", "echo $A$B")).stdout == "1two\n"
        assert (await services["db"].exec("echo $C")).stdout == "2\n"
    runs = [" ".join(call) for call in docker if call[0] == "run"]
    network = docker.first("network", "create")[-1]
    assert f"--network {network} --network-alias db" in runs[0]
    assert "--entrypoint /bin/db db" in runs[0]
    assert runs[1].endswith("local/web serve --fast")
    assert "127.0.0.1::80 --publish 127.0.0.1::443" in runs[1]
    assert (docker.count("rm"), docker.count("network", "rm", network)) == (2, 1)


async def test_services_that_do_not_start_are_all_stopped(docker: Calls, tmp_path: Path):
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.replace("${REGISTRY:-local}/web", "missing"))
    with pytest.raises(SandboxCreateError, match="container of missing"):
        await AsyncSandboxCompose({"docker": {}}, file).start()
    assert docker.count("network", "rm") == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "has no services"),
        ("services: {a: {build: .}}", "service a names no image"),
        ("services: {a: {image: x, depends_on: [b]}, b: {image: x, depends_on: [a]}}", "in a circle"),
        ("services: {a: {image: x, depends_on: [c]}, b: {image: x}}", "does not have: c"),
    ],
)
async def test_a_compose_file_that_cannot_work_is_refused(text: str, why: str, docker: Calls, tmp_path: Path):
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=why):
        await AsyncSandboxCompose({"docker": {}}, file).start()


async def test_several_services_need_a_provider_with_networks(tmp_path: Path):
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    with pytest.raises(SandboxCreateError, match="sandbox provider local has no networks between sandboxes"):
        await AsyncSandboxCompose({"local": {}}, file).start()

"""The providers that run commands on this machine: `local` on the host, `ludus` in Ludus's sandboxes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from nemo_gym.sandbox import AsyncSandbox, LocalProvider, Sandbox, SandboxCreateError, SandboxSpec, SandboxStatus
from nemo_gym.sandbox.providers import _turns
from nemo_gym.sandbox.providers.ludus import LudusProvider
from sandboxes import image_cache, needs, spec_for
from waiting import is_running, until_async


async def ended(pid: int) -> None:
    """Return when a process that was killed has ended."""
    await until_async(lambda: not is_running(pid))


# --- local ---


async def test_local_runs_in_a_folder_that_it_deletes(tmp_path: Path):
    async with AsyncSandbox(LocalProvider(workspace_root=tmp_path), SandboxSpec(files={"a/b.txt": "hi"})) as sandbox:
        result = await sandbox.exec("pwd; cat a/b.txt; echo oops >&2; exit 4")
        folder = Path(result.stdout.splitlines()[0])
        assert folder.parent == tmp_path
        assert (result.stdout, result.stderr, result.return_code) == (f"{folder}\nhi", "oops\n", 4)
        await sandbox.download("a/b.txt", tmp_path / "copy.txt")
        assert await sandbox.status() is SandboxStatus.RUNNING
    assert (tmp_path / "copy.txt").read_text() == "hi"
    assert os.listdir(tmp_path) == ["copy.txt"]


async def test_local_keeps_the_workdir_of_a_spec(tmp_path: Path):
    async with AsyncSandbox({"local": {}}, SandboxSpec(workdir=str(tmp_path / "w"))) as sandbox:
        await sandbox.exec("echo 1 > one; mkdir sub")
        assert (await sandbox.exec("pwd", cwd="sub")).stdout == f"{tmp_path}/w/sub\n"
    assert (tmp_path / "w" / "one").read_text() == "1\n"


async def test_local_shows_commands_no_keys_of_this_process(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "k")
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "policy_api_key: k")
    monkeypatch.setenv("HARMLESS", "h")
    async with AsyncSandbox({"local": {}}, SandboxSpec(env={"A": "1", "OWN_TOKEN": "t"})) as sandbox:
        result = await sandbox.exec(
            "echo [$MY_API_KEY$NEMO_GYM_CONFIG_DICT] $HARMLESS $A $OWN_TOKEN $B", env={"B": "2"}
        )
    assert result.stdout == "[] h 1 t 2\n"


async def test_local_refuses_another_user():
    async with AsyncSandbox({"local": {}}) as sandbox:
        with pytest.raises(ValueError, match="cannot become another user"):
            await sandbox.exec("id", user="root")


async def test_local_stops_a_command_with_its_children_at_the_deadline():
    async with AsyncSandbox({"local": {"default_timeout_s": 0.3}}) as sandbox:
        result = await sandbox.exec("sleep 600 & echo $!; sleep 600", timeout_s=None)
        assert (result.return_code, result.error_type) == (124, "timeout")
        if result.stdout:
            await ended(int(result.stdout))


async def test_local_ends_what_a_command_leaves_unless_told_otherwise():
    async with AsyncSandbox({"local": {}}) as sandbox:
        left = int((await sandbox.exec("sleep 600 & echo $!")).stdout)
        await ended(left)
        service = await sandbox.exec("sleep 600 & echo $!", preserve_background_services=True)
        assert is_running(int(service.stdout))
    await ended(int(service.stdout))


async def test_local_reports_a_signal_as_a_shell_does():
    async with AsyncSandbox({"local": {}}) as sandbox:
        assert (await sandbox.exec("kill -9 $$")).return_code == 137


async def test_endless_output_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("nemo_gym.sandbox.providers._commands.OUTPUT_BYTES", 1000)
    async with AsyncSandbox({"local": {}}) as sandbox:
        result = await sandbox.exec("head -c 5000000 /dev/zero | tr '\\0' x; echo done >&2")
    assert result.stdout == "x" * 1000 + "\n[stdout was cut after 1000 bytes]"
    assert result.stderr == "done\n"


async def test_a_closed_local_sandbox_refuses_commands():
    provider = LocalProvider()
    handle = await provider.create(SandboxSpec())
    await provider.close(handle)
    await provider.close(handle)
    assert await provider.status(handle) is SandboxStatus.STOPPED
    with pytest.raises(RuntimeError, match="is closed"):
        await provider.exec(handle, "true")


# --- ludus ---

needs_bubblewrap, needs_oci = needs("bubblewrap"), needs("oci")


@needs_bubblewrap
async def test_ludus_gives_a_server_its_workdir_files_and_variables(tmp_path: Path):
    spec = SandboxSpec(workdir="/work/task", env={"A": "1"}, files={"/data/a.txt": "hi", "run.sh": "echo $A $B"})
    async with AsyncSandbox({"ludus": {}}, spec) as sandbox:
        result = await sandbox.exec("pwd; cat /data/a.txt; bash run.sh; exit 5", env={"B": "2"}, user="root")
        assert (result.stdout, result.stderr, result.return_code) == ("/work/task\nhi1 2\n", "", 5)
        (tmp_path / "up").write_bytes(b"#!/bin/sh\necho up\n")
        (tmp_path / "up").chmod(0o755)
        await sandbox.upload(tmp_path / "up", "bin/up")
        assert (await sandbox.exec("./up", cwd="bin")).stdout == "up\n"
        await sandbox.download("/data/a.txt", tmp_path / "out" / "a.txt")
        with pytest.raises(FileNotFoundError):
            await sandbox.download("none", tmp_path / "none")
        assert await sandbox.status() is SandboxStatus.RUNNING
    assert (tmp_path / "out" / "a.txt").read_text() == "hi"


@needs_bubblewrap
async def test_ludus_isolates_what_foreign_code_runs(tmp_path: Path):
    (tmp_path / "secret").write_text("s")
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        assert (await sandbox.exec(f"cat {tmp_path}/secret")).return_code != 0
        assert (await sandbox.exec("touch /usr/x")).return_code != 0
        assert f"{os.getpid()}" not in (await sandbox.exec("ls /proc")).stdout.split()


@needs_bubblewrap
async def test_ludus_names_the_limit_that_ended_a_command():
    async with AsyncSandbox({"ludus": {"memory_mib": 256}}) as sandbox:
        late = await sandbox.exec("sleep 600", timeout_s=0.1)
        assert (late.return_code, late.error_type) == (124, "timeout")
        assert (await sandbox.exec("kill -9 $$")).return_code == 137
        eaten = await sandbox.exec("python3 -c 'x = bytearray(1 << 30)'")
        assert eaten.return_code != 0


@needs_bubblewrap
async def test_services_in_the_background_run_on_in_ludus():
    async with AsyncSandbox({"ludus": {}}, SandboxSpec(entrypoint=["sleep", "600"])) as sandbox:
        await sandbox.exec("sleep 601 &", preserve_background_services=True)
        processes = (await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
    assert "sleep 600 " in processes
    assert "sleep 601 " in processes


@needs_bubblewrap
async def test_ludus_has_one_user_and_ports_only_with_a_network():
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        with pytest.raises(ValueError, match="has one user"):
            await sandbox.exec("true", user="alice")
        with pytest.raises(RuntimeError, match="set network: true"):
            await sandbox.endpoint(80)
    provider = LudusProvider(network=True)
    handle = await provider.create(SandboxSpec())
    assert (await provider.endpoint(handle, 80)).endpoint == "http://127.0.0.1:80"
    await provider.close(handle)
    await provider.close(handle)
    assert await provider.status(handle) is SandboxStatus.STOPPED
    await provider.aclose()


@needs_bubblewrap
def test_ludus_works_without_an_event_loop():
    with Sandbox({"ludus": {}}) as sandbox:
        assert sandbox.exec("echo a").stdout == "a\n"


@needs_bubblewrap
async def test_a_folder_that_cannot_be_made_is_a_create_error():
    with pytest.raises(SandboxCreateError, match="no folder /usr/work"):
        async with AsyncSandbox({"ludus": {}}, SandboxSpec(workdir="/usr/work")):
            pass


async def test_a_provider_of_ludus_that_does_not_exist_is_a_create_error():
    with pytest.raises(SandboxCreateError, match="sandbox provider ludus: unknown sandbox provider bubblewarp"):
        await AsyncSandbox({"ludus": {"provider": "bubblewarp"}}).start()


@needs_oci
async def test_an_image_of_a_spec_runs_through_oci(monkeypatch):
    monkeypatch.setattr("ludus.sandbox.oci_images._default_cache", image_cache)
    provider = {"ludus": {"images": {"team/task:1": spec_for("oci").image}}}
    spec = SandboxSpec(image="team/task:1", workdir="/testbed", files={"/testbed/a": "hi"})
    async with AsyncSandbox(provider, spec) as sandbox:
        assert (await sandbox.exec("pwd; cat a", user="root")).stdout == "/testbed\nhi"


@needs_oci
async def test_an_image_that_is_nowhere_is_a_create_error():
    sandbox = AsyncSandbox({"ludus": {}})
    with pytest.raises(SandboxCreateError, match="nowhere/at-all"):
        await sandbox.start(SandboxSpec(image="nowhere/at-all:1"))
    await sandbox.stop()


@needs_bubblewrap
async def test_commands_of_one_ludus_sandbox_run_at_the_same_time():
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        waiting = asyncio.create_task(sandbox.exec("while [ ! -e /tmp/go ]; do sleep 0.05; done; echo went; exit 9"))
        assert (await sandbox.exec("touch /tmp/go; echo told")).stdout == "told\n"
        result = await waiting
    assert (result.stdout, result.return_code) == ("went\n", 9)


@needs_bubblewrap
async def test_a_cancelled_command_ends_and_its_ludus_sandbox_stays():
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        running = asyncio.create_task(sandbox.exec("(setsid sleep 600 &); touch /tmp/begun; sleep 600"))
        async with asyncio.timeout(60):
            while (await sandbox.exec("test -e /tmp/begun")).return_code != 0:
                pass
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        processes = (await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /tmp")).stdout
    assert "sleep 600" not in processes
    assert "begun" in processes


@needs_bubblewrap
async def test_a_command_that_ends_its_own_surroundings_has_a_result():
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        assert (await sandbox.exec("kill -9 -1")).return_code == 137
        assert (await sandbox.exec("kill 0")).return_code == 143
        assert (await sandbox.exec("rm -rf /tmp/.nemo-gym-*; echo gone")).return_code != 0
        assert (await sandbox.exec("echo a; echo b >&2")).stdout == "a\n"


@needs_bubblewrap
async def test_a_command_that_forges_its_result_does_not_lose_the_sandbox():
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        folder = "$(echo /tmp/.nemo-gym-*)"
        assert (await sandbox.exec(f"touch {folder}/code.5; sleep 600")).return_code == 5
        forged = await sandbox.exec("for s in HUP USR2; do pkill -$s -f nemo-gym; done; sleep 600", timeout_s=5)
        assert forged.return_code != 0
        assert (await sandbox.exec("echo a")).stdout == "a\n"


@needs_bubblewrap
async def test_a_full_disk_does_not_hide_exit_codes():
    async with AsyncSandbox({"ludus": {"disk_mib": 4}}) as sandbox:
        assert (await sandbox.exec("head -c 9000000 /dev/zero > /tmp/x; exit 7")).return_code == 7
        assert (await sandbox.exec("exit 8")).return_code == 8
        assert (await sandbox.exec("rm /tmp/x; echo a")).stdout == "a\n"


@needs_bubblewrap
async def test_a_command_that_writes_too_much_is_stopped(monkeypatch):
    monkeypatch.setattr(_turns, "_WAIT", _turns._WAIT.replace(str(64 << 20), "1000"))
    async with AsyncSandbox({"ludus": {}}) as sandbox:
        result = await sandbox.exec("head -c 5000 /dev/zero | tr '\\0' x; sleep 600")
    assert (len(result.stdout), result.return_code, result.error_type) == (5000, 137, "output_limit")

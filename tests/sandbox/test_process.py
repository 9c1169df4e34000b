"""The provider `process`: a plain process with few rights, for code that is not hostile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from sandboxes import needs, opened, provided, running
from waiting import until, until_async, until_gone

from ludus.sandbox import SandboxError, SandboxSpec
from ludus.sandbox.choice import explain, find
from ludus.sandbox.landlock import landlock_version

pytestmark = needs("process")


async def test_it_is_never_taken_unless_it_is_named():
    assert not find("process").isolates
    assert all("takes process" not in line for line in explain())


async def test_it_says_what_it_does_not_stop():
    assert set(find("process").allows) >= {"disk", "files", "proc"}


async def test_the_folder_of_a_sandbox_is_removed_whatever_is_in_it():
    async with opened("process") as sandbox:
        home = Path((await sandbox.exec("pwd")).text.strip())
        script = "for n in 1 2 3 4 5 6 7 8 9; do mkdir -p a/a/a/a/a/a/a/a/a/a/a/a && cd a/a/a/a/a/a/a/a/a/a/a/a; done"
        await sandbox.exec(f"mkdir locked && touch locked/file && chmod 000 locked; {script}")
        assert os.listdir(home)
    assert not home.parent.exists()


async def test_no_folder_is_left_when_the_provider_closes():
    async with provided("process") as provider:
        sandbox = await provider.open(SandboxSpec())
        top = Path((await sandbox.exec("pwd")).text.strip()).parents[1]
        assert top.exists()
    assert not top.exists()


async def test_no_folder_is_left_of_sandboxes_that_opened_at_the_same_time(monkeypatch: pytest.MonkeyPatch):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        monkeypatch.setattr("tempfile.tempdir", folder)
        async with provided("process") as provider:
            await asyncio.gather(*(provider.open(SandboxSpec()) for _ in range(3)))
            assert len(os.listdir(folder)) == 1
        assert os.listdir(folder) == []
        monkeypatch.undo()


async def test_the_folder_for_temporary_files_is_its_own():
    async with opened("process") as sandbox:
        result = await sandbox.python("import tempfile\nprint(open(tempfile.mkstemp()[1], 'w').name)")
        path = Path(result.text.strip())
        assert path.name.startswith("tmp")
        assert "ludus-process-" in str(path)


async def test_packages_of_the_spec_can_be_imported_and_no_others():
    async with opened("process", packages=("orjson",)) as sandbox:
        assert (await sandbox.python("import orjson\nprint(orjson.dumps([1]))")).text == "b'[1]'\n"
        assert b"ModuleNotFoundError" in (await sandbox.python("import pydantic")).stderr


async def test_an_image_is_refused_with_the_provider_that_takes_one():
    async with provided("process") as provider:
        with pytest.raises(SandboxError, match="use the provider oci"):
            await provider.open(SandboxSpec(image="debian"))


@pytest.mark.skipif(landlock_version() < 6, reason="this kernel does not keep signals inside: it needs Linux 6.12")
async def test_a_program_that_kills_its_supervisor_gets_its_result_and_the_sandbox_goes_on():
    async with opened("process") as sandbox:
        for command in ("kill -KILL $PPID", "kill -STOP $PPID", "kill -KILL -$PPID", "prlimit --pid $PPID --cpu=0:0"):
            assert (await sandbox.exec(command)).exit_code not in (0, None)
        assert (await sandbox.exec("kill -KILL -1; echo alive")).ok
        assert (await sandbox.exec("echo alive")).text == "alive\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a sandbox a user of its own")
async def test_programs_end_with_a_sandbox_whose_supervisor_was_killed():
    async with provided("process") as provider:
        sandbox: Any = await provider.open(SandboxSpec())
        seconds = f"1{os.getpid()}.5"
        call = asyncio.create_task(sandbox.exec(f"(setsid sleep {seconds} &); sleep 1000", timeout=1000))
        await until_async(lambda: running(seconds))
        os.kill(sandbox.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="ended unexpectedly"):
            await call
        until(lambda: not _processes_of(sandbox.user))


def test_what_a_killed_owner_left_is_removed_by_the_next(tmp_path: Path):
    script = """
import asyncio, sys
from ludus.sandbox import SandboxSpec
from ludus.sandbox.process import ProcessProvider

async def main():
    sandbox = await ProcessProvider().open(SandboxSpec(background=True))
    await sandbox.exec("sleep 1000 > /dev/null 2>&1 & echo secret > file")
    print((await sandbox.exec("pwd")).text.strip(), flush=True)
    await sandbox.exec("sleep 1000", timeout=1000)

asyncio.run(main())
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    home = Path(owner.stdout.readline().strip())
    inside = [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]
    assert inside
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    until_gone(*inside)
    assert home.exists()
    _open_and_close()
    assert not home.parents[1].exists()


def _open_and_close() -> None:
    async def main() -> None:
        async with opened("process"):
            pass

    asyncio.run(main())


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path):
    foreign = Path(tempfile.mkdtemp(prefix="ludus-process-"))
    try:
        _open_and_close()
        assert foreign.exists()  # without a lock nobody knows whose it is
    finally:
        foreign.rmdir()


def _processes_of(user: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.uids().real == user:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            pass
    return found

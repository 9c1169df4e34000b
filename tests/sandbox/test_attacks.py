"""Attacks on the sandbox itself, run against every provider that works here and claims to stop them."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import socket
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import attacks
import pytest
import pytest_asyncio
from sandboxes import kinds, provided, running, spec_for
from waiting import until_async

from ludus.cli.screen import clean
from ludus.sandbox import Sandbox, SandboxLimits, SandboxProvider, SandboxSpec

SPEC = SandboxSpec(limits=SandboxLimits(memory_mb=128, processes=24, disk_mb=16, files=2000, open_files=64))


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=kinds())
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    async with provided(request.param) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacked(provider: SandboxProvider, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    """A sandbox for many attacks: whatever they do, the sandbox works afterwards."""
    async with await provider.open(spec) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(provider: SandboxProvider, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    """A sandbox for one attack that passes a limit."""
    async with await provider.open(spec) as opened:
        yield opened


@pytest.fixture(scope="module")
def spec(provider: SandboxProvider) -> SandboxSpec:
    return spec_for(provider.name, SPEC)


def claimed(provider: SandboxProvider, attack: str) -> None:
    if attack not in provider.claims:
        pytest.skip(f"{provider.name} does not claim to stop this")


async def still_works(sandbox: Sandbox) -> None:
    """The sandbox goes on after an attack: the host's side was not hurt."""
    result = await sandbox.python("print(6 * 7)")
    assert result.text == "42\n", result


ESCAPES = {
    "network": attacks.NETWORK,
    "unix_sockets": attacks.UNIX_SOCKETS,
    "host_files": attacks.HOST_FILES,
    "host_environment": attacks.HOST_ENVIRONMENT,
    "writing_outside": attacks.WRITING_OUTSIDE,
    "links": attacks.LINKS,
    "proc": attacks.PROC,
    "signals": attacks.SIGNALS,
    "tracing": attacks.TRACING,
    "setuid": attacks.SETUID,
    "mounts": attacks.MOUNTS,
    "devices": attacks.DEVICES,
    "namespaces": attacks.NAMESPACES,
    "kernel_calls": attacks.KERNEL_CALLS,
    "supervisor": attacks.SUPERVISOR,
}


@pytest.mark.parametrize("name", ESCAPES)
async def test_a_program_does_not_escape(
    name: str, provider: SandboxProvider, attacked: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    claimed(provider, name)
    secret = "s3cret-of-the-host"
    monkeypatch.setenv("SECRET_KEY", secret)
    secret_file = tmp_path / "secret.txt"
    secret_file.write_text(secret)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0ludus-{os.getpid()}")
        abstract.listen()
        known = {
            "IMAGE": attacked.spec.image is not None,
            "PORT": server.getsockname()[1],
            "SECRET": secret,
            "SECRET_FILE": str(secret_file),
        }
        source = "\n".join(f"{key} = {value!r}" for key, value in known.items() if key != "SECRET")
        source += "\nSECRET = ''.join(['s3cret', '-of-the-host'])\n"
        source += ESCAPES[name].replace("NAME", f"ludus-{os.getpid()}")
        result = await attacked.python(attacks.attack(source), timeout=60)
        assert "ESCAPED" not in result.text, result.text
        assert b"Traceback" not in result.stderr, result.stderr
        await still_works(attacked)


async def test_a_fork_bomb_is_stopped(provider: SandboxProvider, sandbox: Sandbox):
    claimed(provider, "processes")
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    result = await sandbox.python(bomb, timeout=0.5)
    assert result.timed_out
    await still_works(sandbox)


async def test_processes_are_limited(provider: SandboxProvider, attacked: Sandbox):
    claimed(provider, "processes")
    source = """
import os, time
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(100)
        count += 1
except OSError:
    print(count, flush=True)
os._exit(0)
"""
    result = await attacked.python(source, timeout=30)
    assert 0 < int(result.text) <= 24
    await still_works(attacked)


MEMORY_BOMBS = {
    "in one process": "data = bytearray(1 << 30)\ndata[::4096] = b'x' * len(data[::4096])",
    "in many": """
import os, time
for _ in range(8):
    if os.fork() == 0:
        data = bytearray(64 << 20)
        for place in range(0, len(data), 4096): data[place] = 1
        time.sleep(20)
        os._exit(0)
for _ in range(8):
    pid, status = os.wait()
    if status: os.kill(os.getpid(), 9)
""",
    "in files that are never mapped": """
import os
fill = '''
import os
while True:
    file = os.memfd_create("x")
    for _ in range(200): os.write(file, bytes(1 << 16))
'''
os.execvp("python3", ["python3", "-S", "-E", "-c", fill])
""",
}
#: Makes the kernel end the largest process, which is the supervisor, and with it the sandbox.
AGAINST_THE_SUPERVISOR = MEMORY_BOMBS["in files that are never mapped"].replace(
    "\nwhile True", "\ntry: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass\nwhile True"
)


@pytest.mark.parametrize("bomb", MEMORY_BOMBS)
async def test_a_memory_bomb_is_out_of_memory(bomb: str, provider: SandboxProvider, sandbox: Sandbox):
    claimed(provider, "memory")
    result = await sandbox.python(MEMORY_BOMBS[bomb], timeout=60)
    assert result.out_of_memory, result
    assert not result.timed_out
    if provider.isolates or "mapped" not in bomb:
        await still_works(sandbox)


async def test_a_sandbox_that_died_of_its_memory_says_so_and_is_no_failure(provider: SandboxProvider, sandbox: Sandbox):
    claimed(provider, "memory")
    assert (await sandbox.python(AGAINST_THE_SUPERVISOR, timeout=60)).out_of_memory
    later = await sandbox.exec("true")
    assert later.ok or later.out_of_memory
    if later.out_of_memory:
        with pytest.raises(OSError, match="out of memory"):
            await sandbox.read("file")


async def test_a_disk_cannot_be_filled(provider: SandboxProvider, sandbox: Sandbox):
    claimed(provider, "disk")
    source = """
import os
total = 0
for folder in (os.environ["HOME"], "/tmp", "/dev/shm", "/var/tmp", "/run", "/dev", "/"):
    try:
        with open(folder + "/big", "wb") as file:
            for _ in range(200):
                total += file.write(b"x" * (1 << 20))
                file.flush()
    except OSError:
        pass
print(total >> 20)
"""
    result = await sandbox.python(source, timeout=60)
    assert result.out_of_memory or int(result.text) <= 20, result
    await still_works(sandbox)


async def test_files_are_limited(provider: SandboxProvider, sandbox: Sandbox):
    claimed(provider, "files")
    source = "number = 0\nwhile True:\n    open(f'/tmp/{number}', 'w').close()\n    number += 1"
    result = await sandbox.python(source, timeout=60)
    assert result.limit == "files" or b"No space left" in result.stderr or result.out_of_memory, result
    longer = await sandbox.python("import time\ntime.sleep(0.5)\nprint(6 * 7)")  # long enough to be looked at
    assert longer.text == "42\n", longer


async def test_open_files_are_limited(provider: SandboxProvider, attacked: Sandbox):
    claimed(provider, "open_files")
    source = "files = []\ntry:\n    while True: files.append(open('/dev/null'))\nexcept OSError: print(len(files))"
    result = await attacked.python(source, timeout=60)
    assert int(result.text) < 64
    await still_works(attacked)


async def test_endless_output_is_cut_and_stopped(provider: SandboxProvider, sandbox: Sandbox):
    claimed(provider, "output")
    result = await sandbox.python("while True: print('x' * 1000)", timeout=60)
    assert result.output_cut
    assert result.limit == "output"
    assert len(result.stdout) == SPEC.limits.output_bytes
    await still_works(sandbox)


@pytest.mark.parametrize("source", ["while True: pass", "import time\ntime.sleep(1000)"])
async def test_an_endless_program_times_out(source: str, provider: SandboxProvider, attacked: Sandbox):
    claimed(provider, "cpu")
    result = await attacked.python(source, timeout=0.5)
    assert result.timed_out
    assert result.exit_code is None
    await still_works(attacked)


async def test_a_program_that_ignores_every_signal_times_out(provider: SandboxProvider, attacked: Sandbox):
    claimed(provider, "cpu")
    source = """
import signal, time
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
while True:
    try: time.sleep(1000)
    except BaseException: pass
"""
    assert (await attacked.python(source, timeout=0.5)).timed_out
    await still_works(attacked)


async def test_no_grandchild_outlives_its_program(provider: SandboxProvider, attacked: Sandbox):
    claimed(provider, "left_behind")
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        for fd in (0, 1, 2): os.close(fd)
        while True:
            time.sleep(0.01)
            open(os.environ["HOME"] + "/alive", "a").write("x")
    os._exit(0)
while not os.path.exists(os.environ["HOME"] + "/alive"): time.sleep(0.01)
print("done")
"""
    result = await attacked.python(source, timeout=30)
    assert result.text == "done\n"
    size = len(await attacked.read("alive"))
    await asyncio.sleep(0.2)
    assert len(await attacked.read("alive")) == size


async def test_closing_ends_processes_in_the_background(provider: SandboxProvider, spec: SandboxSpec):
    claimed(provider, "left_behind")
    seconds, other = f"8{os.getpid()}.25", f"8{os.getpid()}.5"
    sandbox = await provider.open(replace(spec, background=True))
    await sandbox.exec(f"nohup sleep {other} >/dev/null 2>&1 & (setsid sleep {seconds} &)", timeout=30)
    await until_async(lambda: running(seconds) and running(other))
    await sandbox.close()
    assert not running(seconds)
    assert not running(other)


async def test_a_link_does_not_lead_our_reader_outside(provider: SandboxProvider, attacked: Sandbox, tmp_path: Path):
    claimed(provider, "links")
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    await attacked.exec(["ln", "-s", str(secret), "link"])
    await attacked.exec(["mkfifo", "fifo"])
    with pytest.raises(FileNotFoundError):
        await attacked.read("link")
    with pytest.raises(OSError, match="fifo"):
        await attacked.read("fifo")
    with pytest.raises(OSError, match="larger"):
        await attacked.read("/usr/bin/env", max_bytes=10)


async def test_our_writer_does_not_follow_a_link_outside(provider: SandboxProvider, attacked: Sandbox, tmp_path: Path):
    claimed(provider, "links")
    target = tmp_path / "target.txt"
    target.write_text("untouched")
    await attacked.exec(["ln", "-s", str(target), "target"])
    with pytest.raises(OSError, match="cannot write target"):
        await attacked.write("target", b"overwritten")
    assert target.read_text() == "untouched"


async def test_an_archive_with_dots_stays_inside(provider: SandboxProvider, attacked: Sandbox, tmp_path: Path):
    claimed(provider, "archives")
    outside = tmp_path / "outside.txt"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in (f"../../../../{outside}", str(outside), "fine.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("folder")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        through = tarfile.TarInfo("folder/through.txt")
        through.size = 4
        tar.addfile(through, io.BytesIO(b"evil"))
    with pytest.raises(OSError, match="cannot restore"):
        await attacked.restore(archive.getvalue())
    assert os.listdir(tmp_path) == []
    await still_works(attacked)


async def test_escape_codes_are_data_for_us(attacked: Sandbox):
    result = await attacked.python(r"print('\x1b]0;owned\x07\x1b[2J')")
    assert b"\x1b" in result.stdout
    assert not re.search(r"[\x1b\x07]", clean(result.text))


async def test_a_cancelled_call_ends_the_program(provider: SandboxProvider, spec: SandboxSpec):
    sandbox = await provider.open(spec)
    seconds = f"8{os.getpid()}.75"
    call = asyncio.create_task(sandbox.exec(["sleep", seconds], timeout=900))
    await until_async(lambda: running(seconds))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not running(seconds)
    await sandbox.close()


async def test_a_program_that_kills_all_others_only_ends_itself(provider: SandboxProvider, attacked: Sandbox):
    claimed(provider, "supervisor")
    result = await attacked.python("import os\nos.kill(-1, 9)\nprint('alive')")
    assert result.signal == signal.SIGKILL or result.text == "alive\n" or b"ProcessLookupError" in result.stderr
    await still_works(attacked)

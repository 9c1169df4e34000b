"""The pool of warm sandboxes: nothing survives a use."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sandboxes import needs, running
from waiting import until_async

from ludus.sandbox import Sandbox, SandboxError, SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider
from ludus.sandbox.pool import SandboxPool
from ludus.sandbox.supervised import SupervisedSandbox

pytestmark = [needs("bubblewrap"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    opened = SandboxPool(BubblewrapProvider(), warm=1)
    yield opened
    await opened.close()


async def identity(sandbox: Sandbox) -> str:
    """Tells one supervisor from another: when it started."""
    return (await sandbox.exec("cut -d' ' -f22 /proc/1/stat")).text


LEAVES = {
    "files": "open('left', 'w').write('x')\nopen('/tmp/left', 'w').write('x')\nopen('/dev/shm/left', 'w').write('x')",
    "hidden files": "import os\nos.makedirs('.a/.b')\nopen('.a/.b/c', 'w').write('x')\nos.chmod('.a/.b', 0)",
    "links": "import os\nos.symlink('/', 'all')\nos.symlink('/tmp', 'loop')\nos.mkfifo('fifo')",
    "mode of HOME": "import os\nos.chmod('.', 0o500)",
    "times of HOME": "import os\nos.utime('.', (12345, 12345))",
    "attributes of HOME": "import os\ntry: os.setxattr('.', 'user.x', b'1')\nexcept OSError: pass",
    "modules": "import sys, json\njson.loads = None\nsys.modules['os'] = None",
    "processes": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)",
    "sockets": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('socket')",
    "environment": "import os\nos.environ['LEFT'] = 'x'\nos.putenv('LEFT', 'x')",
    "limits": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))",
    "working folder": "import os\nos.mkdir('gone')\nos.chdir('gone')\nos.rmdir(os.getcwd())",
}
LOOK = """
import json, os, sys
where = os.environ["HOME"]
status = os.stat(where)
print(sorted(os.listdir(where)), sorted(os.listdir("/tmp")), sorted(os.listdir("/dev/shm")))
print(oct(status.st_mode), status.st_mtime, os.listxattr(where), sorted(os.environ), os.getcwd())
print(json.loads("1"), [name for name in os.listdir("/proc") if name.isdigit() and name not in ("1", str(os.getpid()))])
import resource
print(resource.getrlimit(resource.RLIMIT_NOFILE), sys.argv, sys.path[0], "left" in sys.modules)
"""


@pytest.mark.parametrize("kind", LEAVES)
async def test_no_state_survives_a_use(kind: str, pool: SandboxPool):
    async with await pool.open(SandboxSpec()) as first:
        fresh, who = (await first.python(LOOK)).text, await identity(first)
    async with await pool.open(SandboxSpec()) as second:
        await second.python(LEAVES[kind])
    async with await pool.open(SandboxSpec()) as third:
        assert (await third.python(LOOK)).text == fresh
        assert await identity(third) == who, "the sandbox was replaced, so this test says nothing"


#: The state of every path that a program may write to. Only the time of the last change of an inode cannot be set.
STATES = """
import os
def show(path):
    found = os.lstat(path)
    if os.access(path, os.W_OK) and not os.path.islink(path):
        print(path, found[:7], found.st_atime_ns, found.st_mtime_ns)
    if os.path.isdir(path) and not os.path.islink(path) and path not in ("/proc", "/usr", "/root"):
        for name in sorted(os.listdir(path)):
            show(os.path.join(path, name))
show("/")
"""
CHANGE_STATES = """
import os
for line in os.popen("find / -xdev -writable; find /dev -writable").read().split():
    for change in (lambda: os.chmod(line, 0o777), lambda: os.utime(line, (7, 7))):
        try: change()
        except OSError: pass
import pty
os.write(pty.openpty()[0], b"x")
"""


async def test_a_second_use_sees_the_same_state_of_every_writable_path(pool: SandboxPool):
    async with await pool.open(SandboxSpec()) as first:
        fresh, who = (await first.python(STATES)).text, await identity(first)
    assert {line.split()[0] for line in fresh.splitlines()} >= {"/home/user", "/tmp", "/dev/shm", "/dev/pts"}
    async with await pool.open(SandboxSpec()) as second:
        await second.python(CHANGE_STATES)
        assert "7000000000" in (await second.python(STATES)).text
    async with await pool.open(SandboxSpec()) as third:
        assert (await third.python(STATES)).text == fresh
        assert await identity(third) == who, "the sandbox was replaced, so this test says nothing"


#: Every kernel setting that a program may open for writing. Files of its own processes end with them.
WRITABLE_SETTINGS = """
import os
for folder, folders, names in os.walk("/proc"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
    for name in names:
        try:
            os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        print(os.path.join(folder, name))
"""


async def test_no_kernel_setting_can_be_written_for_the_next_use(pool: SandboxPool):
    async with await pool.open(SandboxSpec()) as sandbox:
        result = await sandbox.python(WRITABLE_SETTINGS)
        assert result.ok, result.stderr
        assert result.text == ""
        assert (await sandbox.exec("cat /proc/sys/kernel/msgmax")).ok
        assert not (await sandbox.exec("echo 4242 > /proc/sys/kernel/msgmax")).ok


#: Leaves a mark in every way in which a program can hand bytes to its sandbox.
LEAVE_MARKS = """
import ctypes, os, sys, time
secret = "mark-of-source"
print("mark-of-stdout")
print("mark-of-stderr", file=sys.stderr)
open("mark-of-file", "w").close()
os.mkdir("mark-of-folder")
try: os.setxattr(".", "user.mark-of-attribute", b"1")
except OSError: pass
ctypes.CDLL(None).prctl(15, b"mark-of-comm", 0, 0, 0)
time.sleep(0.2)
"""

#: Looks through all memory of its own process. The pattern does not match itself.
FIND_MARKS = """
import re
marks = re.compile(rb"mark[-]of[-]([a-z]+)")
found = set()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.readlines():
        place, rights = line.split()[:2]
        start, end = (int(number, 16) for number in place.split("-"))
        if not rights.startswith("r"):
            continue
        try:
            memory.seek(start)
            found |= set(marks.findall(memory.read(end - start)))
        except (OSError, OverflowError, ValueError):
            pass
print(sorted(name.decode() for name in found))
"""


async def test_no_text_of_an_earlier_program_is_found_in_memory(pool: SandboxPool):
    async with await pool.open(SandboxSpec()) as first:
        who = await identity(first)
        await first.write("mark-of-name", b"mark-of-content")
        given = await first.python(LEAVE_MARKS, argv=["mark-of-argument"], stdin=b"mark-of-stdin" * 10_000)
        assert given.ok
        command = ["sh", "-c", "echo $0; cat", "mark-of-command"]
        assert (await first.exec(command, stdin=b"mark-of-input", cwd="mark-of-folder", env={"X": "mark-of-env"})).ok
    async with await pool.open(SandboxSpec()) as second:
        assert (await second.python("secret = 'mark-of-own'\n" + FIND_MARKS)).text == "['own']\n"
        assert await identity(second) == who, "the sandbox was replaced, so this test says nothing"


async def test_a_sandbox_in_which_a_program_passed_a_limit_is_thrown_away(pool: SandboxPool):
    async with await pool.open(SandboxSpec()) as first:
        who = await identity(first)
        assert (await first.python("while True: pass", timeout=0.2)).timed_out
    async with await pool.open(SandboxSpec()) as second:
        assert await identity(second) != who


async def test_a_sandbox_that_cannot_be_cleaned_is_thrown_away(pool: SandboxPool):
    async with await pool.open(SandboxSpec()) as first:
        who = await identity(first)
        deep = "import os\nfor _ in range(300):\n    os.mkdir('d')\n    os.chdir('d')"
        assert (await first.python(deep)).ok
    async with await pool.open(SandboxSpec()) as second:
        assert await identity(second) != who
        assert (await second.exec(["ls", "-A"])).text == ""


async def test_a_closed_lease_does_not_reach_the_next_user(pool: SandboxPool):
    first = await pool.open(SandboxSpec())
    await first.exec(["true"])
    await first.close()
    async with await pool.open(SandboxSpec()) as second:
        await second.write("secret", b"x")
        with pytest.raises(RuntimeError, match="closed"):
            await first.read("secret")
        await first.close()  # a second close changes nothing
        assert await second.read("secret") == b"x"


async def test_files_of_the_spec_are_there_in_every_use(pool: SandboxPool):
    spec = SandboxSpec(files={"data/in.txt": b"hello"})
    for _ in range(3):
        async with await pool.open(spec) as sandbox:
            assert (await sandbox.exec("cat data/in.txt; rm -r data")).text == "hello"


async def test_closing_ends_a_call_at_once():
    provider = BubblewrapProvider()
    sandbox = await provider.open(SandboxSpec())
    seconds = f"6{os.getpid()}.5"
    call = asyncio.create_task(sandbox.exec(["sleep", seconds], timeout=900))
    await until_async(lambda: running(seconds))
    await sandbox.close()
    with pytest.raises(SandboxError, match="was closed"):
        await call
    assert not running(seconds)
    await provider.close()


async def test_giving_a_sandbox_back_ends_its_program(pool: SandboxPool):
    sandbox = await pool.open(SandboxSpec())
    seconds = f"5{os.getpid()}.5"
    call = asyncio.create_task(sandbox.exec(["sleep", seconds], timeout=900))
    await until_async(lambda: running(seconds))
    await sandbox.close()
    with pytest.raises(SandboxError, match="was closed"):
        await call
    assert not running(seconds)


async def test_specs_that_differ_in_files_share_warm_sandboxes(pool: SandboxPool):
    async with await pool.open(SandboxSpec(files={"a": b"1"})) as first:
        who = await identity(first)
    async with await pool.open(SandboxSpec(files={"b": b"2"})) as second:
        assert await identity(second) == who
        assert (await second.exec("ls")).text == "b\n"


async def test_specs_do_not_share_sandboxes(pool: SandboxPool):
    async with await pool.open(SandboxSpec(env={"NAME": "one"})) as first:
        assert (await first.exec("echo $NAME")).text == "one\n"
    async with await pool.open(SandboxSpec(env={"NAME": "two"})) as second:
        assert (await second.exec("echo $NAME")).text == "two\n"


async def test_a_sandbox_that_dies_is_an_error_of_ours_and_the_next_one_works(pool: SandboxPool):
    sandbox = await pool.open(SandboxSpec())
    seconds = f"7{os.getpid()}.5"
    call = asyncio.create_task(sandbox.exec(["sleep", seconds], timeout=900))
    await until_async(lambda: running(seconds))
    os.kill(running(seconds)[0].ppid(), signal.SIGKILL)
    with pytest.raises(SandboxError, match="ended unexpectedly"):
        await call
    await sandbox.close()
    async with await pool.open(SandboxSpec()) as other:
        assert (await other.exec(["echo", "fine"])).text == "fine\n"


async def test_only_a_few_sandboxes_start_at_the_same_time():
    starting, most = 0, 0

    class Slow(BubblewrapProvider):
        async def open(self, spec: SandboxSpec) -> SupervisedSandbox:
            nonlocal starting, most
            starting, most = starting + 1, max(most, starting + 1)
            try:
                return await super().open(spec)
            finally:
                starting -= 1

    cores = len(os.sched_getaffinity(0))
    pool = SandboxPool(Slow(), warm=0)
    opened = await asyncio.gather(*(pool.open(SandboxSpec()) for _ in range(2 * cores + 3)))
    assert (len(opened), most) == (2 * cores + 3, 2 * cores)
    await pool.close()

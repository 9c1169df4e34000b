"""The pool of warm sandboxes: nothing survives a use, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from sandboxes import needs
from waiting import until, until_async, until_gone

from ludus.sandbox import Sandbox, SandboxError, SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider
from ludus.sandbox.pool import SandboxPool

pytestmark = needs("bubblewrap")


@pytest.fixture
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


def running(word: str) -> list[psutil.Process]:
    """The processes with a word among their arguments."""
    return [each for each in psutil.process_iter(["cmdline"]) if word in (each.info["cmdline"] or ())]


def leftovers(owner: int) -> list[str]:
    """What the sandboxes of a process have left on the host. Others may have theirs at the same time."""
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/**/ludus-sandbox-{owner}-*")]
    mounts = [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if re.search(r" /mnt(/\d+)? ", line)
    ]
    return groups + mounts


def sandboxes_of(owner: int) -> list[int]:
    """The processes inside the sandboxes of a process."""
    return [each.pid for each in psutil.Process(owner).children(recursive=True)]


USE_UNTIL_KILLED = """
import asyncio, sys
from ludus.sandbox import SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider
from ludus.sandbox.pool import SandboxPool
async def main():
    pool = SandboxPool(BubblewrapProvider(), warm=2)
    sandbox = await pool.open(SandboxSpec(background=True))
    await sandbox.exec("(setsid sleep 984.5 &) ; sleep 0.05")
    print("ready", flush=True)
    await asyncio.gather(*(use(pool) for _ in range(2)))
async def use(pool):
    while True:
        async with await pool.open(SandboxSpec()) as one:
            await one.python("import os, time\\nos.fork()\\ntime.sleep(0.02)")
asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_is_left_when_owners_are_killed(tmp_path: Path):
    owners = []
    for _ in range(10):
        owner = subprocess.Popen(
            [sys.executable, "-c", USE_UNTIL_KILLED],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        inside = sandboxes_of(owner.pid)
        assert inside
        owner.kill()
        owner.wait()
        owner.stdout.close()
        until_gone(*inside)
        owners.append(owner.pid)
    assert os.listdir(tmp_path) == []

    # the control groups of a dead owner go when the next owner starts
    script = "from ludus.sandbox.cgroups import controllers; controllers()"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert [found for pid in owners for found in leftovers(pid)] == []


OPEN_MANY = """
import asyncio, sys
from ludus.sandbox import SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider
async def main():
    provider = BubblewrapProvider()
    opening = [asyncio.create_task(provider.open(SandboxSpec(env={"MARK": sys.argv[1]}))) for _ in range(6)]
    await asyncio.sleep(float(sys.argv[2]))
    print("ready", flush=True)
    await asyncio.sleep(100)
asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_is_left_when_an_owner_is_killed_while_it_opens_sandboxes():
    mark = f"mark-{os.getpid()}"
    for number in range(8):
        command = [sys.executable, "-c", OPEN_MANY, mark, str(number * 0.01)]
        owner = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert owner.stdout is not None
        owner.stdout.readline()
        owner.kill()
        owner.wait()
        owner.stdout.close()
    until(lambda: not running(mark))


@pytest.mark.slow
async def test_many_uses_leave_nothing_and_take_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(sandboxes_of(os.getpid()))
    pool = SandboxPool(BubblewrapProvider(), warm=2)
    memory = psutil.Process().memory_info
    sizes = []
    for _ in range(4):
        for _ in range(100):
            async with await pool.open(SandboxSpec()) as sandbox:
                await sandbox.python("open('x', 'w').write('x' * 1000)\nprint(1)")
        sizes.append(memory().rss)
    await pool.close()
    assert set(sandboxes_of(os.getpid())) <= before
    assert leftovers(os.getpid()) == []
    assert os.listdir(tmp_path) == []
    assert sizes[-1] - sizes[0] < 8 << 20

"""Nothing is left on the host: neither of sandboxes that were closed, nor of those whose owner was killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sandboxes import needs, running
from waiting import until, until_gone

from ludus.sandbox import SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider
from ludus.sandbox.pool import SandboxPool

pytestmark = needs("bubblewrap")


def leftovers(owner: int) -> list[str]:
    """What the sandboxes of a process have left on the host. Others may have theirs at the same time."""
    groups = [
        f"{folder}/{name}"
        for folder, names, _ in os.walk("/sys/fs/cgroup")  # glob fails on a group that goes while it looks
        for name in names
        if name.startswith(f"ludus-sandbox-{owner}-")
    ]
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
    for _ in range(3):
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
    for number in range(4):
        command = [sys.executable, "-c", OPEN_MANY, mark, str(number * 0.02)]
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
    for _ in range(3):
        for _ in range(50):
            async with await pool.open(SandboxSpec()) as sandbox:
                await sandbox.python("open('x', 'w').write('x' * 1000)\nprint(1)")
        sizes.append(memory().rss)
    await pool.close()
    assert set(sandboxes_of(os.getpid())) <= before
    assert leftovers(os.getpid()) == []
    assert os.listdir(tmp_path) == []
    assert sizes[-1] - sizes[0] < 3 << 20

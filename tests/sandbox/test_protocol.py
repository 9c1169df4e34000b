"""What every provider promises: the same calls, the same results, and nothing left behind."""

from __future__ import annotations

import asyncio
import io
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from sandboxes import kinds, opened, provided, spec_for
from waiting import until_gone

from ludus.graders.repository import write_tree
from ludus.sandbox import Sandbox, SandboxError, SandboxLimits
from ludus.sandbox.libpython import python_library
from ludus.sandbox.pool import SandboxPool

pytestmark = pytest.mark.asyncio(loop_scope="module")
every_provider = pytest.mark.parametrize("kind", kinds())


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=kinds())
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """One sandbox of each provider, for all tests that need no other spec and do not mind the files of the others."""
    async with opened(request.param) as found:
        yield found


@every_provider
async def test_a_program_gets_arguments_input_and_variables_and_its_output_comes_back(kind: str):
    async with opened(kind, env={"COLOUR": "red"}) as sandbox:
        script = 'cat; echo "$1 $COLOUR $SIZE"; echo problem >&2; exit 3'
        result = await sandbox.exec(["sh", "-c", script, "sh", "a  b;c"], stdin=b"in\n", env={"SIZE": "7"})
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"in\na  b;c red 7\n", b"problem\n")
    assert not result.ok
    assert result.why == "exit code 3"


async def test_a_text_is_a_shell_script(sandbox: Sandbox):
    assert (await sandbox.exec("echo one; echo two | cat")).text == "one\ntwo\n"


async def test_programs_start_in_home_and_cwd_is_relative_to_it(sandbox: Sandbox):
    home = (await sandbox.exec('pwd; echo "$HOME"')).text.split()
    assert home[0] == home[1]
    await sandbox.exec("mkdir -p a/b")
    assert (await sandbox.exec("pwd", cwd="a/b")).text == f"{home[0]}/a/b\n"


async def test_a_program_that_does_not_exist_is_exit_code_127(sandbox: Sandbox):
    assert (await sandbox.exec(["no-such-program"])).exit_code == 127


async def test_a_signal_is_reported_as_a_signal(sandbox: Sandbox):
    result = await sandbox.exec("kill -SEGV $$")
    assert (result.exit_code, result.signal) == (None, 11)


async def test_an_endless_program_ends_at_its_time_limit_and_the_next_one_runs(sandbox: Sandbox):
    result = await sandbox.exec("echo started; while true; do :; done", timeout=0.5)
    assert (result.timed_out, result.exit_code, result.ok) == (True, None, False)
    assert result.stdout == b"started\n"
    assert (await sandbox.exec("echo next")).text == "next\n"


@every_provider
async def test_long_output_is_cut_and_said_to_be(kind: str):
    async with opened(kind, limits=SandboxLimits(output_bytes=1000)) as sandbox:
        result = await sandbox.exec("yes | head -c 5000")
    assert (len(result.stdout), result.output_cut, result.exit_code) == (1000, True, 0)


async def test_processes_end_with_the_program_that_started_them(sandbox: Sandbox):
    await sandbox.exec("(setsid sleep 1000 >/dev/null 2>&1 &) ; (sleep 1000 >/dev/null 2>&1 &) ; sleep 0.1")
    inside = (await sandbox.exec(_COUNT_SLEEPERS)).text
    assert inside == "0\n"


#: Counts the processes that run `sleep` and that this user may look at.
_COUNT_SLEEPERS = """
n=0
for d in /proc/[0-9]*; do
  read -r name 2>/dev/null < $d/comm && [ "$name" = sleep ] && [ -O $d ] && n=$((n+1))
done
echo $n
"""


@every_provider
async def test_a_background_process_lives_until_the_sandbox_closes(kind: str):
    async with opened(kind, background=True) as sandbox:
        await sandbox.exec("(while [ ! -e stop ]; do sleep 0.05; done; echo stopped > said) > /dev/null 2>&1 &")
        await sandbox.exec("touch stop; while [ ! -s said ]; do sleep 0.05; done")
        assert await sandbox.read("said") == b"stopped\n"


@every_provider
async def test_orphans_that_have_ended_do_not_count_as_processes(kind: str):
    """With 60 processes at most, 100 daemons run one after the other, each without a parent."""
    daemons = "i=0; while [ $i -lt 100 ]; do i=$((i + 1)); (: &); [ $((i % 10)) = 0 ] && sleep 0.1; done; echo $i"
    async with opened(kind, limits=SandboxLimits(processes=60)) as sandbox:
        result = await sandbox.exec(["sh", "-c", daemons], timeout=60)
        assert (result.text, result.stderr) == ("100\n", b"")


@every_provider
async def test_files_are_written_read_and_made_executable(kind: str):
    async with opened(kind, files={"given/one.txt": b"\x00\xff"}) as sandbox:
        assert await sandbox.read("given/one.txt") == b"\x00\xff"
        await sandbox.write("bin/tool", b"#!/bin/sh\necho ran\n", executable=True)
        assert (await sandbox.exec(["./bin/tool"])).text == "ran\n"
        await sandbox.write("-n", b"a name that looks like an option")
        assert await sandbox.read("-n") == b"a name that looks like an option"


async def times(sandbox: Sandbox) -> dict[str, float]:
    """The times of HOME and of all that is in it."""
    with tarfile.open(fileobj=io.BytesIO(await sandbox.snapshot())) as tar:
        return {member.name: member.mtime for member in tar}


@every_provider
async def test_the_times_of_what_a_sandbox_begins_with_do_not_depend_on_the_clock(kind: str):
    async with opened(kind, files={"a/b/one.txt": b"1", "two.txt": b"2"}) as sandbox:
        assert await times(sandbox) == dict.fromkeys((".", "./a", "./a/b", "./a/b/one.txt", "./two.txt"), 0)
        await write_tree(sandbox, {"c/d/three.txt": b"3"}, "app")
        assert set((await times(sandbox)).values()) == {0}
        assert "./app/c/d/three.txt" in await times(sandbox)
        await sandbox.write("later.txt", b"a tool of the model may write files that `make` must find new")
        assert (await times(sandbox))["./later.txt"] > 0


async def test_reading_what_is_no_file_or_too_large_is_an_error(sandbox: Sandbox):
    await sandbox.exec("mkdir folder; head -c 2000 /dev/zero > large")
    with pytest.raises(FileNotFoundError, match="missing"):
        await sandbox.read("missing")
    with pytest.raises(OSError, match="folder"):
        await sandbox.read("folder")
    with pytest.raises(OSError, match="larger than 1000"):
        await sandbox.read("large", max_bytes=1000)
    assert len(await sandbox.read("large", max_bytes=2000)) == 2000


@every_provider
async def test_a_snapshot_brings_files_back(kind: str):
    async with provided(kind) as provider, await provider.open(spec_for(kind)) as sandbox:
        await sandbox.exec("mkdir d; echo kept > d/file; ln -s file d/link")
        snapshot = await sandbox.snapshot()
        async with await provider.open(spec_for(kind)) as other:
            await other.restore(snapshot)
            assert (await other.exec("cat d/link")).text == "kept\n"


@every_provider
async def test_a_fork_has_the_same_files_and_goes_its_own_way(kind: str):
    async with provided(kind) as provider, await provider.open(spec_for(kind)) as sandbox:
        await sandbox.write("file", b"before")
        async with await provider.fork(sandbox) as twin:
            await twin.write("file", b"after")
            assert await sandbox.read("file") == b"before"
            assert await twin.read("file") == b"after"


@every_provider
async def test_a_snapshot_leaves_out_what_cannot_be_read_and_home_may_be_shut(kind: str):
    async with opened(kind) as sandbox:
        await sandbox.exec("mkdir shut; echo a > shut/a; echo b > b; echo c > c; chmod 000 shut b .")
        snapshot = await sandbox.snapshot()
        with tarfile.open(fileobj=io.BytesIO(snapshot)) as tar:
            assert "./c" in tar.getnames()
            assert "./b" not in tar.getnames()


@every_provider
async def test_programs_in_the_background_cannot_use_up_the_processes_of_the_next_call(kind: str):
    async with opened(kind, background=True, limits=SandboxLimits(processes=20)) as sandbox:
        await sandbox.exec("for n in 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0; do sleep 900 > /dev/null 2>&1 & done")
        assert (await sandbox.exec("echo here")).text == "here\n"
        await sandbox.write("file", b"written")
        assert await sandbox.read("file") == b"written"
        await sandbox.end_processes()
        assert (await sandbox.exec("echo $(echo again)")).text == "again\n"


@every_provider
async def test_a_snapshot_cannot_write_outside_of_the_sandbox(kind: str, tmp_path: Any):
    outside = tmp_path / "written"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        link = tarfile.TarInfo("way-out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        for name in (f"../../../../../../../..{outside}", str(outside), "way-out/written"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    tmp_path.chmod(0o777)
    async with opened(kind) as sandbox:
        try:
            await sandbox.restore(archive.getvalue())
        except OSError:
            pass
    assert not outside.exists()


@every_provider
async def test_two_sandboxes_do_not_see_each_others_files(kind: str):
    async with opened(kind) as one, opened(kind) as two:
        await one.exec("echo mine > $HOME/mine; echo mine > /tmp/ludus-protocol-test")
        result = await two.exec("cat mine /tmp/ludus-protocol-test")
    assert result.stdout == b""


@every_provider
async def test_nothing_of_a_sandbox_is_left_after_close(kind: str):
    async with provided(kind) as provider:
        sandbox: Any = await provider.open(spec_for(kind, background=True))
        await sandbox.exec("sleep 1000 > /dev/null 2>&1 & echo made > file")
        pid = sandbox.pid
        assert psutil.pid_exists(pid)
        await sandbox.close()
        await sandbox.close()
        until_gone(pid)
        with pytest.raises((SandboxError, RuntimeError)):
            await sandbox.exec("true")


@every_provider
async def test_cancelling_a_call_ends_the_sandbox(kind: str):
    async with provided(kind) as provider:
        sandbox: Any = await provider.open(spec_for(kind))
        call = asyncio.create_task(sandbox.exec("sleep 1000", timeout=1000))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        until_gone(sandbox.pid)


async def test_calls_at_once_run_one_after_the_other(sandbox: Sandbox):
    results = await asyncio.gather(*(sandbox.exec(f"echo {n} >> log; echo {n}") for n in range(5)))
    assert [result.text for result in results] == [f"{n}\n" for n in range(5)]
    assert len((await sandbox.read("log")).split()) == 5


@every_provider
async def test_a_pool_hands_out_sandboxes_without_the_files_of_the_last_user(kind: str):
    async with provided(kind) as provider:
        pool = SandboxPool(provider, warm=1)
        for _ in range(3):
            async with await pool.open(spec_for(kind)) as sandbox:
                assert (await sandbox.exec("ls -A; echo secret > file; echo secret > .hidden")).text == ""


async def test_python_runs_as_main_with_arguments_and_input(sandbox: Sandbox):
    source = "import sys\nprint(__name__, sys.argv[1:], input())\nraise SystemExit(4)\n"
    result = await sandbox.python(source, argv=["x y"], stdin=b"typed\n")
    assert (result.text, result.exit_code) == ("__main__ ['x y'] typed\n", 4)


async def test_python_inside_is_the_one_outside(sandbox: Sandbox):
    program = "import sys\nprint(sys.version)"
    assert (await sandbox.python(program)).text == f"{sys.version}\n"
    assert (await sandbox.exec(["python3", "-c", program])).text == f"{sys.version}\n"


@pytest.mark.skipif(python_library() is None, reason="this Python is one program, without a shared library")
@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind.values != ("oci",)])
async def test_the_library_of_python_is_all_that_its_folder_holds(kind: str):
    async with opened(kind) as sandbox:
        assert (await sandbox.exec('ls -A "$LD_LIBRARY_PATH"')).text == f"{Path(python_library() or '').name}\n"
        assert not (await sandbox.exec('rm -f "$LD_LIBRARY_PATH"/* || touch "$LD_LIBRARY_PATH/libc.so.6"')).ok


async def test_a_python_error_is_a_traceback_of_the_program_alone(sandbox: Sandbox):
    result = await sandbox.python("def f():\n    return 1 / 0\nf()\n")
    assert result.exit_code == 1
    assert b"ZeroDivisionError" in result.stderr
    assert b"supervisor" not in result.stderr


@every_provider
async def test_a_program_that_takes_too_much_memory_is_out_of_memory(kind: str):
    async with opened(kind, limits=SandboxLimits(memory_mb=200)) as sandbox:
        result = await sandbox.python("data = bytearray(600 << 20)\nfor n in range(0, len(data), 4096): data[n] = 1\n")
    assert result.out_of_memory
    assert not result.ok


@pytest.mark.parametrize("kind", [param for param in kinds() if param.values != ("oci",)])  # Python is the image's
async def test_a_preloaded_module_is_there(kind: str):
    async with opened(kind, preload=("json",)) as sandbox:
        assert (await sandbox.python("import sys; print('json' in sys.modules)")).text == "True\n"

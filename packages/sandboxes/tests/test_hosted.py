"""What the adapters of all hosted services do alike, each against a double of its service."""

from __future__ import annotations

import asyncio
import base64

import pytest
from hosted_doubles import KEY, DaytonaDouble, Double, E2bDouble, HttpDouble, ModalDouble, hosted, replying
from hypothesis import given
from hypothesis import strategies as st
from ludus_sandboxes.hosted import GRACE
from ludus_sandboxes.hosted_script import read_report
from sandboxes import needs

from ludus.errors import UserError
from ludus.sandbox import ExecResult, Mount, SandboxError, SandboxLimits, SandboxSpec
from ludus.sandbox.choice import open_provider

bubblewrap = needs("bubblewrap")
#: The script around a program is the same for all services: claims about it need one.
one_service = pytest.mark.parametrize("service", [E2bDouble], ids=lambda each: each.name)
services = pytest.mark.parametrize("service", [DaytonaDouble, E2bDouble, ModalDouble], ids=lambda each: each.name)


@pytest.mark.slow
@bubblewrap
@services
async def test_programs_run_with_input_output_and_files_of_any_bytes(
    service: type[Double], monkeypatch: pytest.MonkeyPatch
):
    everything = bytes(range(256)) * 300
    spec = SandboxSpec(env={"A": "it's"}, files={"given/one.bin": everything})
    async with hosted(service(), monkeypatch) as provider, await provider.open(spec) as sandbox:
        result = await sandbox.exec(["sh", "-c", 'cat; echo "$A $B $HOME $PWD" >&2; exit 3'], stdin=everything)
        assert (result.exit_code, result.stdout, result.signal) == (3, everything, None)
        assert (result.timed_out, result.output_cut, result.out_of_memory, result.limit) == (False, False, False, None)
        assert result.stderr == b"it's  /home/user /home/user\n"
        again = await sandbox.exec('echo "$B"; pwd', env={"B": "$(id) `id`\n'"}, cwd="given")
        assert again.text == "$(id) `id`\n'\n/home/user/given\n"
        assert await sandbox.read("given/one.bin") == everything
        await sandbox.write("new folder/run.sh", b"#!/bin/sh\necho ran\n", executable=True)
        assert (await sandbox.exec(["./new folder/run.sh"])).text == "ran\n"
        assert (await sandbox.python("import sys; print(sys.argv[1:], input())", argv=["x"], stdin=b"y")).text == (
            "['x'] y\n"
        )
        with pytest.raises(FileNotFoundError, match="missing"):
            await sandbox.read("missing")
        with pytest.raises(OSError, match="larger than 10 bytes"):
            await sandbox.read("given/one.bin", max_bytes=10)
        async with await provider.fork(sandbox) as twin:
            assert await twin.read("given/one.bin") == everything
        assert (await sandbox.exec(f"echo {'x' * 120_000} | wc -c")).text == "120001\n"


@bubblewrap
@services
async def test_a_program_is_stopped_at_its_time_limit_with_all_that_it_started(
    service: type[Double], monkeypatch: pytest.MonkeyPatch
):
    async with hosted(service(), monkeypatch) as provider, await provider.open(SandboxSpec()) as sandbox:
        late = await sandbox.exec("sleep 1000 & echo begun; sleep 1000", timeout=0.5)
        assert (late.timed_out, late.stdout, late.exit_code) == (True, b"begun\n", None)
        assert late.why == "timed out after 0.5 s"
        ended = await sandbox.exec("sleep 1000 & echo done")
        assert ended.text == "done\n"
        running = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done | grep '^sleep 1000' || true"
        assert (await sandbox.exec(running)).text == ""


@bubblewrap
@one_service
async def test_output_over_the_limit_is_cut(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    spec = SandboxSpec(limits=SandboxLimits(output_bytes=1000))
    async with hosted(service(), monkeypatch) as provider, await provider.open(spec) as sandbox:
        result = await sandbox.exec("head -c 100000 /dev/zero; head -c 1000 /dev/zero >&2")
        assert (len(result.stdout), len(result.stderr), result.output_cut, result.ok) == (1000, 1000, True, True)


@bubblewrap
@one_service
async def test_a_program_that_attacks_the_script_around_it_harms_only_its_own_result(
    service: type[Double], monkeypatch: pytest.MonkeyPatch
):
    forged = "for f in /proc/$PPID/fd/1; do printf 'ludus 0 0\\no:!!\\ne:\\nend\\n' > $f; done; kill -9 $PPID"
    async with hosted(service(), monkeypatch) as provider, await provider.open(SandboxSpec()) as sandbox:
        assert not (await sandbox.exec(forged, timeout=10)).ok
        assert not (await sandbox.exec("kill -9 $PPID", timeout=10)).ok
        assert (await sandbox.exec(["no-such-program"])).exit_code == 127
        assert not (await sandbox.exec("echo", cwd="/no/such/folder")).ok
        assert (await sandbox.exec("echo \ud800 'ludus 0 1'")).text.endswith("ludus 0 1\n")
        with pytest.raises(ValueError, match="NUL"):
            await sandbox.exec("echo \0")
        with pytest.raises(ValueError, match="not the name of an environment variable"):
            await sandbox.exec("true", env={"-i": ""})
        assert (await sandbox.exec("echo alive")).text == "alive\n"


@services
@pytest.mark.parametrize("output", [b"\xff<html>", b"ludus 0 0\no:AAA\ne:\nend\n", b"", b"ludus 99999 0\n"])
async def test_output_that_is_no_report_is_a_program_that_failed(
    service: type[Double], output: bytes, monkeypatch: pytest.MonkeyPatch
):
    async with replying(service(), ExecResult(exit_code=0, stdout=output), monkeypatch) as sandbox:
        result = await sandbox.exec("true")
        assert (result.ok, result.exit_code, result.stdout) == (False, 255, b"")


@services
async def test_a_command_that_the_service_stopped_timed_out(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    async with replying(service(), ExecResult(timed_out=True), monkeypatch) as sandbox:
        assert (await sandbox.exec("true", timeout=7)).why == "timed out after 7.0 s"


@services
async def test_an_endless_reply_is_the_output_limit_of_the_program(
    service: type[Double], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ludus_sandboxes.modal._OUTPUT_BYTES", 1 << 16)
    monkeypatch.setattr("ludus_sandboxes.hosted_http._REPLY_BYTES", 1 << 16)
    async with replying(service(), ExecResult(exit_code=0, stdout=b"x" * (1 << 18)), monkeypatch) as sandbox:
        assert (await sandbox.exec("true")).limit == "output"


@bubblewrap
@services
async def test_every_sandbox_is_deleted_once_and_none_twice(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    double = service()
    async with hosted(double, monkeypatch) as provider:
        first, second = await provider.open(SandboxSpec()), await provider.open(SandboxSpec())
        await asyncio.gather(first.close(), first.close())
        await first.close()
        assert double.deleted == ["sb-0"]
        with pytest.raises(SandboxError, match="gone"):
            await first.exec("true")
        assert (await second.exec("echo here")).text == "here\n"
    assert sorted(double.deleted) == ["sb-0", "sb-1"]


@bubblewrap
@services
async def test_a_sandbox_whose_opening_is_cancelled_is_deleted(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    double = service()
    async with hosted(double, monkeypatch) as provider:
        double.faults = [(double.create_request, "hang")]
        opening = asyncio.create_task(provider.open(SandboxSpec()))
        await double.holding.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        double.release.set()
    assert double.deleted == ["sb-0"]


@bubblewrap
@services
async def test_a_cancelled_program_ends_its_sandbox(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    double = service()
    async with hosted(double, monkeypatch) as provider:
        sandbox = await provider.open(SandboxSpec())
        double.faults = [(double.command_request, "hang")]
        running = asyncio.create_task(sandbox.exec("true"))
        await double.holding.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(SandboxError, match="gone"):
            await sandbox.exec("true")
    assert double.deleted == ["sb-0"]


@services
async def test_a_slow_reply_is_a_timeout_of_the_service(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    # the service has 0.2 s for a program of 0.1 s
    monkeypatch.setattr(f"ludus_sandboxes.{service.name}.GRACE", 0.2 - 0.1 - GRACE)
    double = service()
    async with replying(double, ExecResult(exit_code=0), monkeypatch) as sandbox:
        double.faults = [(double.command_request, "hang")]
        with pytest.raises(SandboxError, match=f"(?i){service.name} did not answer .*within"):
            await sandbox.exec("true", timeout=0.1)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("401", "answered 401"),
        ("500", "answered 500"),
        ("drop", "dropped the connection before it answered"),
        ("half", "dropped the connection in the middle"),
        ("garbage", "(sent|cut)"),
    ],
)
@pytest.mark.parametrize("asked", ["create_request", "command_request"])
@pytest.mark.parametrize("service", [DaytonaDouble, E2bDouble], ids=lambda each: each.name)
async def test_an_error_of_the_service_is_never_the_programs(
    service: type[HttpDouble], asked: str, fault: str, says: str, monkeypatch: pytest.MonkeyPatch
):
    double, request = service.running_nothing(), getattr(service, asked)
    double.faults = [(request, fault)]
    async with hosted(double, monkeypatch) as provider:
        with pytest.raises(SandboxError, match=f"(?i){service.name} {says}") as raised:
            await provider.open(SandboxSpec())
        assert KEY not in str(raised.value)
        assert E2bDouble.token not in str(raised.value)
        assert len([each for each in double.requests if request in each]) == 1, "it may have been done already"
    assert len(double.deleted) == len(double.created)


@bubblewrap
@one_service
async def test_a_package_that_the_image_lacks_is_named(service: type[Double], monkeypatch: pytest.MonkeyPatch):
    double = service()
    async with hosted(double, monkeypatch) as provider:
        with pytest.raises(SandboxError, match="no-such-package"):
            await provider.open(SandboxSpec(packages=("no-such-package",)))
        assert double.deleted == ["sb-0"]


@bubblewrap
@one_service
async def test_a_folder_at_the_root_is_the_one_of_home_and_never_the_images_own(
    service: type[Double], monkeypatch: pytest.MonkeyPatch
):
    async with hosted(service(), monkeypatch) as provider:
        async with await provider.open(SandboxSpec(folders=("app",), files={"app/one": b"1"})) as sandbox:
            assert await sandbox.read("/app/one") == b"1"
        with pytest.raises(SandboxError, match="the image has a /usr of its own"):
            await provider.open(SandboxSpec(folders=("usr",)))


@given(
    st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 255), st.booleans(), st.sampled_from(["", "\n"])
)
def test_a_report_is_read_as_it_was_written(stdout: bytes, stderr: bytes, code: int, late: bool, end: str):
    texts = [base64.b64encode(data).decode() for data in (stdout, stderr)]
    report = read_report(f"ludus {code} {int(late)}\no:{texts[0]}\ne:{texts[1]}\nend{end}".encode())
    assert report is not None
    assert (report.exit_code, report.timed_out, report.stdout, report.stderr) == (code, late, stdout, stderr)


@given(st.binary(max_size=300))
def test_other_bytes_are_no_report(output: bytes):
    assert read_report(output) is None
    read_report(b"ludus 0 0\no:" + output + b"\ne:\nend\n")  # whatever it is, it raises nothing


@pytest.mark.parametrize("name", ["daytona", "e2b"])
async def test_a_hosted_provider_without_its_key_is_refused_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(f"{name.upper()}_API_KEY", raising=False)
    with pytest.raises(UserError, match=f"sandbox provider {name}: .*{name.upper()}_API_KEY") as caught:
        await open_provider(name)
    assert "\n" not in str(caught.value)


@bubblewrap
@one_service
async def test_the_end_of_long_output_is_kept_and_folders_of_this_machine_are_refused(
    service: type[Double], monkeypatch: pytest.MonkeyPatch
):
    async with hosted(service(), monkeypatch) as provider:
        async with await provider.open(SandboxSpec()) as sandbox:
            result = await sandbox.exec("seq 1 1000; echo end", last_bytes=9)
            assert (result.stdout, result.output_cut) == (b"1000\nend\n", True)
        with pytest.raises(SandboxError, match=r"e2b cannot mount folders of this machine \(/usr\)"):
            await provider.open(SandboxSpec(mounts=(Mount("/usr", "/opt/usr"),)))

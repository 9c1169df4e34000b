"""Folders of the host inside a sandbox: programs read and run what is in them, and change nothing."""

from __future__ import annotations

import os
import sys
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attacks
import pytest
import pytest_asyncio
from ludus_sandboxes.remote import RemoteProvider
from sandboxes import kinds, needs, opened, provided, spec_for

from ludus.sandbox import Mount, Sandbox, SandboxError, SandboxProvider, SandboxSpec
from ludus.sandbox.mounts import python_mounts
from ludus.sandbox.pool import SandboxPool

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACE = "/opt/program"
#: The providers that make the file system of a sandbox, so that a folder can be anywhere in it.
makers = [param for param in kinds() if param.values != ("process",)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in a folder that only root may walk to, with links that leave the folder."""
    folder = tmp_path_factory.mktemp("mounted") / "program"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/tool").write_text("#!/bin/sh\necho ran $0\n")
    (folder / "bin/tool").chmod(0o755)
    (folder / "bin/link").symlink_to("tool")
    (folder.parent / "secret").write_text("of the host")
    (folder / "up").symlink_to("../secret")
    (folder / "away").symlink_to(folder.parent / "secret")
    (folder / "root").symlink_to("/")
    return folder


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user may read, outside of `/tmp`, where a folder of the host cannot keep its path."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as root:
        folder = Path(root) / "readable"
        folder.mkdir()
        (folder / "file").write_text("read me")
        (folder.parent / "beside").write_text("not me")
        os.chmod(root, 0o755)
        yield folder


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=makers)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    async with provided(request.param) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(provider: SandboxProvider, program: Path) -> AsyncIterator[Sandbox]:
    spec = spec_for(provider.name, mounts=(Mount(str(program), PLACE),))
    async with await provider.open(spec) as found:
        yield found


async def test_programs_of_a_mounted_folder_run(sandbox: Sandbox):
    result = await sandbox.exec([f"{PLACE}/bin/tool"])
    assert (result.text, result.stderr) == (f"ran {PLACE}/bin/tool\n", b"")
    assert (await sandbox.exec([f"{PLACE}/bin/link"])).text == f"ran {PLACE}/bin/link\n"


def state_of(folder: Path) -> list[tuple[Path, float, int]]:
    return sorted((path, path.lstat().st_mtime, path.lstat().st_mode) for path in folder.rglob("*"))


async def test_a_mounted_folder_cannot_be_changed(sandbox: Sandbox, program: Path):
    source = attacks.attack(f"""
place = {PLACE!r}
for name in ("bin/tool", "new", "bin/new"):
    tried(f"wrote {{name}}", lambda: open(f"{{place}}/{{name}}", "a"))
tried("chmod", os.chmod, place + "/bin/tool", 0o777)
tried("times", os.utime, place + "/bin/tool", (0, 0))
tried("removed", os.remove, place + "/bin/tool")
tried("moved", os.rename, place, "/opt/other")
tried("replaced", os.symlink, "/tmp", place)
tried("hard link", os.link, place + "/bin/tool", os.path.expanduser("~/tool"))
tried("attribute", os.setxattr, place + "/bin/tool", "user.x", b"y")
call("remount", 165, 40, b"none", place.encode(), b"", 0x20 | 0x1000, 0)
call("umount", 166, 39, place.encode(), 2)
call("mount_setattr", 442, 442, -100, place.encode(), 0, b"\\0" * 32, 32)
""")
    before = state_of(program)
    result = await sandbox.python(source)
    assert "ESCAPED" not in result.text, result.text
    assert b"Traceback" not in result.stderr, result.stderr
    assert state_of(program) == before


async def test_links_that_leave_a_mounted_folder_do_not_lead_to_the_host(sandbox: Sandbox, program: Path):
    secret = program.parent / "secret"
    for path in (f"{PLACE}/up", f"{PLACE}/away", f"{PLACE}/root{secret}", f"{PLACE}/../secret", str(secret)):
        assert not (await sandbox.exec(["cat", path])).ok, path


async def test_a_folder_is_at_its_own_path_unless_told_otherwise(provider: SandboxProvider, readable: Path):
    mount = Mount(str(readable))
    assert (mount.source, mount.place) == (str(readable), str(readable))
    async with await provider.open(spec_for(provider.name, mounts=(mount,))) as sandbox:
        assert (await sandbox.exec(["cat", str(readable / "file")])).text == "read me"


async def test_our_own_package_is_not_seen_in_a_mounted_folder(provider: SandboxProvider):
    import ludus

    package = Path(ludus.__file__).parent
    async with await provider.open(spec_for(provider.name, mounts=(Mount(str(package.parent), PLACE),))) as sandbox:
        assert (await sandbox.exec(["ls", PLACE])).text.split() == sorted(os.listdir(package.parent))
        assert (await sandbox.exec(["ls", "-A", f"{PLACE}/{package.name}"])).stdout == b""


async def test_warm_sandboxes_are_shared_by_equal_mounts_only(provider: SandboxProvider, program: Path):
    pool = SandboxPool(provider, warm=1)
    for mounts, code in (((), 2), ((Mount(str(program), PLACE),), 0), ((), 2), ((Mount(str(program), PLACE),), 0)):
        async with await pool.open(spec_for(provider.name, mounts=mounts)) as sandbox:
            assert (await sandbox.exec(["ls", PLACE])).exit_code == code


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize(
    ("mount", "cause"),
    [
        (Mount("/no/such/folder", PLACE), "cannot mount /no/such/folder: there is no such folder"),
        (Mount(__file__, PLACE), f"cannot mount {__file__}: there is no such folder"),
        (Mount("/usr", "opt/usr"), "cannot mount /usr at opt/usr: the place must be an absolute path"),
        (Mount("/usr", "/home/user/usr"), "cannot mount /usr at /home/user/usr, because of /home/user: use a place"),
        (Mount("/usr", "/home"), "cannot mount /usr at /home, because of /home/user: use a place"),
        (Mount("/usr", "/"), "cannot mount /usr at /, because of /usr: use a place"),
        (Mount("/usr", "/opt/../etc"), "cannot mount /usr at /etc, because of /etc: use a place"),
    ],
)
async def test_a_mount_that_cannot_be_is_one_line(kind: str, mount: Mount, cause: str):
    async with provided(kind) as provider:
        with pytest.raises(SandboxError) as raised:
            await provider.open(spec_for(kind, mounts=(mount,)))
    assert raised.value.cause.startswith(f"sandbox provider {kind} {cause}")
    assert "\n" not in raised.value.cause


@needs("bubblewrap")
async def test_a_mount_in_a_folder_of_the_spec_or_in_another_mount_is_refused():
    usr, inside = Mount("/usr", "/app/usr"), Mount("/usr", f"{PLACE}/usr")
    async with provided("bubblewrap") as provider:
        with pytest.raises(SandboxError, match="at /app/usr, because of /app:"):
            await provider.open(SandboxSpec(folders=("app",), mounts=(usr,)))
        with pytest.raises(SandboxError, match=f"at {PLACE}/usr, because of {PLACE}:"):
            await provider.open(SandboxSpec(mounts=(Mount("/usr/share", PLACE), inside)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts sandboxes as another user")
@needs("bubblewrap")
async def test_a_folder_that_only_root_may_read_is_refused_with_the_command_that_helps(tmp_path: Path):
    os.chmod(tmp_path, 0o700)
    async with provided("bubblewrap") as provider:
        with pytest.raises(SandboxError, match=f"which only root may read: chmod -R o\\+rX {tmp_path}"):
            await provider.open(SandboxSpec(mounts=(Mount(str(tmp_path), PLACE),)))


async def test_a_server_of_sandboxes_cannot_mount_folders_of_this_machine():
    provider = RemoteProvider(["http://127.0.0.1:9"])
    with pytest.raises(SandboxError, match=r"sandbox provider remote cannot mount folders of this machine \(/usr\)"):
        await provider.open(SandboxSpec(mounts=(Mount("/usr", PLACE),)))
    await provider.close()


@needs("process")
async def test_process_shows_folders_where_they_are(tmp_path: Path, readable: Path):
    async with opened("process", mounts=(Mount(str(readable)),)) as sandbox:
        assert (await sandbox.exec(["cat", str(readable / "file")])).text == "read me"
        assert not (await sandbox.exec(["cat", str(readable.parent / "beside")])).ok
    async with provided("process") as provider:
        os.chmod(tmp_path, 0o755)
        with pytest.raises(SandboxError, match="at /opt/program: programs find folders where they are"):
            await provider.open(SandboxSpec(mounts=(Mount(str(tmp_path), PLACE),)))


@pytest.mark.parametrize(
    ("folder", "python", "mounted"),
    [
        ("environment", "/usr/bin/python3", ["environment"]),
        ("environment", "environment/bin/python3", ["environment"]),
        ("environment", "base/bin/python3", ["environment", "base"]),
        ("base/envs/environment", "base/bin/python3", ["base"]),
    ],
)
async def test_a_virtual_environment_is_mounted_with_the_python_that_it_links_to(
    folder: str, python: str, mounted: list[str], tmp_path: Path
):
    link = tmp_path / folder / "bin/python"
    os.makedirs(link.parent)
    os.symlink(tmp_path / python, link)
    assert [mount.source for mount in python_mounts(str(tmp_path / folder))] == [str(tmp_path / m) for m in mounted]


@needs("bubblewrap")
async def test_a_virtual_environment_runs_from_a_mount(tmp_path: Path):
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    library = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (library / "only_here.py").write_text("WHERE = __file__")
    mounts = python_mounts(str(folder), PLACE)
    async with opened("bubblewrap", mounts=mounts) as sandbox:
        result = await sandbox.exec([f"{PLACE}/bin/python", "-c", "import only_here, sys; print(sys.prefix)"])
        assert (result.text, result.stderr) == (f"{PLACE}\n", b"")

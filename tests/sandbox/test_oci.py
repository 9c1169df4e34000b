"""The provider `oci`: programs run in a root file system of their own, which stays as it was."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from root_file_systems import image_cache, new_image_cache, root_file_system
from sandboxes import needs, opened, provided, running
from waiting import until, until_gone

from ludus.sandbox import Sandbox, SandboxError, SandboxLimits, SandboxSpec
from ludus.sandbox.oci import OciProvider
from ludus.sandbox.oci_images import ImageStore, fingerprint
from ludus.sandbox.shifted import is_possible

pytestmark = needs("oci")


async def test_programs_see_the_image_and_not_the_host():
    async with opened("oci") as sandbox:
        assert (await sandbox.exec("cat /etc/image")).text == "made by a test\n"
        result = await sandbox.exec("ls /usr /root /home /etc/passwd")
        assert b"pyenv" not in result.stdout
        assert (await sandbox.exec("ls /home")).text == "user\n"


async def test_programs_may_change_the_image_and_it_stays_as_it_was():
    script = "echo changed > /data/file; rm /etc/image; mkdir -p /opt/new; chmod 777 /data"
    async with opened("oci") as one, opened("oci") as two:
        assert (await one.exec(script)).ok
        assert (await one.exec("cat /data/file; ls /etc/image")).stdout == b"changed\n"
        assert (await two.exec("cat /data/file /etc/image; ls /opt")).stdout == b"as in the image\nmade by a test\n"
    assert (root_file_system() / "data/file").read_text() == "as in the image\n"
    assert (root_file_system() / "etc/image").exists()


async def test_cwd_may_be_a_folder_of_the_image():
    async with opened("oci") as sandbox:
        assert (await sandbox.exec("pwd; cat file", cwd="/data")).text == "/data\nas in the image\n"


async def test_programs_are_root_inside_and_nobody_outside():
    async with opened("oci", background=True) as sandbox:
        assert (await sandbox.exec("id -u")).text == "0\n"
        await sandbox.exec("sleep 1000 > /dev/null 2>&1 &")
        inside = psutil.Process(sandbox.pid).children()  # type: ignore[attr-defined]
        assert inside
        assert {process.uids().real for process in inside} == {os.geteuid() or 1_500_000_000}


async def test_files_outside_of_home_count_against_the_disk_limit():
    async with opened("oci", limits=SandboxLimits(disk_mb=4)) as sandbox:
        assert not (await sandbox.exec("head -c 3000000 /dev/zero > /data/a; head -c 3000000 /dev/zero > /etc/b")).ok


@pytest.mark.parametrize("folder", ["/dev", "/dev/shm", "/data"])
async def test_files_are_limited_in_every_folder(folder: str):
    async with opened("oci", limits=SandboxLimits(files=300)) as sandbox:
        script = "n=0; while [ $n -lt 3000 ]; do : > f$n || exit 9; n=$((n+1)); done; sleep 0.2"
        assert not (await sandbox.exec(script, cwd=folder)).ok


async def test_files_are_read_and_written_by_nothing_that_a_program_replaced():
    forge = "printf '#!/bin/sh\\necho forged\\n' > /data/forged; /bin/chmod 755 /data/forged"
    hide = "for f in json os stat typing; do echo 'raise SystemExit(7)' > $f.py; done"
    replace = "for f in cat head chmod mkdir python3; do /bin/cp /data/forged /bin/$f; done"
    async with opened("oci") as sandbox:
        assert (await sandbox.exec(f"echo true > /data/word; {forge}; {hide}; {replace}")).ok
        assert (await sandbox.exec(["cat", "/data/word"])).text == "forged\n"
        assert await sandbox.read("/data/word") == b"true\n"
        await sandbox.write("/new/word", b"written", executable=True)
        assert (await sandbox.read("/new/word"), await sandbox.read_if_there("/data")) == (b"written", None)


async def test_a_pipe_in_the_place_of_a_file_delays_nobody():
    async with opened("oci") as sandbox:
        await sandbox.exec("mkfifo pipe; ln -s loop loop")
        for name in ("pipe", "loop"):
            assert await sandbox.read_if_there(name) is None
            with pytest.raises(OSError, match=f"cannot write {name}"):
                await sandbox.write(name, b"data")


async def test_a_program_that_removes_its_folders_gets_its_result_and_the_sandbox_goes_on():
    async with opened("oci") as sandbox:
        assert (await sandbox.exec("rm -rf /tmp /data $HOME; sleep 0.2; echo removed", cwd="/")).text == "removed\n"
        assert (await sandbox.exec("echo alive", cwd="/")).text == "alive\n"
        assert (await sandbox.exec("true")).exit_code == 126
        assert (await sandbox.exec("mkdir -p $HOME /tmp; sleep 0.2", cwd="/")).ok
        assert (await sandbox.exec("echo back")).text == "back\n"


async def test_python_is_the_one_of_the_image():
    async with opened("oci") as sandbox:
        assert (await sandbox.exec("rm /bin/python3")).ok
        assert (await sandbox.python("print(1)")).exit_code == 127
        await sandbox.write("/bin/python3", b"#!/bin/sh\necho the python of the image; cat $1\n", executable=True)
        assert (await sandbox.python("print(2)")).text == "the python of the image\nprint(2)"


@pytest.mark.skipif(os.geteuid() != 0, reason="a folder is copied or mounted with other owners only for root")
@pytest.mark.parametrize("mounted", [True, False])
async def test_a_folder_is_an_image_whose_files_are_all_roots(monkeypatch: pytest.MonkeyPatch, mounted: bool):
    image, cache = _image_with_owners(), new_image_cache()
    if not mounted:
        monkeypatch.setattr("ludus.sandbox.oci_images.is_possible", lambda folder, user: False)
    elif not is_possible(image, 1_500_000_000):
        pytest.skip("this kernel cannot mount the folder with other owners: it needs Linux 5.19")
    before = fingerprint(image)
    provider = OciProvider(cache)
    script = (
        "cat /data/mine/kept; echo more >> /data/file; echo more >> /data/odd; rm -r /data/mine /etc/image; ls /data"
    )
    for _ in range(2):
        async with await provider.open(SandboxSpec(image=str(image))) as sandbox:
            listed = await sandbox.exec(
                "ls -ln /data | while read -r m n u g rest; do echo $u $g; done; cat /data/secret"
            )
            assert set(listed.text.split()) == {"0", "secret"}
            changed = await sandbox.exec(script)
            assert (changed.stderr, changed.text) == (b"", "kept\nfile\nodd\nsecret\n")
            assert (await sandbox.exec("cat /data/odd /data/file")).text == "odd\nmore\nas in the image\nmore\n"
    await provider.close()
    assert fingerprint(image) == before
    [copied] = cache.glob("*/root")
    names = {str(path.relative_to(copied)) for path in copied.rglob("*")}
    assert ({"data", "data/odd", "data/mine", "data/mine/kept"} == names) is mounted


def _image_with_owners() -> Path:
    """A root file system with files that are only root's to read, and with some of another user."""
    image = new_image_cache()
    shutil.copytree(root_file_system(), image, symlinks=True, dirs_exist_ok=True)
    (image / "data/secret").write_text("secret\n")
    (image / "data/secret").chmod(0o600)
    (image / "data/odd").write_text("odd\n")
    (image / "data/mine").mkdir(0o700)
    (image / "data/mine/kept").write_text("kept\n")
    for name in ("odd", "mine"):
        os.chown(image / "data" / name, 33, 33)
    image.chmod(0o700)
    return image


@pytest.mark.slow
async def test_a_tar_archive_is_an_image(tmp_path: Path):
    for name, mode in (("image.tar", "w"), ("image.tar.gz", "w:gz")):
        _pack(tmp_path / name, mode)
        async with opened_image(tmp_path / name) as sandbox:
            assert (await sandbox.exec("cat /etc/image")).text == "made by a test\n"


@pytest.mark.slow
async def test_an_archive_is_unpacked_once_and_again_when_it_changes(tmp_path: Path):
    archive, cache = tmp_path / "image.tar", new_image_cache()
    _pack(archive)
    provider = OciProvider(cache)
    for _ in range(2):
        async with await provider.open(SandboxSpec(image=str(archive))):
            assert len(os.listdir(cache)) == 1
    await provider.close()
    _pack(archive, files={"etc/image": b"another\n"})
    os.utime(archive, (1, 1))
    provider = OciProvider(cache)
    async with await provider.open(SandboxSpec(image=str(archive))) as sandbox:
        assert (await sandbox.exec("cat /etc/image")).text == "another\n"
    await provider.close()


def test_what_a_killed_owner_was_unpacking_is_removed_by_the_next(tmp_path: Path):
    archive, cache, seconds = tmp_path / "image.tar", new_image_cache(), f"5{os.getpid()}.5"
    _pack_shell(archive)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tar").write_text(f"#!/bin/sh\nexec sleep {seconds}\n")  # an archive that takes long
    (tools / "tar").chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    script = f"""
import asyncio
from pathlib import Path
from ludus.sandbox.oci_images import ImageStore
asyncio.run(ImageStore(Path({str(cache)!r})).get({str(archive)!r}))
"""
    path = f"{tools}:{os.environ['PATH']}"
    owner = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PATH": path})
    until(lambda: running(seconds))
    owner.kill()
    owner.wait()
    assert any(name.startswith("new-") for name in os.listdir(cache))

    _pack_shell(tmp_path / "second.tar")
    asyncio.run(ImageStore(cache).get(str(tmp_path / "second.tar")))
    assert any(name.startswith("new-") for name in os.listdir(cache)), "its tar is still at work"

    (unpacking,) = running(seconds)
    unpacking.kill()
    until_gone(unpacking.pid)
    _pack_shell(tmp_path / "third.tar")
    asyncio.run(ImageStore(cache).get(str(tmp_path / "third.tar")))
    assert not any(name.startswith("new-") for name in os.listdir(cache))
    assert len(os.listdir(cache)) == 2


def _pack_shell(archive: Path) -> None:
    """The smallest archive that is an image."""
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("bin/sh"))


@pytest.mark.parametrize("kind", ["up", "absolute", "link", "hard link", "hard link up"])
async def test_an_archive_cannot_write_outside_of_its_folder_nor_take_a_file_of_the_host(kind: str, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("the answer")
    os.chmod(tmp_path, 0o777)
    hostile = {
        "up": [_member(f"../../../../../../../../..{tmp_path}/written")],
        "absolute": [_member(f"{tmp_path}/written")],
        "link": [_member("way-out", tarfile.SYMTYPE, str(tmp_path)), _member("way-out/written")],
        "hard link": [_member("stolen", tarfile.LNKTYPE, str(secret))],
        "hard link up": [_member("stolen", tarfile.LNKTYPE, f"../../../../../../../../..{secret}")],
    }
    archive = tmp_path / "image.tar"
    _pack(archive, members=hostile[kind])
    try:
        async with opened_image(archive) as sandbox:
            assert b"the answer" not in (await sandbox.exec("cat /stolen /way-out/secret")).stdout
    except SandboxError:  # tar refused a member, and so do we
        pass
    assert sorted(os.listdir(tmp_path)) == ["image.tar", "secret"]


#: Links in an image in the place of folders that we mount or make, and of files that we show.
LINKS = {
    "tmp": "../../../../../../../../tmp",
    "home": "../../../../../../../../root",
    ".ludus": "../../../../../../../../tmp",
    "dev": "../../../../../../../../dev",
    "proc": "../../../../../../../../proc",
    "data": "/proc/1/root/etc",
    "etc/resolv.conf": "../../../../../../../../etc/shadow",
}


@pytest.mark.parametrize("place", LINKS)
async def test_a_link_in_an_image_leads_to_nothing_of_the_host(place: str, tmp_path: Path):
    image, name = new_image_cache(), f"ludus-{os.getpid()}-written"
    shutil.copytree(root_file_system(), image, symlinks=True, dirs_exist_ok=True)
    if (image / place).is_dir():
        shutil.rmtree(image / place)
    (image / place).symlink_to(LINKS[place])
    provider = OciProvider(new_image_cache())
    try:
        async with await provider.open(SandboxSpec(image=str(image), network=True)) as sandbox:
            shown = await sandbox.exec(f"cat /{place}/shadow /{place}; touch /tmp/{name} /{place}/{name}")
            assert b"root:" not in shown.stdout
    except SandboxError:  # runc mounts nothing over a link
        assert place in ("dev", "proc")
    finally:
        await provider.close()
    assert not [folder for folder in ("/tmp", "/root", "/dev", "/etc") if (Path(folder) / name).exists()]


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (None, "oci needs an image"),
        ("/no/such/folder", "no such image: /no/such/folder"),
        ("/", "the host's own root is not an image"),
        ("/etc/ssl", "has no /bin/sh"),
        (__file__, "cannot unpack the image"),
    ],
)
async def test_what_is_no_image_is_refused_in_one_line(image: str | None, words: str):
    async with provided("oci") as provider:
        with pytest.raises(SandboxError, match=words) as raised:
            await provider.open(SandboxSpec(image=image))
    assert "\n" not in str(raised.value)


async def test_what_docker_save_wrote_is_refused_with_the_right_command(tmp_path: Path):
    archive = tmp_path / "saved.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(_member("manifest.json"))
    async with provided("oci") as provider:
        with pytest.raises(SandboxError, match="use docker export"):
            await provider.open(SandboxSpec(image=str(archive)))


async def test_packages_of_the_host_are_refused():
    async with provided("oci") as provider:
        with pytest.raises(SandboxError, match="oci cannot add Python packages .orjson"):
            await provider.open(SandboxSpec(image=str(root_file_system()), packages=("orjson",)))


async def test_programs_reach_a_named_host_while_it_is_allowed():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, opened("oci") as sandbox:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        source = (
            "import os, urllib.request\nproxies = {'http': os.environ.get('http_proxy', '')}\n"
            "opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))\n"
            f"os.environ.pop('no_proxy', None)\nprint(opener.open('http://{host}/', timeout=30).read())\n"
        )
        await sandbox.allow_hosts([host])
        assert (await sandbox.python(source)).text == "b'hello'\n"
        await sandbox.deny_hosts()
        assert (await sandbox.python(source)).exit_code == 1


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_owner():
    script = f"""
import asyncio
from pathlib import Path
from ludus.sandbox import SandboxSpec
from ludus.sandbox.oci import OciProvider

async def main():
    provider = OciProvider(Path({str(image_cache())!r}))
    sandbox = await provider.open(SandboxSpec(image={str(root_file_system())!r}, background=True))
    await sandbox.exec("sleep 1000 > /dev/null 2>&1 &")
    print(sandbox.folder, flush=True)
    await sandbox.exec("sleep 1000", timeout=1000)

asyncio.run(main())
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    inside = [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]
    assert inside
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    until_gone(*inside)
    assert folder.exists()
    subprocess.run(
        [sys.executable, "-c", "from ludus.sandbox.oci import OciProvider; OciProvider.problem()"],
        check=True,
        timeout=300,
    )
    assert not folder.parent.exists()


@asynccontextmanager
async def opened_image(path: Path) -> AsyncIterator[Sandbox]:
    """A sandbox of an image."""
    async with provided("oci") as provider, await provider.open(SandboxSpec(image=str(path))) as sandbox:
        yield sandbox


def _pack(path: Path, mode: Any = "w", files: dict[str, bytes] | None = None, members: Sequence[Any] = ()) -> None:
    """Write the root file system of the tests as an archive, with other content for some files and more members."""
    with tarfile.open(path, mode, **({"compresslevel": 1} if mode == "w:gz" else {})) as tar:
        tar.add(root_file_system(), ".")
        for name, data in (files or {}).items():
            member = _member(f"./{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member in members:
            tar.addfile(member)


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member

"""Root file systems of images: a folder, a tar archive, or the name of an image that a container engine has.

An image is unpacked once into a cache, by a user who owns nothing else, so that nothing in an archive can reach a file
of the host. Where we are not root, a folder is used as it is. For root its files are mounted with another owner
(`shifted.py`), and only those that are not root's are copied; where the kernel cannot do that, all are.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ludus.runtime.threads import in_thread
from ludus.sandbox.bases import cache_folder
from ludus.sandbox.docker_engine import ContainerEngine
from ludus.sandbox.private_folders import temporary_name
from ludus.sandbox.protocol import SandboxError
from ludus.sandbox.shifted import Copied, is_possible, not_of_root
from ludus.sandbox.stage import CONTAINER_USER

#: The first bytes of compressed archives, and the option of tar that reads them.
_COMPRESSED = {b"\x1f\x8b": "--gzip", b"BZh": "--bzip2", b"\xfd7zXZ": "--xz", b"\x28\xb5\x2f\xfd": "--zstd"}

#: Devices cannot be made without root, and mounts hide the content of these folders anyway.
_LEFT_OUT = [f"--exclude={prefix}{name}/*" for prefix in ("./", "") for name in ("dev", "proc", "sys")]


#: How the name of an image begins that was built here.
BUILT = "built:"
_KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class UnpackedImage:
    """A root file system that containers can be made from."""

    root: Path
    below: Path | None = None  #: the folder whose files `root` adds to, if they are not copied
    env: dict[str, str] = field(default_factory=dict)  #: the environment variables that the image sets
    workdir: str = ""  #: where its commands start, if it says so
    entrypoint: tuple[str, ...] = ()  #: the program that gets the container's command as its arguments
    user: str = ""  #: whose commands they are, if it says so


class ImageStore:
    """Finds and unpacks images. An image that was found once stays the same for the life of the store."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache or _default_cache()
        self._images: dict[str, asyncio.Task[UnpackedImage]] = {}

    async def get(self, image: str) -> UnpackedImage:
        """The root file system of an image. Raises `SandboxError` in one line."""
        if image not in self._images:
            self._images[image] = asyncio.create_task(self._get(image))
        try:
            return await asyncio.shield(self._images[image])
        except Exception:
            self._images.pop(image, None)  # an engine may be started, a file may be written
            raise

    async def _get(self, image: str) -> UnpackedImage:
        unpacked: UnpackedImage | None = await in_thread(self._on_disk, Path(image))
        if unpacked is not None:
            return unpacked
        if image.startswith(BUILT):
            if (built := self.built(image)) is not None:
                return built
            raise SandboxError(f"the image {image} is not in the cache any more: run the task again, which builds it")
        if image.startswith(("/", "./", "../")):
            raise SandboxError(f"no such image: {image} is neither a folder nor a tar archive")
        return await self._from_engine(image)

    def built(self, image: str) -> UnpackedImage | None:
        """The image of a name that `add` returned, or None if it is not there any more."""
        key = image.removeprefix(BUILT)
        return self._load(key) if _KEY.fullmatch(key) and (self._cache / key).is_dir() else None

    def add(self, archive: IO[bytes], key: str, about: dict[str, Any]) -> str:
        """Unpack an archive that a builder made, and return the image's name. `about` has its `name` and settings."""
        self._unpack(archive, key, about)
        return f"{BUILT}{key}"

    def listed(self) -> list[tuple[Path, dict[str, Any]]]:
        """The unpacked images with what is known about each."""
        return [(file.parent, json.loads(file.read_text())) for file in sorted(self._cache.glob("*/image.json"))]

    def _on_disk(self, path: Path) -> UnpackedImage | None:
        if path.is_dir():
            return self._folder(path.resolve())
        return self._archive(path.resolve()) if path.is_file() else None

    def _folder(self, path: Path) -> UnpackedImage:
        if path == Path("/"):
            raise SandboxError("the host's own root is not an image: leave `image` out")
        if os.geteuid() != 0:
            _check(path, str(path))
            return UnpackedImage(path)
        mounted = is_possible(path, CONTAINER_USER)
        key = image_key("folder", str(path), fingerprint(path), "mounted" if mounted else "copied")
        if not (self._cache / key).is_dir():
            about: dict[str, Any] = {"name": str(path)}
            copied = Copied([b"."], [])
            pack = ["tar", "-C", str(path), "--one-file-system", *_LEFT_OUT, "-cf", "-", "--null"]
            if mounted:
                _check(path, str(path))
                about["below"] = str(path)
                copied = not_of_root(path)
                pack.append("--no-recursion")
            with tempfile.TemporaryFile() as names:
                names.write(b"\0".join(copied.names))
                names.seek(0)
                with subprocess.Popen(
                    [*pack, "--files-from", "-"], stdin=names, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                ) as packing:
                    assert packing.stdout is not None
                    self._unpack(packing.stdout, key, about, copied.whole)
        return self._load(key)

    def _archive(self, path: Path) -> UnpackedImage:
        about = path.stat()
        key = image_key("archive", str(path), str(about.st_size), str(about.st_mtime_ns))
        if not (self._cache / key).is_dir():
            with path.open("rb") as archive:
                self._unpack(archive, key, {"name": str(path)})
        return self._load(key)

    async def _from_engine(self, name: str) -> UnpackedImage:
        engine = await ContainerEngine.find(name)
        about = await engine.inspect(name)
        key = image_key("engine", about.id)
        if not (self._cache / key).is_dir():
            stack = contextlib.ExitStack()
            try:
                path, _ = await in_thread(stack.enter_context, temporary_name(self._cache))
                await engine.export(name, path)
                await in_thread(self._unpack_file, path, key, {"name": name, **about.settings})
            finally:
                await in_thread(stack.close)
        return self._load(key)

    def _unpack_file(self, path: Path, key: str, about: dict[str, Any]) -> None:
        with path.open("rb") as archive:
            self._unpack(archive, key, about)

    def _unpack(self, archive: IO[bytes], key: str, about: dict[str, Any], whole: Sequence[bytes] = ()) -> None:
        """Unpack under a temporary name, then rename: a folder in the cache is complete.

        In an overlay, the folders `whole` hide those of the same name below.
        """
        with temporary_name(self._cache) as (new, lock):
            root = new / "root"
            root.mkdir(parents=True)
            for folder in (new, root):
                folder.chmod(0o755)
            (new / "image.json").write_text(json.dumps(about))
            _run_tar(archive, root, about["name"], lock)
            if "below" not in about:
                _check(root, about["name"])
            for name in whole:
                os.setxattr(os.path.join(os.fsencode(root), name), b"user.overlay.opaque", b"y")
            try:
                new.rename(self._cache / key)
            except OSError:
                if not (self._cache / key).is_dir():  # else another process was faster
                    raise

    def _load(self, key: str) -> UnpackedImage:
        folder = self._cache / key
        about = json.loads((folder / "image.json").read_text())
        entrypoint = tuple(about.get("entrypoint") or ())
        below = Path(about["below"]) if "below" in about else None
        workdir, user = about.get("workdir") or "", about.get("user") or ""
        return UnpackedImage(folder / "root", below, about.get("env") or {}, workdir, entrypoint, user)


def _default_cache() -> Path:
    return cache_folder() / "images"


def _run_tar(archive: IO[bytes], root: Path, name: str, lock: int) -> None:
    """Unpack an archive with the rights of a user who owns nothing but the target."""
    command = ["tar", "--extract", "--no-same-owner", "--same-permissions", "--delay-directory-restore", *_LEFT_OUT]
    if archive.seekable():
        start = archive.read(8)
        command += [option for magic, option in _COMPRESSED.items() if start.startswith(magic)]
        os.lseek(archive.fileno(), 0, os.SEEK_SET)
    if os.geteuid() == 0:
        os.chown(root, CONTAINER_USER, CONTAINER_USER)
        command = ["setpriv", f"--reuid={CONTAINER_USER}", f"--regid={CONTAINER_USER}", "--clear-groups", *command]
    command += ["-C", str(root), "-f", "-"]
    ended = subprocess.run(command, stdin=archive, capture_output=True, check=False, pass_fds=[lock])
    if ended.returncode != 0:
        words = " ".join(ended.stderr.decode(errors="replace").split())[-200:]
        raise SandboxError(f"cannot unpack the image {name}: {words}")


def _check(root: Path, name: str) -> None:
    """Whether a folder is a root file system that programs can run in."""
    if os.path.lexists(root / "bin/sh"):
        return
    saved = os.path.lexists(root / "manifest.json") or os.path.lexists(root / "oci-layout")
    hint = "; this looks like docker save, use docker export" if saved else ""
    raise SandboxError(f"the image {name} has no /bin/sh{hint}")


def fingerprint(folder: Path) -> str:
    """A digest that changes with any file of a folder: names, sizes, modes and times."""
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for entry in sorted([*folders, *files]):
            path = os.path.join(place, entry)
            about = os.lstat(path)
            digest.update(
                f"{path}\0{about.st_size}\0{about.st_mode}\0{about.st_mtime_ns}\0".encode(errors="surrogateescape")
            )
    return digest.hexdigest()


def image_key(*parts: str) -> str:
    return hashlib.sha256("\0".join((*parts, str(os.geteuid()))).encode(errors="surrogateescape")).hexdigest()[:32]

"""Root file systems for tests, made of this machine's shell and tools with the libraries that they load."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ludus.sandbox.oci_python import INSIDE, container_python

_TOOLS = """
    sh cat chmod cp dirname echo env false head id kill ln ls mkdir mkfifo mount mv nohup ps rm setsid sleep tail tar
    test touch true unshare wc yes
""".split()


@functools.cache
def root_file_system(*more: str) -> Path:
    """A folder with a shell, the usual tools and `more`. The file /etc/image says which file system this is."""
    folder = _temporary("ludus-test-rootfs-")
    for name in ("bin", "etc", "data", "usr/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/image").write_text("made by a test\n")
    (folder / "data/file").write_text("as in the image\n")
    for tool in (*_TOOLS, *more):
        if (found := shutil.which(tool)) is not None:
            shutil.copy2(os.path.realpath(found), folder / "bin" / tool)
            _copy_libraries(found, folder)
    (folder / "usr/bin/env").symlink_to("/bin/env")
    _add_python(folder / "bin/python3")
    return folder


def _add_python(path: Path) -> None:
    """A `python3` that is the interpreter of our supervisor: the image needs none of its own."""
    command = shlex.join(container_python().command[:-4])  # without the options
    path.write_text(f'#!/bin/sh\nPYTHONHOME={INSIDE} exec {command} "$@"\n')
    path.chmod(0o755)


@functools.cache
def image_cache() -> Path:
    """Where tests unpack images."""
    return new_image_cache()


def new_image_cache() -> Path:
    """An empty cache of images, where the user of a sandbox can walk: pytest's own folders are root's alone."""
    return _temporary("ludus-test-images-")


def _temporary(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return folder


def _copy_libraries(program: str, folder: Path) -> None:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+)", listed):
        target = folder / library.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(library), target)

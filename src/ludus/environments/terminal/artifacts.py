"""What is carried from the agent's box into the judge's: declared files and folders, and nothing else.

They are taken when no process of the agent's is left, and stay with us until they are unpacked, so nothing can change
them in between. The archive is hostile: only plain files, folders and links that stay inside are taken from it.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Sequence

from ludus.environments.terminal.settings import Artifact
from ludus.sandbox import Program, Sandbox

#: Where an agent may always leave what the judge should see.
PUBLISHED = Artifact(source="/logs/artifacts")

_MOST_FILES = 50_000


async def sealed(sandbox: Sandbox, artifacts: Sequence[Artifact]) -> tuple[bytes, str]:
    """The archive of artifacts that are there, and its digest. Raises `OSError` if they cannot be read."""
    archive, most = io.BytesIO(), sandbox.spec.limits.disk_mb << 20
    with tarfile.open(fileobj=archive, mode="w") as clean:
        for artifact in artifacts:
            path = posixpath.normpath(artifact.source)
            if not (await sandbox.exec(["test", "-e", path])).ok:
                continue
            left_out = [f"--exclude={pattern}" for pattern in artifact.exclude]
            command = ("tar", "-C", "/", *left_out, "--ignore-failed-read", "-cf", "-", path.lstrip("/"))
            ended = await sandbox.run(Program(command, timeout=120.0, output_bytes=2 * most))
            if ended.output_cut or not ended.stdout:
                raise OSError(f"the artifact {path} cannot be read: {ended.last_line or ended.why}")
            _copy(ended.stdout, clean, path.lstrip("/"))
    data = archive.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def _copy(hostile: bytes, clean: tarfile.TarFile, root: str) -> None:
    """Copy what lies under a root into a clean archive: files with their modes, folders, links that stay inside."""
    try:
        with tarfile.open(fileobj=io.BytesIO(hostile)) as members:
            for number, member in enumerate(members):
                name = posixpath.normpath(member.name.lstrip("/"))
                if number >= _MOST_FILES or not _is_inside(name, root):
                    raise OSError("the agent's archive of artifacts holds other files than the artifacts")
                entry = tarfile.TarInfo(name)
                entry.mode, entry.mtime = member.mode & 0o777, member.mtime
                if member.isdir():
                    entry.type = tarfile.DIRTYPE
                    clean.addfile(entry)
                elif member.isreg() or member.islnk():
                    content = members.extractfile(member)
                    data = content.read() if content is not None else b""
                    entry.size = len(data)
                    clean.addfile(entry, io.BytesIO(data))
                elif member.issym() and _is_inside(_target(name, member.linkname), root):
                    entry.type, entry.linkname = tarfile.SYMTYPE, member.linkname
                    clean.addfile(entry)
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise OSError(f"the agent's artifacts cannot be read: {error}") from error


def _target(name: str, link: str) -> str:
    return posixpath.normpath(
        link if link.startswith("/") else posixpath.join("/", posixpath.dirname(name), link)
    ).lstrip("/")


def _is_inside(name: str, root: str) -> bool:
    return name == root or name.startswith(f"{root}/")

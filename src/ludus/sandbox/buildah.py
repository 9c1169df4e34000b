"""buildah with a store of its own in our cache, which has one user at a time.

The commands of a Dockerfile run as users who own nothing on this machine, without a network unless that is asked for.
"""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.sandbox.dockerfile import Dockerfile, ImageRecipe
from ludus.sandbox.stage import CONTAINER_USER

#: The users of a build, as this machine sees them.
_USERS = f"0:{CONTAINER_USER}:65536"
_STEP = re.compile(r'building at STEP "(.*?)": (.*)')
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_INSIDE_CERTIFICATES = "/etc/ludus-certificates.crt"
#: Settings of pip that tell where packages come from.
_PIP = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


class Buildah:
    """buildah with a store of its own, for as long as the lock on it is held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = locked(folder)

    def __enter__(self) -> Buildah:
        self._lock.__enter__()
        self._run("rm", "--all")  # of a build that was killed
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if error[0] is not None:
                self._run("rm", "--all")
            unmount(self._folder)
        finally:
            self._lock.__exit__(*error)

    def add_base(self, print: str, path: Path) -> None:
        """Make an image of a folder or an archive, unless it is there."""
        name = base_name(print)
        if self._run("images", "--quiet", name).returncode == 0:
            return
        container = self._output("from", "scratch")
        try:
            if path.is_dir():
                root = self._output("mount", container)
                left_out = [f"--exclude=./{name}/*" for name in ("dev", "proc", "sys")]
                pack = ["tar", "-C", str(path), "--one-file-system", *left_out, "-cf", "-", "."]
                with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
                    unpack = ["tar", "-C", root, "--numeric-owner", "-xpf", "-"]
                    subprocess.run(unpack, stdin=packing.stdout, check=True, capture_output=True)
                self._output("umount", container)
            else:
                self._output("add", container, str(path), "/")
            self._output("commit", "--quiet", container, name)
        except subprocess.CalledProcessError as error:
            words = _last_line(error.stderr)
            raise UserError(f"the base {path} cannot be read: {words}", "Name another one") from error
        finally:
            self._run("rm", container)

    def build(self, recipe: ImageRecipe, text: str, key: str) -> None:
        """Run a Dockerfile."""
        with tempfile.TemporaryDirectory(prefix="ludus-build-") as folder:
            context, options = Path(folder) / "context", list[str]()
            for path, data in recipe.files.items():
                target = context / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(0o755 if path in recipe.executable else 0o644)
            context.mkdir(exist_ok=True)
            file = Path(folder) / "Dockerfile"
            file.write_text(text)
            options += ["--network", "host" if recipe.network else "none"]
            for source, place in _settings(Path(folder)) if recipe.network else ():
                options += ["--volume", f"{source}:{place}:ro"]
            command = ["bud", "--isolation", "oci", "--pull-never", "--format", "docker", *options]
            command += ["--userns-uid-map", _USERS, "--userns-gid-map", _USERS]
            command += ["--tag", f"localhost/ludus/built:{key}", "--file", str(file), str(context)]
            try:
                ended = self._run(*command, seconds=recipe.seconds)
            except subprocess.TimeoutExpired as error:
                hint = "Raise environment.build_timeout_sec in task.toml"
                raise UserError(f"{recipe.place} was not built within {recipe.seconds:g} s", hint) from error
        if ended.returncode != 0:
            raise _failed(recipe, ended.stderr)

    @contextmanager
    def mounted(self, image: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The root file system of a built image, and its configuration. The image is removed at the end."""
        container = self._output("from", "--pull-never", image)
        try:
            about = json.loads(self._output("inspect", "--type", "image", image))
            yield self._output("mount", container), about["OCIv1"].get("config") or {}
        finally:
            self._run("umount", container)
            self._run("rm", container)
            self._run("rmi", image)

    def _output(self, *arguments: str) -> str:
        ended = self._run(*arguments)
        if ended.returncode != 0:
            raise UserError(f"buildah {arguments[0]} failed: {_last_line(ended.stderr)}", "Try: ludus sandbox prune")
        return ended.stdout.strip()

    def _run(self, *arguments: str, seconds: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Run a command, which ends with this process. SIGTERM lets buildah clean up."""
        places = ["--root", str(self._folder / "root"), "--runroot", str(self._folder / "run")]
        command = ["setpriv", "--pdeathsig", "TERM", "buildah", *places, *arguments]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except BaseException:
                process.terminate()
                process.communicate()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unmount(folder: Path) -> None:
    """Unmount what buildah left mounted under a folder."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((place for place in mounts if place.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", place], check=False, capture_output=True)


def base_name(print: str) -> str:
    return f"localhost/ludus/base:{print}"


def _failed(recipe: ImageRecipe, errors: str) -> UserError:
    """What a failed build says: the place in the Dockerfile, the step, and the last line that the step printed."""
    own = ("Error: ", "time=")  # of buildah itself
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith(own)]
    failing = _STEP.search(errors)
    if failing is None:
        return UserError(f"{recipe.place} cannot be built: {_last_line(errors)}", "Mend the Dockerfile")
    step = failing[1].replace('\\"', '"')
    line = Dockerfile(recipe.dockerfile).line_of(step)
    place = recipe.place if line is None else f"{recipe.place}:{line}"
    said = lines[-1] if lines else failing[2].rpartition(": ")[2]
    network = "ludus sandbox build --network, or --set resources.build_network=true"
    hint = "Mend the step" if recipe.network else f"Mend the step; if it needs the network: {network}"
    return UserError(f"{place}: the step failed: {' '.join(step.split()):.100}: {' '.join(said.split()):.200}", hint)


def _last_line(text: str | bytes | None) -> str:
    text = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    return next((" ".join(line.split())[:300] for line in reversed(text.splitlines()) if line.strip()), "no message")


def _settings(folder: Path) -> Iterator[tuple[str, str]]:
    """What a build needs of this machine to reach its registries, and where it goes: pip's and apt's settings."""
    pip, wanted = configparser.ConfigParser(interpolation=None), configparser.ConfigParser(interpolation=None)
    places = [Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"]
    try:
        pip.read(places)
    except configparser.Error:
        pass
    known = dict(pip["global"]) if pip.has_section("global") else {}
    wanted["global"] = {key: known[key] for key in _PIP if key in known and "file:" not in known[key]}
    if os.path.exists(_CERTIFICATES):
        wanted["global"]["cert"] = _INSIDE_CERTIFICATES
        yield os.path.realpath(_CERTIFICATES), _INSIDE_CERTIFICATES
    with (folder / "pip.conf").open("w") as file:
        wanted.write(file)
    yield str(folder / "pip.conf"), "/etc/pip.conf"
    if shutil.which("apt-config") is not None:
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
        lines = [line for line in dump.splitlines() if line.startswith(("Acquire::http", "Acquire::Check-Valid"))]
        (folder / "apt.conf").write_text("\n".join([*lines, ""]))
        yield str(folder / "apt.conf"), "/etc/apt/apt.conf.d/99ludus"

"""The users that a task names. A box has one user, who owns all its files; programs see the name and the HOME."""

from __future__ import annotations

from ludus import Failure
from ludus.sandbox.oci_images import UnpackedImage
from ludus.sandbox.protocol import HOME

User = str | int | None


def identity(user: User, image: UnpackedImage | None, key: str = "user") -> dict[str, str]:
    """The variables of a user of an image: HOME, USER and LOGNAME. None is the user that the image names, else ours.

    Raises `bad_row` for a name that the image's /etc/passwd lacks.
    """
    if image is None:
        return {}
    name = str(image.user if user is None else user).partition(":")[0]
    if not name:
        return {"HOME": HOME, "USER": "root", "LOGNAME": "root"}
    for line in _passwd(image):
        fields = line.split(":")
        if len(fields) >= 6 and name in (fields[0], fields[2]):
            return {"HOME": fields[5] or "/", "USER": fields[0], "LOGNAME": fields[0]}
    if name.isdigit():
        return {"HOME": "/", "USER": name, "LOGNAME": name}
    hint = f"add RUN useradd -m {name:.40} to its Dockerfile"
    raise Failure("bad_row", f"task.toml: {key} is {name:.40}, and the image has no such user: {hint}")


def _passwd(image: UnpackedImage) -> list[str]:
    for root in (image.root, image.below):
        path = root / "etc/passwd" if root is not None else None
        if path is not None and path.is_file() and not path.is_symlink():
            return path.read_text(errors="replace").splitlines()
    return []

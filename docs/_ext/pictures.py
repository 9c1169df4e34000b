"""Pictures that a page shows from outside `docs`: on a code host the link works, for the site the file is copied."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_PICTURE = re.compile(r"!\[([^\]]*)\]\((\.\./[^()\s]+)\)")


def with_pictures(text: str, page: Path, folder: Path) -> str:
    """The text of a staged page with its pictures inside `folder`. `page` is its path inside `docs`."""
    return _PICTURE.sub(lambda found: f"![{found[1]}]({_inside(found[2], page, folder)})", text)


def _inside(target: str, page: Path, folder: Path) -> str:
    path = PurePosixPath(os.path.normpath(PurePosixPath("docs", page.as_posix()).parent / target))
    if path.parts[0] == "docs":
        return target
    copy = folder / "images" / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, copy)
    return os.path.relpath(copy, (folder / page).parent)

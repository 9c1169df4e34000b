"""Links of the pages that leave the folder `docs`: on a code host they lead to files, on the site they cannot.

A link to the README of an environment leads to its card, one to a recipe of the cookbook to its page. Any other becomes
its text and the path in the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*$", re.MULTILINE | re.DOTALL)


def links_for_site(text: str, page: Path) -> str:
    """The page's text with every link that leaves `docs` replaced. `page` is its path inside `docs`."""
    parts, last = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_replaced(text[last : fence.start()], page), fence[0]]
        last = fence.end()
    return "".join([*parts, _replaced(text[last:], page)])


def _replaced(text: str, page: Path) -> str:
    return _LINK.sub(lambda found: _link(found[1], found[2], page), text)


def _link(words: str, target: str, page: Path) -> str:
    path = target.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path) or path.startswith("/"):
        return f"[{words}]({target})"
    inside = PurePosixPath(os.path.normpath(PurePosixPath("docs", page.as_posix()).parent / path))
    if inside.parts[:1] == ("docs",):
        return f"[{words}]({target})"
    found = _page_of(inside)
    if found is not None:
        return f"[{words}]({os.path.relpath(found, PurePosixPath(page.as_posix()).parent)})"
    return f"{words} (`{inside}`)" if str(inside) not in words else words


def _page_of(path: PurePosixPath) -> str | None:
    """The page of the site that shows a file or folder of the repository."""
    match path.parts:
        case ("src", "ludus", "environments", name, *_) if (ROOT / "src/ludus/environments" / name).is_dir():
            return f"environments/{name}.md"
        case ("src", "ludus", "cookbook", name, *_) if (ROOT / "docs/cookbook" / f"{name}.md").is_file():
            return f"cookbook/{name}.md"
        case ("CONTRIBUTING.md",):
            return "contribute/index.md"
        case ("README.md",):
            return "index.md"
    return None

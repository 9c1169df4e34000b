"""Files that pages include: their text is put into the staged page, so that the Markdown twin holds it too."""

from __future__ import annotations

import re
from pathlib import Path

from page_text import block

_INCLUDE = re.compile(r"^```\{(include|literalinclude)\} (\S+)\n((?::.*\n)*)```$", re.MULTILINE)


def with_included(text: str, folder: Path) -> str:
    """The text of a page in `folder` with each `include` and `literalinclude` replaced by what it names."""
    return _INCLUDE.sub(lambda found: _content(found[1], folder / found[2], found[3]), text)


def _content(kind: str, path: Path, lines: str) -> str:
    options = {key: value.strip().strip('"') for key, value in re.findall(r"^:([\w-]+):(.*)$", lines, re.MULTILINE)}
    text = path.read_text()
    if "start-after" in options:
        text = text.partition(options["start-after"])[2]
    if "end-before" in options:
        text = text.partition(options["end-before"])[0]
    return block(text, options.get("language", "text")) if kind == "literalinclude" else text.strip("\n")

"""Search/replace blocks: found in an answer, and applied to the files that the model was shown.

```python
### shop/cart.py
<<<<<<< SEARCH
old lines
=======
new lines
>>>>>>> REPLACE
```
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

_FENCED = re.compile(r"^```[^\n`]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_SEARCH, _MIDDLE, _REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
_OPENING, _CLOSING = "<solution>", "</solution>"


class BadAnswer(ValueError):
    """An answer that holds no usable edit. The whole answer is worth nothing then."""


@dataclass(frozen=True)
class Edit:
    """One block: lines to find in a file, and what replaces them."""

    path: str
    search: str
    replace: str


def after_thinking(text: str) -> str:
    """The text after the last end of a thought."""
    return text.rpartition("</think>")[2]


def edits_of(text: str, *, relaxed: bool = False) -> list[Edit]:
    """The edits of an answer. Raises `BadAnswer` if the form is wrong."""
    answer = after_thinking(text)
    if not relaxed:
        _, opening, rest = answer.rpartition(_OPENING)
        answer, closing, _ = rest.partition(_CLOSING)
        if not opening or not closing:
            raise BadAnswer(f"the answer is not between {_OPENING} and {_CLOSING}")
    edits = [edit for block in _FENCED.findall(answer) for edit in _edits_of_block(block)]
    if not edits:
        raise BadAnswer("the answer has no search/replace block")
    return edits


def _edits_of_block(block: str) -> list[Edit]:
    """The edits of one fenced block: a path, and one or more pairs of search and replace."""
    path, part, edits = None, None, list[Edit]()
    lines: dict[str, list[str]] = {}
    for line in block.split("\n"):
        mark = line.rstrip()
        if part is None and mark.startswith("### "):
            path = mark[4:].strip()
        elif part is None and mark == _SEARCH:
            part, lines = "search", {"search": [], "replace": []}
        elif part == "search" and mark == _MIDDLE:
            part = "replace"
        elif part == "replace" and mark == _REPLACE:
            if path is None:
                raise BadAnswer("a search/replace block names no file")
            edits.append(Edit(path, *(_text(lines[name]) for name in ("search", "replace"))))
            part = None
        elif part is not None:
            lines[part].append(line)
    if part is not None:
        raise BadAnswer("a search/replace block does not end")
    return edits


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def applied(files: Mapping[str, str], edits: list[Edit]) -> dict[str, str]:
    """The files after the edits. Every edit must fit the file as the model was shown it. Raises `BadAnswer`."""
    places: dict[str, list[tuple[int, Edit]]] = defaultdict(list)
    for edit in edits:
        if edit.path not in files:
            raise BadAnswer(f"an edit names a file that was not shown: {edit.path:.80}")
        if edit.search == edit.replace:
            raise BadAnswer(f"an edit of {edit.path:.80} changes nothing")
        places[edit.path].append((_place(_ended(files[edit.path]), edit), edit))
    result = dict(files)
    for path, edits_here in places.items():
        text, end = _ended(files[path]), len(files[path]) + 1
        for at, edit in sorted(edits_here, key=lambda pair: pair[0], reverse=True):
            if at + len(edit.search) > end:
                raise BadAnswer(f"two edits of {path:.80} overlap")
            text, end = text[:at] + edit.replace + text[at + len(edit.search) :], at
        result[path] = text
    return result


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _place(text: str, edit: Edit) -> int:
    """Where the lines to find stand first. They begin at the start of a line."""
    if text.startswith(edit.search):
        return 0
    at = text.find(f"\n{edit.search}")
    if at < 0 or not edit.search:
        raise BadAnswer(f"the lines to find do not stand in {edit.path:.80}")
    return at + 1


def script_of(text: str) -> str:
    """The last block of Python. Raises `BadAnswer` if there is none."""
    blocks = _PYTHON.findall(after_thinking(text))
    if not blocks:
        raise BadAnswer("the answer has no block of Python")
    return str(blocks[-1])

"""Finding the program in a model's text: the last fenced block.

A fence is a line that begins with three backticks. Backticks inside a line are text. Any string is accepted, and the
time is in proportion to its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"([ \t]*)```+[ \t]*([\w+#.-]*)[ \t]*(.*)")
_LANGUAGES = {
    *("python", "python3", "py", "cpp", "c++", "cc", "c", "javascript", "js", "node", "typescript", "ts", "java"),
    *("rust", "go", "text", "bash", "sh", "json", "sql", "output"),
}
_CODE = re.compile(r"[=(]|import |from ")


class CodeBlock(NamedTuple):
    """A fenced block: its text, and the text around it."""

    code: str
    around: str


def last_block(text: str) -> CodeBlock | None:
    """The last fenced block that is closed; None without one.

    Code that follows the language on the fence's own line is part of a Python program. A fence that names a language
    inside a block begins the block anew.

        last_block("So:\\n```python\\nprint(1)\\n```")   # CodeBlock('print(1)', 'So:\\n')
    """
    lines = text.split("\n")
    block: tuple[int, int, list[str]] | None = None
    start, indent, first = -1, "", list[str]()
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        language, rest = fence[2].lower(), fence[3].strip()
        if start >= 0 and language not in _LANGUAGES:
            block = (start, number, [*first, *(inner.removeprefix(indent) for inner in lines[start + 1 : number])])
            start = -1
        elif "```" not in rest:
            start, indent = number, fence[1]
            first = [rest] if language.startswith("py") and _CODE.search(rest) else []
    if block is None:
        return None
    start, end, code = block
    return CodeBlock("\n".join(code), "\n".join([*lines[:start], *lines[end + 1 :]]))

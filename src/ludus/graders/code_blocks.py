"""Finding the program in a model's text: the last fenced block.

A fence is a line that begins with three backticks. Text may stand before it if the fence ends the line: `So: ```python`
begins a block, and `print(1)```` ends one. Other backticks inside a line are text. Any string is accepted, and the time
is in proportion to its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"([ \t]*)```+[ \t]*([\w+#.-]*)[ \t]*(.*)")
_ENDS_LINE = re.compile(r"([^`]*[^`\s])[ \t]*```+[ \t]*([\w+#.-]*)[ \t]*")
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
    block: tuple[int, int, list[str], str] | None = None
    start, indent, first, before = -1, "", list[str](), ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            behind = _ENDS_LINE.fullmatch(line) if "```" in line else None
            if behind is not None and start < 0 and behind[2].lower() in _LANGUAGES:
                start, indent, first, before = number, "", [], behind[1]
            elif behind is not None and start >= 0 and not behind[2]:
                code = [*first, *(inner.removeprefix(indent) for inner in lines[start + 1 : number])]
                block = (start, number, [*code, behind[1].removeprefix(indent)], before)
                start = -1
            continue
        language, rest = fence[2].lower(), fence[3].strip()
        if start >= 0 and language not in _LANGUAGES:
            code = [*first, *(inner.removeprefix(indent) for inner in lines[start + 1 : number])]
            block = (start, number, code, before)
            start = -1
        elif "```" not in rest:
            start, indent, before = number, fence[1], ""
            first = [rest] if language.startswith("py") and _CODE.search(rest) else []
    if block is None:
        return None
    start, end, code, before = block
    around = [*lines[:start], *([before] if before else []), *lines[end + 1 :]]
    return CodeBlock("\n".join(code), "\n".join(around))

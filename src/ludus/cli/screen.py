"""Printing trajectories in colour, with untrusted text made safe.

The text of a model or a tool may hold escape codes, bidirectional control characters or markup. `clean` replaces the
first two with visible symbols; rich's `Text` prints markup as it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ludus.collection.table import tool_errors, with_place

if TYPE_CHECKING:  # its import takes a twentieth of the time of `ludus show RUN`
    from ludus.response import Item

#: Control characters except tab and newline, and the invisible characters that reorder text.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ROLE_STYLES = {"user": "bold blue", "system": "bold magenta", "developer": "bold magenta", "assistant": "bold green"}
_ONE_LINE = 72
_MAX_WIDTH = 1000


def say(message: str) -> None:
    """Print a line on stderr."""
    print(clean(message), file=sys.stderr, flush=True)


def stdout_console() -> Console:
    """A console on stdout. A character that the encoding lacks becomes a question mark instead of an error."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)


def facts_table(title: str, facts: Iterable[tuple[str, object]]) -> Table:
    """A table of names and values, with separators in whole numbers."""
    table = Table(title=text(title), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(text(name), text(f"{value:,}" if isinstance(value, int) else value))
    return table


def plain_table(*columns: str) -> Table:
    """A table without lines."""
    return Table(*(Column(name, overflow="fold") for name in columns), box=None, pad_edge=False)


def print_unbroken(console: Console, table: Table) -> None:
    """Print a table without breaking its cells: on a narrow terminal, lines run over the edge."""
    console.width = max(console.width, _widest(console, table))
    console.print(table)


def fits(console: Console, table: Table) -> bool:
    """Whether the terminal is wide enough for a table without broken cells."""
    return _widest(console, table) <= console.width


def _widest(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(max_width=_MAX_WIDTH)).maximum


@contextlib.contextmanager
def prints_to_stderr(wanted: bool) -> Iterator[None]:
    """Redirect print() in an environment's code to stderr, so that stdout holds only JSON."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
        yield


def clean(text: str) -> str:
    """Replace control characters with visible symbols: an escape code reads `␛[31m`."""
    return _CONTROL.sub(lambda match: _symbol(ord(match[0])), text.replace("\r\n", "\n"))


def text(value: object, style: str = "") -> Text:
    """Any value as text that is safe to print."""
    return Text(clean(str(value)), style=style)


def one_line(value: str) -> str:
    """The first 1,000 characters as one clean line."""
    return " ".join(clean(value[:1000]).split())


def safe_json(value: Any, indent: int | None = 2) -> str:
    """JSON that is safe to print and parses back to the same values.

    Control characters, and characters that stdout's encoding may lack, become \\u escapes. NaN and the infinities
    become null, as in the files.
    """
    unicode = str(getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    try:
        written = json.dumps(value, ensure_ascii=not unicode, indent=indent, allow_nan=False)
    except ValueError:
        written = json.dumps(_finite(value), ensure_ascii=not unicode, indent=indent)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


def pretty(value: Any) -> str:
    """Format JSON, or text that holds JSON: short on one line, long indented. Other text stays as it is."""
    if isinstance(value, str):
        if not value.lstrip().startswith(("{", "[")):
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    short = json.dumps(value, ensure_ascii=False, default=str)
    return short if len(short) <= _ONE_LINE else json.dumps(value, ensure_ascii=False, default=str, indent=2)


def show_item(console: Console, item: Item) -> None:
    """Print one item of a trajectory: a title, then its content."""
    title, style, body, body_style = _described(item)
    emit(console, text(title, style))
    if body:
        show_block(console, text(body, body_style))


def emit(console: Console, line: Text) -> None:
    """Print a text, wrapped on a terminal and unwrapped in a pipe."""
    console.print(line, soft_wrap=not console.is_terminal)


def show_block(console: Console, body: Text) -> None:
    """Print a text indented."""
    body.expand_tabs(8)
    lines = (
        body.wrap(console, max(console.width - 2, 20)) if console.is_terminal else body.split("\n", allow_blank=True)
    )
    indented = (Text("  ").append_text(line) if line else line for line in lines)
    console.print(Text("\n").join(indented), soft_wrap=True)


def show_pairs(console: Console, title: str, pairs: dict[str, Any]) -> None:
    """Print named values under a title; nothing if there are none."""
    if not pairs:
        return
    emit(console, text(title, "bold"))
    width = min(max(len(name) for name in pairs), 24)
    for name, value in pairs.items():
        line = Text().append_text(text(f"{name:<{width}}  ", "dim"))
        show_block(console, line.append_text(text(value if isinstance(value, str) else pretty(value))))


def show_verdict(console: Console, row: dict[str, Any]) -> None:
    """Print a rollout's reward and the verdict's values, or the stage and cause of its failure."""
    outcome = str(row.get("outcome") or "verified")
    if outcome == "ended_early":
        emit(console, text(f"ended early: {row.get('cause')}", "dim"))
    elif outcome == "failed":
        emit(console, text(f"failed in {row.get('stage')}: {row.get('kind')}", "bold red"))
        show_block(console, text(with_place(row.get("cause"), row.get("where"))))
    else:
        emit(console, text(f"{outcome}, reward {number(row.get('reward'))}", reward_style(row.get("reward"))))
        named = row.get("verdict_fields")
        names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        values = {name: row[name] for name in names if name in row}
        extra = {key: row[key] for key in ("mask", "reward_components", "turn_rewards") if row.get(key)}
        for name, value in {**values, **extra}.items():
            show_block(console, text(f"{name}: {value if isinstance(value, str) else pretty(value)}"))
    if (why := _prompt_too_long(row.get("model_calls"))) is not None:
        show_block(console, text(f"the prompt is too long: {one_line(why)}", "yellow"))
    for error in tool_errors(row.get("tool_errors")):
        show_block(console, text(f"tool errors: {one_line(error)}", "red"))
    if row.get("stop_reason"):
        show_block(console, text(f"stopped: {row['stop_reason']}", "dim"))


def _prompt_too_long(calls: Any) -> str | None:
    """What the model said about a prompt beyond its context, in the record of the last call."""
    last = calls[-1] if isinstance(calls, list) and calls else None
    why = last.get("prompt_too_long") if isinstance(last, dict) else None
    return why if isinstance(why, str) else None


def reward_style(reward: Any) -> str:
    """Green for 1 and more, red for 0 and less, yellow between."""
    if not isinstance(reward, (int, float)):
        return "bold"
    return "bold green" if reward >= 1 else "bold red" if reward <= 0 else "bold yellow"


def whole(count: int | None) -> str:
    """A count with separators; a dash if it is unknown."""
    return f"{count:,}" if count is not None else "-"


def number(value: Any) -> str:
    """Format a reward; a dash if there is none."""
    return f"{value:.4g}" if isinstance(value, (int, float)) else "-"


def content_text(content: Any) -> str:
    """The content of a message or a tool output as text; a part that is not text becomes `[TYPE]`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else pretty(content)
    return "".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if isinstance(part, dict):
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                return str(part[key])
        return f"[{part.get('type', 'part')}]"
    return str(part)


def _described(item: Item) -> tuple[str, str, str, str]:
    """An item's title and body, each with its style."""
    kind = item.get("type") or "message"
    if kind == "message":
        role = str(item.get("role") or "assistant")
        return role, _ROLE_STYLES.get(role, "bold"), content_text(item.get("content")), ""
    if kind == "reasoning":
        parts = [part for key in ("summary", "content") if isinstance(item.get(key), list) for part in item[key]]
        hidden = "(encrypted)" if item.get("encrypted_content") else ""
        return "reasoning", "dim italic", "\n".join(map(_part_text, parts)) or hidden, "dim italic"
    if kind == "function_call":
        return f"call {item.get('name')}", "bold yellow", pretty(item.get("arguments") or "{}"), "yellow"
    if kind == "function_call_output":
        output = item.get("output")
        return "output", "bold cyan", pretty(output) if isinstance(output, str) else content_text(output), "cyan"
    return str(kind), "bold", pretty({key: value for key, value in item.items() if key != "type"}), ""


def _finite(value: Any) -> Any:
    """A copy with None for NaN and the infinities."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _symbol(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"

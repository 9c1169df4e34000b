"""Text that others wrote, on a terminal: every item of a trajectory in its own colour, and none of it able to act.

What a model or a tool said may hold escape codes, characters that turn the reading direction around, or markup. All of
it goes through `clean` and is printed as `Text`, which the terminal shows and never obeys.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any

from rich.console import Console
from rich.text import Text

from ludus.response import Item

#: Control characters (tab and newline are harmless), and the invisible ones that reorder what stands around them.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ROLE_STYLES = {"user": "bold blue", "system": "bold magenta", "developer": "bold magenta", "assistant": "bold green"}
_ONE_LINE = 72


def screen() -> Console:
    """Standard output. A character that its encoding lacks becomes a question mark instead of a crash."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)


@contextlib.contextmanager
def prints_aside(wanted: bool) -> Iterator[None]:
    """While it holds, what an environment prints goes to stderr, where stdout is wanted for JSON alone."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
        yield


def clean(text: str) -> str:
    """Text in which every character is only a picture of itself: an escape code reads `␛[31m`."""
    return _ACTING.sub(lambda found: _picture(ord(found[0])), text.replace("\r\n", "\n"))


def text(value: object, style: str = "") -> Text:
    """Anything as text that is safe to print."""
    return Text(clean(str(value)), style=style)


def one_line(value: str) -> str:
    """The beginning of a text as one clean line; a table cuts it to its width."""
    return " ".join(clean(value[:1000]).split())


def safe_json(value: Any, indent: int | None = 2) -> str:
    """JSON that a terminal does not obey either, with every value intact.

    What acts is written as an escape, and so is what standard output may lack a character for. Numbers that JSON has
    no words for (NaN, the infinities) are null, as they are in the files.
    """
    unicode = str(getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    try:
        written = json.dumps(value, ensure_ascii=not unicode, indent=indent, allow_nan=False)
    except ValueError:
        written = json.dumps(_finite(value), ensure_ascii=not unicode, indent=indent)
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def pretty(value: Any) -> str:
    """JSON (or a text that holds JSON) on one line if it is short, indented if it is not; other text as it is."""
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
    """Print one item of a trajectory: who or what it is, then what it holds."""
    title, style, body, body_style = _described(item)
    emit(console, text(title, style))
    if body:
        show_block(console, text(body, body_style))


def emit(console: Console, line: Text) -> None:
    """Print a text, wrapped where a person reads it and left as it is where a program does."""
    console.print(line, soft_wrap=not console.is_terminal)


def show_block(console: Console, body: Text) -> None:
    """Print a text under its title, indented."""
    body.expand_tabs(8)
    lines = (
        body.wrap(console, max(console.width - 2, 20)) if console.is_terminal else body.split("\n", allow_blank=True)
    )
    indented = (Text("  ").append_text(line) if line else line for line in lines)
    console.print(Text("\n").join(indented), soft_wrap=True)


def show_pairs(console: Console, title: str, pairs: dict[str, Any]) -> None:
    """Print named values under a title; nothing when there are none."""
    if not pairs:
        return
    emit(console, text(title, "bold"))
    width = min(max(len(name) for name in pairs), 24)
    for name, value in pairs.items():
        line = Text().append_text(text(f"{name:<{width}}  ", "dim"))
        show_block(console, line.append_text(text(value if isinstance(value, str) else pretty(value))))


def show_verdict(console: Console, row: dict[str, Any]) -> None:
    """Print how a rollout ended: its reward and the verdict's values, or the stage and cause of its failure."""
    outcome = str(row.get("outcome") or "verified")
    if outcome == "failed":
        emit(console, text(f"failed in {row.get('stage')}: {row.get('kind')}", "bold red"))
        where = f" ({row['where']})" if row.get("where") else ""
        show_block(console, text(f"{row.get('cause')}{where}"))
    else:
        emit(console, text(f"{outcome}, reward {number(row.get('reward'))}", reward_style(row.get("reward"))))
        named = row.get("verdict_fields")
        names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        values = {name: row[name] for name in names if name in row}
        extra = {key: row[key] for key in ("mask", "reward_components", "turn_rewards") if row.get(key)}
        for name, value in {**values, **extra}.items():
            show_block(console, text(f"{name}: {value if isinstance(value, str) else pretty(value)}"))
    if row.get("stop_reason"):
        show_block(console, text(f"stopped: {row['stop_reason']}", "dim"))


def reward_style(reward: Any) -> str:
    """Green for a full reward, red for none, yellow between."""
    if not isinstance(reward, (int, float)):
        return "bold"
    return "bold green" if reward >= 1 else "bold red" if reward <= 0 else "bold yellow"


def number(value: Any) -> str:
    """A reward as short as it can be said; a dash where there is none."""
    return f"{value:.4g}" if isinstance(value, (int, float)) else "-"


def content_text(content: Any) -> str:
    """What a message or a tool output holds, as text; parts that are no text are named."""
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
    """A value with null for every number that is none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"

"""Solvers that decide all actions from the page as it was first shown: `plan(view)` returns them in order."""

from __future__ import annotations

import re

from ludus_lab.browser.view import LOOK, Action, View, click, drag, fill, ordinal, press, submit


def _chosen(view: View) -> list[str]:
    match = re.search(r"Select (.*?)(?: from the (?:scroll )?list)? and click Submit", view.query)
    assert match is not None
    return [] if match[1] == "nothing" else match[1].split(", ")


def click_quoted(view: View) -> list[Action]:
    return [click(view.named(view.quoted[0], "button", "link"))]


def sequence(view: View) -> list[Action]:
    waits = [LOOK] * (int(match[1]) - 1) if (match := re.search(r"wait (\d+) second", view.query)) else []
    one, *two = (click(view.named(word, "button")) for word in re.findall(r"\b(ONE|TWO)\b", view.query))
    return [one, *waits, *two]


def check(view: View) -> list[Action]:
    boxes = view.all("checkbox", "radio")
    return [*(click(box) for box in boxes if box.name in _chosen(view)), submit(view)]


def choose(view: View) -> list[Action]:
    return [fill(view.all("combobox", "listbox")[0], ", ".join(_chosen(view))), submit(view)]


def type_quoted(view: View) -> list[Action]:
    fields, text = view.all("textbox"), view.quoted[0]
    changed = {"lower": text.lower(), "upper": text.upper()}
    text = next((value for case, value in changed.items() if f"all {case} case" in view.query), text)
    return [*(fill(field, text) for field in fields), submit(view)]


def log_in(view: View) -> list[Action]:
    return [*(fill(field, text) for field, text in zip(view.all("textbox"), view.quoted, strict=True)),
            click(view.named("Login", "button"))]  # fmt: skip


def date(view: View) -> list[Action]:
    month, day, year = re.findall(r"\d+", view.query)[:3]
    return [fill(view.all("textbox")[0], f"{year}-{month}-{day}"), submit(view)]


def time(view: View) -> list[Action]:
    match = re.search(r"(\d+):(\d+) (AM|PM)", view.query)
    assert match is not None
    hour = int(match[1]) % 12 + 12 * (match[3] == "PM")
    return [fill(view.all("textbox")[0], f"{hour:02}:{match[2]}"), submit(view)]


def word(view: View) -> list[Action]:
    words = view.all("paragraph")[0].text.split()
    return [fill(view.all("textbox")[0], words[ordinal(view.query)].strip(".,")), submit(view)]


def table_value(view: View) -> list[Action]:
    match = re.search(r"Enter the value of (.*?) into", view.query)
    assert match is not None
    return [fill(view.all("textbox")[0], _cells(view)[match[1]]), submit(view)]


def table_values(view: View) -> list[Action]:
    cells = _cells(view)
    labels = [node.text.rstrip(":") for node in view.now if node.text.endswith(":")]
    values = [fill(field, cells[label]) for field, label in zip(view.all("textbox"), labels, strict=True)]
    return [*values, submit(view)]


def _cells(view: View) -> dict[str, str]:
    cells = [node.name for node in view.all("cell")]
    return dict(zip(cells[::2], cells[1::2], strict=True))


def arithmetic(view: View) -> list[Action]:
    numbers = next(match for node in view.now if (match := re.fullmatch(r"(-?\d+) ([x+-]) (-?\d+) =", node.text)))
    left, right = int(numbers[1]), int(numbers[3])
    value = {"x": left * right, "+": left + right, "-": left - right}[numbers[2]]
    return [fill(view.all("textbox")[0], str(value)), submit(view)]


def algebra(view: View) -> list[Action]:
    pattern = re.compile(r"(x|-?\d+) ([+-]) (x|-?\d+) = (-?\d+)")
    left, sign, right, total = next(match for node in view.now if (match := pattern.fullmatch(node.text))).groups()
    if right == "x":
        value = int(total) - int(left) if sign == "+" else int(left) - int(total)
    else:
        value = int(total) - int(right) if sign == "+" else int(total) + int(right)
    return [fill(view.all("textbox")[0], str(value)), submit(view)]


def letters(view: View) -> list[Action]:
    letters = [node.text for node in view.now[2:] if len(node.text) == 1]
    return [fill(view.all("textbox")[0], "".join(letters)), submit(view)]


def last_word(view: View) -> list[Action]:
    source, target = view.all("textbox")
    return [fill(target, source.text.split()[-1].strip(".,")), submit(view)]


def spin(view: View) -> list[Action]:
    match = re.search(r"Select (-?\d+)", view.query)
    assert match is not None
    key = press("ArrowUp" if int(match[1]) > 0 else "ArrowDown")
    return [click(view.all("spinbutton")[0]), *[key] * abs(int(match[1])), submit(view)]


def two_fields(view: View) -> list[Action]:
    boxes, fields = re.findall(r"\d+(?:st|nd|rd|th)", view.query)
    chosen = view.all("radio", "checkbox")[ordinal(boxes)]
    return [click(chosen), fill(view.all("textbox")[ordinal(fields)], view.quoted[0]), submit(view)]


def movies(view: View) -> list[Action]:
    # The order of the words in the instruction differs; a genre is the word before "movies".
    query = view.query
    genre = re.search(r"([\w-]+) movies", query)
    director = re.search(r"(?:directed by|by) (\w+)", query)
    year = re.search(r"\d{4}", query)
    assert genre
    assert director
    assert year
    values = {"Director": director[1], "Year": year[0], "Genre": genre[1]}
    labels = [node.name for node in view.all("rowheader") if node.name in values]
    fills = [fill(field, values[label]) for field, label in zip(view.all("textbox"), labels, strict=True)]
    return [*fills, submit(view)]


def focus(view: View) -> list[Action]:
    fields = view.all("textbox")
    return [click(fields[ordinal(view.query)] if len(fields) > 1 else fields[0])]


def ascending(view: View) -> list[Action]:
    numbers = [node for node in view.all("generic") if re.fullmatch(r"\d+", node.text)]
    points = [node.middle for node in sorted(numbers, key=lambda node: int(node.text))]  # the page hides the others
    return [{"call": "click_at", "arguments": {"x": x, "y": y}} for x, y in points]


def parity(view: View) -> list[Action]:
    buttons, numbers = view.all("button"), [int(n.text) for n in view.now if re.fullmatch(r"-?\d+", n.text)]
    pairs = zip(buttons[0:-1:2], buttons[1:-1:2], numbers, strict=True)
    return [*(click(odd if number % 2 else even) for odd, even, number in pairs), submit(view)]


def ticket(view: View) -> list[Action]:
    buttons = view.all("button")
    minutes = [60 * int(m[1]) + int(m[2]) for n in view.now if (m := re.fullmatch(r"(\d+)h (\d+)m", n.text))]
    prices = [int(button.name.partition("$")[2]) for button in buttons]
    values = minutes if "duration" in view.query else prices
    best = (min if re.search("shortest|cheapest|lowest", view.query) else max)(values)
    return [click(buttons[values.index(best)])]


def greatest(view: View) -> list[Action]:
    cards = [node for node in view.all("generic") if re.fullmatch(r"-?\d+", node.text)]
    return [click(max(cards, key=lambda node: int(node.text))), submit(view)]


def into_box(view: View) -> list[Action]:
    small, large = view.named("s"), view.named("L")
    return [drag(small.middle, large.middle), submit(view)]


def highlight(view: View) -> list[Action]:
    paragraphs = view.all("paragraph") or [view.all("generic")[-1]]
    paragraph = paragraphs[ordinal(view.query)] if len(paragraphs) > 1 else paragraphs[0]
    left, top, width, height = paragraph.box
    end = (min(159, left + width), top + height - 2)
    return [drag((left, top + 2), end), submit(view)]


def narrower(view: View) -> list[Action]:
    left, top, width, height = view.all("textbox")[0].box
    corner = (left + width - 3, top + height - 3)
    by = 15 * (1 if "larger" in view.query or "greater" in view.query or "bigger" in view.query else -1)
    end = (corner[0] + by, corner[1]) if "width" in view.query else (corner[0], corner[1] + by)
    return [drag(corner, end), submit(view)]

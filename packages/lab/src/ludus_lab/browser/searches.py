"""Solvers that look at the page again after each action: `search(view)` returns the next action, or None at the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from ludus_lab.browser.tree import Node
from ludus_lab.browser.view import LOOK, Action, View, click, drag, fill, ordinal, submit


def sort(view: View) -> Action | None:
    """Move the first number that is out of place to its place, one drag at a time."""
    rows = [node for node in view.all("generic") if re.fullmatch(r"-?\d+", node.text)]
    numbers = [int(row.text) for row in rows]
    for place, number in enumerate(sorted(numbers)):
        if numbers[place] != number:
            (x, y), (left, top, _, _) = rows[numbers.index(number)].middle, rows[place].box
            return drag((x, y), (left + 10, top - 2))
    return submit(view)


def opened(*roles: str) -> Callable[[View], Action | None]:
    """Open the sections or tabs in turn, until the link of the instruction is shown."""

    def solve(view: View) -> Action | None:
        wanted = view.quoted[0]
        for node in view.all("link"):
            if node.label == wanted:
                return click(node)
        doors = view.at_first(*roles)
        return click(doors[view.step]) if view.step < len(doors) else None

    return solve


def links(view: View) -> Action | None:
    wanted = view.quoted[0]
    shown = [node for node in view.all("link") if node.label == wanted and "#" not in wanted]
    tabs = [node for node in view.at_first("link") if re.fullmatch(r"(Tab #)?\d+", node.label)]
    if shown:
        return click(shown[0])
    return click(tabs[view.step]) if view.step < len(tabs) else None


def collapsed(view: View) -> Action | None:
    buttons = [node for node in view.all("button") if node.label == "Submit"]
    return click(view.all("tab")[0]) if view.step == 0 else click(buttons[0])


def guess(view: View) -> Action | None:
    """Try the numbers in turn: the page counts no guesses."""
    number, is_typed = divmod(view.step, 2)
    return submit(view) if is_typed else fill(view.all("spinbutton")[0], str(number))


def generated(view: View) -> Action | None:
    shown = next((int(node.text) for node in view.now if re.fullmatch(r"\d+", node.text)), None)
    match = re.search(r"(less than|greater than|even|odd)(?: number)?(?: (\d+))?", view.query)
    assert match is not None
    tests: dict[str, Callable[[int], bool]] = {
        "less than": lambda value: value < int(match[2]),
        "greater than": lambda value: value > int(match[2]),
        "even": lambda value: value % 2 == 0,
        "odd": lambda value: value % 2 == 1,
    }
    if shown is not None and tests[match[1]](shown):
        return submit(view)
    return click(view.named("Generate", "button"))


def contact(view: View) -> Action | None:
    match = re.search(r"Find (\w+) in the contact book and click on their (.*)\.", view.query)
    assert match is not None
    if view.all("heading")[0].label == match[1]:
        labels = [node for node in view.now if node.role in ("text", "generic")]
        for before, after in pairwise(labels):
            if before.role == "text" and match[2].split()[0] in before.text.casefold() and after.ref:
                return click(after)
    return click(view.named(">", "link"))


def folder(view: View) -> Action | None:
    names = [node for node in view.all("generic") if node.text == view.quoted[0]]
    if names:
        return click(names[0])
    closed = [node for node in view.all("img") if "expandable-hitarea" in node.name.split()]
    return click(closed[0]) if closed else None


def stock(view: View) -> Action | None:
    match = re.search(r"less than \$([\d.]+\d)", view.query)
    assert match is not None
    price = next(float(node.text.partition("$")[2]) for node in view.now if node.text.startswith("Stock price"))
    return click(view.named("Buy", "button")) if price <= float(match[1]) else LOOK


def email(view: View) -> Action | None:
    match = re.search(r"Find the email by (\w+) and (?:click the (star|trash) icon|(reply)|(forward))", view.query)
    assert match is not None
    icon = match[2]
    if icon is not None:
        top = view.named(match[1]).box[1]
        icons = [node for node in view.all("img") if icon in node.name and node.box[1] >= top - 2]
        return click(icons[0]) if view.step == 0 else None
    if view.step == 0:
        return click(view.named(match[1]))
    word = "reply" if match[3] else "forward"
    if view.step == 1:
        return click(_with_word(view, word))
    if view.step == 2:
        text = view.quoted[-1] if match[3] else view.query.rpartition(" to ")[2].rstrip(".")
        fields = view.all("textbox")
        return fill(fields[-1] if match[3] else fields[0], text)
    return click(_with_word(view, "send"))


def _with_word(view: View, word: str) -> Node:
    shown = [node for node in view.all("img", "generic") if word in node.label.casefold()]
    return next(node for node in shown if node.label != view.query)


def social(view: View) -> Action | None:
    match = re.search(r'"(.*?)" button', view.query)
    user, word = re.search(r"@\w+", view.query), match and match[1].casefold().split()[0]
    assert user
    assert word
    count = re.search(r"on (\d+) posts?", view.query)
    tops = [node.box[1] for node in view.first if user[0] in node.text.split() or node.text.endswith(user[0])][1:]
    icons = [node for node in view.at_first("img") if word in node.name.split()]
    chosen = [min((i for i in icons if i.box[1] > top), key=lambda i: i.box[1]) for top in tops]
    wanted = chosen[: int(count[1])] if count else chosen
    if view.step < len(wanted):
        return click(wanted[view.step])
    return submit(view) if "Submit" in view.query else None


def day(view: View) -> Action | None:
    month, day, _ = (int(part) for part in re.findall(r"\d+", view.query)[:3])
    if view.step == 0:
        return click(view.all("textbox")[0])
    titles = " ".join(node.label for node in view.now)
    shown = next((number for number, name in enumerate(MONTHS, start=1) if name in titles), None)
    if shown is None:
        return submit(view)
    if shown == month:
        return click(view.named(str(day), "link"))
    return click(view.named("Prev" if shown > month else "Next", "link", "generic"))


MONTHS = "January February March April May June July August September October November December".split()


def searched(view: View) -> Action | None:
    if view.step == 0:
        return fill(view.all("textbox")[0], view.quoted[0])
    if view.step == 1:
        return click(view.named("Search", "button"))
    place = ordinal(view.query)
    results = [node for node in view.all("link") if not re.fullmatch(r"\d+|<|>|<<|>>", node.label)]
    if view.step - 2 < place // 3:
        return click(view.named(">", "link"))
    return click(results[place % 3])

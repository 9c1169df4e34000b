"""A page for each built-in environment: what it teaches, a row, a rollout, how far its verifier can be trusted."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from page_text import block, code, escape, first_paragraph, table

from ludus.folder import EnvironmentFile, folders, read_file

FIGURES = Path(__file__).with_name("cards.json")
MAX_ROW = 2500

#: What the verdict of a card says.
VERDICTS = {
    "trusted": "every check passed",
    "not shown": "no check failed. Some were skipped, or have a finding to look at",
    "unsound": "a check failed: wrong answers earn a reward",
    "broken": "a check failed",
    "strict": "it refuses too many right answers",
}


def card_pages() -> dict[str, str]:
    """The whole Markdown of each environment's page, by the environment's name."""
    return {name: _page(name, folder) for name, folder in folders().items()}


def cards_index() -> str:
    """A table of all environments by domain."""
    rows = []
    for name, folder in folders().items():
        file = read_file(folder)
        verdict = figures(name).get("card", {}).get("verdict", "not measured")
        rows.append([file.domain, f"[{code(name)}]({name}.md)", escape(file.description), verdict])
    return table(["domain", "environment", "what it is", "verifier"], sorted(rows))


def figures(name: str) -> dict[str, Any]:
    """What `card_figures.py` measured for an environment; `missing` says why there is nothing."""
    found = _all_figures().get(name)
    return found if found is not None else {"missing": "it was not measured yet"}


@cache
def _all_figures() -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())
    return read


def _page(name: str, folder: Path) -> str:
    file, measured = read_file(folder), figures(name)
    readme = (folder / "README.md").read_text()
    parts = [
        f"# {name}",
        escape(file.description),
        _first_prose(readme),
        "## What it teaches",
        escape(file.value or file.description),
        _facts(file, measured),
        "## A row",
        *_row(folder, file),
        "## A rollout",
        *_rollout(measured),
        "## How far the verifier can be trusted",
        *_card(name, measured),
        "## Everything else",
        f"Rows, reward, settings, provenance and differences from the reference: the environment's README, "
        f"`{_place(folder)}/README.md`. All settings: [the reference](../reference/configuration.md).",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _place(folder: Path) -> str:
    """The folder from the root of the repository."""
    return folder.resolve().relative_to(Path(__file__).resolve().parents[2]).as_posix()


def _first_prose(readme: str) -> str:
    """The README's first paragraph, without its heading."""
    return first_paragraph(readme.partition("\n")[2])


def _facts(file: EnvironmentFile, measured: dict[str, Any]) -> str:
    cost = measured.get("verdict_ms")
    rows = [
        ["domain", escape(file.domain)],
        ["agent", code(str(file.agent.get("type", "simple")))],
        ["licence of the example rows", _licences(file)],
        ["cost of a verdict", _cost(cost) if cost is not None else "not measured"],
        ["run it", code(f"ludus collect {file.name} --model MODEL")],
    ]
    return table(["", ""], rows)


def _licences(file: EnvironmentFile) -> str:
    found = [f"{escape(each.name)}: {escape(each.licence)}" for each in file.datasets]
    return "; ".join(found) or "the rows are your own"


def _cost(milliseconds: float) -> str:
    shown = f"{milliseconds:g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:g} s"
    return f"{shown} (median of right answers on two busy cores, with a scripted judge where there is one)"


def _row(folder: Path, file: EnvironmentFile) -> list[str]:
    paths = [folder / each.path for each in file.datasets if each.path is not None and not each.on_hub]
    path = next((each for each in paths if each.is_file()), None)
    if path is None:
        return ["The rows are generated, or on a hub."]
    with path.open(encoding="utf-8") as lines:
        row = json.loads(next(lines))
    text = json.dumps(row, indent=2, ensure_ascii=False)
    if len(text) > MAX_ROW:
        cut = text[:MAX_ROW].rsplit("\n", 1)[0]
        return [block(f"{cut}\n...", "text"), "The row goes on; this is its beginning."]
    return [block(text, "json")]


def _rollout(measured: dict[str, Any]) -> list[str]:
    example = measured.get("example")
    if example is None:
        return [f"There is none here: {escape(measured.get('missing', ''))}"]
    parts = ["Played by a script that knows the right answer, without a model."]
    for message in example["messages"]:
        parts.append(f"**{message['role']}**")
        if message["text"].strip():
            parts.append(block(message["text"], "text"))
        parts += [block(f"{call['name']}({call['arguments']})", "text") for call in message.get("calls", ())]
    if example["left_out"]:
        parts.append(f"{example['left_out']} more messages follow.")
    return [*parts, f"Reward: **{example['reward']:g}**. It stopped because: {escape(str(example['stop_reason']))}."]


#: Figures of a card that some environments have.
SHARES = {
    "near_misses": "near misses that earned the full reward",
    "cheats": "attacks on the grader that earned a reward",
    "oracles_failed": "right answers that earned too little",
}


def _odd(card: dict[str, Any]) -> str:
    return (
        f"{_rate(card.get('odd_failure_rate'))} of {card['odd_answers']}" if card.get("odd_answers") else "not measured"
    )


def _share(rate: dict[str, int]) -> str:
    return f"{rate['wrong']} of {rate['total']}"


def _earned(exploit: dict[str, Any]) -> str:
    over = exploit["reward"] > exploit["limit"] + 1e-9
    return f"{_number(exploit['reward'])}{' (over its limit)' if over else ''}"


def _card(name: str, measured: dict[str, Any]) -> list[str]:
    card = measured.get("card")
    if card is None:
        return [f"It was not qualified, because something is missing here: {escape(measured['missing'])}"]
    rows = [
        ["verdict", f"**{card['verdict']}**: {VERDICTS[card['verdict']]}"],
        ["measured on", f"{card['rows']} rows, {card['attempts']} attempts"],
        ["right answers earn", _number(card["oracle"])],
        ["guessing earns", _number(card["chance"])],
        ["wrong answers accepted", _rate(card["false_positive_rate"])],
        ["right answers in another form refused", _rate(card["false_negative_rate"])],
        ["odd answers that ended without a verdict", _odd(card)],
        *([label, _share(card[key])] for key, label in SHARES.items() if card.get(key)),
    ]
    exploits = ([code(e["best"]), _earned(e), _number(e["limit"])] for e in card["exploits"])
    open_checks = [
        f"- {escape(each['name'])} ({each['status']}): {escape(each['reason'])}"
        for each in card["checks"]
        if each["status"] != "ok"
    ]
    reasons = dict.fromkeys(each["why"] for each in card["exploits"] if each["why"])
    return [
        table(["", ""], rows),
        "What the best bad policy of each family earns, and what it may earn:",
        table(["bad policy", "earns", "may earn"], exploits),
        *(f"Why some may earn more: {escape(why)}." for why in reasons),
        *(["Checks that failed, were skipped or have a finding:", "\n".join(open_checks)] if open_checks else []),
        f"Measure it yourself: `ludus qualify {name}`. [Trust](../trust.md) explains the figures.",
    ]


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3f}"


def _rate(value: float | None) -> str:
    return "no such variants" if value is None else f"{100 * value:.1f} %"

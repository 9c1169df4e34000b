"""How qualification plays: any text for the earlier questions, and the expected answer last."""

from __future__ import annotations

from typing import Any


def answer(task: Any, text: str) -> list[str]:
    """A final answer, after a filler for every earlier question."""
    return ["One moment."] * len(task.follow_ups) + [text]


def oracle(task: Any) -> list[str]:
    """The expected answer as the last turn."""
    return answer(task, task.expected_answer)


def preserving(task: Any) -> dict[str, Any]:
    """The answer in a sentence, in upper case, in bold, with a reason, and after a denial of something else."""
    gold = task.expected_answer
    texts = {
        "sentence": f"The answer is {gold}.",
        "upper_case": gold.upper(),
        "bold": f"That would be **{gold}**!",
        "with_reason": f"Because of what you said before, it is {gold}, I believe.",
        "after_a_denial": f"It is not what I thought; it is {gold}.",
    }
    return {name: answer(task, text) for name, text in texts.items()}


def breaking(task: Any) -> dict[str, Any]:
    """No answer, a denial, part of a longer word or number, a list, and the right answer too early."""
    gold = task.expected_answer
    texts = {
        "nothing": "I cannot tell.",
        "denied": f"It is not {gold}.",
        "anything_but": f"Anything but {gold}.",
        "inside_a_word": f"x{gold}x" if gold.isalpha() else f"1{gold}0",
        "cut_short": gold[:-1],
    }
    if gold.isdigit():
        texts |= {"hedged": f"{gold} or {int(gold) + 1}", "counted": " ".join(map(str, range(int(gold) + 3)))}
        texts |= {"negative": f"-{gold}", "decimal": f"{gold}.5"}
    scripts: dict[str, Any] = {name: answer(task, text) for name, text in texts.items()}
    if task.follow_ups:
        scripts["too_early"] = [gold] * len(task.follow_ups) + ["I said it before."]
    return scripts

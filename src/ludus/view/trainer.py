"""What a trainer sees of a rollout: its token sequences with loss masks, logprobs, policy versions and advantage.

The sequences are those of `rollout.sequences()`. A record holds no tokenizer: without `--tokenizer` the page shows ids.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ludus.data.advantages import group_mean, z_score
from ludus.errors import UserError
from ludus.record import Row
from ludus.store.statistics import finite_number
from ludus.tokens import Sequence, sequences
from ludus.view.entropy import call_entropies, mean
from ludus.view.facts import items_of
from ludus.view.index import RunIndex
from ludus.view.one import clipped, read_row
from ludus.view.tokenizer import Tokenizer

#: The most tokens of one rollout that a page shows, and the most members of a group that are read.
MAX_TOKENS = 30_000
MAX_GROUP = 4096
MAX_CALLS = 500

#: How many ids stand before and after a break.
_AROUND = 12

#: How many ids after a break are turned into text, to see whether only the ids differ.
MAX_RETOKENIZED = 2000


def trainer_payload(index: RunIndex, rollout: int, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The sequences of a rollout, where they broke, and its advantage in its group."""
    facts, row = read_row(index, rollout)
    every, entropies = items_of(row.get("model_calls")), call_entropies(row)
    calls = [call for call in every if _has_tokens(call)]
    with index.reading() as database:
        group = database.execute(
            "SELECT id, reward, outcome FROM rollouts WHERE task = ? AND final = 1 AND reward NOTNULL "
            "ORDER BY repeat LIMIT ?",
            (facts["task"], MAX_GROUP),
        ).fetchall()
    try:
        every_sequence = list(sequences(calls))
    except (KeyError, TypeError, IndexError) as error:
        raise UserError(f"the token ids of this rollout are damaged: {error!r:.100}") from error
    room, shown = MAX_TOKENS, []
    for sequence in every_sequence:
        shown.append(_sequence(sequence, room, tokenizer))
        room = max(0, room - len(sequence.ids))
    return {
        "sequences": shown,
        "calls": [_call(*call) for call in zip(every[:MAX_CALLS], entropies, range(1, MAX_CALLS + 1), strict=False)],
        "calls_total": len(every),
        "spans": _spans(calls, [values for call, values in zip(every, entropies, strict=True) if _has_tokens(call)]),
        "breaks": _breaks(calls, tokenizer),
        "advantage": _advantage(rollout, group),
        "tokenizer": tokenizer.name if tokenizer is not None else None,
        "missing": _missing(row),
        "mask": row.get("mask") if isinstance(row.get("mask"), str) else None,
    }


def _sequence(sequence: Sequence, room: int, tokenizer: Tokenizer | None) -> dict[str, Any]:
    ids = sequence.ids[:room]
    return {
        "length": len(sequence.ids),
        "trained": sum(sequence.mask),
        "ids": ids,
        "mask": sequence.mask[:room],
        "logprobs": [finite_number(value) for value in sequence.logprobs[:room]],
        "policy_versions": [None if version is None else str(version)[:100] for version in sequence.policy_versions],
        "samplings": sequence.samplings[:20],
        "pieces": tokenizer.pieces(ids) if tokenizer is not None else None,
    }


def _call(call: Row, entropies: list[float | None], number: int) -> dict[str, Any]:
    """One model call in numbers. What the record does not tell is None."""
    generated, logprobs, version = call.get("generated_ids"), call.get("logprobs"), call.get("policy_version")
    return {
        "call": number,
        "policy": None if version is None else str(version)[:100],
        "prompt": call["prefix"] + len(call["prompt_ids"]) if _has_tokens(call) else None,
        "generated": len(generated) if isinstance(generated, list) else None,
        "logprob": mean([finite_number(value) for value in logprobs]) if isinstance(logprobs, list) else None,
        "entropy": mean(entropies),
        "entropy_is_least": "entropies" not in call,
        "sampling": clipped(call.get("sampling")),
        "given": call.get("given") is True,
    }


def _spans(calls: list[Row], entropies: list[list[float | None]]) -> list[dict[str, Any]]:
    """Which ids of which sequence each call wrote, with their entropies if there is one for each."""
    spans, length, number = [], 0, 0
    for position, call in enumerate(calls, start=1):
        if call["prefix"] != length:
            number += 1
        start = call["prefix"] + len(call["prompt_ids"])
        length = start + len(call["generated_ids"])
        version = call.get("policy_version")
        span = {"call": position, "sequence": number, "from": start, "to": length}
        known = entropies[position - 1]
        spans.append({**span, "policy": None if version is None else str(version)[:100]})
        if known and len(known) == length - start:
            spans[-1]["entropies"] = known
    return spans


def _breaks(calls: list[Row], tokenizer: Tokenizer | None) -> list[dict[str, Any]]:
    """Where a call's prompt does not continue the previous call, with the ids before and after the break."""
    breaks, ids, wrote = [], list[int](), list[tuple[int, int, int]]()
    for number, call in enumerate(calls, start=1):
        prefix = call["prefix"]
        if number > 1 and prefix != len(ids):
            before, after = ids[prefix : prefix + _AROUND], call["prompt_ids"][:_AROUND]
            entry: dict[str, Any] = {"call": number, "at": prefix, "length": len(ids), "before": before, "after": after}
            if tokenizer is not None:
                entry["before_text"], entry["after_text"] = map("".join, map(tokenizer.pieces, (before, after)))
            author = next((writer for start, end, writer in wrote if start <= prefix < end), None)
            entry["why"] = _why(call, ids[prefix:], author, tokenizer)
            breaks.append(entry)
        start = prefix + len(call["prompt_ids"])
        wrote = [span for span in wrote if span[0] < prefix] + [(start, start + len(call["generated_ids"]), number)]
        ids = ids[:prefix] + call["prompt_ids"] + call["generated_ids"]
    return breaks


def _why(call: Row, lost: list[int], author: int | None, tokenizer: Tokenizer | None) -> list[str]:
    """The likely causes of a break, from the record.

    `lost` are the ids that the call's prompt does not continue. Call `author` wrote the first of them; None: a prompt.
    """
    reasons = []
    if "tools" in call:
        reasons.append("this call was offered other tools than the first one")
    where = "in a prompt" if author is None else f"in what call {author} wrote"
    reasons.append(f"the first id that differs lies {where}")
    fresh = call["prompt_ids"]
    if tokenizer is not None and lost:
        before = "".join(tokenizer.pieces(lost[:MAX_RETOKENIZED]))
        after = "".join(tokenizer.pieces(fresh[: 2 * MAX_RETOKENIZED]))
        if before and after.startswith(before):
            return [*reasons, "the text is the same: it was tokenized again, into other ids"]
    if len(fresh) < len(lost):
        reasons.append(
            f"the new prompt is {len(lost) - len(fresh):,} ids shorter: text was dropped, as by a compaction"
        )
    else:
        reasons.append("text was changed or dropped, as by a template that leaves reasoning out")
    return reasons


def _advantage(rollout: int, group: list[Any]) -> dict[str, Any] | None:
    """The advantage of this rollout over the others of its task, by each estimator of `ludus.train`."""
    position = next((at for at, row in enumerate(group) if row["id"] == rollout), None)
    if position is None:
        return None
    rewards, counts = [row["reward"] for row in group], [row["outcome"] == "completed" for row in group]
    return {
        "group": len(group),
        "rewards": rewards[:200],
        "minus_mean": group_mean(rewards, counts)[position],
        "z_score": z_score(rewards, counts)[position],
        "signal": any(a != b for a, b in pairwise(rewards)),
    }


def _missing(row: Row) -> list[int]:
    """The numbers of the calls without token ids."""
    calls = items_of(row.get("model_calls"))
    return [number for number, call in enumerate(calls, start=1) if not _has_tokens(call) and call.get("items")][:100]


def _has_tokens(call: Row) -> bool:
    lists = all(isinstance(call.get(name), list) for name in ("prompt_ids", "generated_ids", "logprobs"))
    return lists and isinstance(call.get("prefix"), int)

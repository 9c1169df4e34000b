"""Runs to look at: every part that a page shows, and text that would harm a careless page."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import random
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rollout_files

from ludus.errors import Failure
from ludus.response import Item, function_call, function_call_output, message, reasoning
from ludus.rollout import Rollout
from ludus.thread import Thread
from ludus.tokens import TokenLog, Tokens

SEARCH = {
    "type": "function",
    "name": "search_orders",
    "description": "Find the orders of a customer.",
    "parameters": {"type": "object", "properties": {"customer": {"type": "string"}}},
}
REFUND = {"type": "function", "name": "refund", "description": "Refund an order.", "parameters": {"type": "object"}}

#: What a model may write, and what must never happen because of it.
HOSTILE = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'>"
    "<svg onload='window.harmed = 3'><a href='javascript:window.harmed = 4'>x</a></svg>"
    "</script><iframe srcdoc='<script>parent.harmed = 5</script>'></iframe> "
    "\u202eevil\u202c \x00\x1b[31m \u2028 {{7*7}} "
    "' OR 1=1; DROP TABLE rollouts; -- \" $& \\u003cscript\\u003e"
)


def picture(width: int = 48, height: int = 32) -> str:
    """A small PNG as a data URL."""
    lines = b"".join(
        b"\0" + bytes(value for x in range(width) for value in (x * 5 % 256, y * 7 % 256, 140)) for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def refund_rollout(task: int, repeat: int, rng: random.Random) -> Rollout:
    """A conversation with reasoning, two tools and an answer. The task's number decides how hard it is."""
    good = rng.random() < (1 - (task % 8) / 8)
    order = f"A-{1000 + task}"
    items: list[Item] = [
        reasoning(
            f"The customer wants a refund for order {order}. I should find the order first, check whether it was "
            "delivered within the last 30 days, and only then call refund."
        ),
        function_call("search_orders", {"customer": f"customer {task}"}, call_id="c1"),
        function_call_output(
            "c1",
            json.dumps({"orders": [{"id": order, "total": 19.5 + task, "delivered": f"2026-10-0{1 + task % 9}"}]}),
        ),
    ]
    if good:
        items += [
            function_call("refund", {"order": order, "reason": "damaged"}, call_id="c2"),
            function_call_output("c2", '{"status":"refunded"}'),
            message(f"I have refunded order {order}. You will see {19.5 + task:.2f} € on your card within five days."),
        ]
    else:
        items += [
            function_call("refund", {"order": "unknown"}, call_id="c2"),
            function_call_output("c2", '{"error":"there is no order unknown"}'),
            message("I am sorry, I could not find your order. Could you tell me its number?"),
        ]
    prompt = [
        {"role": "system", "content": "You are the support agent of a shop. Follow the refund policy."},
        {"role": "user", "content": f"My order {order} arrived broken. I want my money back, please!"},
    ]
    reward = 1.0 if good else (0.25 if rng.random() < 0.3 else 0.0)
    made = rollout_files.rollout(
        f"refund-{task:03}",
        repeat,
        reward,
        items=items,
        tools=[SEARCH, REFUND],
        environment="shop_support",
        prompt=prompt,
        stop_reason="completed" if good else rng.choice(["completed", "max_steps"]),
        calls=_calls(task, repeat, rng),
        components={"found the order": 0.75 * good, "polite": 0.5 if reward else 0.25, "too long": -0.25},
        steps=len(items),
        expected=order,
        extracted_order=order if good else "unknown",
    )
    made.usage = {
        "input_tokens": 800 + 37 * task,
        "output_tokens": rng.randint(60, 220) + (0 if good else 160),
        "input_tokens_details": {"cached_tokens": 512},
    }
    model = rng.uniform(0.8, 4.5)
    made.timings = {"open": 0.01, "connect": 0.05, "model": model, "tool": rng.uniform(0.05, 0.9), "verify": 0.12}
    made.timings["total"] = sum(made.timings.values()) + 0.08
    made.steps = _steps(made.timings)
    if not good:
        made.tool_errors = [{"tool": "refund", "exception": "KeyError", "where": "resources.py:41", "count": 1}]
    return made


def _steps(timings: dict[str, float]) -> list[tuple[str, float, float]]:
    """Three model calls with tools after the first two, and the verdict."""
    shares = [
        ("open", 1.0),
        ("model", 0.5),
        ("tool", 0.3),
        ("model", 0.2),
        ("tool", 0.7),
        ("model", 0.3),
        ("verify", 1.0),
    ]
    steps, at = list[tuple[str, float, float]](), 0.0
    for stage, share in shares:
        steps.append((stage, round(at, 6), round(share * timings[stage], 6)))
        at += share * timings[stage] + 0.01
    return steps


def _calls(task: int, repeat: int, rng: random.Random) -> list[dict[str, Any]]:
    log, calls, prompt = TokenLog(), list[dict[str, Any]](), list(range(100, 160))
    for turn, items in enumerate((2, 1, 1)):
        generated = [rng.randint(1000, 30000) for _ in range(rng.randint(12, 40))]
        logprobs = [-rng.expovariate(1.4) for _ in generated]
        tokens = Tokens(list(prompt), generated, logprobs, policy_version=f"step-{10 * (repeat + 1)}")
        calls.append({"items": items, **log.add(tokens)})
        if turn == 2:
            calls[-1]["entropies"] = [rng.expovariate(1.5) for _ in generated]
        prompt = prompt + generated + [rng.randint(1, 900) for _ in range(18)]
        if turn == 1 and task % 3 == 0:
            prompt = prompt[:70] + prompt[90:]  # a template that drops earlier reasoning
    return calls


def failed_rollout(
    task: int, repeat: int, kind: str = "timeout", cause: str = "tool `refund` timed out after 30 s"
) -> Rollout:
    made = refund_rollout(task, repeat, random.Random(task))
    made.fail(Failure(kind, cause, stage="tool" if kind == "timeout" else "model"))
    return made


def write_run(folder: Path, tasks: int = 24, repeats: int = 4, seed: int = 1) -> Path:
    """A run with completed, masked and failed rollouts, and a retried attempt."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines, failures = list[bytes](), list[bytes]()
    for task in range(tasks):
        for repeat in range(repeats):
            made = refund_rollout(task, repeat, rng)
            if task % 7 == 3 and repeat == 0:
                failures.append(failed_rollout(task, repeat).encode())  # tried again, and then it completed
            if task % 9 == 5 and repeat == 1:
                http = failed_rollout(task, repeat, "http_429", "the endpoint answered 429: too many requests")
                failures.append(http.encode())
                continue
            if task % 11 == 6 and repeat == 2 and made.verdict is not None:
                made.judge(made.verdict, mask="the answer was cut at the token limit")
            lines.append(made.encode())
    (folder / "rollouts.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "failures.jsonl").write_bytes(b"".join(line + b"\n" for line in failures))
    described = {
        "identity": {
            "environments": {"shop_support": {"resources": "Shop", "agent": "SimpleAgent"}},
            "dataset": {"name": "refunds.jsonl", "rows": tasks, "digest": "0" * 32},
            "model": {"name": "tiny-7b", "settings": {"temperature": 0.7}},
            "seed": seed,
        },
        "options": {"repeats": repeats, "pass_reward": {"shop_support": 1.0}, "reward_range": {}, "limit": None}
        | {"workers": 1, "concurrency": 4},
        "started": "2026-11-02T08:15:00+00:00",
    }
    (folder / "run.json").write_text(json.dumps(described))
    return folder


def write_judged_run(folder: Path) -> Path:
    """A run of one rollout that a judge model scored."""
    asked = {
        "instructions": "You compare answers.",
        "input": [{"role": "user", "content": "Are the two answers equal?"}],
    }
    reply = {"output": [message("They mean the same. [[A=B]]")]}
    evaluation = {"responses_create_params": asked, "response": reply, "verdict_label": "[[A=B]]"}
    made = rollout_files.rollout("judged", 0, 1.0, extracted_answer="chilly", judge_evaluations=[evaluation])
    rollout_files.write(folder / "rollouts.jsonl", [made])
    return folder


def write_run_with_threads(folder: Path) -> Path:
    """A rollout of a program with sub-agents, side calls and restored items."""
    asked = "Please find every place that calls the old function and list the files."
    items = [
        reasoning("I should ask somebody to look."),
        function_call("task", {"prompt": asked}, call_id="c1"),
        function_call_output("c1", "src/a.py and src/b.py"),
        message("The old function is called in two files."),
    ]
    made = rollout_files.rollout("threads", 0, 1.0, items=items, environment="repairs", thread_rewards={"agent-1": 0.5})
    made.calls = [{"items": 2, "at": 0, **_ids(7)}, {"items": 1, "at": 3, "restored": 2, **_ids(8)}]
    user = {"role": "user", "content": asked}
    looked = [user, function_call("grep", {"pattern": "old("}, call_id="g1"), function_call_output("g1", "src/a.py:3")]
    deeper = [{"role": "user", "content": "Read src/a.py for me."}, message("It calls old() once.")]
    title = [{"role": "user", "content": "Write a title of this session."}, message("Finding the old function")]
    searched = [{**call, **_ids(50 + place)} for place, call in enumerate(_at(1, 3))]
    made.threads = [
        Thread("agent-1", "agent", "main", "You search.", [], [*looked, message("Two files.")], searched),
        Thread("agent-2", "agent", "agent-1", None, [], deeper, _at(1)),
        Thread("side-1", "side", None, None, [], title, _at(1)),
        Thread("side-2", "side", None, None, [], title, _at(1)),
    ]
    assert made.response is not None
    made.response.data["metadata"] = {"restored_items": "2", "kept_calls": "1"}
    rollout_files.write(folder / "rollouts.jsonl", [made])
    return folder


def sound() -> str:
    """A tenth of a second of silence as WAV, in base64."""
    samples = bytes(1600)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + 1600, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 1600
    )
    return base64.b64encode(head + samples).decode()


def write_spoken_run(folder: Path) -> Path:
    """A rollout with a sound in its prompt, an image in an output, both in its row, and logprobs of its answer."""
    prompt = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": sound(), "format": "wav"}}]}]
    entries = [
        {"token": "It", "logprob": -0.01, "top_logprobs": []},
        {"token": " is", "logprob": -0.02, "top_logprobs": []},
        {"token": " cold", "logprob": -0.5, "top_logprobs": [_likely(" cold", -0.5), _likely(" warm", -1.0)]},
    ]
    answer = {"type": "output_text", "text": "It is cold", "logprobs": entries}
    items = [
        function_call("look", {}, call_id="c1"),
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_image", "image_url": picture()}]},
        {"type": "message", "role": "assistant", "content": [answer]},
    ]
    fields = {
        "photo": picture(),
        "speech": {"data": sound(), "format": "wav"},
        "fake": "data:audio/wav;base64,PHNjcmlwdD4=",
    }
    calls: list[dict[str, Any]] = [{"items": 1}, {"items": 1, "policy_version": "step-7"}]
    made = rollout_files.rollout("spoken", 0, 1.0, items=items, prompt=prompt, fields=fields, calls=calls)
    rollout_files.write(folder / "rollouts.jsonl", [made])
    return folder


def _likely(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob}


def _ids(first: int) -> dict[str, Any]:
    ids = {"prefix": 0, "prompt_ids": [1], "generated_ids": [first, first + 90], "logprobs": [-0.01, -1.2]}
    return {**ids, "policy_version": "step-7"}


def _at(*places: int) -> list[dict[str, Any]]:
    return [{"items": 1, "at": place} for place in places]


def write_training(
    folder: Path, steps: tuple[int, ...] = (0, 20, 40, 60), *, learns: bool = True, judged_anew_from: int = 10**9
) -> Path:
    """The evaluations of a training, each of 10 tasks with 2 repeats at one checkpoint, and the training's settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"learning_rate": 0.002 if learns else 0.0, "groups": 16}))
    for place, step in enumerate(steps):
        rollouts = []
        for task, repeat in ((task, repeat) for task in range(10) for repeat in range(2)):
            right = learns and task + repeat < 10 * place / max(len(steps) - 1, 1)
            verifier = "dddddddddddd" if step >= judged_anew_from else "aaaaaaaaaaaa"
            made = rollout_files.rollout(
                f"digit-{task}",
                repeat,
                1.0 if right else 0.2,
                environment="find_digit",
                prompt=f"Which digit is in {task}+?",
                receipt=f"{verifier}.bbbbbbbbbbbb.cccccccccccc",
                calls=[{"items": 1, "policy_version": step}],
                components={"form": 0.2, "right": 0.8 * right},
            )
            made.usage = {"input_tokens": 4, "output_tokens": 2 + task}
            rollouts.append(made)
        run = folder / "evaluations" / f"greedy-{step:04}"
        rollout_files.write(run / "rollouts.jsonl", rollouts)
        identity = {"environments": {"find_digit": {"resources": "FindDigit"}}, "model": {"name": "micro"}, "seed": 0}
        options = {"repeats": 2, "pass_reward": {"find_digit": 1.0}, "reward_range": {}}
        started = f"2026-11-01T08:{15 + place:02}:00+00:00"
        described = {"identity": identity, "options": options, "started": started}
        (run / "run.json").write_text(json.dumps(described))
    return folder


@contextlib.contextmanager
def being_written(folder: Path) -> Iterator[None]:
    """Lock a run's journal as a collection does, so that the viewer takes this process for one."""
    with (folder / "rollouts.jsonl").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_hostile_run(folder: Path, turns: int = 10_000) -> Path:
    """A run whose every text is an attack, and whose lines include what is no rollout at all."""
    folder.mkdir(parents=True, exist_ok=True)
    attack: list[Item] = [
        reasoning(HOSTILE),
        function_call(HOSTILE[:60], HOSTILE, call_id="c1"),
        function_call_output("c1", json.dumps({HOSTILE: HOSTILE, "error": HOSTILE})),
        {"type": HOSTILE, "text": HOSTILE},
        {"type": "message", "role": "<b>assistant", "content": [{"type": "output_text", "text": HOSTILE}]},
    ]
    images = [
        {"type": "input_image", "image_url": picture()},
        {"type": "input_image", "image_url": "https://attacker.example/pixel.png"},
        {"type": "input_image", "image_url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+"},
        {"type": "input_image", "image_url": "data:image/png;base64,PHNjcmlwdD4="},
        {"type": "input_text", "text": HOSTILE},
    ]
    prompt = [{"role": "user", "content": images}]
    first = rollout_files.rollout(
        HOSTILE, 0, 1.0, items=attack, prompt=prompt, environment=HOSTILE, stop_reason=HOSTILE, note_of_judge=HOSTILE
    )
    huge = rollout_files.rollout("huge", 0, 0.0, items=[message("word " * 600_000)])
    steps = [
        item
        for turn in range(turns)
        for item in (function_call("step", {"n": turn}, call_id=f"c{turn}"), function_call_output(f"c{turn}", "ok"))
    ]
    long = rollout_files.rollout("long", 0, 0.5, items=steps, calls=[{"items": 1}] * turns)
    failed = failed_rollout(1, 0, "crash", HOSTILE)
    lone = {"rollout_id": "lone", "task_id": "lone", "repeat": 0, "outcome": "completed", "reward": 1.0}
    answer = {"output": [{"type": "message", "role": "assistant", "content": "a \ud800 b"}]}
    surrogate = json.dumps({**lone, "response": answer}).encode()
    broken = [b"\xff\xfe broken", b"[1, 2]", b'"text"', b'{"no": "rollout"}', b"{" * 5000, b"null"]
    unscored = [json.dumps({**lone, "rollout_id": f"r{reward}", "reward": reward}).encode() for reward in (None, "NaN")]
    lines = [first.encode(), *broken, huge.encode(), long.encode(), surrogate, failed.encode(), *unscored]
    (folder / "rollouts.jsonl").write_bytes(b"".join(line + b"\n" for line in lines) + b'{"torn": ')
    return folder


def deleted(folder: Path) -> bool:
    """Delete a folder, in which a viewer may write meanwhile. False if something is left of it."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()

"""Helpers for tests of environments: judge a response without a model, and compare verdicts with recorded ones.

Recorded lines and real rows live in an optional folder outside the repository; a test that needs them is skipped if the
folder is missing. A line holds a `row`, a `response` (or `calls`, if `kind` is `tool`), settings in `config`, and the
result of the reference implementation: `reference_reward`, `reference_extra`, `reference_error` or
`reference_outputs`. A line for a group verdict holds `responses` and `reference_rewards`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ludus.collection.group_verifier import verify_group
from ludus.environment import Environment
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response, message
from ludus.runtime.boundary import step
from ludus.runtime.processes import shared_pool
from ludus.runtime.threads import awaited
from ludus.sandbox.choice import find
from ludus.task import Task

if TYPE_CHECKING:
    import pytest

Row = dict[str, Any]
Line = dict[str, Any]
Which = str | Path | type[Resources] | Environment

#: Called before a session is opened, for example to give it a scripted judge.
Prepare = Callable[[Resources], None]
PrepareFor = Callable[[Resources, Line], None]


def shared_path(*parts: str) -> Path:
    """A path in the optional folder: `$LUDUS_SHARED`, or `shared` beside the repository. Skips the test if missing."""
    folder = Path(os.environ.get("LUDUS_SHARED") or Path(__file__).parents[2].parent / "shared")
    path = folder.joinpath(*parts)
    if not path.exists():
        import pytest

        pytest.skip(f"{path} does not exist: set LUDUS_SHARED to the folder with the shared data")
    return path


def golden(name: str) -> Iterator[Line]:
    """The recorded lines of an environment."""
    return _lines(shared_path("golden", f"{name}.jsonl"))


def shared_rows(name: str) -> Iterator[Row]:
    """Every row of an environment's public example files."""
    for path in sorted(shared_path("data", name).glob("*.jsonl")):
        yield from _lines(path)


async def judge(
    which: Which,
    row: Row,
    response: Response | str,
    *,
    prepare: Prepare | None = None,
    shared: Any = None,
    **settings: Any,
) -> Verdict | Failure:
    """The environment's verdict on a response; a text means a response with one message.

    verdict = await judge("mcqa", row, r"\\boxed{B}", grading_mode="lenient_boxed")

    The sessions' shared object is opened for this call, unless you pass the one of `environment.share()` (see
    `judging`).
    """
    parsed = _response(response)
    return await _judge(configured(which, settings), row, parsed, answered_calls(parsed), prepare, shared=shared)


@asynccontextmanager
async def judging(which: Which) -> AsyncIterator[Callable[..., Awaitable[Verdict | Failure]]]:
    """`judge` for one environment whose sandboxes stay warm from one call to the next.

    async with judging("code_gen") as judge:
        verdict = await judge(row, answer, unit_test_timeout_secs=1)
    """
    async with shared_pool(), configured(which, {}).share() as shared:
        yield partial(judge, which, shared=shared)


async def judge_group(
    which: Which, row: Row, responses: Iterable[Response | str], *, prepare: Prepare | None = None, **settings: Any
) -> list[Verdict] | Failure:
    """The verdicts of an environment that judges groups on the answers to a row, in order.

    verdicts = await judge_group("genrm_compare", row, ["A short answer.", "A better one."], prepare=with_judge)
    """
    return await _judge_group(configured(which, settings), row, list(map(_response, responses)), prepare)


async def replay(which: Which, line: Line, *, compat: bool = False, prepare: PrepareFor | None = None) -> Any:
    """Play a recorded line. Returns a `Verdict`, a list of verdicts if the line has `responses`, the texts of its tool
    outputs if its `kind` is `tool`, or a `Failure`.

    The answered calls of a response run on the session before the verdict.
    """
    environment = configured(which, {**(line.get("config") or {}), "compat": compat})
    ready = (lambda session: prepare(session, line)) if prepare is not None else None
    if line.get("kind") == "tool":
        return await _outputs(environment, line["row"], line["calls"], ready)
    if line.get("responses") is not None:
        return await _judge_group(environment, line["row"], list(map(Response, line["responses"])), ready)
    response = Response(line["response"])
    recorded = line.get("session") or {}
    calls = recorded.get("executed_calls", answered_calls(response))
    never_opened = compat and recorded.get("seeded") is False  # over HTTP /verify works without /seed_session
    return await _judge(environment, line["row"], response, calls, ready, open=not never_opened)


async def disagreements(which: Which, *, compat: bool = False, prepare: PrepareFor | None = None) -> list[str]:
    """The differences between the environment and its reference, one text each.

    With `compat` every line must match. Without it, lines of class `hole` only have to end without a crash.
    """
    name = Environment.load(which).name
    differences = []
    for number, line in enumerate(golden(name), start=1):
        result = await replay(which, line, compat=compat, prepare=prepare)
        if problem := disagreement(line, result, free=line["class"] == "hole" and not compat):
            differences.append(f"{name}:{number} ({line['class']}, {line.get('note')}): {problem}")
    return differences


def disagreement(line: Line, result: Any, *, free: bool = False) -> str | None:
    """How a result differs from the recorded one; None if it agrees. With `free` any result but a crash agrees.

    If the reference failed, a failure other than a crash, a refused row and a reward of 0 all agree.
    """
    if isinstance(result, Failure):
        accepted = result.kind != "crash" and (free or line.get("reference_error"))
        wanted = line.get("reference_rewards", line.get("reference_reward"))
        return None if accepted else f"{result}, reference {wanted}"
    if free:
        return None
    if line.get("responses") is not None:
        return _group_disagreement(line, result)
    if isinstance(result, list):
        wanted = line["reference_outputs"]
        same_outputs = len(wanted) == len(result) and all(map(same, wanted, result))
        return None if same_outputs else f"{result}, reference {wanted}"
    reward = 0.0 if line.get("reference_error") else line["reference_reward"]
    if result.reward != reward:
        return f"reward {result.reward}, reference {reward}; {result.values}"
    for key, value in (line.get("reference_extra") or {}).items():
        if key in result.values and not same(value, result.values[key]):
            return f"{key} {result.values[key]!r}, reference {value!r}"
    return None


def _group_disagreement(line: Line, verdicts: list[Verdict]) -> str | None:
    """Compare with `isclose`: rewards are means, and the order of addition changes the last digit."""
    wanted = [0.0] * len(verdicts) if line.get("reference_error") else line["reference_rewards"]
    rewards = [verdict.reward for verdict in verdicts]
    agrees = len(wanted) == len(rewards) and all(map(math.isclose, rewards, wanted))
    return None if agrees else f"rewards {rewards}, reference {wanted}"


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal; two texts that hold JSON are compared as JSON."""
    if isinstance(left, str) and isinstance(right, str) and left != right:
        try:
            return bool(json.loads(left) == json.loads(right))
        except ValueError:
            pass
    return bool(left == right)


def configured(which: Which, settings: dict[str, Any]) -> Environment:
    """A copy of an environment with these resources settings."""
    environment = replace(Environment.load(which))
    environment.configure({f"resources.{key}": value for key, value in settings.items()})
    return environment


def answered_calls(response: Response) -> list[dict[str, Any]]:
    """The function calls of a response that have an output in it."""
    answered = {item.get("call_id") for item in response.output if item.get("type") == "function_call_output"}
    return [call for call in response.function_calls if call.get("call_id") in answered]


async def _judge(
    environment: Environment,
    row: Row,
    response: Response,
    calls: Iterable[dict[str, Any]],
    prepare: Prepare | None,
    open: bool = True,
    shared: Any = None,
) -> Verdict | Failure:
    limits = environment.limits
    try:
        async with _session(environment, row, prepare, open, shared=shared) as (task, session):
            for call in calls:
                await step("tool", limits.tool, session.call(call["name"], _text(call["arguments"])))
            judging = awaited(session.verify, task, response)
            return Verdict.of(await step("verify", limits.verify, judging), session.verify)
    except Exception as error:
        return Failure.of(error, "open")


async def _judge_group(
    environment: Environment, row: Row, responses: list[Response], prepare: Prepare | None
) -> list[Verdict] | Failure:
    try:
        async with _prepared(environment, row, prepare) as (task, session):
            return await verify_group(session, task, responses, environment.limits.verify)
    except Exception as error:
        return Failure.of(error, "verify")


async def _outputs(
    environment: Environment, row: Row, calls: Iterable[dict[str, Any]], prepare: Prepare | None
) -> list[str] | Failure:
    try:
        async with _session(environment, row, prepare, judged=False) as (_, session):
            works = (session.call(call["name"], _text(call["arguments"])) for call in calls)
            return [await step("tool", environment.limits.tool, work) for work in works]
    except Exception as error:
        return Failure.of(error, "open")


@asynccontextmanager
async def _session(
    environment: Environment,
    row: Row,
    prepare: Prepare | None,
    open: bool = True,
    judged: bool = True,
    shared: Any = None,
) -> AsyncIterator[tuple[Task, Resources]]:
    """An open session. Unless it is `judged`, its tools also answer for a bad row."""
    async with _prepared(environment, row, prepare, shared) as (task, session):
        try:
            if open:
                try:
                    await step("open", environment.limits.open, awaited(session.open, task))
                except Failure as failure:
                    if judged or failure.kind != "bad_row":
                        raise
            yield task, session
        finally:
            await step("close", environment.limits.close, awaited(session.close))


@asynccontextmanager
async def _prepared(
    environment: Environment, row: Row, prepare: Prepare | None, shared: Any = None
) -> AsyncIterator[tuple[Task, Resources]]:
    """A task and a session that is not opened."""
    try:
        task = environment.task(row)
    except ValidationError as error:
        first = error.errors()[0]
        raise Failure("bad_row", f"{'.'.join(map(str, first['loc']))}: {first['msg']}", stage="open") from None
    async with shared_pool(), nullcontext(shared) if shared is not None else environment.share() as opened:
        session = environment.session(opened)
        if prepare is not None:
            prepare(session)
        yield task, session


def _response(answer: Response | str) -> Response:
    return Response.of(message(answer)) if isinstance(answer, str) else answer


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.isspace():
                yield json.loads(line)


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def needs_sandbox(provider: str = "bubblewrap") -> pytest.MarkDecorator:
    """A mark that skips a test where a sandbox provider does not work, with the reason: `@needs_sandbox()`."""
    import pytest

    choice = find(provider)
    install = f" ({choice.install})" if choice.install else ""
    return pytest.mark.skipif(choice.problem is not None, reason=f"{provider}: {choice.problem}{install}")

"""Recorded cases for a verifier: answers that must earn everything, nothing, an error, or the same reward twice."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

_Kind = Literal["full_reward", "zero_reward", "malformed", "determinism"]
_REQUIRED: tuple[_Kind, ...] = ("full_reward", "zero_reward", "malformed")
_DETERMINISM = ("seeded", "stochastic", "unknown")


class VerifierFixtureError(ValueError):
    """A case is broken, or the verifier does not do what it says."""


@dataclass(frozen=True)
class VerifierFixture:
    """How to call a verifier, and the file with its cases.

    `invoke(server, request)` replaces `server.verify(request)`; `reseed(server, request)` sets the seed of a server
    before a determinism case. Both may be async.
    """

    server_factory: Callable[[], Any]
    request_model: type[BaseModel]
    cases_path: Path | str
    invoke: Callable[[Any, Any], Any] | None = None
    reseed: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class VerifierFixtureResult:
    """The rewards that a case earned: two for determinism, none for a malformed request."""

    name: str
    kind: str
    observed_rewards: tuple[float, ...]


class _Case(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    kind: _Kind
    request: dict[str, Any]
    expected_error: str | None = Field(default=None, min_length=1)
    expected_reward: float | None = Field(default=None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _expects_what_its_kind_needs(self) -> _Case:
        wanted, other = ("expected_error", "expected_reward")[:: 1 if self.kind == "malformed" else -1]
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise ValueError(f"a case of kind {self.kind} needs {wanted} and no {other}")
        return self


async def exercise_verifier_fixture(
    fixture: VerifierFixture,
    *,
    reward_range: tuple[float, float],
    higher_is_better: bool = True,
    determinism: str | Enum,
    update_expected: bool = False,
) -> tuple[VerifierFixtureResult, ...]:
    """Play all cases and return their rewards. Every problem is a `VerifierFixtureError`.

    `determinism` is `seeded`, `stochastic` or `unknown`; determinism cases are played only if it is `seeded`. With
    `update_expected` the observed rewards are written to the file and not compared with it.
    """
    mode = determinism.value if isinstance(determinism, Enum) else determinism
    if mode not in _DETERMINISM:
        raise VerifierFixtureError(f"determinism is {mode!r}: it must be one of {', '.join(_DETERMINISM)}")
    low, high = reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise VerifierFixtureError(f"reward_range {reward_range!r} must be two finite numbers, the lower one first")
    path = Path(fixture.cases_path)
    cases = await asyncio.to_thread(_read, path)
    required = (*_REQUIRED, "determinism") if mode == "seeded" else _REQUIRED
    if missing := [kind for kind in required if kind not in {case.kind for case in cases}]:
        raise VerifierFixtureError(f"{path} has no case of kind {', '.join(missing)}")
    ends = {"full_reward": high, "zero_reward": low} if higher_is_better else {"full_reward": low, "zero_reward": high}
    results: list[VerifierFixtureResult] = []
    for case in cases:
        if case.kind == "determinism" and mode != "seeded":
            continue
        rewards = await _observe(fixture, case)
        for reward in rewards:
            _check(case, reward, reward_range, ends.get(case.kind))
            if not update_expected and reward != case.expected_reward:
                raise VerifierFixtureError(f"case {case.name}: reward {reward}, expected {case.expected_reward}")
        if len(set(rewards)) > 1:
            raise VerifierFixtureError(f"case {case.name}: rewards {rewards[0]} and {rewards[1]} with the same seed")
        results.append(VerifierFixtureResult(case.name, case.kind, rewards))
    if update_expected:
        observed = {result.name: result.observed_rewards[0] for result in results if result.observed_rewards}
        updates = [
            case.model_copy(update={"expected_reward": observed.get(case.name, case.expected_reward)}) for case in cases
        ]
        await asyncio.to_thread(_write, path, updates)
    return tuple(results)


def _read(path: Path) -> list[_Case]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise VerifierFixtureError(f"{path} cannot be read: {error}") from error
    cases: list[_Case] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                cases.append(_Case.model_validate_json(line))
            except ValidationError as error:
                problem = error.errors()[0]
                place = ".".join(map(str, problem["loc"]))
                raise VerifierFixtureError(
                    f"{path}:{number}: {place}: {problem['msg']}".replace(": : ", ": ")
                ) from error
    repeated = [name for name, count in Counter(case.name for case in cases).items() if count > 1]
    if repeated:
        raise VerifierFixtureError(f"{path}: two cases are called {repeated[0]}")
    return cases


def _write(path: Path, cases: list[_Case]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text("".join(case.model_dump_json(exclude_none=True) + "\n" for case in cases), encoding="utf-8")
    draft.replace(path)


async def _observe(fixture: VerifierFixture, case: _Case) -> tuple[float, ...]:
    """The rewards of a case: two if it shows determinism, none if it must fail."""
    if case.kind == "malformed":
        await _expect_error(fixture, case)
        return ()
    if case.kind == "determinism" and fixture.reseed is None:
        raise VerifierFixtureError(f"case {case.name}: the fixture has no reseed, which determinism cases need")
    rewards = list[float]()
    for _ in range(2 if case.kind == "determinism" else 1):
        server = await _create(fixture, case)
        try:
            result = await _verify(fixture, server, case)
        except Exception as error:
            raise VerifierFixtureError(f"case {case.name}: {type(error).__name__}: {error}") from error
        rewards.append(_reward(case, result))
    return tuple(rewards)


async def _expect_error(fixture: VerifierFixture, case: _Case) -> None:
    server = await _create(fixture, case)
    try:
        await _verify(fixture, server, case)
    except Exception as error:
        if (case.expected_error or "") not in str(error):
            what = f"case {case.name}: the error is {str(error)!r} and lacks {case.expected_error!r}"
            raise VerifierFixtureError(what) from error
        return
    raise VerifierFixtureError(f"case {case.name}: the malformed request was verified without an error")


async def _create(fixture: VerifierFixture, case: _Case) -> Any:
    try:
        return await _resolved(fixture.server_factory())
    except Exception as error:
        raise VerifierFixtureError(f"case {case.name}: no server: {type(error).__name__}: {error}") from error


async def _verify(fixture: VerifierFixture, server: Any, case: _Case) -> Any:
    request = fixture.request_model.model_validate(case.request)
    if case.kind == "determinism" and fixture.reseed is not None:
        await _resolved(fixture.reseed(server, request))
    verify = fixture.invoke
    return await _resolved(verify(server, request) if verify is not None else server.verify(request))


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _reward(case: _Case, result: Any) -> float:
    reward = result.get("reward") if isinstance(result, Mapping) else getattr(result, "reward", result)
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        raise VerifierFixtureError(f"case {case.name}: the reward is {reward!r} and not a finite number")
    return float(reward)


def _check(case: _Case, reward: float, reward_range: tuple[float, float], end: float | None) -> None:
    low, high = reward_range
    if not low <= reward <= high:
        raise VerifierFixtureError(f"case {case.name}: reward {reward} is not between {low} and {high}")
    if end is not None and reward != end:
        raise VerifierFixtureError(f"case {case.name}: reward {reward}, but a case of kind {case.kind} earns {end}")

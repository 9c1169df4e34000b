"""A reward outside of the declared range is kept, and warned about with the place of the verifier."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from ludus_qualify.run import qualify

import ludus
from ludus import Game, Resources, Response, ScriptedModel, Step
from ludus.environment import Environment

ROWS = [{"responses_create_params": {"input": f"{number}?"}} for number in range(5)]


class Twice(Resources):
    """Pays 2.0 for every answer."""

    async def verify(self, task: Any, response: Response) -> float:
        return 2.0 if response.output_text else 0.0


class Fine(Game):
    """A game whose steps cost more than it declares."""

    async def reset(self, task: Any) -> str:
        return "Go."

    async def step(self, task: Any, response: Response) -> Step:
        return Step("Lost.", reward=-3.0, terminated=True)


def warned(resources: type[Resources], reward_range: tuple[float, float] | None = None) -> list[str]:
    environment = Environment.load(resources).copy()
    environment.reward_range = reward_range
    return ludus.collect(environment, model=ScriptedModel(["x"]), input=ROWS).warnings


def test_a_reward_of_2_without_a_declared_range_is_warned_about_with_the_line_of_verify() -> None:
    (warning,) = warned(Twice)
    place = f"{__file__}:{inspect.getsourcelines(Twice.verify)[1]}"
    assert warning.startswith(f"{place}: ")
    assert "Twice gave rewards outside of [0, 1], the range of an environment that declares none" in warning
    assert warning.endswith("Write reward_range: [LOWEST, HIGHEST] in environment.yaml, or change the rewards")


def test_a_reward_below_a_declared_range_is_warned_about_with_the_line_of_step() -> None:
    (warning,) = warned(Fine, (-1.0, 1.0))
    assert warning.startswith(f"{__file__}:{inspect.getsourcelines(Fine.step)[1]}: ")
    assert "Fine gave rewards outside of [-1, 1], its reward_range." in warning


@pytest.mark.parametrize(("resources", "declared"), [(Twice, (0.0, 2.0)), (Fine, (-3.0, 0.0))])
def test_rewards_within_the_declared_range_are_not_warned_about(
    resources: type[Resources], declared: tuple[float, float]
) -> None:
    assert warned(resources, declared) == []


def test_a_card_has_the_warning_too() -> None:
    assert any("gave rewards outside of [0, 1]" in warning for warning in qualify(Twice, input=ROWS, odd=5).warnings)

"""One hand of blackjack: two cards each from an endless deck; the player sees one of the dealer's cards.

The model hits until it stands or has more than 21. The dealer then draws to 17. The hand nearer to 21 wins.
"""

from __future__ import annotations

import random
import re
from typing import Any, Literal

from pydantic import AliasChoices, Field, NonNegativeInt

import ludus
from ludus import Game, ResourcesConfig, Response, Step

Card = Literal["2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A"]
CARDS: tuple[Card, ...] = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A")
BUST_ABOVE = 21
DEALER_STANDS = 17
HOW_TO_ACT = "Respond with <action>hit</action> or <action>stand</action>."

_ACTION = re.compile(r"<action>\s*(hit|stand)\s*</action>", re.IGNORECASE)


class Blackjack(Game):
    """A table for one player. The row's `deck` is dealt first; further cards are drawn with the rollout's seed."""

    class Task(ludus.Task):
        #: The first cards in dealing order: two for the player, two for the dealer, then each card drawn.
        deck: list[Card] = Field([], validation_alias=AliasChoices("deck", "golden_deck"))

    class Config(ResourcesConfig):
        """Settings of the table."""

        #: How many answers in a row without an action get a reminder; the next one loses the hand.
        reminders: NonNegativeInt = 2

    config: Config
    _random: random.Random | None

    async def reset(self, task: Task) -> str:
        self._stacked, self._random = list(task.deck), None
        self._without_action = 0
        self.player = [self._draw(), self._draw()]
        self.dealer = [self._draw(), self._draw()]
        return self._table()

    async def step(self, task: Task, response: Response) -> Step:
        action = action_of(response.output_text)
        if action is None and not self.config.compat:
            return self._remind()
        self._without_action = 0
        if action == "hit":
            self.player.append(self._draw())
            return self._over(-1.0, "bust") if value(self.player) > BUST_ABOVE else Step(self._table())
        while value(self.dealer) < DEALER_STANDS:
            self.dealer.append(self._draw())
        mine, theirs = value(self.player), value(self.dealer)
        if theirs > BUST_ABOVE or mine > theirs:
            return self._over(1.0, "win")
        return self._over(0.0, "draw") if mine == theirs else self._over(-1.0, "loss")

    def _remind(self) -> Step:
        """Ask again, or end the hand after too many reminders: giving up must not pay more than losing."""
        self._without_action += 1
        if self._without_action > self.config.reminders:
            return self._over(-1.0, "forfeit")
        return Step(f"No action was found in your answer.\n{HOW_TO_ACT}")

    def _over(self, reward: float, result: str) -> Step:
        info: dict[str, Any] = {"result": result}
        for owner, hand in (("player", self.player), ("dealer", self.dealer)):
            info |= {owner: shown(hand), f"{owner}_value": value(hand)}
        return Step(reward=reward, terminated=True, info=info)

    def _table(self) -> str:
        hand = f"Your hand: {shown(self.player)} = {value(self.player)}"
        return f"{hand}\nDealer shows: {self.dealer[0]}\n{HOW_TO_ACT}"

    def _draw(self) -> Card:
        if self._stacked:
            return self._stacked.pop(0)
        self._random = self._random or random.Random(self.seed)  # read only when needed: a full deck needs no seed
        return self._random.choice(CARDS)


def action_of(text: str) -> str | None:
    """The first action in a text, or None."""
    match = _ACTION.search(text)
    return match[1].lower() if match else None


def value(hand: list[Card]) -> int:
    """The value of a hand: one ace counts 11 if the hand stays at 21 or below, every other ace counts 1."""
    total = sum(1 if card == "A" else int(card) if card.isdigit() else 10 for card in hand)
    return total + 10 if "A" in hand and total + 10 <= BUST_ABOVE else total


def shown(hand: list[Card]) -> str:
    """A hand as the model sees it: `[10, A]`."""
    return f"[{', '.join(hand)}]"

"""The model buys something second-hand from a simulated seller.

The seller goes down with the price for a condition that matters to them, such as collecting today, and tells it only
to a buyer who asks about it. The reward is the share of the possible discount that the signed contract has.
"""

from __future__ import annotations

import ludus
from ludus import Resources, Response, Verdict, tool
from ludus.agents.user import UserRole
from ludus.graders.answers import normalised


class Negotiation(Resources):
    """The contract of one rollout. Another model, or a script, plays the seller."""

    class Task(ludus.Task):
        thing: str
        asking_price: int
        lowest_prices: dict[str, int]  # the lowest price under each condition, such as {"collect today": 80}

    async def open(self, task: Task) -> None:
        self.task = task
        self.signed_price: int | None = None
        self.refused = False

    def user(self, task: Task) -> UserRole:
        """Who the seller is, and what they tell when they are asked for it."""
        facts = {term: f"I would go down to {price} euros for that" for term, price in task.lowest_prices.items()}
        return UserRole(
            persona="A friendly private seller who does not like to haggle.",
            goal=f"I am selling {task.thing} for {task.asking_price} euros.",
            facts=facts,
            instructions="Never name a lower price before the buyer asks about the condition that it depends on.",
            name="Seller",
            other="Buyer",
        )

    @tool
    async def sign_contract(self, price: int, condition: str) -> str:
        """Sign at a price, with a condition such as "collect today", or "". There is one attempt only."""
        if self.signed_price is not None or self.refused:
            raise ValueError("there was a contract already")
        lowest = self.task.lowest_prices.get(normalised(condition), self.task.asking_price)
        if price < lowest:
            self.refused = True
            return "The seller does not sign and ends the negotiation."
        self.signed_price = min(price, self.task.asking_price)  # nobody is asked for more
        return f"Signed: {self.task.thing} for {self.signed_price} euros."

    async def verify(self, task: Task, response: Response) -> Verdict:
        if self.signed_price is None:
            return Verdict(0.0, signed=False)
        saved = task.asking_price - self.signed_price
        possible = task.asking_price - min(task.lowest_prices.values())
        return Verdict(max(0.0, saved / possible), signed=True, price=self.signed_price)

"""The contract against the plain collector: rollouts a second with a scripted policy that reports tokens.

python benchmarks/training.py --rollouts 4000

The seconds are those of the CPU, so that other programs on the machine count little. The rounds alternate, and the best
round of each counts.
"""

import argparse
import asyncio
import json
import time
from typing import Any

import ludus
from ludus import Resources, Response
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.response import message
from ludus.tokens import Tokens
from ludus.train.contract import GroupFeed
from ludus.train.policy import GroupPolicy

SIZE = 8


class Parity(Resources):
    """The reward is the answer, 0 or 1."""

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return float(response.output_text)


def policy() -> ScriptedModel:
    """Answers 0 or 1 by the number of the repeat, with 64 tokens."""
    prompt, generated, logprobs = list(range(64)), list(range(64)), [-0.5] * 64

    def respond(request: Request) -> Response:
        repeat = int(str(request.session).rpartition("-")[2])
        return Response.of(message(str(repeat % 2)), model="m", tokens=Tokens(prompt, generated, logprobs, "0"))

    return ScriptedModel(respond)


async def plain(rows: list[dict[str, Any]]) -> int:
    """The collector; each rollout is turned into sequences."""
    result = await ludus.collect_async(Parity, model=policy(), input=rows, repeats=SIZE, tokens=True)
    return sum(len(list(rollout.sequences())) for rollout in result.rollouts)


async def contract(rows: list[dict[str, Any]]) -> int:
    """The contract, read group by group, with sequences and advantages."""
    count = 0
    async with GroupFeed(Parity, model=policy(), input=rows, policy=GroupPolicy(size=SIZE)) as feed:
        async for group in feed:
            group.advantages()
            count += sum(len(member.sequences) for member in group.members)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the contract with the plain collector.")
    parser.add_argument("--rollouts", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = [{"responses_create_params": {"input": f"q{n}"}} for n in range(options.rollouts // SIZE)]
    best = {"plain": 0.0, "contract": 0.0}
    for _ in range(options.rounds):
        for name, play in (("plain", plain), ("contract", contract)):
            began = time.process_time()
            count = asyncio.run(play(rows))
            if count != len(rows) * SIZE:
                raise RuntimeError(f"{name} delivered {count} of {len(rows) * SIZE} rollouts")
            best[name] = max(best[name], count / (time.process_time() - began))
    print(json.dumps({**best, "ratio": best["contract"] / best["plain"]}))


if __name__ == "__main__":
    main()

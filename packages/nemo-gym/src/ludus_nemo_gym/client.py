"""One question to a running agent, to see that it answers: `python -m ludus_nemo_gym.client`.

The agent is the first that runs, or the one named with `+agent_name=NAME`; the question is `+input='...'`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ludus.errors import Failure, UserError, did_you_mean
from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus_nemo_gym.doors import Arguments, door, options
from ludus_nemo_gym.running import TOKEN, find_running, head_url

QUESTION = "What is the weather in San Francisco?"


@door
def main(arguments: Arguments) -> int:
    """Ask a running agent one question and print everything that it, its model and its tools said.

    Example: python -m ludus_nemo_gym.client +agent_name=mcqa_simple_agent "+input='Which planet is largest?'"
    """
    from ludus.cli.screen import safe_json

    tree = options(arguments, {"agent_name", "input"})
    print(safe_json(asyncio.run(_ask(head_url(tree), tree.get("agent_name"), str(tree.get("input") or QUESTION)))))
    return 0


async def _ask(head: str, name: str | None, question: str) -> Any:
    from ludus.cli.screen import one_line

    agents = (await find_running(head)).agents
    if not agents:
        raise UserError(f"{head} knows no agent", "Start one with: ng_run '+config_paths=[...]'")
    chosen = name or next(iter(agents))
    if chosen not in agents:
        raise UserError(f"no agent {chosen} is running", did_you_mean(chosen, agents))
    async with connect(agents[chosen], TOKEN) as client:
        try:
            told = client.checked(await client.post("/v1/responses", encode({"input": question})))
        except Failure as error:
            raise UserError(one_line(f"{chosen}: {error.kind}: {error.cause}")) from error
    return told.get("output") if isinstance(told, dict) else told


if __name__ == "__main__":
    main()

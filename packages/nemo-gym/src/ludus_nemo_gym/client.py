"""Asks a running agent one question, to see that it answers: `python -m ludus_nemo_gym.client`.

`+agent_name=NAME` chooses the agent (default: the first that the head lists), `+input='...'` the question.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ludus.errors import Failure, UserError, did_you_mean
from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus_nemo_gym.agent_servers import find_running
from ludus_nemo_gym.entry_points import Arguments, entry_point, options
from ludus_nemo_gym.head import TOKEN, head_url

QUESTION = "What is the weather in San Francisco?"


@entry_point
def main(arguments: Arguments) -> int:
    """Ask a running agent one question and print its whole answer: messages, tool calls and tool results.

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
        raise UserError(f"{head} lists no agent", "Start one with: ng_run '+config_paths=[...]'")
    chosen = name or next(iter(agents))
    if chosen not in agents:
        raise UserError(f"no agent {chosen} is running", did_you_mean(chosen, agents))
    async with connect(agents[chosen], TOKEN) as client:
        try:
            reply = client.checked(await client.post("/v1/responses", encode({"input": question})))
        except Failure as error:
            raise UserError(one_line(f"{chosen}: {error.kind}: {error.cause}")) from error
    return reply.get("output") if isinstance(reply, dict) else reply


if __name__ == "__main__":
    main()

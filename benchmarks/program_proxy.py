"""What the proxy of programs costs for one model call with a long history, against a proxy that only passes bytes on.

python benchmarks/program_proxy.py            # a table; exit 1 if the ratio is above its bound
python benchmarks/program_proxy.py --json

A client plays programs: each sends Chat Completions with a history of 60,000 characters, and adds the answer, written
in its own way, and the output of a tool to its next request. 64 programs have a call in flight at once. Both proxies
are applications on our own server and ask the same stub with our own client, with the garbage collection of a
collection; stub and client are other processes. The time is the CPU of the process of the proxy, the smallest of three
runs.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from typing import Any

from measure import run_json

from ludus.agents.command_proxy import Proxy
from ludus.episode import Episode
from ludus.http.app import App
from ludus.http.client import Connections
from ludus.http.listening import Listening, bind
from ludus.http.messages import Incoming, Reply
from ludus.limits import Limits
from ludus.models import open_model
from ludus.resources import Resources
from ludus.rollout import Job
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.task import Task

CHARACTERS, MESSAGES, PROGRAMS, CALLS, RUNS = 60_000, 60, 64, 10, 3
MOST = 1.5
CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]


class Stub(App):
    """Answers every request with a call of a tool."""

    def __init__(self) -> None:
        super().__init__()
        self.routes["POST", CHAT] = self._answer
        call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
        message = {"role": "assistant", "content": "So:", "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        self._body = json.dumps(
            {"id": "1", "object": "chat.completion", "model": "policy", "choices": [choice]}
        ).encode()

    async def _answer(self, incoming: Incoming) -> Reply:
        return Reply(self._body)


class PassThrough(App):
    """Passes the bytes of a request on, and those of the reply back."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self._connections = Connections(upstream, {})
        self.routes["POST", CHAT] = self._pass_on

    async def _pass_on(self, incoming: Incoming) -> Reply:
        reply = await self._connections.request("POST", CHAT, incoming.body, {"content-type": "application/json"})
        return Reply(reply.body, reply.status)


def serve(app_of: Any, pipe: Any, *arguments: Any) -> None:
    """Serve an application in this process until the pipe closes; sends its URL, and at the end its CPU time."""

    async def main() -> None:
        listening = bind("the benchmark", "127.0.0.1", 0)
        server = Listening(app_of(*arguments), listening)
        await server.begin()
        pipe.send(f"http://127.0.0.1:{listening.getsockname()[1]}")
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await server.stop()

    asyncio.run(main())


def history(program: int) -> list[dict[str, Any]]:
    """A conversation of 60,000 characters that only this program has."""
    text = f"program {program}: " + "x" * (CHARACTERS // MESSAGES)
    return [{"role": "user" if number % 2 == 0 else "assistant", "content": text} for number in range(MESSAGES - 1)]


async def play(url: str, keys: list[str]) -> None:
    """All programs at once, each with its calls one after another."""

    async def program(number: int) -> None:
        connections = Connections(url, {"authorization": f"Bearer {keys[number]}", "content-type": "application/json"})
        messages = history(number)
        for call in range(CALLS):
            body = json.dumps({"model": "policy", "messages": messages, "tools": TOOLS}).encode()
            reply = await connections.request("POST", CHAT, body)
            assert reply.status == 200, reply.body[:300]
            answer = json.loads(reply.body)["choices"][0]["message"]
            for made in answer["tool_calls"]:
                made["function"]["arguments"] = json.dumps(json.loads(made["function"]["arguments"]), indent=1)
                output = {"role": "tool", "tool_call_id": made["id"], "content": f"output {call}"}
            messages += [answer, output]
        await connections.close()

    await asyncio.gather(*(program(number) for number in range(PROGRAMS)))


def play_in_process(url: str, keys: list[str]) -> None:
    asyncio.run(play(url, keys))


async def measured(way: str, upstream: str) -> float:
    """The CPU milliseconds of this process for one call."""
    loop = asyncio.get_running_loop()
    client = multiprocessing.get_context("spawn")

    async def timed(url: str, keys: list[str]) -> float:
        process = client.Process(target=play_in_process, args=(url, keys))
        began = time.process_time()
        process.start()
        await loop.run_in_executor(None, process.join)
        assert process.exitcode == 0
        return (time.process_time() - began) / (PROGRAMS * CALLS) * 1000

    if way == "bare":
        listening = bind("the bare proxy", "127.0.0.1", 0)
        server = Listening(PassThrough(upstream), listening)
        await server.begin()
        try:
            return await timed(f"http://127.0.0.1:{listening.getsockname()[1]}", ["none"] * PROGRAMS)
        finally:
            await server.stop()
    model = open_model(f"{upstream}/v1#policy", {"api": "chat"})
    async with model, Proxy() as proxy:
        episodes = [_episode(number, model) for number in range(PROGRAMS)]
        programs = [proxy.register(episode, 10 * CALLS) for episode in episodes]
        entered = [program.__enter__() for program in programs]
        try:
            return await timed(entered[0].url, [program.key for program in entered])
        finally:
            for program, episode in zip(programs, episodes, strict=True):
                program.__exit__(None, None, None)
                assert len(episode.calls) == CALLS, "each program is one conversation"


def _episode(number: int, model: Any) -> Episode:
    task = Task.unchecked({"responses_create_params": {"input": f"program {number}"}})
    return Episode(Job(f"{number}-0", str(number), 0, task, {}), Resources(), model, Limits())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", choices=["bare", "ludus"])
    parser.add_argument("--upstream")
    options = parser.parse_args()
    if options.way:
        with fewer_garbage_collections():
            print(json.dumps({"ms": asyncio.run(measured(options.way, options.upstream))}))
        return
    ours, theirs = multiprocessing.Pipe()
    stub = multiprocessing.get_context("spawn").Process(target=serve, args=(Stub, theirs), daemon=True)
    stub.start()
    upstream = ours.recv()
    command = [sys.executable, __file__, "--upstream", upstream, "--way"]
    results = {way: min(run_json([*command, way])["ms"] for _ in range(RUNS)) for way in ("bare", "ludus")}
    ours.send(None)
    stub.join()
    ratio = results["ludus"] / results["bare"]
    if options.json:
        print(json.dumps({**results, "ratio": ratio, "most": MOST}))
    else:
        print(f"CPU of a proxy for a call with {CHARACTERS:,} characters of history, {PROGRAMS} programs at once:")
        print(f"  passes bytes on   {results['bare']:.2f} ms\n  records threads   {results['ludus']:.2f} ms")
        print(f"  ratio             {ratio:.2f} (at most {MOST})")
    sys.exit(ratio > MOST)


if __name__ == "__main__":
    main()

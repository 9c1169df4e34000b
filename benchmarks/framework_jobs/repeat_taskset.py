"""The job's taskset for verifiers, and a harness that asks the model in this process.

verifiers' own harness without tools, `null`, starts a Python process for each rollout. A harness like this one is its
cheapest documented form for a single question. The tool is served over MCP, which is the framework's only way, by one
server for all rollouts, the cheaper of its two.
"""

import json
from contextlib import AsyncExitStack

import verifiers.v1 as vf
from job import answer, prompt
from look_up_tools import LookUp
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.mcp.toolset import SharedToolsetConfig
from verifiers.v1.runtimes import ProgramResult


class RepeatData(vf.TaskData):
    number: int


class RepeatTask(vf.Task[RepeatData]):
    @vf.reward(weight=1.0)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == answer(self.data.number))


class RepeatConfig(vf.TasksetConfig):
    num_tasks: int = 10
    with_tool: bool = False
    tools: SharedToolsetConfig = SharedToolsetConfig()


class RepeatTaskset(vf.Taskset[RepeatTask, RepeatConfig]):
    def load(self) -> list[RepeatTask]:
        numbers = range(self.config.num_tasks)
        return [
            RepeatTask(RepeatData(idx=number, prompt=prompt(number), number=number), self.config.task)
            for number in numbers
        ]

    @classmethod
    def toolsets(cls, config: RepeatConfig) -> list[vf.Toolset]:
        return [LookUp(config.tools)] if config.with_tool else []


class AskConfig(HarnessConfig):
    pass


class AskHarness(vf.Harness[AskConfig]):
    """One request for each rollout, and another one after the call of a tool."""

    SUPPORTS_MCP = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    http: DefaultAsyncHttpxClient | None = None

    async def launch(
        self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None
    ) -> ProgramResult:
        if self.http is None:
            AskHarness.http = DefaultAsyncHttpxClient()
        client = AsyncOpenAI(base_url=endpoint, api_key=secret, http_client=self.http, max_retries=2)
        messages = [{"role": "user", "content": data.prompt}]
        async with AsyncExitStack() as stack:
            config = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
            tools, dispatch, servers = await connect_mcp(config, stack)
            offered = {"tools": tools} if tools else {}
            while True:
                said = await client.chat.completions.create(model=ctx.model, messages=messages, **offered)
                message = said.choices[0].message
                if not message.tool_calls:
                    return ProgramResult(0, message.content or "", "")
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls:
                    arguments = json.loads(call.function.arguments)
                    output = await call_mcp(servers, dispatch, call.function.name, arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


__all__ = ["AskHarness", "RepeatTaskset"]

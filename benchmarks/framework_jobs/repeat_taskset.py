"""The job's taskset for verifiers, and a harness that asks the model in this process.

verifiers' own harness without tools, `null`, starts a Python process for each rollout. A harness like this one is its
cheapest documented form for a single question.
"""

import verifiers.v1 as vf
from job import answer, prompt
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult


class RepeatData(vf.TaskData):
    number: int


class RepeatTask(vf.Task[RepeatData]):
    @vf.reward(weight=1.0)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == answer(self.data.number))


class RepeatConfig(vf.TasksetConfig):
    num_tasks: int = 10


class RepeatTaskset(vf.Taskset[RepeatTask, RepeatConfig]):
    def load(self) -> list[RepeatTask]:
        numbers = range(self.config.num_tasks)
        return [
            RepeatTask(RepeatData(idx=number, prompt=prompt(number), number=number), self.config.task)
            for number in numbers
        ]


class AskConfig(HarnessConfig):
    pass


class AskHarness(vf.Harness[AskConfig]):
    """One request for each rollout."""

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
        said = await client.chat.completions.create(model=ctx.model, messages=messages)
        return ProgramResult(0, said.choices[0].message.content or "", "")


__all__ = ["AskHarness", "RepeatTaskset"]

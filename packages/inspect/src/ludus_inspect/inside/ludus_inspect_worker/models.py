"""Inspect's models: the policy, judges and simulated users. All are on the other end of the channel."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from .channel import WorkerChannel
from .messages import Item, items_of_message, output_of, request_of
from .private import answer_roles, put_model, replace_providers, sample_active
from .samples import SampleFeed

#: The route of the model that a rollout is about.
POLICY = "policy"
#: Providers that stay as they are: they call nobody.
_KEPT = {"ludus", "mockllm", "none"}
_CONNECTIONS = 1_000_000  # how many calls are in flight is not decided here


class ChannelModel(ModelAPI):
    """A model on the other end. Its name is its route: `policy`, a role, or `PROVIDER/NAME`."""

    channel: WorkerChannel
    feed: SampleFeed

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Ask, once for each of the choices that a task wants."""
        request = request_of(input, tools, tool_choice, config)
        outputs = [await self._ask(input, tools, request) for _ in range(config.num_choices or 1)]
        outputs[0].choices = [choice for output in outputs for choice in output.choices]
        return outputs[0]

    async def _ask(self, messages: list[ChatMessage], tools: list[ToolInfo], request: dict[str, Any]) -> ModelOutput:
        active = sample_active()
        job = self.feed.job_of(active.sample.id, active.epoch) if active is not None else None
        written = job.written if job is not None else {}
        items = [item for message in messages for item in _as_written(message, written)]
        body = {**request, "input": items}
        answer = await self.channel.ask(op="model", job=job.number if job else None, route=self.model_name, body=body)
        output = output_of(answer, tools, self.model_name)
        message = output.message
        if message.id is not None:
            written[message.id] = (_content(message), answer.get("output") or [])
        return output

    def max_connections(self) -> int:
        """No limit."""
        return _CONNECTIONS

    def connection_key(self) -> str:
        """Routes do not wait for each other."""
        return str(self.model_name)

    def collapse_user_messages(self) -> bool:
        """Keep messages apart: the other end knows what its model takes."""
        return False


def _as_written(message: ChatMessage, written: dict[str, tuple[Any, list[Item]]]) -> list[Item]:
    """A message as items. A turn of the model is as the model wrote it, unless a solver has changed it."""
    known = written.get(message.id or "") if isinstance(message, ChatMessageAssistant) else None
    if known is not None and known[0] == _content(message):
        return known[1]
    return items_of_message(message)


def _content(message: ChatMessage) -> Any:
    return message.model_dump(include={"content", "tool_calls"})


def install_models(channel: WorkerChannel, feed: SampleFeed) -> Model:
    """Make every model of Inspect one of the other end's. Returns the policy."""
    ChannelModel.channel, ChannelModel.feed = channel, feed
    modelapi(name="ludus")(ChannelModel)
    replace_providers(ChannelModel, _KEPT)
    answer_roles(lambda role: get_model(f"ludus/{role}"))
    policy = get_model(f"ludus/{POLICY}")
    put_model(policy)
    return policy

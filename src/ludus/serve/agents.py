"""An agent server: a row in, a verified rollout out.

`POST /run` plays a whole rollout and replies with its row and reward. A failed rollout is an HTTP error with its stage,
kind and cause, and no reward. `POST /v1/responses` plays without a verdict, for clients that want only the agent's
output; the other dialects work too. If the operator allows it, a request may name its model as
`policy`: trainers hand out an endpoint for each rollout.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from ludus.agents.simple import SimpleAgent
from ludus.agents.single_turn import SingleTurnAgent
from ludus.collection.player import Player
from ludus.episode import play
from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.http.model_routes import ModelRoutes
from ludus.model import Model
from ludus.remote.http import ROLLOUT
from ludus.resources import Resources
from ludus.rollout import Job, Rollout, rollout_id
from ludus.runtime.encoding import encode
from ludus.serve.behind import MetricsRoute
from ludus.serve.openapi import describe_agent
from ludus.serve.policies import Policies
from ludus.serve.resources import checked_task, refused_row, requested_seed, with_verdict
from ludus.store.model_calls import without_tokens
from ludus.task import Task, derive_seed, digest
from ludus.token_fields import put_tokens
from ludus.tokens import Tokens

ROLLOUT_HEADER = ROLLOUT.encode()
#: Agents that read only the prompt of a row.
_TOOL_LOOPS = (SimpleAgent, SingleTurnAgent)


class AgentApp(ModelRoutes):
    """One environment's agent over HTTP, with its resources and a model in the same process or behind URLs."""

    def __init__(
        self,
        player: Player,
        *,
        guard: Guard | None = None,
        allowed_policies: tuple[str, ...] = (),
        tokens: bool = False,
    ) -> None:
        super().__init__(guard)
        self.environment = player.environment
        self.model_name = player.environment.name
        self._player = player
        self._policies = Policies(allowed_policies, tokens)
        self._tokens = tokens
        self.played = 0
        self.routes |= {
            ("POST", "/run"): self.run,
            ("POST", "/aggregate_metrics"): MetricsRoute(player.environment, player.shared),
            ("GET", "/openapi.json"): self.openapi,
        }

    async def stop(self) -> None:
        """Close the connections to the policies of requests."""
        await self._policies.stop()

    def state(self) -> dict[str, float]:
        """How many rollouts were played."""
        return super().state() | {"rollouts_total": self.played}

    async def run(self, incoming: Incoming) -> Reply:
        """Play the rollout of a row and reply with its record."""
        row = incoming.json()
        if self.environment.resources.by_group:
            raise Refusal(400, "this environment judges the rollouts of a task together: collect it with ludus collect")
        async with self._policies.use(row.pop("policy", None)) as policy:
            job = self._job(incoming, row, checked_task(self.environment, row))
            rollout = await incoming.cancel_on_disconnect(self._play(job, policy or self._player.model))
        if rollout.error is not None:
            raise rollout.error
        from_ludus = incoming.header(ROLLOUT_HEADER) is not None
        return Reply(encode(_result(rollout) if from_ludus else self._record(rollout)))

    async def respond_to(self, incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
        """Play a request: the reply holds all items of the model and the tools, and no verdict.

        Other dialects than Responses have no place for the outputs of tools: they get the last turn.
        """
        response = await self._act(incoming, body)
        return response if incoming.path == "/v1/responses" else _last_turn(response)

    async def openapi(self, incoming: Incoming) -> Reply:
        """The routes."""
        return Reply.of(describe_agent(self.environment))

    async def _play(self, job: Job, model: Model) -> Rollout:
        player = self._player if model is self._player.model else self._player.asking(model)
        rollout = await player.play(player.episode(job))
        self.played += 1
        return rollout

    async def _act(self, incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
        params = {key: value for key, value in body.items() if key not in ("model", "stream", "stream_options")}
        row = {"responses_create_params": {key: value for key, value in params.items() if value is not None}}
        environment, agent = self.environment, self._player.agent
        reads_the_row = environment.resources.open is not Resources.open or not isinstance(agent, _TOOL_LOOPS)
        task = checked_task(environment, row) if reads_the_row else _plain_task(row)
        episode = self._player.episode(self._job(incoming, row, task))
        rollout = await incoming.cancel_on_disconnect(play(episode, agent, verify=False))
        if rollout.error is not None:
            raise rollout.error
        assert rollout.response is not None
        return {**rollout.response.data, "output": list(rollout.response.output)}

    def _job(self, incoming: Incoming, row: dict[str, Any], task: Task) -> Job:
        rollout, seed = incoming.header(ROLLOUT_HEADER) or incoming.rollout, requested_seed(incoming)
        name = str(row.get("task_id") or digest(row))
        number = row.get("_ng_rollout_index")
        repeat = number if isinstance(number, int) else 0
        return Job(
            rollout or rollout_id(name, repeat),
            name,
            repeat,
            task,
            row,
            seed=seed if seed is not None else derive_seed(0, rollout or name, repeat),
            environment=self.environment.name,
        )

    def _record(self, rollout: Rollout) -> dict[str, Any]:
        """The rollout's row with the tokens of each call on its last item, as NeMo Gym's clients expect."""
        row = rollout.to_row()
        assert rollout.verdict is not None
        row |= {"agent_ref": rollout.job.row.get("agent_ref") or row["agent_ref"]}
        row.setdefault("verdict_fields", [])
        if rollout.verdict.mask:
            row = with_verdict(row, rollout.verdict)
        if self._tokens:
            row["response"] = _with_tokens(rollout)
        row["model_calls"] = [without_tokens(call) for call in rollout.calls]
        return row


def _plain_task(row: dict[str, Any]) -> Task:
    try:
        return Task.model_validate(row)
    except ValidationError as error:
        raise refused_row(error, skip=1) from error


def _last_turn(response: dict[str, Any]) -> dict[str, Any]:
    """The response with only what the model wrote after its last tool call."""
    output = response["output"]
    outputs = [index for index, item in enumerate(output) if item.get("type") == "function_call_output"]
    return {**response, "output": output[outputs[-1] + 1 :] if outputs else output}


def _result(rollout: Rollout) -> dict[str, Any]:
    """The reply to a `RemoteAgent`: without the task, and with tokens as a record stores them."""
    row = rollout.to_row()
    assert rollout.verdict is not None
    fields = {key: row[key] for key in ("response", "stop_reason", "usage", "model_calls", "tool_errors") if key in row}
    return with_verdict({}, rollout.verdict) | fields


def _with_tokens(rollout: Rollout) -> dict[str, Any]:
    """The response with the tokens of each model call on the last item that the call wrote."""
    assert rollout.response is not None
    output, place = list(rollout.response.output), 0
    for call, tokens in zip(rollout.calls, _full_tokens(rollout.calls), strict=True):
        place = call.get("at", place)
        while place < len(output) and not _is_by_model(output[place]):
            place += 1
        place += call["items"]
        if tokens is not None and call["items"]:
            last = [output[place - 1]]
            put_tokens(last, tokens)
            output[place - 1] = last[0]
    return {**rollout.response.data, "output": output}


def _full_tokens(calls: list[dict[str, Any]]) -> list[Tokens | None]:
    """All tokens of each call, rebuilt from the deltas between calls."""
    before: list[int] = []
    full: list[Tokens | None] = []
    for call in calls:
        if "prefix" not in call:
            full.append(None)
            continue
        prompt = before[: call["prefix"]] + call["prompt_ids"]
        full.append(
            Tokens(prompt, call["generated_ids"], call["logprobs"], call["policy_version"], call.get("sampling"))
        )
        before = prompt + call["generated_ids"]
    return full


def _is_by_model(item: dict[str, Any]) -> bool:
    return item.get("type") != "function_call_output" and item.get("role", "assistant") == "assistant"

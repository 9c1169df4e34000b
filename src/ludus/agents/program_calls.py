"""The model calls of one rollout's program: its key, its limits, and the answers that it got.

The calls become the threads of the rollout (see `program_threads`). A call that the program repeats because the reply
got lost is made once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar, Literal

from ludus.agents.program_conversation import ProgramConversation, Turn
from ludus.agents.program_journal import ProgramJournal
from ludus.agents.program_requests import asked_params, no_items, passed_on, tokens_of
from ludus.agents.program_threads import ProgramConversations
from ludus.agents.stored_responses import StoredResponses, refuse_elsewhere
from ludus.agents.volatile import VolatileText
from ludus.dialects.client_tools import ClientTools
from ludus.dialects.errors import CONTEXT_LENGTH
from ludus.episode import Episode, refuse_aborted, stamp_version
from ludus.errors import Failure
from ludus.http.exchange import HttpExchange, exchange_of
from ludus.http.growing_requests import GrowingRequests
from ludus.http.messages import Incoming, Refusal
from ludus.http.replies import envelope
from ludus.model import Model, Request
from ludus.response import Response
from ludus.runtime.boundary import step

_WRONG = {"bad_request", "http_400", "http_413", "http_422"}  # a request that a model's command may have written
FAILURES = 3  # failed calls in a row after which a program may end: it would try again for minutes
#: The most bytes of a program's conversations. Each counts as its longest request, so a long history counts once.
HISTORY_BYTES = 128 << 20
REMEMBERED = 16  # delivered answers that are kept, for a client that did not receive its copy

Body = dict[str, Any]
ServerTools = Literal["refuse", "drop"]
_Key = tuple[int, int]


class _Call:
    """A call to the model: its answer, the task that asks for it, and the exchanges that it is the answer of."""

    def __init__(self, client: HttpExchange | None) -> None:
        self.answer: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self.task = asyncio.current_task()
        self.clients = [client]

    @property
    def is_lost(self) -> bool:
        """Whether every client left before it had the whole reply: the same request once more is a retry."""
        return all(client is not None and client.disconnected for client in self.clients)

    @property
    def has_failed(self) -> bool:
        """Whether there is no answer, and will be none: the same request once more asks the model again."""
        return self.answer.done() and (self.answer.cancelled() or self.answer.exception() is not None)


class ProgramCalls:
    """The calls of one rollout's program: its key, and the answers that it got.

    `asked_sampling` is how the program wanted to sample.
    """

    sampling_is_operators: ClassVar[bool] = True
    #: whether a prompt beyond the model's context is an error, as programs expect it, or an empty, incomplete answer
    refuses_long_prompts: ClassVar[bool] = True

    def __init__(
        self,
        episode: Episode,
        url: str,
        max_calls: int,
        *,
        token_budget: int | None = None,
        restores: bool = True,
        beside_policy: bool = False,
        is_side: Callable[[str], bool] | None = None,
        volatile: VolatileText | None = None,
    ) -> None:
        self.restored = 0  #: items that the program wrote in its own way, and that the model got as it wrote them
        self.calls = 0  #: answered model calls of all conversations
        self.too_long = 0  #: calls whose prompt exceeded the model's context
        self.tokens = 0  #: read and written by the model in all calls, if there is a budget
        self._settled = 0, 0
        self.key = secrets.token_urlsafe(24)
        self.at_once, self.bytes_at_once = 0, 0  #: requests that are being answered, and what their bodies have
        self.url = url
        self.asked_sampling: Body = {}
        self.journal = ProgramJournal(episode.recorder, volatile or VolatileText())
        self.stored = StoredResponses()
        self.requests = GrowingRequests()
        self.server_tools: ServerTools = "refuse"  #: what happens to tools that the policy cannot use
        self.dropped_tools: set[str] = set()
        self.dialects: set[str] = set()  #: of the routes that the program called
        self.tool_failure: Failure | None = None  #: why a tool of the task could not run
        self.has_played = False  #: whether the model has answered: what the program does then may be the model's doing
        self.refused = 0  #: calls of a program beside its policy that the model's server found wrong
        self.error = ""  #: how the program ended, if that was an error
        self._beside_policy = beside_policy  # commands of the model run beside the program, and may use its key
        self.model_seconds = 0.0  #: how long the program waited for the model
        self.stop = asyncio.Event()  #: set when no further call can be answered: the program may end
        self._waiting, self._asked_at = 0, 0.0  # calls that the model has not answered, and since when
        self._failures: list[Failure] = []  # of the last calls, in a row
        self._episode = episode
        self._max_calls, self._token_budget = max_calls, token_budget
        self._reached: str | None = None  # the limit that a call was refused for
        self._conversations = ProgramConversations(
            list(episode.items), restores=restores, is_side=is_side, beside_policy=beside_policy
        )
        self._calls: OrderedDict[_Key, _Call] = OrderedDict()
        self._answering: dict[asyncio.Future[Body], _Call] = {}

    async def answer(self, incoming: Incoming, body: Body) -> Body:
        """The model's answer to one request. A repeated request gets the answer of the first."""
        key = len(incoming.body), hash(incoming.body)  # with a seed that no program knows
        call = self._calls.get(key)
        is_retry = (incoming.header(b"x-stainless-retry-count") or "0") != "0"
        if call is None or call.has_failed or not (is_retry or call.is_lost):
            await self._wait_for_a_step()
            self._refuse_beyond_limits()
            call = _Call(exchange_of(incoming.receive))
            self._remember(key, call)
            return await self._ask(call, body, len(incoming.body))
        call.clients.append(exchange_of(incoming.receive))
        return await incoming.cancel_on_disconnect(asyncio.shield(call.answer))

    async def _ask(self, call: _Call, body: Body, size: int) -> Body:
        """Make a call to its end, also for a client that leaves: it may ask the same again."""
        self._answering[call.answer] = call
        try:
            response = await self._call_model(body, size)
        except asyncio.CancelledError:
            call.answer.cancel()
            raise
        except BaseException as error:
            call.answer.set_exception(error)
            call.answer.exception()  # nobody else may wait for it
            raise
        finally:
            del self._answering[call.answer]
        call.answer.set_result(response)
        return response

    async def _wait_for_a_step(self) -> None:
        """Wait while the calls under way may be the last ones that the settings allow."""
        while self._answering and self._steps + len(self._answering) >= self._max_calls:
            await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)

    def _refuse_beyond_limits(self) -> None:
        """Refuse a call after the last one that the settings allow. The program may end then."""
        self._refuse_large_histories()
        if self._steps >= self._max_calls:
            self._reached, spent = "max_steps", f"made all of its {self._max_calls} model calls"
        elif self._token_budget is not None and self.tokens >= self._token_budget:
            self._reached, spent = "token_budget", f"used {self.tokens:,} of its {self._token_budget:,} tokens"
        else:
            return
        self.stop.set()
        raise Refusal(400, f"this rollout has {spent} (agent.{self._reached})")

    def _refuse_large_histories(self) -> None:
        """Refuse a call of a program that sends ever new histories: all of them are kept for the record."""
        kept = sum(conversation.bytes for conversation in self._conversations)
        if kept > HISTORY_BYTES:
            self._reached = "history_bytes"
            self.stop.set()
            most = f"more than the {HISTORY_BYTES:,} that a rollout may have"
            raise Refusal(400, f"the conversations of this rollout have {kept:,} bytes, {most}: repeat earlier ones")

    @property
    def _steps(self) -> int:
        return self.calls + self.too_long + self.refused

    @property
    def stop_reason(self) -> str | None:
        """The limit that the rollout reached, if it did: of its calls, its tokens or its prompt."""
        return self._reached or ("max_output_tokens" if self._conversations.too_long() else None)

    def reason(self, name: str, error: str, said: str = "") -> str:
        """Why the rollout stopped; raises its failure. `error` says how the program ended, if it was with an error.

        `said` is what it printed.

        A model whose commands run beside the program can end it, and some programs fail at an empty answer. Such a
        model gets a verdict on what it left all the same.
        """
        self.error = error
        if self.stop_reason is not None:  # most programs end with an error then: the model's doing
            return self.stop_reason
        if (failure := self.failure or self.tool_failure) is not None:  # some programs end well all the same
            raise failure
        if error and not self.too_long:
            if self._beside_policy and self.has_played:
                return "program_ended"
            raise Failure("exit", f"{name} ended{error}")
        if error:  # some programs shorten a prompt that was too long, go on, and still report the refusal at their end
            last = self._conversations.last_answer()
            return "max_output_tokens" if last is None or last.function_calls else "completed"
        if not self.calls:
            raise Failure("no_calls", f"{name} never called the model{said}")
        return "completed"

    @property
    def model(self) -> Model:
        """The model of the rollout."""
        return self._episode.model

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run a tool of the task. Its output enters the trajectory with the program's next model call."""
        episode = self._episode
        try:
            output: str = await step("tool", episode.limits.tool, episode.call_tool(name, arguments))
        except Failure as error:
            self.tool_failure = error
            raise
        return output

    @property
    def tools(self) -> list[Body]:
        """The tools of the task."""
        return self._episode.params.get("tools") or []

    @property
    def failure(self) -> Failure | None:
        """Why the last model call of the main thread failed, or the last calls of all; None if they did not."""
        return self._failures[-1] if len(self._failures) >= FAILURES else self._conversations.failure()

    def settle(self) -> None:
        """Make the conversations so far the threads of the rollout, unless they are already."""
        so_far = self.calls, self.too_long
        if self._settled != so_far and (last := self._conversations.last_answer()) is not None:
            self._settled = so_far
            self._episode.take_threads(self._conversations.threads(), last)

    def close(self) -> None:
        """Cancel the calls that are still running, and settle the threads."""
        for call in self._answering.values():
            if call.task is not None:
                call.task.cancel()
        self.settle()
        for conversation in self._conversations:
            if conversation.number:
                self._episode.model.forget(conversation.session(self._episode.job.rollout_id))

    def _remember(self, key: _Key, call: _Call) -> None:
        """Keep a call for a client that repeats it, and drop old calls that are over."""
        calls = self._calls
        calls[key] = call
        calls.move_to_end(key)
        for old in list(calls):
            if len(calls) <= REMEMBERED:
                break
            call = calls[old]
            if call.has_failed or (call.answer.done() and not call.is_lost):
                del calls[old]

    async def _call_model(self, body: Body, size: int = 0) -> Body:
        """The answer to a request of `size` bytes whose items were read with `read_items`."""
        tools = ClientTools(body.get("tools"))
        asked = tools.request(body)
        content = asked.get("input")
        items = [{"role": "user", "content": content}] if isinstance(content, str) else content
        if not isinstance(items, list):
            raise no_items()
        params = self._params(asked)
        conversation, turn = self._conversations.join(items, params)
        while conversation.lock.locked():  # its history is about to change: look again when its call is answered
            async with conversation.lock:
                pass
            conversation, turn = self._conversations.join(items, params)
        if self._beside_policy:
            refuse_elsewhere(turn.items[turn.known :])
        conversation.bytes = max(conversation.bytes, size)
        self._refuse_large_histories()
        async with conversation.lock:
            response = self.journal.known_answer(conversation, turn)
            if response is None:
                response = await self._respond(conversation, turn, params)
                await self.journal.saved()
                self._refuse_too_long(conversation, turn, response)
                self.journal.record(conversation, turn, response, params.get("tools"))
            conversation.take(items, turn, response)
            self.calls += 1
            self.has_played = self.has_played or not conversation.is_side
            if self._token_budget is not None:
                self.tokens += tokens_of(response, turn.items, params)
            self.restored += turn.changed
        return tools.answer(envelope(response, body, self._episode.model.name, tokens=False))

    def _refuse_too_long(self, conversation: ProgramConversation, turn: Turn, response: Response) -> None:
        """Refuse a call whose prompt exceeds the model's context, as model servers do: programs shorten it then."""
        if self.refuses_long_prompts and (why := response.prompt_too_long) is not None:
            conversation.unread = turn, response
            self.too_long += 1
            raise Refusal(400, why, code=CONTEXT_LENGTH)

    async def _respond(self, conversation: ProgramConversation, turn: Turn, params: Body) -> Response:
        episode, job = self._episode, self._episode.job
        request = Request(
            turn.items,
            session=conversation.session(job.rollout_id),
            seed=job.seed,
            turn=self.calls,
            deadline=perf_counter() + episode.limits.model,
            tokens=conversation.log.last,
            params=params,
        )
        episode.recorder.asked_version = version = episode.model.policy_version
        self._waiting += 1
        if self._waiting == 1:
            self._asked_at = perf_counter()
        episode.recorder.enter("model")
        try:
            response: Response = await step("model", episode.limits.model, episode.model.respond(request))
            refuse_aborted(response)
        except Failure as error:
            if self._beside_policy and self.has_played and error.kind in _WRONG:
                self.refused += 1
                raise
            conversation.failure = error
            self._failures.append(error)
            if len(self._failures) >= FAILURES:
                self.stop.set()
            raise
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.model_seconds += perf_counter() - self._asked_at
                episode.recorder.enter("agent")
        conversation.failure = None
        self._failures.clear()
        stamp_version(response, version)
        return response

    def _params(self, body: Body) -> Body:
        """The parameters of a call."""
        if not self.sampling_is_operators:
            return asked_params(body)
        params, left_out = passed_on(body, self._episode.params)
        self.asked_sampling = left_out | self.asked_sampling
        return params

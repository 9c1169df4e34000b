"""The scripted rollouts: known ids, masks, logprobs and rewards; failures, stragglers, several sequences, threads,
versions of the weights.

Each task is one kind of trouble. Its repeats play fixed model calls. Every generated id occurs once in the whole
script, so that a token in the trainer's data says which rollout it came from.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import ludus
from ludus.agents.simple import SimpleAgent
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.outcome import Verdict
from ludus.resources import Resources, tool
from ludus.response import Response, function_call, message
from ludus.runtime.numbers import whole_number
from ludus.thread import TRAINED, Thread, ThreadKind
from ludus.tokens import TokenLog, Tokens
from ludus.train.policy import GroupPolicy

SIZE = 4

#: All ids of the script are smaller than this.
VOCABULARY = 512
_FIRST_GENERATED = 64


@dataclass
class ScriptedCall:
    """One model call: the whole prompt, what is generated after it, and the version of the weights."""

    prompt: list[int]
    generated: list[int]
    version: int = 0

    @property
    def logprobs(self) -> list[float]:
        """A logprob for each generated id, different for every id."""
        return [-id / VOCABULARY for id in self.generated]


@dataclass
class ScriptedSequence:
    """A sequence that the trainer must get. `version` is the oldest of the weights that wrote its rollout."""

    reward: float
    version: int
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass
class ScriptedThread:
    """A conversation beside the main one: a sub-agent, perhaps with a reward of its own, or a side call."""

    name: str
    kind: ThreadKind
    calls: list[ScriptedCall]
    reward: float | None = None


@dataclass
class ScriptedRollout:
    """What one repeat does: `end` is completed, masked, failed (by the verifier), refused (by the policy), late,
    spans (too many updates of the weights) or stale."""

    calls: list[ScriptedCall]
    reward: float
    end: str = "completed"
    threads: list[ScriptedThread] = field(default_factory=list)

    def sequences(self) -> list[ScriptedSequence]:
        """The sequences with masks and logprobs that the trainer must get."""
        trained = [thread for thread in self.threads if thread.kind in TRAINED]
        version = min(call.version for calls in (self.calls, *(t.calls for t in trained)) for call in calls)
        sequences = _sequences(self.calls, self.reward, version)
        for thread in trained:
            sequences += _sequences(thread.calls, self.reward if thread.reward is None else thread.reward, version)
        return sequences


def _sequences(calls: list[ScriptedCall], reward: float, version: int) -> list[ScriptedSequence]:
    sequences: list[ScriptedSequence] = []
    for call in calls:
        if not sequences or call.prompt[: len(sequences[-1].ids)] != sequences[-1].ids:
            sequences.append(ScriptedSequence(reward, version))
        current = sequences[-1]
        context = call.prompt[len(current.ids) :]
        current.ids += [*context, *call.generated]
        current.mask += [*[0] * len(context), *[1] * len(call.generated)]
        current.logprobs += [*[0.0] * len(context), *call.logprobs]
    return sequences


@dataclass
class ConformanceScript:
    """Tasks by name, each with its rollouts by repeat. `rows`, `model`, `environment` and `policy` play them."""

    tasks: dict[str, list[ScriptedRollout]] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows to play."""
        return [{"responses_create_params": {"input": name}, "task_id": name} for name in self.tasks]

    @property
    def policy(self) -> GroupPolicy:
        """Groups of four without replacements. The deadline closes the group of the straggler."""
        return GroupPolicy(size=SIZE, replacements=0, deadline=3.0, max_span=1, max_staleness=2)

    def model(self) -> ScriptedModel:
        """The policy that plays the script."""

        async def respond(request: Request) -> Response:
            rollout = self.find(str(request.input[0]["content"]), str(request.session))
            if rollout.end == "refused":
                raise Failure("http_500", "the scripted policy fails here")
            if rollout.end == "late":
                await asyncio.Event().wait()
            call = rollout.calls[request.turn]
            last = request.turn == len(rollout.calls) - 1
            item = message(str(rollout.reward)) if last else function_call("look", {}, call_id=f"c{request.turn}")
            return Response.of(item, model="scripted", tokens=_tokens(call))

        return ScriptedModel(respond)

    def environment(self) -> Environment:
        """An environment with one tool, whose verifier gives the scripted rewards and whose agent has threads."""
        script = self

        class Scripted(Resources):
            """Plays the script."""

            @tool
            async def look(self) -> str:
                """Look."""
                return "seen"

            async def verify(self, task: ludus.Task, response: Response) -> Verdict:
                rollouts = script.tasks[str(task.responses_create_params["input"])]
                reward = float(response.output_text)
                rollout = next(rollout for rollout in rollouts if rollout.reward == reward)
                if rollout.end == "failed":
                    raise RuntimeError("the scripted verifier fails here")
                own = {thread.name: thread.reward for thread in rollout.threads if thread.reward is not None}
                return Verdict(reward, mask="scripted" if rollout.end == "masked" else None, thread_rewards=own)

        class Threaded(SimpleAgent):
            """Holds the conversations of the script beside the main one."""

            async def act(self, episode: Episode) -> str:
                reason = await super().act(episode)
                rollout = script.find(str(episode.task.responses_create_params["input"]), episode.job.rollout_id)
                episode.recorder.threads += [_thread(thread) for thread in rollout.threads]
                return reason

        return replace(Environment.load(Scripted), agent=Threaded(Threaded.Config()))

    def find(self, task: str, session: str) -> ScriptedRollout:
        """The rollout of a session, whose id ends with the number of the repeat.

        A trainer that asks for single rollouts plays the task once for each: `task.v3-0` is its third rollout.
        """
        name, _, repeat = session.rpartition("-")
        visit = name.rpartition(".v")[2]
        return self.tasks[task][int(repeat) + ((whole_number(visit) or 1) - 1)]


def _tokens(call: ScriptedCall) -> Tokens:
    return Tokens([*call.prompt], [*call.generated], call.logprobs, str(call.version), {"temperature": 1.0})


def _thread(scripted: ScriptedThread) -> Thread:
    log, calls = TokenLog(), []
    for at, call in enumerate(scripted.calls):
        calls.append({"items": 1, "at": at, **log.add(_tokens(call))})
    return Thread(scripted.name, scripted.kind, items=[message("done") for _ in calls], calls=calls)


def script() -> ConformanceScript:
    """The script of the kit. Rewards of a task differ, so that they identify a rollout."""
    ids = count(_FIRST_GENERATED)

    def new(length: int) -> list[int]:
        return [next(ids) for _ in range(length)]

    def single(prompt: list[int], length: int) -> list[ScriptedCall]:
        return [ScriptedCall(prompt, new(length))]

    def turns(prompt: list[int], *, broken: bool = False, versions: tuple[int, int] = (0, 0)) -> list[ScriptedCall]:
        first = ScriptedCall(prompt, new(2), versions[0])
        start = [*prompt, 40] if broken else [*prompt, *first.generated]
        return [first, ScriptedCall([*start, 41, 42, 43], new(3), versions[1])]

    scripted = ConformanceScript()

    def add(name: str, rollouts: list[ScriptedRollout]) -> None:
        scripted.tasks[name] = rollouts

    rewards = (0.0, 1.0, 0.25, 0.5)
    add("plain", [ScriptedRollout(single([1, 2], n + 1), reward) for n, reward in enumerate(rewards)])
    add("tools", [ScriptedRollout(turns([3, 4]), reward) for reward in rewards])
    several = [ScriptedRollout(turns([5], broken=n > 1), reward) for n, reward in enumerate(rewards)]
    add("several sequences", several)
    spans = [ScriptedRollout(turns([6], versions=(n, n + 1)), reward) for n, reward in enumerate(rewards)]
    spans[3] = ScriptedRollout(turns([6], versions=(0, 3)), rewards[3], "spans")
    add("version changes", spans)
    stale = [ScriptedRollout(turns([10], versions=(0, 0)), reward) for reward in rewards]
    stale[1] = ScriptedRollout(turns([10], versions=(-3, -3)), rewards[1], "stale")
    add("stale", stale)
    threads = [ScriptedRollout(single([11], 2), reward) for reward in rewards]
    threads[1].threads = [ScriptedThread("1", "agent", turns([12])), ScriptedThread("2", "side", single([13], 2))]
    threads[2].threads = [ScriptedThread("1", "agent", single([14], 3), reward=0.75)]
    add("threads", threads)
    for name, prompt, ends in (
        ("failures", 7, ("completed", "failed", "completed", "refused")),
        ("masked", 8, ("completed", "completed", "masked", "completed")),
        ("straggler", 9, ("completed", "completed", "completed", "late")),
    ):
        earned = (0.0, 1.0, 100.0, 50.0) if name == "masked" else rewards
        add(name, [ScriptedRollout(single([prompt], 2), r, end) for r, end in zip(earned, ends, strict=True)])
    assert next(ids) < VOCABULARY
    return scripted

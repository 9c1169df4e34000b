"""A model of an inference server: continuous batching, a KV cache of limited size, a prefix cache, preemption.

Time is an argument of nothing here: `step` advances the engine by a fixed slice, so the same model serves a simulation
of hundreds of servers and a stub behind HTTP. A prompt is a chain of blocks, each named by all of what it stands after;
a block that is in the cache is not computed again. Running requests pin their blocks. When a block finds no place, the
oldest unpinned one is dropped; if all are pinned, the youngest request is preempted and starts over.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

Block = tuple[Hashable, int]  #: its name, and its tokens


@dataclass(frozen=True)
class EngineSpeed:
    """What a server can do: tokens of its KV cache, requests at once, tokens a second of prompts together, and of
    answers for each request."""

    cache_tokens: int = 200_000
    most_running: int = 256
    prefill_rate: float = 20_000.0
    decode_rate: float = 50.0


@dataclass(eq=False)
class EngineRequest:
    """A prompt as blocks, and the tokens of its answer, which becomes the block `answer`."""

    blocks: list[Block]
    output_tokens: int
    answer: Hashable
    to_prefill: float = 0.0
    generated: float = 0.0
    reserved: int = 0  #: tokens of the cache for the answer
    pinned: list[Hashable] = field(default_factory=list)


class EngineModel:
    """One server. `submit` requests, `step` through time, and take the finished requests that a step returns."""

    def __init__(self, speed: EngineSpeed | None = None, slice_seconds: float = 0.1) -> None:
        self.speed, self.slice_seconds = speed or EngineSpeed(), slice_seconds
        self.waiting: deque[EngineRequest] = deque()
        self.running: list[EngineRequest] = []
        self.preempted = self.queries = self.hits = self.generated = 0
        self._cache: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first
        self._pins: dict[Hashable, int] = {}
        self.seconds = 0.0  #: the time of the engine
        self._used = 0  # tokens in the cache, cached blocks and reserved ones
        self._idle = 0  # of these, tokens of blocks that nothing pins

    @property
    def cache_usage(self) -> float:
        """The share of the cache that running requests need."""
        return (self._used - self._idle) / self.speed.cache_tokens

    def submit(self, request: EngineRequest) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def cancel(self, request: EngineRequest) -> None:
        """Forget a request whose client is gone."""
        if request in self.running:
            self._release(request)
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def step(self) -> list[EngineRequest]:
        """Advance by a slice of time. Returns the requests that are finished."""
        self.seconds += self.slice_seconds
        self._admit()
        budget = self.speed.prefill_rate * self.slice_seconds
        finished = []
        for request in list(self.running):
            if request not in self.running:  # preempted in this step
                continue
            seconds = self.slice_seconds
            if request.to_prefill > 0:
                part = min(budget, request.to_prefill)
                request.to_prefill -= part
                budget -= part
                if request.to_prefill > 0:
                    continue
                seconds *= 0.5  # it joins the batch in the middle of the slice
            grown = min(self.speed.decode_rate * seconds, request.output_tokens - request.generated)
            if not self._reserve(request, grown):
                continue
            request.generated += grown
            if request.generated >= request.output_tokens:
                self._finish(request)
                finished.append(request)
        return finished

    def metrics(self) -> str:
        """The state as vLLM writes it on /metrics."""
        values = {
            "num_requests_running": len(self.running),
            "num_requests_waiting": len(self.waiting),
            "kv_cache_usage_perc": self.cache_usage,
            "num_preemptions_total": self.preempted,
            "prefix_cache_queries_total": self.queries,
            "prefix_cache_hits_total": self.hits,
            "generation_tokens_total": self.generated,
        }
        return "".join(f'vllm:{name}{{engine="0",model_name="stub"}} {value}\n' for name, value in values.items())

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.speed.most_running:
            request = self.waiting[0]
            cached = self._cached(request.blocks)
            needed = sum(tokens for name, tokens in request.blocks if name not in self._cache)
            pinned_idle = sum(self._cache[name] for name, _ in cached if not self._pins.get(name))
            free = self.speed.cache_tokens - self._used + self._idle - pinned_idle
            if needed > free and self.running:
                return
            self.waiting.popleft()
            self._start(request, cached)

    def _cached(self, blocks: Iterable[Block]) -> list[Block]:
        """The first blocks, as far as they are in the cache without a gap."""
        cached = []
        for block in blocks:
            if block[0] not in self._cache:
                break
            cached.append(block)
        return cached

    def _start(self, request: EngineRequest, cached: list[Block]) -> None:
        total, found = sum(tokens for _, tokens in request.blocks), sum(tokens for _, tokens in cached)
        self.queries += total
        self.hits += found
        request.to_prefill, request.generated, request.reserved = total - found, 0.0, 0
        for name, tokens in request.blocks:
            if name in self._cache:
                self._cache.move_to_end(name)
                if not self._pins.get(name):
                    self._idle -= self._cache[name]
            else:
                self._make_room(tokens)
                self._cache[name] = tokens
                self._used += tokens
            self._pins[name] = self._pins.get(name, 0) + 1
            request.pinned.append(name)
        self.running.append(request)

    def _reserve(self, request: EngineRequest, tokens: float) -> bool:
        """Reserve cache for new tokens of an answer. False if the request itself was preempted."""
        new = int(request.generated + tokens) - request.reserved
        while not self._make_room(new):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        request.reserved += new
        self._used += new
        return True

    def _make_room(self, tokens: int) -> bool:
        """Drop unpinned blocks until so many tokens fit. A single request may use more than there is."""
        capacity = self.speed.cache_tokens
        while self._used + tokens > capacity and self._idle > 0:
            name = next(name for name in self._cache if not self._pins.get(name))
            dropped = self._cache.pop(name)
            self._used -= dropped
            self._idle -= dropped
        return self._used + tokens <= capacity or len(self.running) <= 1

    def _preempt(self, request: EngineRequest) -> None:
        self._release(request)
        self.running.remove(request)
        self.waiting.appendleft(request)
        self.preempted += 1

    def _finish(self, request: EngineRequest) -> None:
        tokens, self.generated = request.reserved, self.generated + request.output_tokens
        self._release(request)
        self.running.remove(request)
        if request.answer not in self._cache and self._make_room(tokens):
            self._cache[request.answer] = tokens
            self._used += tokens
            self._idle += tokens

    def _release(self, request: EngineRequest) -> None:
        for name in request.pinned:
            self._pins[name] -= 1
            if not self._pins[name]:
                del self._pins[name]
                self._idle += self._cache[name]
        request.pinned.clear()
        self._used -= request.reserved
        request.reserved = 0

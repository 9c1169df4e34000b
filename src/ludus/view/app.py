"""The viewer's server: the built page, and its JSON API.

Handlers read SQLite and journals in threads, so the event loop never waits for a disk. Only notes are written. Parts
that the first page does not need (Play, comparisons, the trainer's view) are imported on first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from ludus.http.app import App, Handler
from ludus.http.messages import TEXT, Incoming, Receive, Refusal, Reply, Scope, Send
from ludus.runtime.numbers import whole_number
from ludus.view.export_matches import matching_lines
from ludus.view.guard import HTML, SECURITY_HEADERS, ViewGuard
from ludus.view.listing import rollouts_page
from ludus.view.live import LiveRuns, runs_payload
from ludus.view.live_run import LiveRun
from ludus.view.play_routes import play_routes

if TYPE_CHECKING:
    from ludus.view.play import PlayRoom
    from ludus.view.tokenizer import Tokenizer

STATIC = Path(__file__).parent / "static"
_ASSETS = {
    "app.js": b"text/javascript; charset=utf-8",
    "app.css": b"text/css; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}

Parameters = dict[str, str]
Answer = Callable[[LiveRun, Parameters], Any]


class ViewApp(App):
    """The application. `guard.new_token()` makes a link."""

    def __init__(self, runs: LiveRuns, tokenizer: Tokenizer | None = None, play: PlayRoom | None = None) -> None:
        self.view_guard = ViewGuard()
        super().__init__(self.view_guard)
        self.runs = runs
        del self.routes["GET", "/metrics"]
        self.routes["GET", "/"] = self._page
        for name, kind in _ASSETS.items():
            self.routes["GET", f"/{name}"] = _asset(name, kind)
        # On a slow connection a browser asks for the icon here before it has read the page.
        self.routes["GET", "/favicon.ico"] = self.routes["GET", "/icon.svg"]
        self.routes["GET", "/api/runs"] = self._list
        self.routes["GET", "/api/changes"] = self._changes
        self._route("run", lambda run, _: run.overview(runs.prices))
        self._route("rollouts", _rollouts)
        self._route("rollout", lambda run, asked: _rollout(run, asked, tokenizer))
        self._route("items", _items)
        self._route("tokens", lambda run, asked: _tokens(run, asked, tokenizer))
        self._route("written", lambda run, asked: _tokens(run, asked, tokenizer, as_written=True))
        self._route("compare", self._compare)
        self.routes["GET", "/api/experiment"] = self._of_folder(_experiment)
        self.routes["GET", "/api/search"] = self._of_folder(_search)
        self.routes["GET", "/api/task"] = self._of_folder(_task)
        self.routes["GET", "/api/raw"] = self._raw
        self.routes["GET", "/api/matches.jsonl"] = self._matches
        self.routes["POST", "/api/note"] = self._note
        self.routes["POST", "/api/tag"] = self._tag
        self.routes["POST", "/api/control"] = self._control
        self.play = play
        self.routes |= play_routes(play)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the security headers on every reply."""

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        await super().__call__(scope, receive, guarded)

    async def _page(self, incoming: Incoming) -> Reply:
        return self.view_guard.enter(incoming) or Reply((STATIC / "index.html").read_bytes(), kind=HTML)

    async def _list(self, incoming: Incoming) -> Reply:
        def compute() -> dict[str, Any]:
            return runs_payload(self.runs)

        return Reply.of(await asyncio.to_thread(compute))

    async def _changes(self, incoming: Incoming) -> Reply:
        return Reply.of({"runs": self.runs.versions(), "version": self.runs.version})

    async def _raw(self, incoming: Incoming) -> Reply:
        asked = parameters(incoming)
        run, number = self._run(asked), _id(asked)
        line = await asyncio.to_thread(run.index.line, number)
        if line is None:
            raise Refusal(404, f"the run has no rollout {number}")
        return Reply(line[1], kind=TEXT)

    async def _matches(self, incoming: Incoming) -> Reply:
        asked = parameters(incoming)
        pieces = matching_lines(self._run(asked).index, asked.get("q", ""))
        name = [(b"content-disposition", b'attachment; filename="matches.jsonl"')]
        return Reply(kind=b"application/x-ndjson", headers=name, pieces=pieces)

    async def _note(self, incoming: Incoming) -> Reply:
        body = incoming.json()
        run, rollout = self._run(body), body.get("id")
        note, tags = body.get("note"), body.get("tags")
        if not isinstance(rollout, int) or rollout is True or not 0 < rollout < 1 << 63:
            raise Refusal(422, "a note has an `id`, the number of a rollout")
        if not isinstance(note, str) or not isinstance(tags, list):
            raise Refusal(422, "a note has an `id` (a number), a `note` (a text) and `tags` (a list)")
        line = await asyncio.to_thread(run.index.line, rollout)
        if line is None:
            raise Refusal(404, f"the run has no rollout {rollout}")
        await asyncio.to_thread(run.index.annotate, line[0]["key"], line[0]["rollout_id"], note, tags)
        return Reply.of({"saved": str(run.index.notes.path)})

    async def _tag(self, incoming: Incoming) -> Reply:
        body = incoming.json()
        run, query, tag = self._run(body), body.get("q"), body.get("tag")
        if not isinstance(query, str) or not isinstance(tag, str) or not tag.strip():
            raise Refusal(422, "tagging needs a query `q` and a `tag`")
        return Reply.of({"tagged": await asyncio.to_thread(run.index.tag_matches, query, tag)})

    async def _control(self, incoming: Incoming) -> Reply:
        body = incoming.json()
        run, most = self._run(body), body.get("concurrency")
        if most is not None and (type(most) is not int or not 1 <= most <= 1_000_000):
            raise Refusal(422, "`concurrency` is a number from 1")
        paused, stop = body.get("paused") is True, body.get("stop") is True
        await asyncio.to_thread(run.control, paused=paused, concurrency=most, stop=stop)
        return Reply.of({})

    def _compare(self, run: LiveRun, asked: Parameters) -> Any:
        from ludus.view.comparing import MAX_RUNS, comparison_payload

        others = [key for key in asked.get("with", "").split(",") if key]
        if not 1 <= len(others) < MAX_RUNS:
            raise Refusal(422, f"a comparison is of 2 to {MAX_RUNS} runs")
        return comparison_payload([run, *(self._run({"run": key}) for key in others)])

    def _of_folder(self, answer: Callable[[LiveRuns, Parameters], Any]) -> Handler:
        async def handler(incoming: Incoming) -> Reply:
            return Reply.of(await asyncio.to_thread(answer, self.runs, parameters(incoming)))

        return handler

    def _route(self, name: str, answer: Answer) -> None:
        async def handler(incoming: Incoming) -> Reply:
            asked = parameters(incoming)
            return Reply.of(await asyncio.to_thread(answer, self._run(asked), asked))

        self.routes["GET", f"/api/{name}"] = handler

    def _run(self, asked: dict[str, Any]) -> LiveRun:
        run = self.runs.runs.get(str(asked.get("run")))
        if run is None:
            raise Refusal(404, "there is no such run: it was moved or deleted")
        return run


def parameters(incoming: Incoming) -> Parameters:
    """The parameters of a request's address."""
    fields = parse_qs(
        str(incoming.scope.get("query_string", b""), "latin-1"), keep_blank_values=True, max_num_fields=50
    )
    return {name: values[-1] for name, values in fields.items()}


def _asset(name: str, kind: bytes) -> Handler:
    async def handler(incoming: Incoming) -> Reply:
        return Reply((STATIC / name).read_bytes(), kind=kind)

    return handler


def _experiment(runs: LiveRuns, asked: Parameters) -> Any:
    from ludus.view.experiment import experiment_payload

    return experiment_payload(runs, asked.get("at", ""), asked.get("figure", ""))


def _search(runs: LiveRuns, asked: Parameters) -> Any:
    from ludus.view.search import search_payload

    return search_payload(runs, asked.get("at", ""), asked.get("q", ""))


def _task(runs: LiveRuns, asked: Parameters) -> Any:
    from ludus.view.one_task import task_payload

    return task_payload(runs, asked.get("at", ""), asked.get("task", ""), asked.get("environment", ""))


def _rollouts(run: LiveRun, asked: Parameters) -> Any:
    query, sort = _list_of(asked)
    with run.index.reading() as database:
        page = rollouts_page(database, query, sort, _number(asked, "skip", 0), _number(asked, "limit", 100))
        return {**page, "index": run.index.progress(database)}


def _rollout(run: LiveRun, asked: Parameters, tokenizer: Tokenizer | None) -> Any:
    from ludus.view.one import rollout_payload

    if tokenizer is not None:
        tokenizer.load()
    return rollout_payload(run.index, _id(asked), *_list_of(asked))


def _items(run: LiveRun, asked: Parameters) -> Any:
    from ludus.view.one import items_page

    return items_page(run.index, _id(asked), _number(asked, "skip", 0), asked.get("thread", ""))


def _tokens(run: LiveRun, asked: Parameters, tokenizer: Tokenizer | None, *, as_written: bool = False) -> Any:
    """Tokens as text if the tokenizer is loaded, else as ids with a note. `stale` makes the page ask again."""
    from ludus.view.trainer import trainer_payload
    from ludus.view.written import written_payload

    payload = partial(written_payload, thread=asked.get("thread", "")) if as_written else trainer_payload
    if tokenizer is None:
        return payload(run.index, _id(asked), None)
    tokenizer.load()
    stale, note = tokenizer.is_loading(), tokenizer.note()
    return {**payload(run.index, _id(asked), None if note else tokenizer), "stale": stale, "tokenizer_note": note}


def _list_of(asked: Parameters) -> tuple[str, str]:
    return asked.get("q", ""), asked.get("sort", "order")


def _id(asked: Parameters) -> int:
    return _number(asked, "id", -1)


def _number(asked: Parameters, name: str, default: int) -> int:
    text = asked.get(name, "")
    if not text:
        return default
    number = whole_number(text, digits=15)
    if number is None:
        raise Refusal(422, f"`{name}` must be a whole number")
    return number

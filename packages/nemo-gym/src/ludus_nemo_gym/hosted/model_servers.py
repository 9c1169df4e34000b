"""The model servers that a hosted server calls by name: judges and simulated users, on loopback.

Authors find a model server by its name in the configuration, and some build a URL from its host and port. So each name
gets a real address. A name without a model answers with an error that says which setting is missing.

A call that failed is remembered for its rollout: many servers turn a dead judge into a reward of 0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import blake2b
from typing import Any

from ludus.errors import Failure, UserError
from ludus.http.app import App
from ludus.http.listening import Listening, bind
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.model import Model
from ludus.models import open_model
from ludus.remote.http import ROLLOUT
from ludus.serve.models import ModelApp
from ludus_nemo_gym.names import MODELS, ROLLOUTS_IN_PATHS
from ludus_nemo_gym.servers import references
from ludus_nemo_gym.trees import Tree

HOST = "127.0.0.1"
_ROLLOUT = ROLLOUT.encode()

#: A model: its spec, as in `--model` or as a mapping with `type`, and its settings.
Spec = tuple[str | dict[str, Any], Mapping[str, Any]]


class FailedCalls:
    """The model calls that failed, by rollout. The same call, sent again with success, takes its failure back."""

    def __init__(self) -> None:
        self._failures: dict[str, dict[bytes, Failure]] = {}

    def note(self, incoming: Incoming, failure: Failure | None) -> None:
        """Remember how a call ended. A call that names no rollout is forgotten."""
        rollout = incoming.header(_ROLLOUT) or incoming.rollout
        if rollout is None:
            return
        call = blake2b(incoming.body, digest_size=16).digest()
        if failure is not None:
            self._failures.setdefault(rollout, {})[call] = failure
        elif rollout in self._failures:
            self._failures[rollout].pop(call, None)

    def take(self, rollout: str) -> Failure | None:
        """The first failure of a rollout's calls; forget all of them."""
        return next(iter(self._failures.pop(rollout, {}).values()), None)


class NamedModel(ModelApp):
    """A model behind a name of the configuration."""

    def __init__(self, model: Model, name: str, failed: FailedCalls) -> None:
        super().__init__(model, name=name)
        answer = self.answer

        async def noting(incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
            try:
                answered = await answer(incoming, body)
            except Failure as failure:
                cause = f"the model server {name}: {failure.cause}"
                failed.note(incoming, Failure(failure.kind, cause, stage="verify"))
                raise
            failed.note(incoming, None)
            return answered

        self.answer = noting  # type: ignore[assignment]


class NoModel(App):
    """Stands for a model server that nobody has named a model for."""

    def __init__(self, server: str, name: str, failed: FailedCalls) -> None:
        super().__init__()
        remedy = f"--set resources.judge=SPEC, or --set resources.models.{name}=SPEC"
        self._why = f"{server} asks the model server {name}, and no model is set for it: {remedy}"
        self._failed_calls = failed
        self.other = self._refuse

    async def _refuse(self, incoming: Incoming) -> Reply:
        self._failed_calls.note(incoming, Failure("no_judge", self._why, stage="verify"))
        raise Refusal(503, self._why, kind="no_judge")


def model_names(block: Tree) -> list[str]:
    """The model servers that a server's settings refer to."""
    return list(dict.fromkeys(name for _, kind, name in references(block) if kind == MODELS))


@asynccontextmanager
async def model_servers(server: str, specs: Mapping[str, Spec | None]) -> AsyncIterator[tuple[Tree, FailedCalls]]:
    """Serve a model for each name until the block ends.

    Gives the entries for the configuration, with addresses, and the calls that fail.
    """
    async with AsyncExitStack() as stack:
        tree: Tree = {}
        failed = FailedCalls()
        for name, spec in specs.items():
            app: App = NoModel(server, name, failed)
            if spec is not None:
                try:
                    model = await stack.enter_async_context(open_model(spec[0], dict(spec[1])))
                except UserError as error:
                    raise UserError(f"the model server {name} of {server}: {error}") from error
                app = NamedModel(model, name, failed)
            listening = bind(name, HOST, 0)
            serving = Listening(app, listening, channels=True)
            await serving.begin()
            stack.push_async_callback(serving.stop)
            block = {"host": HOST, "port": listening.getsockname()[1], ROLLOUTS_IN_PATHS: True}
            tree[name] = {MODELS: {"ludus": block}}
        yield tree, failed

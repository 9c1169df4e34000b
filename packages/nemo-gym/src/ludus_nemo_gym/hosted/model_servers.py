"""The model servers that a hosted server calls by name: judges and simulated users, on loopback.

Authors find a model server by its name in the configuration, and some build a URL from its host and port. So each name
gets a real address. A name without a model answers with an error that says which setting is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ludus.http.app import App
from ludus.http.listening import Listening, bind
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.models import open_model
from ludus.serve.models import ModelApp
from ludus_nemo_gym.names import MODELS
from ludus_nemo_gym.servers import references
from ludus_nemo_gym.trees import Tree

HOST = "127.0.0.1"

#: A model: its spec, as in `--model` or as a mapping with `type`, and its settings.
Spec = tuple[str | dict[str, Any], Mapping[str, Any]]


class NoModel(App):
    """Stands for a model server that nobody has named a model for."""

    def __init__(self, server: str, name: str) -> None:
        super().__init__()
        self._why = f"{server} asks the model server {name}, and no model is set for it"
        self._remedy = f"--set resources.judge=SPEC, or --set resources.models.{name}=SPEC"
        self.other = self._refuse

    async def _refuse(self, incoming: Incoming) -> Reply:
        raise Refusal(503, f"{self._why}: {self._remedy}", kind="no_judge")


def model_names(block: Tree) -> list[str]:
    """The model servers that a server's settings refer to."""
    return list(dict.fromkeys(name for _, kind, name in references(block) if kind == MODELS))


@asynccontextmanager
async def model_servers(server: str, specs: Mapping[str, Spec | None]) -> AsyncIterator[Tree]:
    """Serve a model for each name until the block ends. Gives the entries for the configuration, with addresses."""
    async with AsyncExitStack() as stack:
        tree: Tree = {}
        for name, spec in specs.items():
            app: App = NoModel(server, name)
            if spec is not None:
                model = await stack.enter_async_context(open_model(spec[0], dict(spec[1])))
                app = ModelApp(model, name=name)
            listening = bind(name, HOST, 0)
            serving = Listening(app, listening, channels=True)
            await serving.begin()
            stack.push_async_callback(serving.stop)
            tree[name] = {MODELS: {"ludus": {"host": HOST, "port": listening.getsockname()[1]}}}
        yield tree

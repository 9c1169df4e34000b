"""Models that requests name: trainers hand out an endpoint, and a key, for each rollout.

The operator lists the allowed URLs. An allowed URL is a prefix of path segments, compared after `..` is resolved. Keys
in requests are removed from replies and logs, like the server's own keys.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from yarl import URL

from ludus.http.messages import Refusal
from ludus.model import Model
from ludus.models.openai import OpenAIModel
from ludus.models.vllm import VllmModel
from ludus.runtime.keys import remember_key

#: Idle models whose connections stay open.
MOST_MODELS = 64
_NO_KEY = "LUDUS_POLICY_KEY_COMES_WITH_THE_REQUEST"


class Policy(BaseModel):
    """The endpoint that a request names in its field `policy`. It is never part of a reply."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: the URL of the endpoint, which `--allow-policy` must allow
    base_url: str
    #: the name of the model
    model: str
    #: the key of the endpoint
    api_key: str = ""


class Policies:
    """The models that requests named. The most recent stay open, so that later requests reuse their connections."""

    def __init__(self, allowed: tuple[str, ...], tokens: bool) -> None:
        self._allowed = tuple(URL(url) for url in allowed)
        self._tokens = tokens
        self._models: OrderedDict[Policy, OpenAIModel] = OrderedDict()
        self._users: Counter[Policy] = Counter()

    @asynccontextmanager
    async def use(self, content: Any) -> AsyncIterator[Model | None]:
        """The model that a request's `policy` names, or None without a `policy`."""
        if content is None:
            yield None
            return
        policy = self._checked(content)
        if policy not in self._models:
            self._models[policy] = _model(policy, self._tokens)
        self._models.move_to_end(policy)
        self._users[policy] += 1
        try:
            yield self._models[policy]
        finally:
            self._users[policy] -= 1
            for model in self._evict():
                await model.stop()

    async def stop(self) -> None:
        """Close the connections of all models."""
        for model in self._models.values():
            await model.stop()

    def _evict(self) -> list[OpenAIModel]:
        """Drop unused models beyond `MOST_MODELS`, the least recently used first."""
        self._users = +self._users
        over = max(0, len(self._models) - MOST_MODELS)
        unused = [policy for policy in self._models if policy not in self._users]
        return [self._models.pop(policy) for policy in unused[:over]]

    def _checked(self, content: Any) -> Policy:
        try:
            policy = Policy.model_validate(content)
        except ValidationError as error:
            problem = error.errors()[0]
            raise Refusal.field(["policy", *map(str, problem["loc"])], problem["type"], problem["msg"]) from None
        remember_key(policy.api_key)
        url = _parsed(policy.base_url)
        if url is None or not any(_is_under(url, prefix) for prefix in self._allowed):
            raise Refusal(403, "this server does not allow that policy: its operator must name it with --allow-policy")
        return policy.model_copy(update={"base_url": str(url)})


def _model(policy: Policy, tokens: bool) -> OpenAIModel:
    kind = VllmModel if tokens else OpenAIModel
    headers = {"Authorization": f"Bearer {policy.api_key}"} if policy.api_key else {}
    model = kind(kind.Config(model=policy.model, base_url=policy.base_url, headers=headers, api_key_env=_NO_KEY))
    model.capture_tokens = tokens
    return model


def _parsed(url: str) -> URL | None:
    try:
        return URL(url)
    except ValueError:
        return None


def _is_under(url: URL, prefix: URL) -> bool:
    """Whether a URL equals a prefix or lies below it. A prefix with neither port nor path allows any port."""
    if url.user is not None or url.password is not None or url.query_string or url.fragment:
        return False
    if (url.scheme, url.host) != (prefix.scheme, prefix.host):
        return False
    path = prefix.raw_path.rstrip("/")
    if url.port != prefix.port and (prefix.explicit_port is not None or path):
        return False
    return url.raw_path == path or url.raw_path.startswith(f"{path}/")

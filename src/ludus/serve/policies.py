"""Models that requests name: trainers hand out an endpoint, and a key, for each rollout.

The operator lists the allowed URLs. An allowed URL is a prefix of path segments, compared after `..` is resolved. Keys
in requests are removed from replies and logs, like the server's own keys.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.http.messages import Refusal
from ludus.model import Model
from ludus.models.openai import OpenAIModel
from ludus.models.vllm import VllmModel
from ludus.runtime.keys import remember_key
from ludus.runtime.urls import checked_url

#: Idle models whose connections stay open.
MOST_MODELS = 64
_PORTS = {"http": 80, "https": 443}
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
        self._allowed = tuple(_normal(checked_url(url, "an allowed policy")) for url in allowed)
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
        try:
            url = _normal(urlsplit(policy.base_url))
            allowed = any(_is_under(url, prefix) for prefix in self._allowed)
        except ValueError:  # it is no URL
            allowed = False
        if not allowed:
            raise Refusal(403, "this server does not allow that policy: its operator must name it with --allow-policy")
        return policy.model_copy(update={"base_url": url.geturl()})


def _model(policy: Policy, tokens: bool) -> OpenAIModel:
    headers = {"Authorization": f"Bearer {policy.api_key}"} if policy.api_key else {}
    settings: dict[str, Any] = {
        "model": policy.model,
        "base_url": policy.base_url,
        "headers": headers,
        "api_key_env": _NO_KEY,
    }
    if not tokens:
        return OpenAIModel(OpenAIModel.Config(**settings))
    model = VllmModel(VllmModel.Config(**settings))
    model.capture_tokens = True
    return model


def _is_under(url: SplitResult, prefix: SplitResult) -> bool:
    """Whether a URL equals a prefix or lies below it. A prefix with neither port nor path allows any port."""
    if "@" in url.netloc or url.query or url.fragment:
        return False
    if (url.scheme, url.hostname) != (prefix.scheme, prefix.hostname):
        return False
    path = prefix.path.rstrip("/")
    if _port(url) != _port(prefix) and (prefix.port is not None or path):
        return False
    return url.path == path or url.path.startswith(f"{path}/")


def _port(url: SplitResult) -> int:
    return url.port or _PORTS[url.scheme]


def _normal(url: SplitResult) -> SplitResult:
    """A URL with an ASCII host in lower case, and a path without `.` and `..`, also where these are written `%2e`.

    Raises ValueError for what is no HTTP URL.
    """
    if url.scheme not in _PORTS or not url.hostname or url.port == 0:
        raise ValueError("no HTTP URL")
    segments: list[str] = []
    steps = url.path.split("/")[1:]
    for step in steps:
        dots = step.lower().replace("%2e", ".")
        if dots == "..":
            del segments[-1:]
        elif dots != ".":
            segments.append(step)
    if steps and steps[-1].lower().replace("%2e", ".") in (".", ".."):
        segments.append("")
    path = "".join(f"/{segment}" for segment in segments) or "/"
    return url._replace(netloc=url.netloc.lower().encode("idna").decode(), path=path)

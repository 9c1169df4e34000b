"""vLLM's routes for tokens, on a real tokenizer with a real chat template. Only the policy is made up.

Chat, render, generate, derender, completions, tokenize and detokenize take and give what vLLM 0.25 does; calls are
parsed as its `hermes` parser does. `missing` names routes that an older server does not have, `closed` is a newer one
without the flag for them. `received` are the prompts that the engine read, `seen` the images that it found in the
prompts of ids: their first ids and addresses.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
from servers import Server, send

Body = dict[str, Any]
#: Chance and the tools make the text of the answer; the second value says whether it reached its end.
Policy = Callable[[Random, list[Body]], tuple[str, bool]]

#: What the template writes for an image: `IMAGE_LENGTH` times one id.
IMAGE, IMAGE_LENGTH = "<reponame>", 3

#: The routes that vLLM closes since 0.30 unless a flag opens them, and what they say then.
SCALE_OUT = ("/v1/chat/completions/render", "/inference/v1/generate", "/v1/chat/completions/derender")
CLOSED = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."

_CALLS = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
CONTEXT = 100_000


def awkward(random: Random, tools: list[Body]) -> tuple[str, bool]:
    """A policy that spells its calls as no template would, and sometimes breaks them."""
    tool = random.choice(tools) if tools else {"name": "nothing"}
    name, fitting = json.dumps(tool["name"]), json.dumps(_arguments(tool), ensure_ascii=False, separators=(" ,", ":"))
    call = random.choice(
        [
            f'<tool_call>{{"name": {name}, "arguments": {fitting}}}</tool_call>',
            f'<tool_call>{{"arguments":{fitting}, "name" : {name}}}</tool_call>',
            f'<tool_call>{{"arguments":{{"count" :1 ,"x":"é\\u00e9"}}, "name" : {name}}}</tool_call>',
            f'<tool_call>\n\n{{"name":{name},"arguments":{{}}}} </tool_call>',
        ]
    )
    spoken = random.choice(["", "I will look.\n\n", "Hm,  "])
    kind = random.random()
    if not tools or kind < 0.1:
        return random.choice([r"The answer is  \boxed{B}.", "hit", "<action>stand</action> ", "  "]), kind > 0.03
    if kind < 0.2:
        return f'{spoken}<tool_call>{{"name": {name}, "arguments": {{"count": ', kind > 0.15
    if kind < 0.5:
        return f"{spoken}{call}{random.choice(['', ' ', chr(10)])}{call}", True
    return spoken + call + random.choice(["", "  ", "\n"]), True


def _arguments(tool: Body) -> Body:
    """Arguments that fit a tool's schema."""
    schema = tool.get("parameters") or {}
    made = {"integer": 1, "number": 1.50, "boolean": False, "array": [], "object": {}}
    return {
        key: (kind.get("enum") or [made.get(str(kind.get("type")), " é x")])[0]
        for key, kind in (schema.get("properties") or {}).items()
        if key in (schema.get("required") or ())
    }


class VllmStub(Server):
    """A vLLM server with `policy` in place of a model."""

    def __init__(
        self, tokenizer: Any, policy: Policy = awkward, *, missing: tuple[str, ...] = (), closed: bool = False
    ) -> None:
        super().__init__()
        self.tokenizer, self.policy, self.missing, self.closed = tokenizer, policy, missing, closed
        self.received: list[list[int]] = []
        self.asked: list[str] = []
        self.extras: Body = {}
        self.seen: list[list[tuple[int, str]]] = []
        self._tools: list[Body] = []
        self._random = Random(1)

    async def respond(self, path: str, body: Body, writer: asyncio.StreamWriter) -> bool:
        self.asked.append(path)
        self.bodies.append(body)
        route = None if path in self.missing else self._routes().get(path)
        if route is None:
            return await send(writer, 404, b'{"detail":"Not Found"}')
        if self.closed and path in SCALE_OUT:
            return await send(writer, 403, orjson.dumps({"error": {"message": CLOSED, "code": 403}}))
        try:
            return await send(writer, 200, orjson.dumps(route(body)))
        except ValueError as error:
            return await send(writer, 400, orjson.dumps({"error": {"message": str(error), "code": 400}}))

    def _routes(self) -> dict[str, Callable[[Body], Body]]:
        return {
            "/v1/chat/completions": self.chat,
            "/v1/chat/completions/render": self.render,
            "/inference/v1/generate": self.generate,
            "/v1/chat/completions/derender": self.derender,
            "/v1/completions": self.complete,
            "/tokenize": lambda body: {"tokens": self.rendered(body), "max_model_len": CONTEXT},
            "/detokenize": lambda body: {"prompt": self.decode(body["tokens"])},
        }

    def chat(self, body: Body) -> Body:
        prompt = self.rendered(body)
        ids, finish = self.sampled(prompt, body)
        choice: Body = {"index": 0, "message": self.message(ids, body), "finish_reason": finish, "stop_reason": None}
        if body.get("return_token_ids"):
            choice |= {"token_ids": ids, "logprobs": _logprobs(ids), **self.extras}
        answer = {"id": f"chatcmpl-{len(self.received)}", "created": 1, "model": body["model"], "choices": [choice]}
        return {**answer, "usage": _usage(prompt, ids), "prompt_token_ids": prompt}

    def render(self, body: Body) -> Body:
        ids = self.rendered(body)
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or CONTEXT - len(ids)
        sampling = {"n": 1, "temperature": body.get("temperature", 1.0), "max_tokens": limit, "logprobs": 0}
        stop = body.get("stop") or []
        sampling["stop"] = [stop] if isinstance(stop, str) else stop
        more = {"features": self.features(ids, body)}
        return {"token_ids": ids, "sampling_params": sampling, "model": body["model"], "priority": 0, **more}

    def features(self, ids: list[int], body: Body) -> Body | None:
        """Where the images of a conversation are in its ids."""
        contents = [message["content"] for message in body["messages"] if isinstance(message.get("content"), list)]
        urls = [part["image_url"]["url"] for parts in contents for part in parts if part["type"] == "image_url"]
        starts = [at for at, id in enumerate(ids) if id == self.tokenizer.convert_tokens_to_ids(IMAGE)][::IMAGE_LENGTH]
        places = [{"offset": at, "length": IMAGE_LENGTH} for at in starts]
        hashes = [f"hash of {url}" for url in urls]
        found = {"mm_hashes": {"image": hashes}, "mm_placeholders": {"image": places}, "kwargs_data": {"image": urls}}
        return found if urls else None

    def generate(self, body: Body) -> Body:
        sampling = body["sampling_params"]
        features = body.get("features") or {"mm_hashes": {}, "mm_placeholders": {}, "kwargs_data": {}}
        places = [place["offset"] for place in features["mm_placeholders"].get("image", ())]
        self.seen.append(list(zip(places, features["kwargs_data"].get("image", ()), strict=True)))
        ids, finish = self.sampled(body["token_ids"], sampling)
        choice = {"index": 0, "token_ids": ids, "finish_reason": finish, **self.extras}
        choice["logprobs"] = _logprobs(ids) if sampling.get("logprobs") is not None else None
        answer = {"request_id": f"generate-tokens-{len(self.received)}", "created": 1, "model": body["model"]}
        return {**answer, "choices": [choice], "usage": _usage(body["token_ids"], ids), "prompt_logprobs": None}

    def derender(self, body: Body) -> Body:
        given, choices = body["generate_response"], []
        for choice in given["choices"]:
            if not choice["token_ids"]:
                raise ValueError("choice 0 has empty or null token_ids")
            message = self.message(choice["token_ids"], body["chat_request"], keeps_end=True)
            kept = {key: choice[key] for key in ("finish_reason", "token_ids")}
            choices.append({"index": 0, "message": message, **kept})
        usage = _usage([0] * body["prompt_tokens"], given["choices"][0]["token_ids"])
        return {"id": given["request_id"], "model": body["model"], "created": 1, "choices": choices, "usage": usage}

    def complete(self, body: Body) -> Body:
        prompt = body["prompt"]
        ids, finish = self.sampled(prompt, body)
        text = self.decode(ids).removesuffix(self.tokenizer.eos_token)
        logprobs = {"tokens": [f"token_id:{id}" for id in ids], "token_logprobs": [-0.5] * len(ids)}
        choice = {"index": 0, "text": text, "token_ids": ids, "prompt_token_ids": prompt, "logprobs": logprobs}
        choice |= {"finish_reason": finish, "stop_reason": None, **self.extras}
        if body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = [None, *({str(id): {"logprob": -0.5}} for id in prompt[1:])]
        return {"id": "cmpl-1", "model": body["model"], "choices": [choice], "usage": _usage(prompt, ids)}

    def rendered(self, body: Body) -> list[int]:
        tools = body.get("tools") or None
        self._tools = [tool["function"] for tool in tools or ()]
        messages = [_as_template_reads(message) for message in body["messages"]]
        asks, goes_on = body.get("add_generation_prompt", True), body.get("continue_final_message", False)
        if asks and goes_on:
            raise ValueError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        text = self.tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=asks, continue_final_message=goes_on, tokenize=False
        )
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def sampled(self, prompt: list[int], body: Body) -> tuple[list[int], str]:
        """Ids of three letters each: another tokenisation than the template's. A limit counts them."""
        self.received.append(prompt)
        text, ends = self.policy(self._random, self._tools)
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or CONTEXT
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)] or [" "]
        ids = [id for piece in pieces[:limit] for id in self.tokenizer.encode(piece, add_special_tokens=False)]
        return ([*ids, self.tokenizer.eos_token_id], "stop") if ends and len(pieces) < limit else (ids, "length")

    def message(self, ids: list[int], body: Body, *, keeps_end: bool = False) -> Body:
        text = self.decode(ids)
        if not keeps_end:
            text = text.removesuffix(self.tokenizer.eos_token)
        calls: list[Body] = []
        if body.get("tools") and "<tool_call>" in text:
            try:
                for found in _CALLS.findall(text):
                    call = json.loads(found[0] or found[1])
                    function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
                    calls.append({"id": f"call-{len(self.received)}-{len(calls)}", "type": "function"})
                    calls[-1]["function"] = function
            except (ValueError, KeyError, TypeError):
                return {"role": "assistant", "content": text, "tool_calls": []}
            return {"role": "assistant", "content": text[: text.index("<tool_call>")] or None, "tool_calls": calls}
        return {"role": "assistant", "content": text, "tool_calls": []}

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _as_template_reads(message: Body) -> Body:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"] or "{}")}}
        for call in message.get("tool_calls") or ()
    ]
    content = message.get("content")
    if isinstance(content, list):
        text = "".join(part["text"] if part["type"] == "text" else IMAGE * IMAGE_LENGTH for part in content)
    else:
        text = content or ""
    return {**message, "content": text, **({"tool_calls": calls} if calls else {})}


def _logprobs(ids: list[int]) -> Body:
    return {"content": [{"token": f"token_id:{id}", "logprob": -0.5, "top_logprobs": []} for id in ids]}


def _usage(prompt: list[int], ids: list[int]) -> Body:
    return {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}


class SglangStub(VllmStub):
    """SGLang's chat route takes `input_ids`; `/tokenize` renders. `ignores_ids`: an older one."""

    def __init__(self, tokenizer: Any, policy: Policy = awkward, *, ignores_ids: bool = False) -> None:
        super().__init__(tokenizer, policy)
        self._ignores = ignores_ids

    def _routes(self) -> dict[str, Callable[[Body], Body]]:
        routes = super()._routes()
        return {path: routes[path] for path in ("/v1/chat/completions", "/tokenize", "/detokenize")}

    def chat(self, body: Body) -> Body:
        rendered = self.rendered(body)
        prompt = body.get("input_ids") or rendered if not self._ignores else rendered
        ids, finish = self.sampled(prompt, body)
        message = self.message(ids, body)
        choice: Body = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if message["tool_calls"] else finish,
        }
        choice["matched_stop"] = ids[-1] if finish == "stop" else None
        if body.get("return_token_ids"):
            choice |= {"token_ids": ids, "prompt_token_ids": prompt}
        choice["logprobs"] = {"content": [{"token": self.decode([id]), "logprob": -0.5} for id in ids]}
        spans = [{"version": "7", "start": 0, "end": 1}, {"version": "8", "start": 1, "end": len(ids)}][: len(ids)]
        answer = {"id": f"s{len(self.received)}", "created": 1, "model": body["model"], "choices": [choice]}
        metadata = {"weight_version": spans[-1]["version"], "weight_versions": spans}
        return {**answer, "usage": _usage(prompt, ids), "metadata": metadata, "sglext": {"routed_experts": "AAA="}}

"""Calls as `ludus.models.families` reads them, beside those that vLLM's parsers read in the same answers.

make .venv-vllm/installed
.venv-vllm/bin/python benchmarks/family_parsers.py FOLDER

FOLDER is any folder with a tokenizer of `transformers`: the control tokens of each family are added to it. Prints the
answers whose calls differ, and how many do not.
"""

import json
import logging
import re
import sys
from typing import Any

from tokenizers import AddedToken
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from ludus.errors import UserError
from ludus.models.families import FamilyReader

PARAMETERS = {
    "add": {"a": {"type": "integer"}, "s": {"type": "string"}, "f": {"type": "boolean"}, "l": {"type": "array"}},
    "look": {"where": {"type": "string"}},
}
TOOLS = [
    {"type": "function", "name": name, "description": "?", "parameters": {"type": "object", "properties": properties}}
    for name, properties in PARAMETERS.items()
]
HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "s": "x"}}\n</tool_call>'
ADD, LOOK = ("add", '{"a": 1}'), ("look", '{"where": "x"}')
LLAMA = '{"name": "add", "parameters": {"a": 1}}'


def function(name: str, **arguments: str) -> str:
    """A call of Qwen 3.5."""
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


def glm(name: str, **arguments: str) -> str:
    """A call of GLM 4.5."""
    written = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>{name}\n{written}</tool_call>"


def deepseek(*calls: tuple[str, str]) -> str:
    """Calls of DeepSeek V3."""
    written = "\n".join(
        f"<|tool▁call▁begin|>function<|tool▁sep|>{name}\n```json\n{arguments}\n```<|tool▁call▁end|>"
        for name, arguments in calls
    )
    return f"<|tool▁calls▁begin|>{written}<|tool▁calls▁end|>".replace("|", "\uff5c")


def kimi(*calls: tuple[str, str]) -> str:
    """Calls of Kimi K2."""
    written = "".join(
        f"<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        for at, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{written}<|tool_calls_section_end|>"


def minimax(*calls: tuple[str, dict[str, str]]) -> str:
    """Calls of MiniMax M2."""
    written = "".join(
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items())
        + "</invoke>\n"
        for name, arguments in calls
    )
    return f"<minimax:tool_call>\n{written}</minimax:tool_call>"


def cut(text: str, after: str = "1") -> str:
    """An answer that ends in the middle of a call."""
    return text[: text.index(after) + len(after)]


#: Of each family: the parser of vLLM, and answers.
ANSWERS: dict[str, tuple[str, list[str]]] = {
    "qwen3": (
        "hermes",
        [
            HERMES,
            f"{HERMES}\n{HERMES}",
            f"I will.\n{HERMES}",
            f"{HERMES} after",
            f"text {HERMES} mid {HERMES} end",
            f"<think>hm</think>{HERMES}",
            HERMES.removesuffix("</tool_call>"),
            cut(HERMES),
            "<tool_call></tool_call>",
            '<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>',
            '<tool_call>{"arguments":{"a":1}, "name":"add"}</tool_call>',
            '<tool_call>{"name": "add"}</tool_call>',
            '<tool_call>{"name": "add", "arguments": "x"}</tool_call>',
            '<tool_call>{"name": "nobody", "arguments": {}}</tool_call>',
            HERMES.replace('"x"', '"</tool_call>"'),
            HERMES.replace('"x"', '"é\\u00e9"'),
            "plain",
        ],
    ),
    "qwen3.5": (
        "qwen3_coder",
        [
            function("add", a="1", s="x y"),
            f"{function('add', a='1')}\n{function('look', where='here')}",
            f"hi {function('add')}",
            cut(function("add", a="1")),
            function("add", a="1").removesuffix("\n</tool_call>"),
            function("add", f="true", l="[1, 2]"),
            function("add", a="xx"),
            function("nobody", z="1"),
            function("add", s="123"),
            "plain",
        ],
    ),
    "llama-3": (
        "llama3_json",
        [
            LLAMA,
            LLAMA.replace("parameters", "arguments"),
            f"<|python_tag|>{LLAMA}",
            f'{LLAMA}; {{"name": "look", "parameters": {{"where": "x"}}}}',
            f"Sure: {LLAMA}",
            f"{LLAMA} tail",
            cut(LLAMA, '"a": '),
            '{"x": 1}',
            LLAMA.replace('"a": 1', '"s": "a;b"'),
            '{"type": "function", "name": "add", "parameters": {"a": "1"}}',
            "plain",
        ],
    ),
    "glm-4.5": (
        "glm45",
        [
            glm("add", a="1", s="x"),
            f"say {glm('look', where='there')}",
            f"{glm('add', a='1')}\n{glm('look', where='1')}",
            cut(glm("add", a="1")),
            glm("nobody"),
            "<tool_call>add</tool_call>",
            "plain",
        ],
    ),
    "deepseek-v3": (
        "deepseek_v3",
        [
            deepseek(ADD),
            "hm" + deepseek(ADD, LOOK),
            cut(deepseek(ADD)),
            "plain",
        ],
    ),
    "kimi-k2": (
        "kimi_k2",
        [
            kimi(ADD),
            "ok " + kimi(ADD, LOOK),
            cut(kimi(ADD), '"a": '),
            kimi(("add", "{bad}")),
            "plain",
        ],
    ),
    "minimax-m2": (
        "minimax_m2",
        [
            minimax(("add", {"a": "1", "s": "x"})),
            f"hi {minimax(('add', {'a': '1'}), ('look', {'where': 'x'}))}",
            cut(minimax(("add", {"a": "1"})), '"a">1'),
            "plain",
        ],
    ),
}


def reader_of(family: str, tokenizer: Any) -> FamilyReader:
    """A reader, for which the control tokens that it asks for are added to the tokenizer."""
    while True:
        try:
            return FamilyReader(family, tokenizer)
        except UserError as error:
            missing = re.search(r"token(?: for)? '([^']+)'", str(error), re.IGNORECASE)
            if missing is None or missing[1] in tokenizer.get_vocab():
                raise
            tokenizer.add_tokens([AddedToken(missing[1], special=True, normalized=False)])


def value_of(arguments: str) -> Any:
    """Arguments as they are compared: however their JSON is written."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def main() -> None:
    """Compare all answers."""
    logging.disable(logging.CRITICAL)  # vLLM logs every answer that it cannot read
    same, asked = 0, [{"type": "function", "function": {**tool}} for tool in TOOLS]
    for tool in asked:
        del tool["function"]["type"]
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "?"}], model="m", tools=asked)
    for family, (parser, answers) in ANSWERS.items():
        tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], unk_token=None)
        reader = reader_of(family, tokenizer)
        if family == "llama-3":
            tokenizer.add_tokens([AddedToken("<|python_tag|>", special=True)])
        theirs = ToolParserManager.get_tool_parser(parser)(tokenizer, request.tools)
        for answer in answers:
            ids = tokenizer.encode(answer, add_special_tokens=False)
            items = reader.items(ids, [], TOOLS, answer, "", key="")
            read = [(item["name"], value_of(item["arguments"])) for item in items if item["type"] == "function_call"]
            found = theirs.extract_tool_calls(tokenizer.decode(ids), request).tool_calls
            expected = [(call.function.name, value_of(call.function.arguments)) for call in found]
            same += read == expected
            if read != expected:
                print(f"{family}: {answer!r}\n    ludus {read}\n    vLLM  {expected}")
    print(f"the same calls in {same} of {sum(len(answers) for _, answers in ANSWERS.values())} answers")


if __name__ == "__main__":
    main()

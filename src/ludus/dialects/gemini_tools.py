"""Gemini's tools, the choice among them, and its settings of an answer, in the words of Responses."""

from __future__ import annotations

from typing import Any

from ludus.dialects.conversion import Conversion, has_content

_TOOL = frozenset({"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"})
_MODES = {"AUTO": "auto", "MODE_UNSPECIFIED": "auto", "ANY": "required", "VALIDATED": "auto", "NONE": "none"}
#: Settings with another name in Responses, or in what our models pass on.
_NAMES = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_output_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_CONFIG = frozenset(_NAMES) | {
    "candidateCount",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "thinkingConfig",
    "responseModalities",
}


def tools_of(tools: Any, conversion: Conversion) -> list[dict[str, Any]]:
    """The functions among Gemini's tools. Tools that run on its own servers are listed as lost."""
    functions = []
    for index, tool in enumerate(conversion.objects(tools, "tools")):
        path = f"tools[{index}]"
        for name in tool:
            if name != "functionDeclarations":
                conversion.lose(f"{path}.{name!s:.60}", "only the client's own functions are carried")
        declared = conversion.objects(tool.get("functionDeclarations"), f"{path}.functionDeclarations")
        for number, function in enumerate(declared):
            functions.append(_function(function, f"{path}.functionDeclarations[{number}]", conversion))
    return functions


def _function(function: dict[str, Any], path: str, conversion: Conversion) -> dict[str, Any]:
    conversion.leftovers(function, _TOOL, path)
    fields = {"type": "function", "name": conversion.text(function.get("name"), f"{path}.name")}
    if (description := conversion.optional_text(function.get("description"), f"{path}.description")) is not None:
        fields["description"] = description
    schema = function.get("parametersJsonSchema")
    schema = schema if schema is not None else json_schema(function.get("parameters"))
    return {**fields, "parameters": schema or {"type": "object", "properties": {}}}


def json_schema(schema: Any) -> Any:
    """Gemini's own schema as JSON Schema: it writes types in capitals, and `nullable` for null."""
    if isinstance(schema, list):
        return [json_schema(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: json_schema(value) for key, value in schema.items() if key != "nullable"}
    kind = converted.get("type")
    if isinstance(kind, str):
        kind = kind.lower()
        converted["type"] = [kind, "null"] if schema.get("nullable") else kind
    if isinstance(properties := schema.get("properties"), dict):  # a property may be called `type` or `nullable`
        converted["properties"] = {name: json_schema(value) for name, value in properties.items()}
    return converted


def put_choice(params: dict[str, Any], config: Any, conversion: Conversion) -> None:
    """Which tools the model may call."""
    fields = conversion.optional_object(config, "toolConfig")
    conversion.leftovers(fields, {"functionCallingConfig"}, "toolConfig")
    choice = conversion.optional_object(fields.get("functionCallingConfig"), "toolConfig.functionCallingConfig")
    path = "toolConfig.functionCallingConfig"
    mode = conversion.optional_text(choice.get("mode"), f"{path}.mode")
    if mode is None:
        return
    if mode.upper() not in _MODES:
        raise conversion.refuse(f"{path}.mode", "AUTO, ANY or NONE", mode)
    params["tool_choice"] = _MODES[mode.upper()]
    allowed = choice.get("allowedFunctionNames")
    if isinstance(allowed, list) and len(allowed) == 1 and params["tool_choice"] == "required":
        params["tool_choice"] = {
            "type": "function",
            "name": conversion.text(allowed[0], f"{path}.allowedFunctionNames"),
        }
    elif has_content(allowed):
        conversion.lose(f"{path}.allowedFunctionNames")


def put_config(params: dict[str, Any], config: Any, conversion: Conversion) -> None:
    """Settings of sampling and of the answer's form."""
    fields = conversion.optional_object(config, "generationConfig")
    conversion.leftovers(fields, _CONFIG, "generationConfig")
    for theirs, ours in _NAMES.items():
        if has_content(fields.get(theirs)):
            params[ours] = fields[theirs]
    if fields.get("candidateCount") not in (None, 1):
        raise conversion.refuse("generationConfig.candidateCount", "1", fields["candidateCount"])
    schema = fields.get("responseJsonSchema")
    schema = schema if schema is not None else json_schema(fields.get("responseSchema"))
    if fields.get("responseMimeType") == "application/json":
        shape = {"type": "json_schema", "name": "answer", "schema": schema} if schema else {"type": "json_object"}
        params["text"] = {"format": shape}
    thinking = conversion.optional_object(fields.get("thinkingConfig"), "generationConfig.thinkingConfig")
    level = conversion.optional_text(thinking.get("thinkingLevel"), "generationConfig.thinkingConfig.thinkingLevel")
    if level is not None:
        params["reasoning"] = {"effort": level.lower()}
    if has_content(thinking.get("thinkingBudget")):
        conversion.lose("generationConfig.thinkingConfig.thinkingBudget")

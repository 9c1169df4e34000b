"""How qualification plays the weather service: ask about the right city, then repeat the result."""

from __future__ import annotations

from typing import Any


def oracle(task: Any) -> list[Any]:
    """Call the tool, then repeat its sentence."""
    return [_ask(_city(task)), _sentence(_city(task))]


def preserving(task: Any) -> dict[str, Any]:
    """The same call and sentence in another case, inside prose, or after other calls."""
    city = _city(task)
    return {
        "capitals": [_ask(city.upper()), _sentence(city).upper()],
        "in_prose": [_ask(city), f"I looked it up.\n\n> {_sentence(city)}\n\nHave a good trip!"],
        "after_a_mistake": [{"call": "get_weather", "arguments": {"town": city}}, *oracle(task)],
        "other_city_first": [_ask("Ulaanbaatar"), *oracle(task)],
    }


def breaking(task: Any) -> dict[str, Any]:
    """The call without the sentence, the sentence without the call, and the wrong city."""
    city = _city(task)
    return {
        "never_asked": _sentence(city),
        "never_said": [_ask(city), "It is sunny."],
        "other_city": [_ask("Ulaanbaatar"), _sentence("Ulaanbaatar")],
        "asked_about_another": [_ask("Ulaanbaatar"), _sentence(city)],
        "call_in_words": f'get_weather(city="{city}")\n{_sentence(city)}',
        "wrong_argument": [{"call": "get_weather", "arguments": {"town": city}}, _sentence(city)],
        "other_degrees": [_ask(city), _sentence(city).replace("72", "73")],
    }


def _city(task: Any) -> str:
    return str(task.verifier_metadata.expected_city)


def _ask(city: str) -> dict[str, Any]:
    return {"call": "get_weather", "arguments": {"city": city}}


def _sentence(city: str) -> str:
    return f"The weather in {city} is sunny and 72 F."

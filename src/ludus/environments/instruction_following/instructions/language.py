"""The language of a text, by langdetect.

langdetect draws random numbers, and unseeded it can give one text two languages. Here it has a seed, in a factory of
its own, so that nobody else's settings change and one text has one language.
"""

from __future__ import annotations

from importlib.util import find_spec
from threading import Lock
from typing import Any, Literal

from ludus.errors import missing_extra

Language = Literal[
    "ar", "bg", "bn", "de", "en", "es", "fa", "fi", "fr", "gu", "he", "hi", "it", "ja", "kn",
    "ko", "ml", "mr", "ne", "pa", "pl", "pt", "ru", "sw", "ta", "te", "th", "uk", "ur", "vi",
]  # fmt: skip

_lock = Lock()
_factories: list[Any] = []


def response_language(text: str, *, language: Language, compat: bool = False) -> bool:
    """The text is in the language. In the reference a text without any language is in every one."""
    found = detected(text)
    return found == language or (compat and found is None)


def english_capital(text: str, *, compat: bool = False) -> bool:
    """The text is English, all in capitals."""
    return text.isupper() and _is_english(text, compat)


def english_lowercase(text: str, *, compat: bool = False) -> bool:
    """The text is English, without any capital."""
    return text.islower() and _is_english(text, compat)


def require_langdetect() -> None:
    """Say what to install where langdetect is missing, before anything is judged."""
    if find_spec("langdetect") is None:
        raise missing_extra("langdetect", "instructions")


def detected(text: str) -> str | None:
    """The code of the most probable language; None for a text without any letters that tell."""
    require_langdetect()
    from langdetect.lang_detect_exception import LangDetectException  # type: ignore[import-untyped]

    detector = _factory().create()
    try:
        detector.append(text)
        code: str = detector.detect()
    except LangDetectException:
        return None
    return None if code == "unknown" else code


def _is_english(text: str, compat: bool) -> bool:
    found = detected(text)
    return found == "en" or (compat and found is None)


def _factory() -> Any:
    """The profiles of all languages, read once, which takes a third of a second."""
    from langdetect import detector_factory  # type: ignore[import-untyped]

    with _lock:
        if not _factories:
            factory = detector_factory.DetectorFactory()
            factory.load_profile(detector_factory.PROFILES_DIRECTORY)
            factory.set_seed(0)
            _factories.append(factory)
        return _factories[0]

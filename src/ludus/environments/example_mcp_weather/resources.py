"""A weather service. The model must ask about one city and repeat the service's sentence in its answer.

Rows of this environment have an empty `tools` list, because an agent finds the tools over MCP. Here such a row offers
all tools of the environment.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

import ludus
from ludus import Resources, Response, Verdict, tool
from ludus.response import is_message, texts_of


class Metadata(BaseModel):
    """The part of a row that the verifier reads."""

    model_config = ConfigDict(extra="allow")

    expected_city: str = "Paris"


class Weather(Resources):
    """A service that says every city is sunny, and remembers which cities the model asked about."""

    class Task(ludus.Task):
        verifier_metadata: Metadata = Metadata()

        @property
        def tools(self) -> list[dict[str, Any]] | None:
            """The tools that the row lists; None, which offers all tools of the environment, if the list is empty."""
            return super().tools or None

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.asked_about: set[str] = set()

    @tool
    async def get_weather(self, city: str) -> dict[str, str]:
        """Look up the weather in a city.

        Args:
            city: The name of the city.
        """
        self.asked_about.add(city.casefold())
        return {"weather": weather_in(city)}

    async def verify(self, task: Task, response: Response) -> Verdict:
        city = task.verifier_metadata.expected_city
        expected = weather_in(city)
        said = "\n".join(texts_of(item) for item in response.output if is_message(item))
        asked = city.casefold() in self.asked_about
        mentioned = expected.casefold() in said.casefold()
        return Verdict(
            float(asked and mentioned),
            expected_weather=expected,
            tool_call_seen=asked,
            final_response_mentions_weather=mentioned,
        )


def weather_in(city: str) -> str:
    """The service's sentence for a city."""
    return f"The weather in {city} is sunny and 72 F."

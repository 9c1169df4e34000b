"""A weather service that says every city is cold."""

from __future__ import annotations

from ludus import Resources, Response, Task, tool


class Weather(Resources):
    """One tool, no state, and reward 1 for every rollout."""

    @tool
    async def get_weather(self, city: str) -> dict[str, str]:
        """Look up the weather in a city.

        Args:
            city: The name of the city.
        """
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    async def verify(self, task: Task, response: Response) -> float:
        return 1.0

"""Web analytics: visits to the website, and plots of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.environments.workplace_assistant.desk import Desk, Id, Text, reads, writes
from ludus.environments.workplace_assistant.tables import Row

VALUES = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
PLOTS = ("bar", "line", "scatter", "histogram")


class Analytics(Desk):
    """Visits by day. Only plots are written, and of a plot only its path."""

    @reads
    async def analytics_get_visitor_information_by_id(self, visitor_id: Id) -> Any:
        """List the visits of one visitor.

        Args:
            visitor_id: Id of the visitor.
        """
        if not visitor_id:
            return "Visitor ID not provided."
        visits = [row for row in self.office.tables.visits if row["visitor_id"] == visitor_id]
        if self.office.durations_as_floats:
            key = "session_duration_seconds"
            visits = [{**row, key: float(row[key])} for row in visits]
        return visits or "Visitor not found."

    @writes
    async def analytics_create_plot(self, time_min: Text, time_max: Text, value_to_plot: Text, plot_type: Text) -> Any:
        """Plot a value over some days. Returns the path of the picture.

        Args:
            time_min: First day, YYYY-MM-DD.
            time_max: Last day, YYYY-MM-DD.
            value_to_plot: One of 'total_visits', 'session_duration_seconds', 'user_engaged', 'visits_direct', 'visits_referral', 'visits_search_engine', 'visits_social_media'.
            plot_type: One of 'bar', 'line', 'scatter', 'histogram'.
        """  # noqa: E501
        if not time_min:
            return "Start date not provided."
        if not time_max:
            return "End date not provided."
        if value_to_plot not in VALUES:
            return f"Value to plot must be one of {', '.join(map(repr, VALUES))}"
        if plot_type not in PLOTS:
            return f"Plot type must be one of {', '.join(map(repr, PLOTS[:-1]))}, or {PLOTS[-1]!r}"
        self.rules.day("time_min", time_min)
        self.rules.day("time_max", time_max)
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.office.plots.append(path)
        return path

    @reads
    async def analytics_total_visits_count(self, time_min: Text = "", time_max: Text = "") -> Any:
        """Count the visits of each day.

        Args:
            time_min: First day, YYYY-MM-DD.
            time_max: Last day, YYYY-MM-DD.
        """
        return {day: len(rows) for day, rows in _by_day(self, time_min, time_max).items()}

    @reads
    async def analytics_engaged_users_count(self, time_min: Text = "", time_max: Text = "") -> Any:
        """Count the engaged visitors of each day.

        Args:
            time_min: First day, YYYY-MM-DD.
            time_max: Last day, YYYY-MM-DD.
        """
        days = _by_day(self, time_min, time_max)
        return {day: sum(row["user_engaged"] for row in rows) for day, rows in days.items()}

    @reads
    async def analytics_traffic_source_count(
        self, time_min: Text = "", time_max: Text = "", traffic_source: Text = ""
    ) -> Any:
        """Count the visits of each day that came from one source, or from anywhere.

        Args:
            time_min: First day, YYYY-MM-DD.
            time_max: Last day, YYYY-MM-DD.
            traffic_source: One of 'direct', 'referral', 'search engine', 'social media'.
        """
        days = _by_day(self, time_min, time_max)
        if not traffic_source:
            return {day: len(rows) for day, rows in days.items()}
        return {day: sum(row["traffic_source"] == traffic_source for row in rows) for day, rows in days.items()}

    @reads
    async def analytics_get_average_session_duration(self, time_min: Text = "", time_max: Text = "") -> Any:
        """Average the seconds that visits of each day took.

        Args:
            time_min: First day, YYYY-MM-DD.
            time_max: Last day, YYYY-MM-DD.
        """
        days = _by_day(self, time_min, time_max)
        self.rules.averaged(self.office, bool(time_min or time_max))
        return {
            day: sum(float(row["session_duration_seconds"]) for row in rows) / len(rows) for day, rows in days.items()
        }


def _by_day(desk: Desk, time_min: str, time_max: str) -> dict[str, Sequence[Row]]:
    days = desk.office.tables.days
    chosen = desk.rules.between(days, str, ("time_min", time_min), ("time_max", time_max))
    return {day: days[day] for day in chosen}

"""The calendar. It checks neither overlaps nor working hours."""

from __future__ import annotations

from typing import Any

from ludus.environments.workplace_assistant.desk import Desk, Id, Text, page_of, reads, writes
from ludus.environments.workplace_assistant.rules import Rules
from ludus.environments.workplace_assistant.tables import EVENTS

UPDATABLE = EVENTS[1:]


class Calendar(Desk):
    """Meetings with one participant each."""

    @reads
    async def calendar_get_event_information_by_id(self, event_id: Id, field: Text) -> Any:
        """Read one field of an event.

        Args:
            event_id: Id of the event, 8 digits.
            field: One of 'event_id', 'event_name', 'participant_email', 'event_start', 'duration'.
        """
        if not event_id:
            return "Event ID not provided."
        if not field:
            return "Field not provided."
        self.rules.event_id(event_id)
        if field not in EVENTS:
            return _invalid_field(EVENTS)
        event = self.office.events.find(event_id)
        return "Event not found." if event is None else {field: event[field]}

    @reads
    async def calendar_search_events(
        self, query: Text = "", time_min: Text = "", time_max: Text = "", page: int = 1, page_size: int = 5
    ) -> Any:
        """Search the calendar, latest first.

        Args:
            query: What the name of the event or the participant's address must hold.
            time_min: The earliest start, YYYY-MM-DD HH:MM:SS.
            time_max: The latest start, YYYY-MM-DD HH:MM:SS.
            page: Which page of the results to return.
            page_size: How many events a page holds.
        """
        start = self.rules.start
        events = await self.rules.containing(self.office.events.rows(), query, "event_name", "participant_email")
        if time_min:
            first = self.rules.moment("time_min", time_min)
            events = [row for row in events if start(row) >= first]
        if time_max:
            last = self.rules.moment("time_max", time_max)
            events = [row for row in events if start(row) <= last]
        if not events:
            return "No events found."
        return page_of("events", sorted(events, key=start, reverse=True), page, page_size)

    @writes
    async def calendar_create_event(
        self, event_name: Text, participant_email: Text, event_start: Text, duration: Text
    ) -> Any:
        """Create an event. Returns its id.

        Args:
            event_name: Name of the event.
            participant_email: Address of the participant.
            event_start: When it begins, YYYY-MM-DD HH:MM:SS.
            duration: How many minutes it takes.
        """
        if not event_name:
            return "Event name not provided."
        if not participant_email:
            return "Participant email not provided."
        if not event_start:
            return "Event start not provided."
        if not duration:
            return "Event duration not provided."
        values = [event_name, participant_email, event_start, duration]
        checked = [_checked(self.rules, field, value) for field, value in zip(UPDATABLE, values, strict=True)]
        number = self.rules.new_id(self.office.events)
        self.office.events.add(dict(zip(EVENTS, (number, *checked), strict=True)))
        return number

    @writes
    async def calendar_delete_event(self, event_id: Id) -> Any:
        """Delete an event.

        Args:
            event_id: Id of the event, 8 digits.
        """
        if not event_id:
            return "Event ID not provided."
        self.rules.event_id(event_id)
        return "Event deleted successfully." if self.office.events.remove(event_id) else "Event not found."

    @writes
    async def calendar_update_event(self, event_id: Id, field: Text, new_value: Text) -> Any:
        """Change one field of an event.

        Args:
            event_id: Id of the event, 8 digits.
            field: One of 'event_name', 'participant_email', 'event_start', 'duration'.
            new_value: What to put there.
        """
        if not event_id or not field or not new_value:
            return "Event ID, field, or new value not provided."
        self.rules.event_id(event_id)
        if field not in UPDATABLE:
            return _invalid_field(UPDATABLE)
        done = self.office.events.update(event_id, field, _checked(self.rules, field, new_value))
        return "Event updated successfully." if done else "Event not found."


def _checked(rules: Rules, field: str, value: Any) -> Any:
    """A valid value as it is stored; start and duration are stored as they were written."""
    if field == "participant_email":
        rules.address(field, value)
        return value.lower()
    if field == "event_start":
        rules.moment(field, value)
    elif field == "duration":
        rules.minutes(value)
    return value


def _invalid_field(fields: tuple[str, ...]) -> str:
    return f"Invalid field. Available fields are: {', '.join(fields)}"

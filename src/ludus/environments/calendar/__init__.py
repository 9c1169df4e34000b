"""A conversation about one day's calendar, its constraints and conflicts, and a generator of such rows."""

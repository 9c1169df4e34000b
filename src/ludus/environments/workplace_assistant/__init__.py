"""An office with mail, a calendar, web analytics, project boards and customers; graded by the state of its tables."""

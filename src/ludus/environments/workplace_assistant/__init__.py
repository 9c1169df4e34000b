"""An office with mail, a calendar, web analytics, project boards and customers; graded by what its tables hold."""

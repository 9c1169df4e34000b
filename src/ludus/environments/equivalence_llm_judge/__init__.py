"""Open questions whose answers are compared by a judge."""

"""Agent programs that people already use, unmodified: one declaration each, run in the task's own sandbox."""

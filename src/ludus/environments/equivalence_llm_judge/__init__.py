"""Open questions; a judge compares each answer with the expected one."""

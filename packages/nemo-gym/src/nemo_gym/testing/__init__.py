"""Checks that authors of servers run in their own tests."""

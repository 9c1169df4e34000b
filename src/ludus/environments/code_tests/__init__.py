"""Functions that are judged by hidden unit tests."""

"""Answers in JSON, YAML, XML, TOML or CSV that must fit a schema."""

"""Rollouts to training sets: one file per family of formats, and one registry (`registry.py`).

`exporting.export` reads a run, picks rollouts (`data/filters.py`), pairs or groups them where a format needs that
(`grouping.py`, `pairs.py`), turns them into rows and writes them. The command is `ludus data export`.
"""

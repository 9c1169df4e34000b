"""Where rollouts are played: in this process, or in several.

An engine takes the work of a collection, task by task, and gives finished rollouts to the `Recorder`.
"""

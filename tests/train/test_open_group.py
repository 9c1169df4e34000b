"""The state of an open group, whatever its rollouts do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from training import Judged, questions

from ludus.collection.plan import TaskWork
from ludus.environment import Environment
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.rollout import Rollout
from ludus.train.group import TrainingMember
from ludus.train.open_group import OpenGroup
from ludus.train.policy import GroupPolicy

ENVIRONMENT = Environment.load(Judged)
Choices = st.lists(st.tuples(st.sampled_from(["completed", "masked", "failed", "wide"]), st.integers(0, 99)))


@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 4), Choices)
def test_every_group_ends_and_every_rollout_of_it_is_in_one_place(
    size: int, extra: int, replacements: int, choices: list[tuple[str, int]]
) -> None:
    policy = GroupPolicy(size=size, extra=extra, replacements=replacements, max_span=0)
    (row,) = questions(1)
    work = TaskWork("t", ENVIRONMENT, row, dict.fromkeys(range(size + extra), 1))
    group = OpenGroup(work, policy, 0, task_id="t")
    ended = iter(choices)
    while group.closed is None:
        while group.waiting:
            group.start()
        kind, which = next(ended, ("failed", 0))
        repeat = sorted(group.running)[which % len(group.running)]
        group.add(_member(group, repeat, kind))
        started = len(work.repeats)
        places = len(group.members) + len(group.failures) + group.dropped + len(group.running) + len(group.waiting)
        assert started == places <= size + extra + replacements
    assert len(group.members) <= size
    assert (group.closed == "full") == (len(group.members) == size)
    finished = group.finished()
    repeats = [member.rollout.job.repeat for member in finished.members]
    assert repeats == sorted(repeats)


def _member(group: OpenGroup, repeat: int, kind: str) -> TrainingMember:
    rollout = Rollout(group.work.job(0, repeat))
    if kind == "failed":
        rollout.fail(Failure("crash", "it crashed", stage="verify"))
    else:
        rollout.judge(Verdict(1.0, mask="unfit" if kind == "masked" else None))
    if kind == "wide":
        versions = ("1", "2")
        rollout.calls = [{"prefix": 0, "policy_version": version, "generated_ids": []} for version in versions]
    return TrainingMember(rollout)

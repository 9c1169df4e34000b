"""Which rollouts of a run an export uses, in the order in which it writes them, and why the others are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property

from ludus.outcome import PASS_REWARD
from ludus.store.lines import StoredLines
from ludus.store.verifiers import Verifiers
from ludus_data.export.format import Unit
from ludus_data.export.grouping import GroupIndex, IndexedRollout, member_of
from ludus_data.export.pairs import BETWEEN, PairRule
from ludus_data.export.records import Records
from ludus_data.filters import Filters, within
from ludus_data.recorded import Sample

#: The number of rollouts between two calls of `tick`.
_TICK_EVERY = 256

Tick = Callable[[float], None]


class Selection:
    """The rollouts of a run that pass the filters: one by one, as pairs, or as whole groups.

    `rollouts` counts those that were read, `left_out` those that are not used, by reason. `takes` is the format's.
    `grouped` says that all rollouts of a task must be known before any of them is used.
    """

    def __init__(self, records: Records, filters: Filters, pairs: PairRule, takes: str, tick: Tick) -> None:
        self._records, self._filters, self._pairs, self._takes, self._tick = records, filters, pairs, takes, tick
        self.rollouts = 0
        self.left_out: Counter[str] = Counter()
        self.verifiers = Verifiers()  #: of the rollouts that no filter refuses
        self.grouped = takes != "rollout" or filters.needs_groups

    def units(self) -> Iterator[Unit]:
        """What the format makes rows of."""
        return self._grouped_units() if self.grouped else self._single_units()

    def add(self, rollouts: int, left_out: Counter[str], verifiers: Verifiers | None = None) -> None:
        """Count rollouts of a block that another selection read."""
        self.rollouts += rollouts
        self.left_out.update(left_out)
        if verifiers is not None:
            self.verifiers.update(verifiers)

    def samples(self) -> Iterator[tuple[Sample, str | None]]:
        """All rollouts, and why a filter refuses them. The first pass over the file."""
        records, reason_against, share = self._records, self._filters.reason_against, 0.5 if self.grouped else 1.0
        for row in records:
            self.rollouts += 1
            if not self.rollouts % _TICK_EVERY:
                self._tick(share * records.lines.share)
            sample = Sample(row)
            reason = reason_against(sample)
            if reason is not None:
                self.left_out[reason] += 1
            else:
                self.verifiers.add(sample.environment, sample.receipt)
            yield sample, reason
        self.count_lines_left_out(records.lines)

    def count_lines_left_out(self, lines: StoredLines) -> None:
        """Count the lines of the file that do not count."""
        for reason, count in (("duplicate", lines.duplicates), ("incomplete last line", int(lines.torn > 0))):
            if count:
                self.add(count, Counter({reason: count}))

    def wanted_groups(self, index: GroupIndex) -> Iterator[list[IndexedRollout]]:
        """The groups that have a kept member and the wanted pass rate."""
        done = 0
        for members in index.groups():
            done += len(members)
            self._tick(0.5 + 0.5 * min(done / self.rollouts, 1.0))
            wanted = sum(member.kept for member in members)
            if wanted and self._filters.needs_groups and not self._has_wanted_pass_rate(members):
                self.left_out["pass rate"] += wanted
            elif wanted:
                yield members
        self._tick(1.0)

    def passes(self, environment: str, reward: float) -> bool:
        """Whether the reward of a rollout reaches the threshold of its environment."""
        return reward >= self._scales.get(environment, PASS_REWARD)

    def _single_units(self) -> Iterator[Unit]:
        for sample, reason in self.samples():
            if reason is None:
                yield (sample,)

    def _grouped_units(self) -> Iterator[Unit]:
        """Units in the order in which their tasks begin in the file. The second pass reads by place."""
        measured = self._pairs.length_ratio is not None
        with GroupIndex(self._records.size) as index:
            for sample, reason in self.samples():
                if sample.reward is None:
                    continue
                length, passed = sample.length if measured else 0, self.passes(sample.environment, sample.reward)
                member, place = member_of(sample), self._records.place
                index.add(member, place, length=length, kept=reason is None, passed=passed)
            for members in self.wanted_groups(index):
                yield from self._units_of(members)

    def _units_of(self, members: list[IndexedRollout]) -> Iterator[Unit]:
        chosen = [member for member in members if member.kept]
        if self._takes == "pair":
            yield from self._pair_of(chosen)
        else:
            for member in chosen:
                yield (self._read(member),)

    def _pair_of(self, chosen: list[IndexedRollout]) -> Iterator[Unit]:
        pair = self._pairs.pair(chosen)
        if isinstance(pair, str):
            self.left_out[pair] += len(chosen)
            return
        if len(chosen) > 2:
            self.left_out[BETWEEN] += len(chosen) - 2
        yield self._read(pair.chosen), self._read(pair.rejected)

    def _has_wanted_pass_rate(self, members: list[IndexedRollout]) -> bool:
        counted = [member.passed for member in members if not member.masked]
        return bool(counted) and within(sum(counted) / len(counted), self._filters.pass_rate)

    def _read(self, member: IndexedRollout) -> Sample:
        return Sample(self._records.at(member.place))

    @cached_property
    def _scales(self) -> dict[str, float]:
        """The pass reward of each environment."""
        from ludus.store.stored_run import StoredRun  # helpers, which do not need it, start faster

        return StoredRun(self._records.path).pass_rewards

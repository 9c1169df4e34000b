"""Statistics over verified rollouts: whatever numbers and indices a client sends, they are answered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ludus.runtime.encoding import encode
from ludus.serve.aggregate import aggregate

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=3
)
rows = st.fixed_dictionaries({}, optional={"_ng_task_index": values, "reward": values, "response": values})


@given(st.lists(rows))
def test_any_rows_are_aggregated_into_json(given: list[dict[str, object]]) -> None:
    assert encode(aggregate(given))


def test_rows_of_a_task_are_one_group_whatever_its_index_is() -> None:
    found = aggregate([{"_ng_task_index": [1], "reward": 0}, {"_ng_task_index": [1], "reward": 1.0}, {"reward": 1e300}])
    assert [group["_ng_task_index"] for group in found["group_level_metrics"]] == [[1], None]
    assert found["key_metrics"] == {"mean/reward": 0.5}


def test_numbers_that_name_a_rollout_are_not_measured() -> None:
    row = {"_ng_task_index": 0, "repeat": 1, "attempt": 1, "rollout_seed": 99, "reward": 1.0}
    assert aggregate([row])["key_metrics"] == {"mean/reward": 1.0}

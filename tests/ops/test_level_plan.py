from __future__ import annotations

import pytest
import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.ops import level_plan
from treemem.ops.level_plan import LevelPlan, cut, cut_backwards
from treemem.schedule.tree_batch import TreeBatch


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_slices_are_the_same_whatever_the_number_cut_at_a_time(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(level_plan, "_CHUNK", chunk)
    sizes = [2, 0, 1, 3, 1]
    rows = torch.arange(sum(sizes))
    expected = [[0, 1], [], [2], [3, 4, 5], [6]]
    assert [part.tolist() for part in cut(rows, sizes)] == expected
    assert [part.tolist() for part in cut_backwards(rows, sizes)] == expected[::-1]


def test_rows_of_a_kind_come_with_their_places_and_their_children() -> None:
    schedule = TreeBatch.from_forest(random_forest(seed=0, num_trees=9, size=20), VOCABULARY).schedule
    plan = LevelPlan(schedule)
    first_child = {}
    for level in schedule.levels:
        for segment in level.segments:
            for row in range(segment.begin, segment.end):
                first_child[row] = segment.first_child + (row - segment.begin) * segment.arity
    for arity, num_rows in plan.rows_of_arity.items():
        rows_in_order = torch.cat(
            [torch.arange(group.begin, group.end) for group in plan.groups if group.arity == arity]
        )
        assert len(rows_in_order) == num_rows
        by_kind = plan.kind_rows(arity)
        assert sorted(torch.cat([each.rows for each in by_kind]).tolist()) == sorted(rows_in_order.tolist())
        for each in [*by_kind, *plan.kind_rows(arity, by_kind=False)]:
            if each.kind is not None:
                assert (schedule.kind_of_row[each.rows] == each.kind).all()
            places = torch.arange(num_rows) if each.places is None else each.places
            assert rows_in_order[places].tolist() == each.rows.tolist()
            expected = [
                schedule.child[first_child[row] : first_child[row] + arity].tolist() for row in each.rows.tolist()
            ]
            assert each.child.view(-1, arity).tolist() == expected

from __future__ import annotations

import pytest
import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.ops import level_plan
from treemem.ops.level_plan import LevelPlan, cut, cut_backwards, selected
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
        every_row = torch.arange(schedule.num_rows)
        assert (
            sorted(torch.cat([selected(every_row, each.rows) for each in by_kind]).tolist()) == rows_in_order.tolist()
        )
        for each in [*by_kind, *plan.kind_rows(arity, by_kind=False)]:
            rows = selected(every_row, each.rows)
            if each.kind is not None:
                assert (schedule.kind_of_row[rows] == each.kind).all()
            assert selected(rows_in_order, each.places).tolist() == rows.tolist()
            assert selected(every_row[plan.num_leaves :], each.features).tolist() == rows.tolist()
            expected = [schedule.child[first_child[row] : first_child[row] + arity].tolist() for row in rows.tolist()]
            assert each.child.tolist() == expected
            parts = list(each.parts(3))
            assert all(len(part.child) <= 3 for part in parts)
            for name, whole in (("rows", rows), ("places", selected(torch.arange(num_rows), each.places))):
                again = [selected(torch.arange(schedule.num_rows), getattr(part, name)) for part in parts]
                assert torch.cat(again).tolist() == whole.tolist()
            assert torch.cat([part.child for part in parts]).tolist() == each.child.tolist()


@pytest.mark.parametrize("most_rows", [1, 4, 1000])
def test_groups_hold_no_more_rows_than_they_may_and_cover_all_in_order(most_rows: int) -> None:
    schedule = TreeBatch.from_forest(random_forest(seed=0, num_trees=9, size=20), VOCABULARY).schedule
    groups = LevelPlan(schedule, most_rows, run_leaves=True).groups
    assert max(group.end - group.begin for group in groups) <= most_rows
    assert [row for group in groups for row in range(group.begin, group.end)] == list(range(schedule.num_rows))
    for group in groups:
        covered = [kind for begin, end, kind in group.runs for _ in range(begin, end)]
        assert covered == schedule.kind_of_row[group.begin : group.end].tolist()

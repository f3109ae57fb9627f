from __future__ import annotations

import pytest
import torch

from treemem.native import large_pages
from treemem.native.large_pages import empty_rows


@pytest.mark.parametrize("rows", [0, 3, 1 << 19])
def test_rows_have_the_asked_for_shape_and_the_type_of_another_tensor(rows: int) -> None:
    found = empty_rows(torch.zeros(1, dtype=torch.float64), rows, 2)
    assert found.shape == (rows, 2)
    assert found.dtype == torch.float64
    found.fill_(1)
    assert found.sum() == 2 * rows


def test_advice_stays_within_the_rows_and_is_for_large_ones_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(large_pages, "_ADVICE", 14)
    monkeypatch.setattr(large_pages, "_advise", lambda: lambda begin, size, _: calls.append((begin.value, size.value)))
    empty_rows(torch.zeros(1), 10, 10)
    assert not calls
    rows = empty_rows(torch.zeros(1), 1 << 20, 3)
    ((begin, size),) = calls
    assert begin % large_pages.mmap.PAGESIZE == 0
    assert rows.data_ptr() <= begin < begin + size == rows.data_ptr() + 12 * (1 << 20)


def test_rows_are_made_where_the_system_takes_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_pages, "_advise", lambda: None)
    assert empty_rows(torch.zeros(1), 1 << 20, 3).shape == (1 << 20, 3)

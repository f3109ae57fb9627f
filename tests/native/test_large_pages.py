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


def test_rows_are_made_where_the_system_takes_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_pages, "_advise", lambda: None)
    assert empty_rows(torch.zeros(1), 1 << 20, 3).shape == (1 << 20, 3)

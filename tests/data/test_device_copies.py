"""A batch goes to a device in one copy from pinned memory."""

from __future__ import annotations

import torch
from fake_device import DEVICE, fake_device

from treemem import Forest, TreeBatch, Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device_together

FOREST = Forest.from_trees(["(f x (f y 2))", "x"])


def test_a_batch_of_trees_goes_in_one_copy_without_waiting() -> None:
    batch = TreeBatch.from_forest(FOREST, Vocabulary.from_forest(FOREST))
    with fake_device() as device:
        there = batch.to(DEVICE).schedule
        assert device.copies == 1
        assert not device.waits
        for name in ("child", "row_of_node", "row_of_root", "node_of_row", "kind_of_row", "symbol", "value"):
            torch.testing.assert_close(getattr(there, name).cpu(), getattr(batch.schedule, name), equal_nan=True)


def test_a_batch_of_tokens_and_its_target_go_in_one_copy_and_lengths_stay() -> None:
    target = TokenBatch.from_sequences([[4], [5, 6]])
    batch = TokenBatch.from_sequences([[1, 2], [3]])
    batch = TokenBatch(batch.token, batch.lengths, target=target)
    with fake_device() as device:
        there = batch.to(DEVICE)
        assert device.copies == 1
        assert not device.waits
        assert there.target is not None
        assert there.token.device == there.target.token.device == DEVICE
        assert there.lengths.device.type == there.target.lengths.device.type == "cpu"
        assert there.target.token.tolist() == [[4, 0], [5, 6]]


def test_types_and_shapes_stay_when_tensors_go_together() -> None:
    tensors = [
        torch.tensor([[True, False]]),
        torch.empty(0, 3, dtype=torch.int32),
        torch.tensor(2.5),
        torch.arange(6, dtype=torch.float64).view(2, 3).t(),
    ]
    with fake_device():
        for here, there in zip(tensors, to_device_together(tensors, DEVICE), strict=True):
            torch.testing.assert_close(there.cpu(), here)

"""A batch goes to a device in one copy from pinned memory."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from fake_device import DEVICE, fake_device

from treemem import Forest, TreeBatch, Vocabulary, device_copy
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import pinned_together, to_device_together

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


def test_pinned_batches_go_from_their_own_buffer_to_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary.from_forest(FOREST)
    whole = TreeBatch.from_forest(FOREST, vocabulary, share_subtrees=False)
    batch = whole.with_feat(torch.randn(whole.num_nodes, 3))
    target = TokenBatch.from_sequences([[4], [5, 6]])
    tokens = TokenBatch(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]), target=target)
    with fake_device() as device:
        pinned, pinned_tokens = batch.pin_memory(), tokens.pin_memory()
        copies = device.copies
        monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("another buffer is made"))
        there, tokens_there = pinned.to(DEVICE), pinned_tokens.to(DEVICE)
        monkeypatch.undo()
        assert device.copies - copies == 3  # of the schedule, the features and the tokens
        assert not device.waits
        assert there.feat is not None
        assert batch.feat is not None
        torch.testing.assert_close(there.feat.cpu(), batch.feat)
        for name in ("child", "row_of_node", "row_of_root", "node_of_row", "kind_of_row", "symbol", "value"):
            expected = getattr(batch.schedule, name)
            torch.testing.assert_close(getattr(there.schedule, name).cpu(), expected, equal_nan=True)
            torch.testing.assert_close(getattr(pinned.schedule, name), expected, equal_nan=True)
        assert tokens_there.token.tolist() == [[1, 2], [3, 0]]
        assert tokens_there.target is not None
        assert tokens_there.target.token.tolist() == [[4, 0], [5, 6]]
    assert pinned.num_trees == batch.num_trees
    assert pinned.forest is not None


def test_a_part_of_pinned_tensors_or_a_changed_one_is_copied_anew() -> None:
    with fake_device():
        first, second = pinned_together([torch.arange(6).view(2, 3), torch.arange(2.0)])
        for tensors in (
            [second, first],
            [first],
            [first.t(), second],
            [first, second + 1],
            [copy.deepcopy(first), copy.deepcopy(second)],
        ):
            for here, there in zip(tensors, to_device_together(tensors, DEVICE), strict=True):
                torch.testing.assert_close(there.cpu(), here)


def test_a_loader_of_torch_pins_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data._utils.pin_memory import pin_memory

    vocabulary = Vocabulary.from_forest(FOREST)
    batch = pickle.loads(pickle.dumps(TreeBatch.from_forest(FOREST, vocabulary)))  # as a worker sends it
    buffers = []
    packed = device_copy._packed
    monkeypatch.setattr(device_copy, "_packed", lambda tensors: buffers.append(packed(tensors)) or buffers[-1])
    with fake_device():
        loaded = pin_memory({"trees": batch, "label": [1, 2]})["trees"]
        assert loaded.schedule.child._treemem_place[0] is buffers[0]

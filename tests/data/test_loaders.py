from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from treemem.data.loader import BatchOptions, SequenceLoader, StreamLoader
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.data_parallel import Processes
from treemem.trees.tokens import TokenSequences


def sequences(*lengths: int) -> TokenSequences:
    """Sequences of tokens that count on from 1."""
    begin = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    token = np.arange(1, begin[-1] + 1)
    return TokenSequences([str(each) for each in range(int(begin[-1]) + 1)], token, begin, token)


def loader_of(count: int, options: BatchOptions, per_example: int = 1) -> SequenceLoader:
    lengths = np.random.default_rng(count).integers(0, 9, count * per_example)
    return SequenceLoader(sequences(*lengths), per_example, np.arange(count), np.zeros(count, int), options)


@pytest.mark.parametrize("per_example", [1, 2])
@pytest.mark.parametrize("sort_by_length", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("count", [0, 1, 8, 45])
def test_each_example_is_in_one_batch_with_its_tokens(
    count: int, shuffle: bool, sort_by_length: bool, per_example: int
) -> None:
    options = BatchOptions(8, shuffle=shuffle, sort_by_length=sort_by_length)
    loader = loader_of(count, options, per_example)
    plan = loader.plan()
    assert len(plan) == len(loader) == -(-count // 8)
    assert sorted(np.concatenate([np.empty(0, int), *plan])) == list(range(count))
    batches = list(loader.batches())
    assert [batch.example_ids.tolist() for batch in batches if batch.example_ids is not None] == [
        places.tolist() for places in plan
    ]
    text = loader.sequences
    for batch in batches:
        for part, which in ((batch, 0), (batch.target, 1))[:per_example]:
            assert part.token.shape == (batch.num_examples, max(part.lengths.tolist()))
            for row, length, example in zip(part.token, part.lengths, batch.example_ids, strict=True):
                number = example * per_example + which
                expected = text.token[text.begin[number] : text.begin[number + 1]]
                assert row.tolist() == [*expected, *[0] * (len(row) - length)]
                assert length == len(expected)


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    orders = [
        np.concatenate(loader_of(40, BatchOptions(8, shuffle=True, seed=seed, epoch=epoch)).plan()).tolist()
        for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3] != orders[0]


def test_sorted_batches_hold_examples_of_similar_length() -> None:
    loader = loader_of(45, BatchOptions(8, sort_by_length=True))
    sizes = [loader.sizes()[places] for places in loader.plan()]
    assert all(first.max() <= second.min() for first, second in pairwise(sizes))
    pairs = loader_of(5, BatchOptions(), per_example=2)
    assert pairs.sizes().tolist() == np.diff(pairs.sequences.begin).reshape(5, 2).sum(1).tolist()


def test_the_parts_of_processes_are_a_batch_of_which_each_has_about_as_many_tokens() -> None:
    loader = loader_of(45, BatchOptions(8))
    plan = loader.plan()
    parts = [loader.parts(plan, Processes(rank, 2)) for rank in (0, 1)]
    for places, *own in zip(plan, *parts, strict=True):
        assert sorted(np.concatenate(own)) == sorted(places)
        tokens = [loader.sizes()[each].sum() for each in own]
        assert abs(tokens[0] - tokens[1]) <= loader.sizes().max()


@pytest.mark.parametrize(
    ("tokens", "columns", "steps"), [(1, 4, 3), (2, 4, 3), (5, 1, 2), (23, 4, 2), (24, 4, 5), (25, 3, 100)]
)
def test_the_columns_of_a_stream_side_by_side_are_the_stream_and_the_targets_its_next_tokens(
    tokens: int, columns: int, steps: int
) -> None:
    stream = np.random.default_rng(tokens).integers(0, 100, tokens)
    loader = StreamLoader(stream, columns, steps)
    batches = list(loader.batches())
    assert len(batches) == len(loader) == len(loader.plan())
    assert [batch.continues for batch in batches] == [number > 0 for number in range(len(batches))]
    if tokens == 1:
        assert batches == []
        return
    read = torch.cat([batch.token for batch in batches], 1)
    target = torch.cat([batch.target.token for batch in batches if batch.target is not None], 1)
    assert read.shape[0] == min(columns, tokens - 1)
    whole = read.flatten().tolist()
    assert whole == stream[: len(whole)].tolist()
    assert len(whole) > tokens - 1 - columns, "fewer than a column's worth is left out"
    assert target.flatten().tolist() == stream[1 : len(whole) + 1].tolist()
    for batch in batches:
        assert batch.lengths.tolist() == [batch.token.shape[1]] * batch.num_examples
        assert batch.token.shape[1] <= steps


def test_a_stream_of_no_token_has_no_batch() -> None:
    loader = StreamLoader(np.empty(0, np.int64), 4, 3)
    assert (len(loader), list(loader.plan()), list(loader.batches()), len(loader.group)) == (0, [], [], 0)


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_process_reads_the_same_columns_every_time(columns: int) -> None:
    loader = StreamLoader(np.arange(41), columns, 3)
    whole = list(loader.batches())
    for rank in (0, 1):
        parts = loader.parts(loader.plan(), Processes(rank, 2))
        mine = [places % columns for places in parts]
        assert all((each == mine[0]).all() for each in mine)
        for batch, own in zip(whole, loader.batches(parts), strict=True):
            assert own.num_examples == len(mine[0])
            if own.num_examples:
                assert own.token.tolist() == batch.token[mine[0]].tolist()
                assert own.continues == batch.continues
    both = [loader.parts(loader.plan(), Processes(rank, 2))[0] for rank in (0, 1)]
    assert np.concatenate(both).tolist() == list(range(columns))


def test_a_batch_of_sequences_is_padded_and_moves_with_its_target() -> None:
    batch = TokenBatch.from_sequences([[3, 1], [], [2]])
    assert (batch.token.tolist(), batch.lengths.tolist()) == ([[3, 1], [0, 0], [2, 0]], [2, 0, 1])
    assert TokenBatch.from_sequences([]).token.shape == (0, 0)
    both = TokenBatch(batch.token, batch.lengths, target=batch).with_state("state").to("cpu")
    assert both.target is not None
    assert (both.state, both.num_examples, both.target.num_examples) == ("state", 3, 3)


def test_sums_and_counts_add_up_to_one_mean() -> None:
    parts = [SumCount(torch.tensor(3.0), 2.0), SumCount(torch.tensor(5.0), torch.tensor(6))]
    total = parts[0] + parts[1] + SumCount.zero()
    assert (float(total.sum), float(total.count), float(total.mean)) == (8.0, 8.0, 1.0)
    assert [float(part.mean) for part in parts] == [1.5, pytest.approx(5 / 6)]
    for nothing in (SumCount.zero(), SumCount(torch.tensor(0.0), torch.tensor(0))):
        assert float(nothing.mean) == 0.0


def test_varied_batches_of_a_stream_go_on_where_the_one_before_ended() -> None:
    stream = np.arange(1, 2002)
    loader = StreamLoader(stream, 4, 20, np.random.default_rng(3))
    batches = list(loader.batches())
    sizes = [batch.token.shape[1] for batch in batches]
    assert len(set(sizes)) > 4
    assert min(sizes[:-1]) >= 5
    assert abs(np.mean(sizes[:-1]) - 19.5) < 3
    wide = StreamLoader(np.arange(20_002), 1, 100, np.random.default_rng(3))
    assert {round(batch.token.shape[1] / 50) for batch in list(wide.batches())[:-1]} == {1, 2}, "some are half as wide"
    tokens = torch.cat([batch.token for batch in batches], 1)
    following = torch.cat([batch.target.token for batch in batches if batch.target is not None], 1)
    assert torch.equal(tokens.flatten(), torch.arange(1, 2001))
    assert torch.equal(following, tokens + 1)
    assert [batch.continues for batch in batches] == [False] + [True] * (len(batches) - 1)
    again = StreamLoader(stream, 4, 20, np.random.default_rng(3))
    rest = list(again.batches(again.plan()[3:]))
    assert all(torch.equal(one.token, other.token) for one, other in zip(rest, batches[3:], strict=True))

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_reference import fixed_weights, gradients, normalized, reference_layer, sine_and_cosine
from engine_parity import assert_same
from tree_strategies import VOCABULARY

from treemem.nn import UniversalTransformer

SMALL: dict[str, Any] = {"num_steps": 5, "num_heads": 2, "feedforward_size": 5}
LENGTHS = torch.tensor([4, 1, 0, 6])


def random_inputs() -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randn(4, 6, 6, dtype=torch.float64)


def reference(encoder: UniversalTransformer, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs for one sequence with its marks, and the ponder time of each position, position by position."""
    places = torch.stack([sine_and_cosine(1 + place, 6) for place in range(len(vectors))])
    state, outputs = vectors, [torch.zeros(6).double()] * len(vectors)
    halting, ponder = [torch.zeros(()).double()] * len(vectors), [torch.zeros(()).double()] * len(vectors)
    halted = [False] * len(vectors)
    for step in range(encoder.num_steps):
        inputs = state + places + sine_and_cosine(1 + step, 6)
        state, _ = reference_layer(inputs, encoder.layer)
        if encoder.halting is None:
            outputs = list(state)
            continue
        for place in range(len(vectors)):
            if halted[place]:
                continue
            score = inputs[place] @ encoder.halting.weight[0] + encoder.halting.bias[0]
            probability = 1 / (1 + torch.exp(-score))
            ponder[place] = ponder[place] + 1
            if float((halting[place] + probability).detach()) > encoder.threshold:
                halted[place] = True
                probability = 1 - halting[place]
                ponder[place] = ponder[place] + probability
            halting[place] = halting[place] + probability
            outputs[place] = probability * state[place] + (1 - probability) * outputs[place]
    values = torch.stack(outputs)
    return (normalized(values, encoder.last_norm) if encoder.norm_first else values), torch.stack(ponder)  # type: ignore[arg-type]


def halting_at_different_steps(**options: Any) -> UniversalTransformer:
    """An encoder of which some positions halt early, some late and some never."""
    torch.manual_seed(1)
    encoder = UniversalTransformer(6, VOCABULARY, **SMALL, act=True, **options).double()
    assert encoder.halting is not None
    with torch.no_grad():
        encoder.halting.bias.zero_()
    return encoder


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True}, {"act": True}, {"act": True, "norm_first": True, "read": "mean"}], ids=str
)
def test_the_encoder_equals_the_equations_on_every_output_and_gradient(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    given = dict(options)
    encoder = (
        halting_at_different_steps(**given)
        if given.pop("act", False)
        else UniversalTransformer(6, VOCABULARY, **SMALL, **given).double()
    )
    inputs = random_inputs()
    expected, ponder = torch.zeros(4, 6).double(), []
    for row, length in enumerate(LENGTHS.tolist()):
        if not length:
            continue
        marks = [] if encoder.marks is None else [encoder.marks.weight]
        outputs, times = reference(encoder, torch.cat([inputs[row, :length], *marks]))
        read = outputs.mean(0) if encoder.readout_place == "mean" else outputs[-1]
        expected = expected.index_put((torch.tensor([row]),), read[None])
        ponder.append(times)
    wanted_ponder = torch.cat(ponder)
    loss = fixed_weights(expected) + 0.1 * wanted_ponder.sum()
    wanted = {"encoding": expected.detach(), **gradients(encoder, loss)}
    reading = encoder.read(inputs, LENGTHS, trace=True)
    loss = fixed_weights(reading.encoding)
    if encoder.halting is not None:
        times = reading.trace["ponder"]
        torch.testing.assert_close(times[times > 0], wanted_ponder)
        assert len(set(times.detach().floor().flatten().tolist())) > 2, "positions must halt at different steps"
        loss = loss + 0.1 * times.sum()
    assert_same({"encoding": reading.encoding.detach(), **gradients(encoder, loss)}, wanted, str(options))
    encoder.eval()
    with torch.no_grad():  # where torch has another way of its own
        assert_same({"encoding": encoder.read(inputs, LENGTHS).encoding}, {"encoding": wanted["encoding"]}, "evaluated")


def test_all_stop_once_every_position_has_halted() -> None:
    encoder = halting_at_different_steps()
    assert encoder.halting is not None
    with torch.no_grad():
        encoder.halting.bias.fill_(50)
    calls: list[int] = []
    encoder.layer.register_forward_hook(lambda *_: calls.append(1))
    trace = encoder.read(random_inputs(), LENGTHS, trace=True).trace
    assert len(calls) == 1
    assert trace["attention"].shape == (4, 5, 7, 7)
    assert trace["attention"][:, 0].any()
    assert not trace["attention"][:, 1:].any()
    present = torch.arange(7) <= LENGTHS[:, None]
    present[2] = False
    assert torch.equal(trace["ponder"], 2 * present.double()), "one step, and a remainder of 1"


def test_positions_start_and_restart_with_a_bias_to_halt() -> None:
    encoder = UniversalTransformer(6, VOCABULARY, num_heads=2, act=True)
    for reset in (lambda: None, encoder.reset_parameters):
        reset()
        assert encoder.halting is not None
        assert encoder.halting.bias.tolist() == [1.0]


def test_the_ponder_loss_is_the_sum_of_the_ponder_times_and_the_number_of_positions() -> None:
    assert 0 in LENGTHS, "an empty sequence has no position to count"
    output = halting_at_different_steps().read(random_inputs(), LENGTHS, trace=True)
    ponder, loss = output.trace["ponder"], output.auxiliary_losses["ponder"]
    torch.testing.assert_close(loss.sum, ponder.sum())
    assert loss.count == (ponder > 0).sum()
    assert loss.sum.requires_grad
    assert not UniversalTransformer(6, VOCABULARY, num_heads=2).double().read(random_inputs(), LENGTHS).auxiliary_losses


@pytest.mark.parametrize("act", [False, True])
def test_a_pair_is_read_as_one_sequence_with_its_marks(act: bool) -> None:
    torch.manual_seed(0)
    encoder = (
        halting_at_different_steps(joint=True)
        if act
        else UniversalTransformer(6, VOCABULARY, **SMALL, joint=True).double()
    )
    inputs = random_inputs()
    assert encoder.marks is not None
    extract, start, delimiter = encoder.marks.weight[:, None]
    reading = encoder.read(inputs, LENGTHS, trace=True)
    assert reading.outputs.shape == (2, 9, 6)
    assert reading.trace["attention"].shape == (2, 5, 9, 9)
    wanted = []
    for pair in range(2):
        left, right = (inputs[side, : LENGTHS[side]] for side in (2 * pair, 2 * pair + 1))
        outputs, ponder = reference(encoder, torch.cat([start, left, delimiter, right, extract]))
        torch.testing.assert_close(reading.outputs[pair, : len(outputs)], outputs)
        assert not reading.outputs[pair, len(outputs) :].any()
        if act:
            torch.testing.assert_close(reading.trace["ponder"][pair, : len(outputs)], ponder)
        wanted.append(outputs[-1])
    expected = torch.stack(wanted)
    found = {"encoding": reading.encoding.detach(), **gradients(encoder, fixed_weights(reading.encoding))}
    assert_same(found, {"encoding": expected.detach(), **gradients(encoder, fixed_weights(expected))}, "joint")

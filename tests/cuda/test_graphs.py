"""Steps as CUDA graphs. The fake device records what a step does on memory, and repeats it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from device_cases import CASES
from engine_parity import assert_same
from fake_device import DEVICE, HAS_INTERPRETER, fake_device
from torch import Tensor, nn

from treemem import RecipeError, TreeBatch, Vocabulary
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.networks import every_network
from treemem.nn import LSTM, OrderedMemory, Transformer, TreeNetwork, TreeRNN
from treemem.ops import CapturedStep, cuda_kernels
from treemem.schedule import padded

LONGEST = 5
NETWORKS = [
    *every_network(8), "own cell", "RNN with a superposition stack", "PRPN", "language model, ON-LSTM",
    "language model, LSTM", "language model, Transformer",
]  # fmt: skip
ORDINARY = (
    "ON-LSTM",
    "Ordered Memory",
    "Transformer",
    "RNN with a superposition stack",
    "BT-GRC",
    "Disjoint Tree-LSTM",
    "Tree-RNN",
    "Child-Sum Tree-LSTM",
)
"""Networks that the ordinary suite captures; ``-m slow`` captures the others."""
Batches = list[tuple[Tensor, Tensor]]


def batches(count: int, equal: bool = False) -> Batches:
    """Tokens and lengths of three sequences each, of one bucket."""
    generator = torch.Generator().manual_seed(0)
    lengths = [[LONGEST] * 3 if equal else [LONGEST - at % 2, 1 + at, 3 * (at != 1)] for at in range(count)]
    return [(torch.randint(0, 3, (3, LONGEST), generator=generator), torch.tensor(row)) for row in lengths]


def trained(encoder: Any, given: Batches, in_bucket: bool, enabled: bool) -> dict[str, Tensor]:
    """The losses of some training steps, and the parameters after them."""
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01, momentum=0.9)

    def step(token: Tensor, lengths: Tensor) -> Tensor:
        if in_bucket:
            output = encoder.in_bucket(token, lengths)
        else:
            output = encoder(TokenBatch(token, torch.full((len(token),), token.shape[1])))
        optimizer.zero_grad()
        loss: Tensor = (output.root * output.root.cos()).sum() + output.outputs.sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    captured = CapturedStep(step, encoder, enabled=enabled)
    losses = {f"loss {number}": captured(*batch) for number, batch in enumerate(given)}
    assert captured.num_graphs == enabled
    return {**losses, **{name: parameter.detach() for name, parameter in encoder.named_parameters()}}


def check_capture(name: str, in_bucket: bool, device: Any = DEVICE, kernels: bool = False) -> None:
    """A graph that was captured with the second batch does for the next what the step does."""
    outcomes = []
    for enabled in (False, True):
        torch.manual_seed(0)
        with cuda_kernels(kernels), fake_device() if device == DEVICE else nullcontext():
            encoder = CASES[name](3).module.double().to(device)
            found = trained(encoder, batches(3, equal=not in_bucket), in_bucket, enabled)
            outcomes.append({key: value.cpu() for key, value in found.items()})
    assert_same(outcomes[1], outcomes[0], name)


TREES = (
    ["(f (g x) (h x y (f y x)))", "x", "(g y)"],
    ["(h (g (f x y)) y x)", "(f x x)"],
    ["(h x y y)", "(f (g (g x)) (f x y))", "(g x)", "y"],
)
"""Batches of a bucket. The first two have fewer levels, and the second has fewer trees."""


def trained_on_trees(layer: Any, enabled: bool) -> dict[str, Tensor]:
    """The losses, encodings and gradients of some training steps, and the parameters after them."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)

    def step(trees: Any, weight: Tensor, node: Tensor) -> dict[str, Tensor]:
        output = layer.in_bucket(trees)
        optimizer.zero_grad()
        loss = ((output.root.sin().sum((1, 2)) + output.outputs[node].sum(1)) * weight).sum()
        loss.backward()
        optimizer.step()
        gradients = {name: value.grad for name, value in layer.named_parameters() if value.grad is not None}
        return {"loss": loss.detach(), "root": output.root.detach(), **gradients}

    captured, outcome = CapturedStep(step, layer, examples=4, enabled=enabled), {}
    for number, texts in enumerate(TREES):
        weight, node = torch.arange(1, len(texts) + 1).double(), torch.arange(len(texts))
        found = captured(TreeBatch.from_trees(texts, layer.vocabulary), weight, node)
        found = {name: value.to("cpu", copy=True) for name, value in found.items()}
        assert not found["root"].isnan().any()
        outcome |= {
            f"{name} {number}": value[: len(texts)] if name == "root" else value for name, value in found.items()
        }
    assert captured.num_graphs == enabled
    return outcome | {name: parameter.detach().cpu() for name, parameter in layer.named_parameters()}


def check_capture_of_trees(name: str, device: Any = DEVICE) -> None:
    """A graph that was captured with the second batch does for the third what the step does on the CPU."""
    outcomes = []
    for there in ("cpu", device):
        torch.manual_seed(0)
        with fake_device() if there == DEVICE else nullcontext():
            layer = CASES[name](3).module.double().to(there)
            outcomes.append(trained_on_trees(layer, enabled=there != "cpu"))
    assert_same(outcomes[1], outcomes[0], name)


def check_network(name: str, device: Any = DEVICE, kernels: bool = False) -> None:
    """A network is captured as it says: trees, sequences of any lengths, those of equal lengths, or not."""
    encoder: Any = CASES[name](3).module
    if isinstance(encoder, TreeNetwork):
        if HAS_INTERPRETER or device != DEVICE:
            check_capture_of_trees(name, device)
    elif encoder.why_not_in_bucket is None or encoder.why_not_captured is None:
        check_capture(name, encoder.why_not_in_bucket is None, device, kernels)
    else:
        with pytest.raises(RecipeError, match=encoder.why_not_in_bucket):
            encoder.in_bucket(*batches(1)[0])


@pytest.mark.parametrize(
    "name", [name if name in ORDINARY else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
@pytest.mark.usefixtures("unset_memory_is_nan")
def test_networks_are_captured_as_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded, "_FEWEST_TILES", 4)
    check_network(name)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU")
@pytest.mark.parametrize(
    "name",
    [
        "ON-LSTM",
        "Ordered Memory",
        "EBT-GRC",
        "BT-GRC",
        "Gumbel Tree-LSTM",
        "Disjoint Tree-LSTM",
        "RNN with a superposition stack",
    ],
)
def test_kernels_are_captured(name: str) -> None:
    check_network(name, kernels=True)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_captured_on_a_gpu(name: str, kernels: bool) -> None:
    check_network(name, "cuda", kernels)


@pytest.mark.parametrize("name", ["LSTM", "RNN", *ORDINARY[:4]])
def test_a_bucket_gives_the_outputs_of_a_batch(name: str) -> None:
    torch.manual_seed(0)
    encoder: Any = CASES[name](3).module.double().eval()
    for token, lengths in batches(3):
        expected, found = encoder(TokenBatch(token, lengths)), encoder.in_bucket(token, lengths)
        torch.testing.assert_close(found.root, expected.root, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.outputs, expected.outputs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("options", "longest"), [({}, 20), ({"positions": "learned", "max_length": 19}, 18)])
def test_a_bucket_has_the_examples_of_a_batch_and_few_lengths(options: dict[str, Any], longest: int) -> None:
    vocabulary = Vocabulary(["x", "y"], [("f", 2)])
    pairs = ["(f x (f y (f x (f y x))))", "(f x y)", "x", "(f (f x y) y)"]
    batch = TreeBatch.from_trees(pairs, vocabulary, trees_per_example=2)
    encoder = Transformer(8, vocabulary, num_layers=1, num_heads=2, form="brackets", **options).double().eval()
    bucket = encoder.bucket(batch)
    assert encoder.tokens(batch)[0].shape[1] == 17
    assert bucket.items.shape == (4, longest)
    assert bucket.num_examples == 2
    torch.testing.assert_close(encoder(bucket).root, encoder(batch).root, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda vocabulary: LSTM(8, vocabulary, bidirectional=True), "LSTM .* it also reads from the end"),
        (lambda vocabulary: OrderedMemory(8, vocabulary, padding="left"), "memory depends on the padding"),
        (lambda vocabulary: Transformer(8, vocabulary, joint=True), "pairs as one sequence"),
        (lambda vocabulary: CASES["CRvNN"](3).module, "CRvNN .* depend on the lengths"),
    ],
)
def test_networks_say_why_they_have_no_buckets(make: Any, reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        make(Vocabulary(["x", "y", "z"], [])).in_bucket(*batches(1)[0])


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2).double()


def test_a_graph_is_one_launch_and_gives_every_batch_its_own_outputs_and_gradients() -> None:
    inputs = [torch.randn(2, 3).double() for _ in range(4)]
    with fake_device() as device:
        layer, launches, found = linear().to(DEVICE), [], []
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)  # outside the step
        for make in (lambda step: step, lambda step: CapturedStep(step, layer)):
            layer.load_state_dict({name: value.to(DEVICE) for name, value in linear().state_dict().items()})

            def step(x: Tensor) -> dict[str, Tensor]:
                layer.zero_grad()
                outputs = layer(x).cos()
                outputs.sum().backward()
                return {"outputs": outputs}

            run = make(step)
            outputs = []
            for x in inputs:
                device.launches = 0
                outputs.append(run(x.to(DEVICE))["outputs"])
                launches.append(device.launches)
                optimizer.step()
            found.append([*(value.detach().cpu() for value in outputs), layer.weight.detach().cpu()])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert launches[-1] < launches[3]


def test_shapes_are_padded_to_buckets_of_which_only_some_have_graphs() -> None:
    with fake_device():
        layer = linear().to(DEVICE)
        step = CapturedStep(
            lambda x, label: (layer(x).sum((1, 2)), label), layer, examples=4, times=2, padding=(0, -1), most_graphs=1
        )
        for length in (3, 4, 3, 6, 6, 6):
            sums, label = step(torch.ones(3, length, 3).double(), torch.zeros(3, dtype=torch.int64))
            assert label.cpu().tolist() == [0, 0, 0, -1]
            expected = layer(torch.ones(1, 3).double().to(DEVICE)).sum() * length
            padding = layer(torch.zeros(1, 3).double().to(DEVICE)).sum() * (length % 2)
            torch.testing.assert_close(sums[0].cpu(), (expected + padding).cpu())
        assert step.num_graphs == 1
        assert step.num_bytes == 1


def test_the_gradients_of_all_graphs_are_in_the_same_memory() -> None:
    with fake_device():
        layer, gradients = linear().to(DEVICE), []

        def step(x: Tensor) -> None:
            layer.zero_grad()
            layer(x).sum().backward()

        captured = CapturedStep(step, layer)
        for count in (2, 3) * 3:
            x = torch.randn(count, 3).double()
            captured(x)
            gradients.append(layer.weight.grad)
            assert gradients[-1] is not None
            torch.testing.assert_close(gradients[-1].cpu(), x.sum(0).expand(2, 3))
        assert captured.num_graphs == 2
        assert all(gradient is gradients[-1] for gradient in gradients[2:])


def test_a_step_in_training_and_one_in_evaluation_have_graphs_of_their_own() -> None:
    with fake_device():
        layer = nn.Sequential(linear(), nn.Dropout(1 - 1e-9)).to(DEVICE)
        step = CapturedStep(layer, layer)
        x = torch.ones(1, 3).double()
        for training in (True, False, True, False, True, False):
            layer.train(training)
            assert bool((step(x) == 0).all().cpu()) == training
        assert step.num_graphs == 2


def test_a_step_whose_copies_depend_on_the_batch_is_refused() -> None:
    lengths = iter(([1, 2], [2, 2]))
    with fake_device():
        layer = linear().to(DEVICE)
        step = CapturedStep(lambda x: layer(x) * to_device(torch.tensor([next(lengths)]), DEVICE), layer)
        step(torch.ones(2, 3).double())
        with pytest.raises(RecipeError, match="copies numbers to the device that depend on the batch, such as lengths"):
            step(torch.ones(2, 3).double())
        with pytest.raises(RecipeError, match="takes tensors and TreeBatches, not int"):
            step(3)


def test_trees_that_are_no_arguments_are_refused() -> None:
    vocabulary = Vocabulary(["x"], [("f", 2)])
    trees = iter(["(f x x)", "(f x (f x x))"])
    with fake_device():
        layer = TreeRNN(4, vocabulary).to(DEVICE)

        def step(_: Tensor) -> Tensor:
            return layer(TreeBatch.from_trees([next(trees)], vocabulary).to(DEVICE)).root

        captured = CapturedStep(step, layer)
        captured(torch.zeros(1))
        with pytest.raises(RecipeError, match="depend on the batch"):
            captured(torch.zeros(1))


def test_on_a_cpu_steps_run_as_usual() -> None:
    layer = linear()
    step = CapturedStep(layer, layer, examples=4)
    for _ in range(3):
        assert step(torch.ones(2, 3).double()).shape == (4, 2)
    assert step.num_graphs == 0

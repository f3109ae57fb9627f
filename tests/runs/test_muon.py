from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import MoreX, toy_data
from training_runs import OPTIONS, assert_same

from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.memories.controllers.cells import GRUCell
from treemem.runs.fit import fit
from treemem.runs.muon import Muon, hidden_matrices, orthogonalised
from treemem.runs.options import TrainingOptions

STEPS = 4
RATE, DECAY, MOMENTUM = 0.03, 0.1, 0.8


def by_singular_values(matrix: torch.Tensor) -> torch.Tensor:
    """The polynomial of Jordan et al. on the singular values, five times."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ torch.diag(values) @ right


def plain_steps(weight: torch.Tensor, gradients: list[torch.Tensor]) -> torch.Tensor:
    momentum = torch.zeros_like(weight)
    for gradient in gradients:
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        update = (1 - MOMENTUM) * gradient + MOMENTUM * momentum
        weight = (1 - RATE * DECAY) * weight - RATE * 0.2 * math.sqrt(max(weight.shape)) * by_singular_values(update)
    return weight


def stepped(weights: list[torch.nn.Parameter], gradients: list[list[torch.Tensor]], optimizer: Any) -> None:
    for of_step in gradients:
        for weight, gradient in zip(weights, of_step, strict=True):
            weight.grad = gradient.clone()
        optimizer.step()


@pytest.mark.parametrize(("shape", "blocks"), [((3, 7), 1), ((7, 3), 1), ((12, 5), 3), ((2, 4, 6), 1), ((2, 6, 4), 1)])
def test_a_step_of_matrices_is_the_published_one_and_that_of_others_is_adamws(
    shape: tuple[int, ...], blocks: int
) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"betas": (0.5, 0.7), "eps": 0.01, "weight_decay": DECAY}
    matrix, other, idle = (torch.nn.Parameter(torch.randn(size, dtype=torch.float64)) for size in (shape, (4, 2), (3,)))
    same_other = copy.deepcopy(other)
    of_matrix = torch.randn(STEPS, *shape, dtype=torch.float64)
    of_other = torch.randn(STEPS, 4, 2, dtype=torch.float64)
    parts = (each for whole in matrix.detach().view(-1, *shape[-2:]) for each in whole.chunk(blocks))
    of_parts = of_matrix.view(STEPS, -1, shape[-2] // blocks, shape[-1]).unbind(1)
    wanted = [plain_steps(part, list(own)) for part, own in zip(parts, of_parts, strict=True)]
    unmoved = idle.detach().clone()

    optimizer = Muon([matrix, other, idle], {matrix: blocks}, RATE, momentum=MOMENTUM, **options)
    stepped([matrix, other], [list(pair) for pair in zip(of_matrix, of_other, strict=True)], optimizer)
    stepped([same_other], [[each] for each in of_other], torch.optim.AdamW([same_other], RATE, **options))
    torch.testing.assert_close(matrix.view(len(wanted), *wanted[0].shape), torch.stack(wanted))
    torch.testing.assert_close(other, same_other)
    assert torch.equal(idle, unmoved)


def test_torchs_muon_takes_the_same_steps_in_bfloat16() -> None:
    torch.manual_seed(0)
    own = torch.nn.Parameter(torch.randn(48, 32))
    of_torch = copy.deepcopy(own)
    before = own.detach().clone()
    gradients = [[torch.randn(48, 32)] for _ in range(STEPS)]
    stepped([own], gradients, Muon([own], {own: 1}, RATE, weight_decay=DECAY))
    stepped(
        [of_torch],
        gradients,
        torch.optim.Muon([of_torch], RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
    )
    assert (own - of_torch).norm() < 0.02 * (own - before).norm()


def test_orthogonalised_matrices_have_singular_values_near_1_and_zero_stays_zero() -> None:
    torch.manual_seed(0)
    for matrices in (torch.randn(2, 20, 50), torch.randn(2, 50, 20)):
        values = torch.linalg.svdvals(orthogonalised(1e-8 * matrices))
        assert 0.68 < float(values.min()) < float(values.max()) < 1.21
    assert not orthogonalised(torch.zeros(1, 3, 4)).any()


@pytest.mark.parametrize(
    ("network", "options", "blocks"),
    [
        ("TreeLSTM", {}, {"maps": 1}),
        ("LSTM", {"num_layers": 2}, {"weight_ih": 4, "weight_hh": 4}),
        ("ONLSTM", {"chunk_size": 2}, {"of_input": 1, "of_hidden": 1}),
        ("Transformer", {"num_heads": 2}, {"in_proj": 3, "out_proj": 1, "linear": 1}),
    ],
)
def test_the_matrices_are_those_of_maps_and_cells(
    network: str, options: dict[str, Any], blocks: dict[str, int]
) -> None:
    encoder = NetworkConfig(network, {"hidden_size": 4, **options}).build(MoreX().vocabulary)
    found = hidden_matrices(encoder)
    for name, parameter in encoder.named_parameters():
        wanted = next((count for part, count in blocks.items() if part in name), 1)
        is_matrix = "embedding" not in name and "bias" not in name and "norm" not in name
        if is_matrix and parameter.dim() > 1 and min(parameter.shape[-2:]) > 1:
            assert found.pop(parameter) == wanted, name
    assert not found, "biases, embeddings, norms and single vectors are left to AdamW"


def test_a_matrix_that_a_batch_does_not_use_only_decays() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(2, 4, 3))
    first, later = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    later[1] = 0
    optimizer = Muon([weight], {weight: 1}, RATE, weight_decay=DECAY)
    stepped([weight], [[first]], optimizer)
    before = weight.detach().clone()
    stepped([weight], [[later]], optimizer)
    torch.testing.assert_close(weight[1], before[1] * (1 - RATE * DECAY))
    assert (weight[0] - before[0] * (1 - RATE * DECAY)).abs().max() > RATE / 100


def test_gates_of_cells_and_of_layers_with_projections_are_blocks() -> None:
    layer, cell = torch.nn.LSTM(3, 6, proj_size=2), GRUCell(3, 4)
    assert hidden_matrices(layer) == {layer.weight_ih_l0: 4, layer.weight_hh_l0: 4}
    assert hidden_matrices(cell) == {cell.cell.weight_ih: 3, cell.cell.weight_hh: 3}


NETWORK = NetworkConfig("TreeLSTM", {"hidden_size": 3})
MUON: dict[str, Any] = {"optimizer": "muon", "beta1": 0.5, "epsilon": 0.01, "weight_decay": 0.1}


class WithMatrixInHead(MoreX):
    def head(self, hidden_size: int) -> torch.nn.Module:
        made = super().head(hidden_size)
        made.unused = torch.nn.Linear(3, 2)
        return made


def trained(output: Path, options: TrainingOptions, *, task: type[MoreX] = MoreX, resume: bool = False) -> Any:
    return fit(task(), NETWORK, toy_data(), options, output=output, resume=resume)


def test_training_gives_muon_the_options_and_schedules_the_rates_of_all_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[dict[str, Any]]] = []
    step = Muon.step

    def kept(self: Muon, closure: Any = None) -> Any:
        seen.append([{key: value for key, value in group.items() if key != "params"} for group in self.param_groups])
        assert [len(group["params"]) for group in self.param_groups] == [num_others, num_matrices]
        return step(self, closure)

    model = Model(WithMatrixInHead(), NETWORK)
    num_matrices = len(hidden_matrices(model.encoder))
    num_others = len(list(model.parameters())) - num_matrices
    assert min(num_matrices, num_others) > 0
    monkeypatch.setattr(Muon, "step", kept)
    trained(tmp_path, dataclasses.replace(OPTIONS, schedule="linear", **MUON), task=WithMatrixInHead)
    assert seen
    for number, groups in enumerate(seen):
        assert [group["lr"] for group in groups] == pytest.approx([0.05 * (1 - number / len(seen))] * 2)
        assert [group["blocks"] for group in groups] == [0, 1]
        for group in groups:
            assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.5, 0.999), 0.01, 0.1)
            assert group["momentum"] == 0.95


def test_a_run_with_muon_goes_on_where_it_stopped(tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, **MUON)
    trained(tmp_path / "whole", options)
    trained(tmp_path / "longer", dataclasses.replace(options, epochs=2))
    trained(tmp_path / "longer", options, resume=True)
    assert_same(tmp_path / "whole", tmp_path / "longer")

"""Checks of golden files of networks that learn their trees, one function for each sort of file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from golden import crvnn_files, diora_files, disjoint_files, gumbel_files, prpn_files, spinn_files
from golden.learned_weights import VOCABULARY, check_gradients, load
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.gated_cell.equations import gated_cell
from treemem.networks.gated_cell.layer import GatedCell
from treemem.networks.gated_cell.levels import gated_levels
from treemem.networks.parsers.beam_tree.run import beam_trees
from treemem.nn import BeamTreeGRC, EfficientBeamTreeGRC
from treemem.schedule.schedule import Schedule

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
_CELL = {"wcell1": "cell.hidden_map", "wcell2": "cell.gate_map"}
_EFFICIENT = {
    "initial_transform.0": "leaves.map",
    "initial_transform.1": "leaves.norm",
    **{f"treecell_layer.{name}": place for name, place in _CELL.items()},
    "treecell_layer.NT": "cell.norm",
    "decision_module.0": "score.hidden_map",
    "decision_module.2": "score.score_map",
}
_COMPOSED = {
    "word_linear": "leaves.map",
    "LN": "leaves.norm",
    **{f"treecell_layer.{name}": place for name, place in _CELL.items()},
    "treecell_layer.LN2": "cell.norm",
    "decide_linear": "score_map",
}


def has_check(path: Path) -> bool:
    """Whether there is a test for a file."""
    return path.name in CHECKS


def check(path: Path) -> None:
    """Check one file."""
    CHECKS[path.name](dict(np.load(path)))


def check_cell(arrays: Arrays) -> None:
    """The cell by itself, as one function and over levels."""
    size = arrays["left"].shape[1]
    module = GatedCell(size).double()
    load(module, arrays, {"wcell1": "hidden_map", "wcell2": "gate_map", "NT": "norm"})
    left, right = (torch.from_numpy(arrays[name]) for name in ("left", "right"))
    same(gated_cell(left, right, module.weights()), arrays["output"], "output")
    count = len(left)
    children = torch.stack([torch.arange(count), count + torch.arange(count)], 1)
    schedule = Schedule.from_edges(
        3 * count, children.flatten(), torch.arange(2 * count, 3 * count).repeat_interleave(2)
    )
    states = gated_levels(torch.cat([left, right]), schedule, module.weights())
    same(states[2 * count :], arrays["output"], "output of levels")


def check_beams(
    arrays: Arrays, network: Any, names: dict[str, str], *, training: bool, exact: float = 1e-10, **options: Any
) -> None:
    """Encodings and gradients, of the batch or, with noise, row by row, of all engines."""
    layer = network(arrays["input"].shape[2], VOCABULARY, beam_size=int(arrays["beam_size"]), **options).double()
    ours = load(layer, arrays, names)
    lengths = torch.from_numpy(arrays["lengths"])
    present = torch.from_numpy(arrays["mask"]).bool()
    noisy = bool(arrays["num_uniform"])
    soft = training and layer.soft
    for engine in ENGINES:
        inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
        layer.zero_grad()
        leaves = layer.leaves(inputs).masked_fill(~present[:, :, None], 0)
        run = partial(beam_trees, weights=layer.weights(), beam_size=layer.beam_size, soft=soft, engine=engine)
        if noisy:
            encoding = torch.cat(
                [
                    run(leaves[row : row + 1, :length], lengths[row : row + 1], noise=_StoredNoise(arrays, row, soft))[
                        0
                    ]
                    for row, length in enumerate(lengths.tolist())
                ]
            )
        else:
            encoding = run(leaves, lengths).encoding
        same(encoding, arrays["global_state"], f"global_state ({engine})", exact=exact)
        (encoding * torch.from_numpy(arrays["loss_weight"])).sum().backward()
        check_gradients(arrays, layer, ours, inputs, engine, exact)


class _StoredNoise:
    """The noise of one row of a batch, from the uniform numbers of a file; the row has fewer pairs than the longest."""

    def __init__(self, arrays: Arrays, row: int, soft: bool) -> None:
        stored = [torch.from_numpy(arrays[f"uniform{number}"]) for number in range(int(arrays["num_uniform"]))]
        self.row, self.batch, self.step = row, len(arrays["lengths"]), -1
        self.of_pairs = stored if soft else [stored[0], *stored[1::2]]
        self.of_beams = [] if soft else stored[2::2]

    def __call__(self, shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 3:
            self.step += 1
            drawn = self.of_pairs[self.step].unflatten(0, (self.batch, -1))[self.row]
            own = drawn[: shape[1], : shape[2]]
        else:
            beams = self.of_pairs[self.step].shape[0] // self.batch
            drawn = self.of_beams[self.step - 1][self.row].unflatten(0, (beams, -1))
            own = drawn[:, : shape[1] // beams].flatten()
        return -torch.log(-torch.log(own + 1e-20) + 1e-20).view(shape)


_efficient = partial(check_beams, network=EfficientBeamTreeGRC, names=_EFFICIENT, scored_size=4)
_composed = partial(check_beams, network=BeamTreeGRC, names=_COMPOSED)
_soft = partial(_composed, top_k="onesoft")

CHECKS: dict[str, Callable[[Arrays], None]] = {
    "grc_cell.npz": check_cell,
    "ebt_grc.npz": partial(_efficient, training=False),
    "ebt_grc_noise_train.npz": partial(_efficient, training=True),
    "bt_grc.npz": partial(_composed, training=False),
    "bt_grc_noise_train.npz": partial(_composed, training=True),
    "bt_grc_onesoft_eval.npz": partial(_soft, training=False),
    "bt_grc_onesoft_train.npz": partial(_soft, training=True, exact=1e-9),  # as its README says
    "bt_grc_onesoft_noise_train.npz": partial(_soft, training=True),
    **gumbel_files.CHECKS,
    **crvnn_files.CHECKS,
    **spinn_files.CHECKS,
    **disjoint_files.CHECKS,
    **prpn_files.CHECKS,
    **diora_files.CHECKS,
}

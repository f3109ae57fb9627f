"""Checks of golden files of the continuous recursive network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from golden.learned_weights import VOCABULARY, check_gradients, load
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.crvnn.equations import naive_steps
from treemem.networks.parsers.crvnn.run import continuous_recursion, recursion_of, with_ends
from treemem.nn import CRvNN

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
_MAPS = {
    "conv_layer": "window_map",
    "scorer": "score_map",
    "initial_transform_layer": "leaf_map",
    "wcell1": "cell.hidden_map",
    "wcell2": "cell.gate_map",
}
_NAMES = {
    **_MAPS,
    **{f"{theirs}.linear": ours for theirs, ours in _MAPS.items()},
    "LN": "cell.norm",
    "LN1": "leaf_norm",
    "LN2": "cell.norm",
}
_VECTORS = {
    "START": ("ends.vectors", 0),
    "END": ("ends.vectors", 1),
    "past_transition_features": ("features.vectors", 0),
    "past_non_transition_features": ("features.vectors", 1),
    "yes_transition": ("features.vectors", 0),
    "no_transition": ("features.vectors", 1),
}


def check_crvnn(arrays: Arrays, **options: Any) -> None:
    """The batch as the authors' code runs it, with gradients; each sequence alone on both engines."""
    theirs = dict(arrays)
    features = [name for name in ("param.past_transition_features", "param.yes_transition") if name in arrays]
    layer = CRvNN(
        arrays["input"].shape[2],
        VOCABULARY,
        transition_features=arrays[features[0]].size if features else 0,
        window=int(arrays.get("window_size", 5)),
        threshold=float(arrays["stop_threshold"]),
        cell_size=len(arrays["param.wcell1.bias" if "param.wcell1.bias" in arrays else "param.wcell1.linear.bias"]),
        **options,
    ).double()
    vectors = {name: place for name, place in _VECTORS.items() if f"param.{name}" in theirs}
    for name, (ours, row) in vectors.items():
        with torch.no_grad():
            layer.get_parameter(ours)[row] = torch.from_numpy(theirs.pop(f"param.{name}")).flatten()
    names = load(layer, theirs, _NAMES)
    lengths = torch.from_numpy(arrays["lengths"])
    inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
    ends = layer.leaves(layer.ends.vectors)
    states = with_ends(layer.leaves(inputs), ends, lengths)
    steps = naive_steps(states, lengths, layer.weights(), alone=False)
    found = recursion_of(steps, lengths, layer.equation, inputs.shape[1], alone=False)
    same(found.states, arrays["sequence"], "sequence")
    same(found.encoding, arrays["global_state"], "global_state")
    loss = (found.encoding * torch.from_numpy(arrays["loss_weight"])).sum()
    if "penalty" in arrays:
        penalty = float(arrays["halt_gamma"]) * found.penalty
        same(penalty, arrays["penalty"], "penalty")
        loss = loss + (penalty * torch.from_numpy(arrays["penalty_weight"])).sum()
    loss.backward()
    check_gradients(arrays, layer, names, inputs, "batch", 1e-10)
    for name, (ours, row) in vectors.items():
        gradient = layer.get_parameter(ours).grad
        assert gradient is not None
        same(gradient[row], arrays[f"grad.{name}"].flatten(), f"gradient of {name}")
    leaves, ends = layer.leaves(inputs), layer.leaves(layer.ends.vectors)
    for engine in ENGINES:
        alone = continuous_recursion(leaves, ends, lengths, layer.weights(), engine=engine)
        same(alone.encoding, arrays["global_state_alone"], f"global_state_alone ({engine})")


CHECKS: dict[str, Callable[[Arrays], None]] = {
    "crvnn.npz": check_crvnn,
    "crvnn_halting.npz": check_crvnn,
    "crvnn_plain_options.npz": partial(check_crvnn, modulated=False, activation="relu"),
    "crvnn_eq6.npz": partial(check_crvnn, equation=6),
    "crvnn_separate_norms.npz": partial(check_crvnn, separate_norms=True),
}

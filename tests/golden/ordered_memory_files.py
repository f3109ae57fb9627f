"""Checks of golden files of the Ordered Memory, one function for each sort of file."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.ordered_memory import equations
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps, OrderedMemoryPadding
from treemem.nn import OrderedMemory
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["word"], [("f", 2)])
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
WEIGHTS = {
    "W_in": "input_map.weight",
    "b_in": "input_map.bias",
    "ln_g": "norm.weight",
    "ln_b": "norm.bias",
    "W_q": "query_map.weight",
    "b_q": "query_map.bias",
    "lnq_g": "query_norm.weight",
    "lnq_b": "query_norm.bias",
    "W_k": "key_map.weight",
    "b_k": "key_map.bias",
    "lnk_g": "key_norm.weight",
    "lnk_b": "key_norm.bias",
    "w_beta": "score_map.weight",
    "b_beta": "score_map.bias",
    "W1": "cell_map.weight",
    "b1": "cell_map.bias",
    "W2": "gate_map.weight",
    "b2": "gate_map.bias",
}
OF_STEPS = ("xt", "cp", "rcp", "p_raw", "p", "M", "Mhat", "o")


def check_right_padded(arrays: Arrays) -> None:
    """Every step, the encodings of both engines, the pointers and, where the file has them, the gradients."""
    _check_sequences(arrays, _layer(arrays, "right"))


def check_left_padded(arrays: Arrays) -> None:
    """As the published code reads list operations, and the same sequences alone."""
    _check_sequences(arrays, _layer(arrays, "left"))
    alone = _layer(arrays, "right")
    inputs, lengths = _left_aligned(arrays["X"], arrays["mask"])
    for engine in ENGINES:
        alone.engine = engine
        same(alone.read(inputs, lengths).encoding, arrays["encoding_alone"], f"encoding_alone ({engine})")


def check_bidirectional(arrays: Arrays) -> None:
    """Both sides of padding, as the published code reads them; the longest sequences are read alike by default."""
    default = _layer(arrays, "right", bidirectional=True)
    names = {
        "right flipped": ("X", "mask", "encoding"),
        "left": ("X_left", "mask_left", "encoding_left_padded"),
    }
    for padding, (given, mask, encoding) in names.items():
        layer = _layer(arrays, padding, bidirectional=True)  # type: ignore[arg-type]
        inputs, lengths = _left_aligned(arrays[given], arrays[mask])
        longest = (lengths == inputs.shape[1]).numpy()
        for engine in ENGINES:
            layer.engine = default.engine = engine
            same(layer.read(inputs, lengths).encoding, arrays[encoding], f"{encoding} ({engine})")
            of_default = default.read(inputs, lengths).encoding[longest]
            same(of_default, arrays[encoding][longest], f"{encoding} of the longest ({engine})")
    weights = {f"{prefix}{name}" for prefix in ("fw_", "bw_") for name in WEIGHTS}
    assert arrays.keys() == {*weights, "n_slots", *(name for group in names.values() for name in group)}


def check_attention(arrays: Arrays) -> None:
    """The attention alone, from given candidates and pointers."""
    size = arrays["x"].shape[1]
    maps = MemoryMaps(size, size, "gated").double()
    _load(maps, arrays)
    new, candidates, pointers = (torch.from_numpy(arrays[name]) for name in ("x", "Mhat_prev", "p_prev"))
    query, candidates = equations.queries_of(new, maps.weights().attention), candidates.transpose(0, 1)
    found = equations.attend(query, candidates, pointers.t().cumsum(0), maps.weights().attention)
    results = {
        "logits_scaled": equations.slot_scores(query, candidates, maps.weights().attention),
        "p": found.pointers,
        "cum_fwd": found.cumulative,
        "cum_bwd": found.onward,
    }
    for name, value in results.items():
        same(value.t(), arrays[name], name)
    assert arrays.keys() == {*(WEIGHTS.keys() & arrays.keys()), *results, "x", "Mhat_prev", "p_prev"}


def _check_sequences(arrays: Arrays, layer: OrderedMemory) -> None:
    _check_steps(arrays, layer)
    inputs, lengths = _left_aligned(arrays["X"], arrays["mask"])
    assert lengths.tolist() == arrays["lengths"].tolist()
    for engine in ENGINES:
        layer.engine = engine
        layer.zero_grad()
        reading = layer.read(inputs, lengths, trace=True)
        same(reading.encoding, arrays["encoding"], f"encoding ({engine})")
        of_trace = {"p": reading.trace["pointers"], "cp": reading.trace["cumulative"], "o": reading.outputs}
        for name, values in of_trace.items():
            golden, _ = _left_aligned(arrays[name], arrays["mask"])
            same(values, golden, f"{name} ({engine})")
        for index, entry in enumerate(json.loads(str(arrays["trees"])) if "trees" in arrays else []):
            highest = reading.trace["pointers"][index, 1 : int(lengths[index])].argmax(1).tolist()
            assert [layer.slots, *highest] == entry["depth"]
        if "loss_weight" in arrays:
            (reading.encoding * torch.from_numpy(arrays["loss_weight"])).sum().backward()
        for name in (name for name in arrays if name.startswith("grad_")):
            gradient = layer.forward_memory.get_parameter(WEIGHTS[name.removeprefix("grad_")]).grad
            assert gradient is not None
            same(gradient, arrays[name], f"{name} ({engine})")
    known = {*WEIGHTS, *OF_STEPS, *(f"grad_{name}" for name in WEIGHTS), "X", "mask", "lengths", "n_slots", "encoding"}
    assert arrays.keys() - known <= {"encoding_alone", "loss_weight", "trees"}


def _check_steps(arrays: Arrays, layer: OrderedMemory) -> None:
    """Every array of every step, at padding too: there the authors' code goes on from an empty memory."""
    weights, slots = layer.forward_memory.weights(), layer.slots
    projected = equations.project(torch.from_numpy(arrays["X"]), weights)  # [longest, sequences, hidden_size]
    present = torch.from_numpy(arrays["mask"])[..., None]
    memory = candidates = projected.new_zeros(slots, *projected.shape[1:])
    pointers = projected.new_zeros(slots, projected.shape[1])
    attention, onward = equations.Attention.of(pointers), torch.ones_like(pointers)
    for step, new in enumerate(projected):
        if step:
            query = equations.queries_of(new, weights.attention)
            attention = equations.attend(query, candidates, pointers.cumsum(0), weights.attention)
            onward = attention.onward
        memory = torch.lerp(memory, candidates, onward[:, :, None]) * present[step]
        candidates = equations.compose(new, memory, attention.cumulative, weights.cell) * present[step]
        pointers = attention.pointers * present[step, :, 0]
        found = {
            "xt": new,
            "cp": attention.cumulative.t(),
            "rcp": onward.t(),
            "p_raw": attention.pointers.t(),
            "p": pointers.t(),
            "M": memory.transpose(0, 1),
            "Mhat": candidates.transpose(0, 1),
            "o": candidates[-1],
        }
        for name in OF_STEPS:
            same(found[name], arrays[name][step], f"{name} of step {step}")


def _left_aligned(values: torch.Tensor | object, mask: object) -> tuple[torch.Tensor, torch.Tensor]:
    """``[longest, sequences, ...]`` as ``[sequences, longest, ...]`` with zeros after each sequence; the lengths."""
    given, present = torch.as_tensor(values).transpose(0, 1), torch.as_tensor(mask).t()
    aligned = torch.zeros_like(given)
    for index, where in enumerate(present):
        aligned[index, : int(where.sum())] = given[index, where]
    return aligned, present.sum(1)


def _layer(arrays: Arrays, padding: OrderedMemoryPadding, *, bidirectional: bool = False) -> OrderedMemory:
    """The layer of a file, in float64."""
    size, input_size = arrays["fw_W_in" if bidirectional else "W_in"].shape
    layer = OrderedMemory(
        size,
        VOCABULARY,
        slots=int(arrays["n_slots"]),
        embedding_size=input_size,
        padding=padding,
        bidirectional=bidirectional,
    ).double()
    if layer.backward_memory is None:
        _load(layer.forward_memory, arrays)
    else:
        _load(layer.forward_memory, arrays, "fw_")
        _load(layer.backward_memory, arrays, "bw_")
    return layer


def _load(maps: MemoryMaps, arrays: Arrays, prefix: str = "") -> None:
    with torch.no_grad():
        for name, place in WEIGHTS.items():
            if f"{prefix}{name}" in arrays:
                golden = torch.from_numpy(arrays[f"{prefix}{name}"])
                assert golden.shape == maps.get_parameter(place).shape, name
                maps.get_parameter(place).copy_(golden)


CHECKS: dict[str, Callable[[Arrays], None]] = {
    "om_right_padded.npz": check_right_padded,
    "om_double_slots.npz": check_right_padded,
    "om_left_padded.npz": check_left_padded,
    "om_bidirectional.npz": check_bidirectional,
    "om_attention.npz": check_attention,
}

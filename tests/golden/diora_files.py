"""Checks of golden files of DIORA."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from golden.learned_weights import VOCABULARY
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.diora.equations import best_parses
from treemem.networks.parsers.diora.layer import margin_loss
from treemem.networks.parsers.diora.run import inside_outside
from treemem.nn import DIORA
from treemem.trees.induced import tree_from_splits

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
# parameter, whether the authors' matrix is the transpose of ours
_NAMES = {
    "mlp": {
        "inside_compose_func.V": ("leaf_map.weight", True),
        "inside_compose_func.W_0": ("inside.hidden.weight", True),
        "inside_compose_func.W_1": ("inside.output.weight", True),
        "inside_compose_func.B": ("inside.hidden.bias", False),
        "inside_compose_func.B_1": ("inside.output.bias", False),
        "outside_compose_func.W_0": ("outside.hidden.weight", True),
        "outside_compose_func.W_1": ("outside.output.weight", True),
        "outside_compose_func.B": ("outside.hidden.bias", False),
        "outside_compose_func.B_1": ("outside.output.bias", False),
    },
    "tree_lstm": {
        "inside_compose_func.W": ("leaf_map.weight", False),
        "inside_compose_func.U": ("inside.hidden.weight", False),
        "inside_compose_func.B": ("inside.hidden.bias", False),
        "outside_compose_func.U": ("outside.hidden.weight", False),
        "outside_compose_func.B": ("outside.hidden.bias", False),
    },
}
_SCORES = {
    "inside_score_func.mat": ("inside.score", False),
    "outside_score_func.mat": ("outside.score", False),
}


def check_diora(arrays: Arrays, composition: Any) -> None:
    """Both charts, the scores of splits, trees, the loss of reconstruction and all gradients, on both engines."""
    size = int(arrays["size"])
    layer = DIORA(size, VOCABULARY, composition=composition).double()
    names = {**_NAMES[composition], **_SCORES}
    with torch.no_grad():
        layer.input_map.weight.copy_(torch.eye(size))  # the files have the vectors after this map
        for theirs, (ours, turned) in names.items():
            golden = torch.from_numpy(arrays[f"param.{theirs}"])
            layer.get_parameter(ours).copy_(golden.T if turned else golden)
        for row, part in enumerate("hc"[: len(layer.root)]):
            layer.root[row] = torch.from_numpy(arrays[f"param.root_vector_out_{part}"])
    vectors = torch.from_numpy(arrays["loss_param.embeddings.weight"]).requires_grad_()
    project = torch.from_numpy(arrays["loss_param.mat"]).requires_grad_()
    for engine in ENGINES:
        layer.zero_grad()
        vectors.grad = project.grad = None
        for length in arrays["lengths"].tolist():
            of = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"len{length}.")}
            inputs = torch.from_numpy(of["input"]).clone().requires_grad_()
            lengths = torch.full((len(inputs),), length)
            charts = inside_outside(layer.leaves(inputs), lengths, layer.weights(), engine=engine)
            loss = inputs.new_zeros(())
            for name in ("inside", "outside"):
                chart = getattr(charts, name)
                h, c, score = (_by_size(values) for values in (chart.h, chart.c, chart.score[..., None]))
                for part, values in (("h", h), ("c", c), ("s", score)):
                    same(values, of[f"{name}_{part}"], f"{name} {part}, length {length} ({engine})")
                loss = loss + (h * torch.from_numpy(of[f"loss_weight_{name}"])).sum()
            for level in range(1, length):
                scores = charts.scores.diagonal(level + 1)[1 : level + 1].permute(1, 2, 0)
                same(scores, of[f"level{level}.split_scores"], f"scores of level {level} ({engine})")
            assert charts.outside is not None
            outside = charts.outside.h.diagonal(1).permute(0, 2, 1).flatten(0, 1)
            tokens, negatives = (torch.from_numpy(of[name]).flatten() for name in ("sentences", "neg_samples"))
            reconstruction = margin_loss(outside @ project, vectors[tokens], vectors[negatives]) / len(tokens)
            same(reconstruction, of["reconstruction_loss"], f"loss of reconstruction ({engine})")
            if "trees" in of:
                splits = best_parses(charts.scores, lengths)
                found = [str(tree_from_splits(row, [str(word) for word in range(length)])) for row in splits.numpy()]
                assert found == [_written(tree) for tree in json.loads(str(of["trees"]))]
            (loss + reconstruction).backward()
            assert inputs.grad is not None
            same(inputs.grad, of["grad_input"], f"gradient of inputs ({engine})")
        for theirs, (ours, turned) in names.items():
            gradient = layer.get_parameter(ours).grad
            assert gradient is not None
            same(gradient.T if turned else gradient, arrays[f"grad.{theirs}"], f"gradient of {theirs} ({engine})")
        for row, part in enumerate("hc"[: len(layer.root)]):
            same(layer.root.grad[row], arrays[f"grad.root_vector_out_{part}"], f"gradient of root ({engine})")
        same(vectors.grad, arrays["loss_grad.embeddings.weight"], f"gradient of embeddings ({engine})")
        same(project.grad, arrays["loss_grad.mat"], f"gradient of the loss's map ({engine})")


def _by_size(values: torch.Tensor) -> torch.Tensor:
    """The spans of a chart by their size, ``[sequences, spans, ...]``."""
    return torch.cat([values.diagonal(size).permute(0, 2, 1) for size in range(1, len(values) + 1)], 1)


def _written(tree: Any) -> str:
    return str(tree) if isinstance(tree, int) else f"(X {_written(tree[0])} {_written(tree[1])})"


CHECKS: dict[str, Callable[[Arrays], None]] = {
    "diora_mlp.npz": partial(check_diora, composition="mlp"),
    "diora_treelstm.npz": partial(check_diora, composition="tree_lstm"),
}

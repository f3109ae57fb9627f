"""Checks of golden files of the Parsing-Reading-Predict Network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays
from torch.nn import functional

from treemem.nn import PRPN
from treemem.trees.vocabulary import Vocabulary

_NORMS = {"gamma": "weight", "beta": "bias"}
_PLACES = {
    "parser.gate.1": "parser.hidden_map",
    "parser.gate.2": "parser.norm",
    "parser.gate.5": "parser.distance_map",
    "predictor.projector_pred.1": "predictor.key_map",
    "predictor.ffd.1": "predictor.map",
    "predictor.ffd.2": "predictor.norm",
    "predictor.res.res.0.0": "predictor.blocks.0.first_map",
    "predictor.res.res.0.1": "predictor.blocks.0.first_norm",
    "predictor.res.res.0.4": "predictor.blocks.0.second_map",
    "predictor.res.res.0.5": "predictor.blocks.0.second_norm",
    **{
        f"reader.{layer}.{theirs}": f"layers.{layer}.{ours}"
        for layer in (0, 1)
        for theirs, ours in {
            "memory_rnn.ih.0": "input_map",
            "memory_rnn.ih.1": "input_norm",
            "memory_rnn.hh.0": "hidden_map",
            "memory_rnn.hh.1": "hidden_norm",
            "memory_rnn.c_norm": "cell_norm",
            "projector_summ.1": "key_map",
        }.items()
    },
}


def ours_of(theirs: str) -> str:
    owner, _, kind = theirs.rpartition(".")
    return f"{_PLACES[owner]}.{_NORMS.get(kind, kind)}"


def model_of(arrays: Arrays) -> PRPN:
    words, width = arrays["param.encoder.weight"].shape
    model = PRPN(
        arrays["reader0.h"].shape[2],
        Vocabulary([f"w{number}" for number in range(words)], []),
        embedding_size=width,
        slots=int(arrays["nslots"]),
        lookback=int(arrays["nlookback"]),
        resolution=float(arrays["resolution"]),
        hard=bool(arrays["hard"]),
        residual_blocks=int(arrays["res"]),
    ).double()
    with torch.no_grad():
        for name, values in arrays.items():
            sort, _, theirs = name.partition(".")
            if sort == "param" and not theirs.startswith(("encoder", "decoder")):
                model.get_parameter(ours_of(theirs)).copy_(torch.from_numpy(values))
            elif sort == "buffer":
                model.get_buffer(ours_of(theirs)).copy_(torch.from_numpy(values))
        model.embedding.weight.copy_(torch.from_numpy(arrays["param.encoder.weight"]))
    return model


def check_prpn(arrays: Arrays, *, training: bool) -> None:
    """Distances, gates, states and the prediction of whole rows; in evaluation, of the sequences without padding too.

    Their decoder has weights of its own.
    """
    model = model_of(arrays).train(training)
    tokens = torch.from_numpy(arrays["tokens"].T.copy())
    decoder = [torch.from_numpy(arrays[f"param.decoder.{kind}"]).requires_grad_() for kind in ("weight", "bias")]
    predicted: list[torch.Tensor] = []
    model.predictor.register_forward_hook(lambda module, inputs, output: predicted.append(output))
    whole = torch.full((len(tokens),), tokens.shape[1])
    inputs = model.embedding(tokens)
    found = model.read(inputs, whole, trace=True)
    same(found.trace["distance"], arrays["distance"], "distance")
    same(found.trace["gate"].transpose(0, 1), arrays["memory_gate"], "gate")
    slots = model.slots
    vectors, distances, *memories = found.state
    for layer, memory in enumerate(memories):
        for place, name in enumerate(("h", "c")):
            golden = arrays[f"reader{layer}.{name}"].transpose(1, 0, 2)[:, -slots:]
            same(memory.chunk(2, 2)[place], golden, f"{name} of layer {layer}")
    same(vectors.transpose(0, 1), arrays["parser_state_embedding"], "state of the vectors")
    same(distances, arrays["parser_state_gates"], "state of the distances")
    logits = functional.linear(predicted[0], *decoder)
    same(logits.transpose(0, 1), arrays["logits"], "logits")
    if not training:
        lengths = torch.from_numpy(arrays["lengths"])
        model.read(inputs, lengths)
        for row, length in enumerate(lengths.tolist()):
            model.read(inputs[row : row + 1, :length], lengths[row : row + 1])
            same(predicted[-1][0], predicted[0].detach()[row, :length].numpy(), "alone")
            same(predicted[1][row, :length], predicted[0].detach()[row, :length].numpy(), "with padding")
    (logits.transpose(0, 1) * torch.from_numpy(arrays["loss_weight"])).sum().backward()
    for name, values in arrays.items():
        sort, _, theirs = name.partition(".")
        if sort == "grad" and theirs.startswith("decoder"):
            gradient = decoder[theirs.endswith("bias")].grad
        elif sort == "grad":
            ours = "embedding.weight" if theirs.startswith("encoder") else ours_of(theirs)
            gradient = model.get_parameter(ours).grad
        elif sort == "buffer_after":
            same(model.get_buffer(ours_of(theirs)), values, name)
            continue
        else:
            continue
        assert gradient is not None, name
        same(gradient, values, name)


_evaluated: Callable[[Arrays], None] = partial(check_prpn, training=False)
CHECKS: dict[str, Callable[[Arrays], None]] = {
    "prpn_hard.npz": _evaluated,
    "prpn_soft.npz": _evaluated,
    "prpn_batchnorm_train.npz": partial(check_prpn, training=True),
}

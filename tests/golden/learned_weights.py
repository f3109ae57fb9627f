"""Weights and gradients of golden files of networks that learn their trees."""

from __future__ import annotations

import torch
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays

from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["word"], [("f", 2)])


def load(module: torch.nn.Module, arrays: Arrays, names: dict[str, str]) -> dict[str, str]:
    """Load the weights; return our names of the parameters by theirs."""
    ours: dict[str, str] = {}
    for theirs in (name.removeprefix("param.") for name in arrays if name.startswith("param.")):
        owner, _, kind = theirs.rpartition(".")
        ours[theirs] = f"{names[owner]}.{kind}" if owner in names else names[theirs]
        parameter = module.get_parameter(ours[theirs])
        golden = torch.from_numpy(arrays[f"param.{theirs}"])
        with torch.no_grad():
            parameter.copy_(golden.view(parameter.shape))
    return ours


def check_gradients(
    arrays: Arrays, module: torch.nn.Module, ours: dict[str, str], inputs: torch.Tensor, where: str, exact: float
) -> None:
    """Compare the gradients of weights and inputs."""
    for theirs, name in ours.items():
        gradient, golden = module.get_parameter(name).grad, arrays[f"grad.{theirs}"]
        assert gradient is not None, name
        same(gradient.view(golden.shape), golden, f"gradient of {name} ({where})", exact=exact)
    present = torch.from_numpy(arrays["mask"]).bool()
    assert inputs.grad is not None
    same(inputs.grad[present], arrays["grad_input"][present.numpy()], f"gradient of inputs ({where})", exact=exact)

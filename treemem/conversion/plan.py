"""Plans: where each weight of a published model goes. Every name and shape is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from treemem.conversion.state_dict_file import PublishedWeights
from treemem.errors import RecipeError, near_names
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.task import TASKS
from treemem.trees.vocabulary import Vocabulary

Index = tuple[Any, ...]  # an index of a tensor


class Piece(NamedTuple):
    """A published weight, or a part of one, and its place.

    Attributes:
        name: name of the weight in the published code.
        target: the parameter of the model.
        place: index in that parameter; by default all of it.
        part: index in the published weight; by default all of it.
        shape: shape of the published weight; by default that of its place.
    """

    name: str
    target: str
    place: Index = ()
    part: Index = ()
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Plan:
    """The model that published weights become.

    Attributes:
        task, task_options: the task of the model.
        network: the network and its options.
        vocabulary: the labels of the model.
        pieces: where each weight goes.
        unused: names of weights that are not needed.
    """

    task: str
    task_options: Mapping[str, Any]
    network: NetworkConfig
    vocabulary: Vocabulary
    pieces: Sequence[Piece]
    unused: frozenset[str] = frozenset()

    def model(self, weights: PublishedWeights) -> Model:
        """Return the model with the weights, in their dtype.

        Raises:
            CheckpointError: a weight is missing, unknown or of another shape.
            RecipeError: the network or the task does not have an option.
        """
        known = {piece.name for piece in self.pieces} | self.unused
        if unknown := sorted(weights.tensors.keys() - known):
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise weights.refusal(f"{self.network.network} has no weight for {', '.join(unknown[:5])}{more}")
        task = TASKS.find(self.task)(**self.task_options)
        with torch.random.fork_rng(devices=[]):
            model = Model(task, self.network, self.vocabulary)
        model.to(next(iter(weights.tensors.values())).dtype)
        parameters = model.state_dict()
        for name, target, index, part, shape in self.pieces:
            tensor, place = weights.tensor(name), parameters[target][index]
            if tensor.shape != (shape or place.shape):
                raise weights.refusal(f"{name} is {list(tensor.shape)}, not {list(shape or place.shape)}")
            place.copy_(tensor[part])
        return model.eval()


def linear(name: str, module: str, place: Index = ()) -> tuple[Piece, Piece]:
    """Return the pieces of a published ``nn.Linear`` or layer norm.

    Args:
        name: name of the published module.
        module: name of the module of the model.
        place: index in the parameters of that module.
    """
    return Piece(f"{name}.weight", f"{module}.weight", place), Piece(f"{name}.bias", f"{module}.bias", place)


def checked_network_options(
    network: str, given: Mapping[str, Any], needed: Mapping[str, str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the options of a network that do not follow from its weights.

    Args:
        network: name of the network.
        given: the options.
        needed: the options that change results, each with its value in the authors' scripts.
        optional: further options.

    Raises:
        RecipeError: options are missing or unknown. The message names all missing ones.
    """
    known = [*needed, *optional]
    for name in given:
        if name not in known:
            near = near_names(name, known)
            raise RecipeError(f"{name} of {network} cannot be given; the options are {', '.join(known)}{near}")
    if missing := [f"{name} ({published})" for name, published in needed.items() if name not in given]:
        raise RecipeError(
            f"the weights of {network} do not determine {', '.join(missing)}; give the options of its training"
        )
    return dict(given)

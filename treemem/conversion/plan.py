"""Where each weight of a published model goes in a model of this library. Every name and shape is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from treemem.conversion.state_dict_file import PublishedWeights
from treemem.errors import RecipeError, near_names
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.task import TASKS
from treemem.trees.vocabulary import Vocabulary

Index = tuple[Any, ...]  # of whole numbers, slices and lists, as tensors are indexed


class Piece(NamedTuple):
    """A published weight, or a part of one, and its place.

    Attributes:
        name: of the weight in the published code.
        target: the parameter of the model here.
        place: where in that parameter; by default all of it.
        part: which part of the published weight; by default all of it.
        shape: of the whole published weight; by default that of its place.
    """

    name: str
    target: str
    place: Index = ()
    part: Index = ()
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Plan:
    """What a published model becomes.

    Attributes:
        task, task_options: the task of the model.
        network: the network and its options.
        vocabulary: the labels that it knows.
        pieces: where each weight goes.
        copies: names of weights that are a second copy in the file, to the names that they must equal.
        left: names of weights that are known and not needed.
    """

    task: str
    task_options: Mapping[str, Any]
    network: NetworkConfig
    vocabulary: Vocabulary
    pieces: Sequence[Piece]
    copies: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    def model(self, weights: PublishedWeights) -> Model:
        """Return the model with the weights in their places, of their dtype.

        Raises:
            CheckpointError: a weight is missing, of another shape, not used, or differs from its copy.
            RecipeError: options that the network or the task does not take.
        """
        for name, original in self.copies.items():
            if not torch.equal(weights.tensor(name), weights.tensor(original)):
                raise weights.refusal(f"{name} and {original} are one weight in the published code, and differ here")
        known = {piece.name for piece in self.pieces} | self.copies.keys() | self.left
        if unused := sorted(weights.tensors.keys() - known):
            more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
            raise weights.refusal(f"nothing in {self.network.network} stands for {', '.join(unused[:5])}{more}")
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
        name: of the published module.
        module: of the module here.
        place: which rows of it, after the set if it is stacked.
    """
    return Piece(f"{name}.weight", f"{module}.weight", place), Piece(f"{name}.bias", f"{module}.bias", place)


def checked_network_options(
    network: str, given: Mapping[str, Any], needed: Mapping[str, str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the options of a network that its weights do not tell.

    Args:
        network: its name.
        given: the options.
        needed: those that change numbers, each with what the authors' scripts have.
        optional: others that may be given.

    Raises:
        RecipeError: one is missing, or another is given. The message names all missing ones.
    """
    known = [*needed, *optional]
    for name in given:
        if name not in known:
            near = near_names(name, known)
            raise RecipeError(f"the weights of {network} do not leave {name} open; give {', '.join(known)}{near}")
    if missing := [f"{name} ({published})" for name, published in needed.items() if name not in given]:
        raise RecipeError(
            f"the weights of {network} do not say its {', '.join(missing)}: give options, as the model was trained with"
        )
    return dict(given)

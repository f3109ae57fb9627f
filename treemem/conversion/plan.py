"""Which weight of a published model goes where in one of this library, and its execution with every name checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from treemem.conversion.state_dict_file import PublishedWeights
from treemem.errors import RecipeError, near_names
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.task import TASKS
from treemem.trees.vocabulary import Vocabulary

Index = tuple[Any, ...]  # of whole numbers, slices and lists, as tensors are indexed


@dataclass(frozen=True)
class Piece:
    """A published weight, or a part of one, and its place.

    Attributes:
        name: of the weight in the published code.
        target: the parameter of the model here.
        place: where in that parameter; all of it by default.
        part: which part of the published weight; all by default.
        shape: of the whole published weight; that of its place by default.
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
        task, task_options: the task whose model it is.
        network: the network and its options.
        vocabulary: the labels that it knows.
        pieces: where each weight goes.
        copies: name of a weight that stands in the file once more, to the name that it must equal.
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
        """The model with the weights in their places, of their type.

        Raises:
            CheckpointError: a weight that is missing, of another shape, not used, or that differs from its copy.
            RecipeError: options that the network or the task does not take.
        """
        self._check_names(weights)
        task = TASKS.find(self.task)(**self.task_options)
        with torch.random.fork_rng(devices=[]):
            model = Model(task, self.network, self.vocabulary)
        model.to(next(iter(weights.tensors.values())).dtype)
        parameters = model.state_dict()
        for piece in self.pieces:
            place = parameters[piece.target][piece.place]
            place.copy_(_part(weights, piece, place))
        return model.eval()

    def _check_names(self, weights: PublishedWeights) -> None:
        for name, original in self.copies.items():
            if not torch.equal(weights.tensor(name), weights.tensor(original)):
                raise weights.refusal(f"{name} and {original} are one weight in the published code, and differ here")
        unused = weights.tensors.keys() - {piece.name for piece in self.pieces} - self.copies.keys() - self.left
        if unused:
            first = ", ".join(sorted(unused)[:5])
            more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
            raise weights.refusal(f"nothing in {self.network.network} stands for {first}{more}")


def _part(weights: PublishedWeights, piece: Piece, place: Tensor) -> Tensor:
    """What goes to a place of a parameter."""
    tensor = weights.tensor(piece.name)
    wanted = tuple(place.shape) if piece.shape is None else piece.shape
    if tuple(tensor.shape) != wanted:
        raise weights.refusal(f"{piece.name} is {list(tensor.shape)}, not {list(wanted)}")
    return tensor[piece.part]


def linear(name: str, module: str, place: Index = ()) -> tuple[Piece, Piece]:
    """Weight and bias of a published ``nn.Linear``, or of a layer norm.

    Args:
        name: of the published module.
        module: of the module here.
        place: which rows of it, after the set where it is stacked.
    """
    return Piece(f"{name}.weight", f"{module}.weight", place), Piece(f"{name}.bias", f"{module}.bias", place)


def checked_network_options(
    network: str, given: Mapping[str, Any], needed: Mapping[str, str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """The options of a network that its weights do not tell.

    Args:
        network: its name.
        given: the options.
        needed: those without which the numbers could be others, each with what the authors' scripts have.
        optional: those that may be given besides.

    Raises:
        RecipeError: one is missing, or another is given; all the missing ones are named.
    """
    known = [*needed, *optional]
    for name in given:
        if name not in known:
            can = f"what may be given is {', '.join(known)}" if known else "none may be given"
            raise RecipeError(f"{name} is no option that the weights of {network} leave open; {can}"
                              f"{near_names(name, known)}")  # fmt: skip
    missing = [f"{name} ({published})" for name, published in needed.items() if name not in given]
    if missing:
        raise RecipeError(
            f"the weights of {network} do not say its {', '.join(missing)}: give options, as the model was trained with"
        )
    return dict(given)

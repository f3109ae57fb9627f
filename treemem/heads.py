"""Task heads: predictions about trees from their encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch.nn import functional

from treemem.checked_options import checked_choice, checked_count, checked_probability
from treemem.engines.activation import ActivationName, activation, checked_activation
from treemem.errors import GraphError, RecipeError
from treemem.networks.encoder_output import EncoderOutput
from treemem.networks.encodings import check_width, root_encodings
from treemem.networks.layer_type import LayerType
from treemem.networks.resettable import Resettable
from treemem.networks.trees.tree_states import TreeStates

PairFeatures = Literal["concatenation", "differences"]
Similarity = Literal["dot", "cosine", "distance"]
ReadOut = Literal[Similarity, "comparison"]

_FIRST_SCALE = {"cosine": 5.0, "distance": 1.0}
_FIRST_BIAS = {"dot": 0.0, "cosine": 0.0, "distance": 1.0}


class EqualityHead(torch.nn.Module, metaclass=LayerType):
    """Predict whether two trees are equal: ``z = similarity + bias``, ``P = sigmoid(z)``.

    Args:
        similarity: of the encodings ``l`` and ``r``. ``"dot"``: ``<l, r>``, with a bias that starts at 0, as in
            Arabshahi et al. 2018; ``"cosine"``: ``scale * <l, r> / (|l| |r|)``, where the scale starts at 5;
            ``"distance"``: ``-scale * |l - r|^2``, where scale and bias start at 1. Scale and bias are learned scalars.

    Raises:
        RecipeError: another similarity.

    Example:
        >>> head = EqualityHead()
        >>> head(torch.ones(3, 2, 4))
        tensor([4., 4., 4.], grad_fn=<AddBackward0>)
    """

    def __init__(self, similarity: Similarity = "dot") -> None:
        super().__init__()
        checked_choice("similarity", similarity, get_args(Similarity))
        self.similarity = similarity
        self.bias = torch.nn.Parameter(torch.empty(1))
        self.scale = None if similarity == "dot" else torch.nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set bias and scale to their initial values."""
        torch.nn.init.constant_(self.bias, _FIRST_BIAS[self.similarity])
        if self.scale is not None:
            torch.nn.init.constant_(self.scale, _FIRST_SCALE[self.similarity])

    def forward(self, encodings: torch.Tensor | EncoderOutput) -> torch.Tensor:
        """The scores ``z``, ``[examples]``.

        Args:
            encodings: of pairs, ``[examples, 2, hidden_size]``, or what an encoder returned for them.

        Raises:
            GraphError: the examples are no pairs.
        """
        left, right = root_encodings(encodings, 2).unbind(1)
        if self.scale is None:
            return (left * right).sum(-1) + self.bias
        if self.similarity == "cosine":
            similarity = functional.cosine_similarity(left, right, dim=-1)
        else:
            similarity = -(left - right).square().sum(-1)
        return self.scale * similarity + self.bias

    @staticmethod
    def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean of ``-log P(label)``; 0 for no examples.

        Args:
            scores: ``[examples]``.
            labels: 1 or True for equal, 0 or False for unequal, ``[examples]``.

        Raises:
            GraphError: another number of labels, or on the CPU ones of other values.
        """
        _check_labels(labels, len(scores))
        _check_values(labels, (labels != 0) & (labels != 1), "1 for equal and 0 for unequal")
        total = functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="sum")
        return total / max(1, len(scores))

    @staticmethod
    def probability(scores: torch.Tensor) -> torch.Tensor:
        """The probability of equal, ``[examples]``."""
        return torch.sigmoid(scores)

    @classmethod
    def prediction(cls, scores: torch.Tensor) -> torch.Tensor:
        """The prediction ``P > 0.5`` (equal), ``[examples]``."""
        return cls.probability(scores) > 0.5

    @staticmethod
    def correct(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Whether ``P(label) > 0.5``, ``[examples]`` as published. At ``z = 0`` neither label is correct."""
        return torch.sigmoid(torch.where(labels.bool(), scores, -scores)) > 0.5


class ComparisonHead(Resettable):
    """Predict whether two trees are equal with a comparison layer: ``z = w . tanh(W [l * r; |l - r|] + b) + bias``.

    The features are symmetric (Tai et al. 2015, section 4.2).
    :class:`EqualityHead` has the loss and the probability of its scores.

    Args:
        hidden_size: width of an encoding, and of the layer.

    Raises:
        RecipeError: a size that is no whole number, or less than 1.

    Example:
        >>> ComparisonHead(4)(torch.zeros(3, 2, 4)).shape
        torch.Size([3])
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        checked_count("hidden_size", hidden_size)
        self.compare = torch.nn.Linear(2 * hidden_size, hidden_size)
        self.score = torch.nn.Linear(hidden_size, 1)

    def forward(self, encodings: torch.Tensor | EncoderOutput) -> torch.Tensor:
        """The scores ``z``, ``[examples]``.

        Args:
            encodings: of pairs, ``[examples, 2, hidden_size]``, or what an encoder returned for them.

        Raises:
            GraphError: the examples are no pairs, or encodings of another width.
        """
        left, right = root_encodings(encodings, 2, self.score.in_features).unbind(1)
        compared = torch.cat([left * right, (left - right).abs()], dim=1)
        return self.score(torch.tanh(self.compare(compared))).squeeze(1)


class _SoftmaxHead(Resettable):
    """A head whose outputs are the logits of classes."""

    @staticmethod
    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean of ``-log P(label)`` over the labels that are not negative; 0 if there are none.

        Args:
            logits: ``[examples or nodes, num_classes]``.
            labels: whole numbers, one for each row of ``logits``.

        Raises:
            GraphError: labels that are not numbers of classes, or another number of labels.
        """
        count, num_classes = logits.shape
        _check_labels(labels, count)
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise GraphError(f"labels must be whole numbers of classes, such as torch.long, not {labels.dtype}")
        labels = labels.long()
        _check_values(labels, labels >= num_classes, f"below {num_classes}, the number of classes")
        counted = labels >= 0
        total = functional.cross_entropy(logits, labels.clamp(min=-1), ignore_index=-1, reduction="sum")
        return total / counted.sum().clamp(min=1)


class RelationHead(_SoftmaxHead):
    """Predict the relation of the two trees of an example: a comparison layer and a classifier (Bowman et al. 2015).

    Args:
        hidden_size: width of an encoding.
        num_classes: number of relations.
        features: input of the comparison layer: ``"concatenation"``, ``[l; r]``, or ``"differences"``,
            ``[l; r; |l - r|; l * r]``.
        layer_size: width of the comparison layer; ``hidden_size`` by default. 0: no comparison layer.
        activation: activation function of the comparison layer.
        dropout: dropout probability of the classifier's input.
        feature_dropout: dropout probability of the comparison layer's input; needs a comparison layer.

    Raises:
        RecipeError: unknown ``features`` or activation, or sizes that are no whole numbers.

    Example:
        >>> RelationHead(4, 7)(torch.zeros(3, 2, 4)).shape
        torch.Size([3, 7])
    """

    def __init__(
        self,
        hidden_size: int,
        num_classes: int,
        *,
        features: PairFeatures = "concatenation",
        layer_size: int | None = None,
        activation: ActivationName = "tanh",
        dropout: float = 0.0,
        feature_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        checked_choice("features", features, get_args(PairFeatures))
        checked_count("hidden_size", hidden_size)
        checked_count("num_classes", num_classes)
        checked_probability("dropout", dropout)
        checked_probability("feature_dropout", feature_dropout)
        width = hidden_size * (2 if features == "concatenation" else 4)
        layer_size = hidden_size if layer_size is None else checked_count("layer_size", layer_size, least=0)
        if feature_dropout and not layer_size:
            raise RecipeError("feature_dropout is before the comparison layer, and with layer_size=0 there is none")
        self.hidden_size = hidden_size
        self.features = features
        self.activation = checked_activation(activation)
        self.dropout = dropout
        self.feature_dropout = feature_dropout
        self.compare = torch.nn.Linear(width, layer_size) if layer_size else None
        self.classify = torch.nn.Linear(layer_size or width, num_classes)

    def forward(self, encodings: torch.Tensor | EncoderOutput) -> torch.Tensor:
        """The logits, ``[examples, num_classes]``.

        Args:
            encodings: of pairs, ``[examples, 2, hidden_size]``, or what an encoder returned for them.

        Raises:
            GraphError: the examples are no pairs, or encodings of another width.
        """
        pairs = root_encodings(encodings, 2, self.hidden_size)
        compared = pairs.flatten(1)
        if self.features == "differences":
            left, right = pairs.unbind(1)
            compared = torch.cat([compared, (left - right).abs(), left * right], dim=1)
        if self.compare is not None:
            compared = functional.dropout(compared, self.feature_dropout, self.training)
            compared = activation(self.activation)(self.compare(compared))
        return self.classify(functional.dropout(compared, self.dropout, self.training))


class ClassifierHead(_SoftmaxHead):
    """Predict a class for each tree, or for each node.

    Args:
        hidden_size: width of a state.
        num_classes: number of classes.
        nodes: ``"root"``: a class for each tree, from its encoding. ``"every"``: a class for each node, from its ``h``.
        dropout: dropout probability of the classifier's input.

    Raises:
        RecipeError: unknown ``nodes``, or sizes that are no whole numbers.

    Example:
        >>> ClassifierHead(4, 10)(torch.zeros(3, 1, 4)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self, hidden_size: int, num_classes: int, *, nodes: Literal["root", "every"] = "root", dropout: float = 0.0
    ) -> None:
        super().__init__()
        checked_choice("nodes", nodes, ("root", "every"))
        checked_count("hidden_size", hidden_size)
        checked_count("num_classes", num_classes)
        checked_probability("dropout", dropout)
        self.nodes = nodes
        self.dropout = dropout
        self.classify = torch.nn.Linear(hidden_size, num_classes)

    def forward(self, states: torch.Tensor | EncoderOutput) -> torch.Tensor:
        """The logits: ``[examples, num_classes]``, or ``[nodes, num_classes]`` in node order.

        Args:
            states: for ``nodes="root"``, encodings ``[examples, 1, hidden_size]`` or what an encoder returned; for
                ``nodes="every"``, what a tree layer returned, or states ``[nodes, hidden_size]``.

        Raises:
            GraphError: for ``nodes="root"``, an example is more than one tree; for ``nodes="every"``, what was given
                has no states of nodes, as what a sequence encoder returns.
        """
        read = root_encodings(states, 1).squeeze(1) if self.nodes == "root" else self._of_nodes(states)
        check_width(read, self.classify.in_features)
        return self.classify(functional.dropout(read, self.dropout, self.training))

    @staticmethod
    def _of_nodes(states: torch.Tensor | EncoderOutput) -> torch.Tensor:
        if isinstance(states, TreeStates):
            return states.h
        if isinstance(states, torch.Tensor) and states.dim() == 2:
            return states
        given = list(states.shape) if isinstance(states, torch.Tensor) else type(states).__name__
        raise GraphError(
            f'a head with nodes="every" reads what a tree layer returned, or states [nodes, hidden_size], not {given}; '
            f'for one class a tree or sequence make it with nodes="root"'
        )


class RegressionHead(Resettable):
    """Predict numbers about each tree: ``mean + scale * (W h + b)``.

    Args:
        hidden_size: width of an encoding.
        num_targets: how many numbers to predict.
        mean, scale: mean and scale of each target, so that ``W h + b`` is about 1; by default 0 and 1.

    Raises:
        RecipeError: a size below 1, or another number of means or scales than targets.

    Example:
        >>> RegressionHead(4, 2)(torch.zeros(3, 1, 4)).shape
        torch.Size([3, 2])
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self, hidden_size: int, num_targets: int = 1, *, mean: Sequence[float] = (), scale: Sequence[float] = ()
    ) -> None:
        super().__init__()
        checked_count("hidden_size", hidden_size)
        checked_count("num_targets", num_targets)
        for name, values, default in (("mean", mean, 0.0), ("scale", scale, 1.0)):
            if values and len(values) != num_targets:
                raise RecipeError(f"{name} must have a value for each of {num_targets} targets, not {len(values)}")
            of_targets = torch.tensor(list(values) or [default] * num_targets, dtype=torch.get_default_dtype())
            self.register_buffer(name, of_targets, persistent=False)
        self.linear = torch.nn.Linear(hidden_size, num_targets)

    def forward(self, encodings: torch.Tensor | EncoderOutput) -> torch.Tensor:
        """The numbers, ``[examples, num_targets]``.

        Args:
            encodings: of trees, ``[examples, 1, hidden_size]``, or what an encoder returned for them.

        Raises:
            GraphError: examples of several trees, or encodings of another width.
        """
        return self.mean + self.scale * self.linear(root_encodings(encodings, 1, self.linear.in_features).squeeze(1))


class NumberDecoder(Resettable):
    """Decode a vector to a number: ``W_2 phi(W_1 h + b_1) + b_2`` (Arabshahi et al. 2018).

    Args:
        hidden_size: width of ``h`` and of the hidden layer.
        activation: ``phi``. The published Tree-RNN with a stack has ``"relu"``, all other networks the sigmoid.

    Raises:
        RecipeError: an unknown activation, or a size that is no whole number.

    Example:
        >>> NumberDecoder(4)(torch.zeros(3, 2, 4)).shape
        torch.Size([3, 2])
    """

    def __init__(self, hidden_size: int, activation: ActivationName = "sigmoid") -> None:
        super().__init__()
        checked_count("hidden_size", hidden_size)
        self.activation = checked_activation(activation)
        self.first = torch.nn.Linear(hidden_size, hidden_size)
        self.second = torch.nn.Linear(hidden_size, 1)

    def forward(self, encodings: torch.Tensor | EncoderOutput) -> torch.Tensor:
        """The numbers, ``[...]``, of vectors ``[..., hidden_size]``, or of what an encoder returned.

        Raises:
            GraphError: vectors of another width.
        """
        function = activation(self.activation)
        vectors = root_encodings(encodings)
        check_width(vectors, self.first.in_features)
        return self.second(function(self.first(vectors))).squeeze(-1)

    @staticmethod
    def loss(numbers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean squared error; 0 for no numbers.

        Raises:
            GraphError: targets of another shape than the numbers'.
        """
        _check_targets(numbers, targets)
        return functional.mse_loss(numbers, targets.to(numbers.dtype), reduction="sum") / max(1, numbers.numel())

    @staticmethod
    def correct(numbers: torch.Tensor, targets: torch.Tensor, closeness: float = 1e-3) -> torch.Tensor:
        """Whether each number is its target but for ``closeness`` times the larger of the two.

        Raises:
            GraphError: targets of another shape than the numbers'.
        """
        _check_targets(numbers, targets)
        largest = torch.maximum(numbers.abs(), targets.abs())
        return (numbers - targets).abs() <= closeness * largest


def _check_targets(numbers: torch.Tensor, targets: torch.Tensor) -> None:
    if numbers.shape != targets.shape:
        raise GraphError(f"numbers {list(numbers.shape)} need as many targets, not {list(targets.shape)}")


def _check_labels(labels: torch.Tensor, count: int) -> None:
    if not isinstance(labels, torch.Tensor):
        raise GraphError(f"labels must be a tensor, not {type(labels).__name__}; make one with torch.as_tensor")
    if labels.shape != (count,):
        raise GraphError(f"labels must be [{count}], one for each example or node, not {list(labels.shape)}")


def _check_values(labels: torch.Tensor, is_wrong: torch.Tensor, right: str) -> None:
    """Name the first wrong label; on other devices than the CPU, where looking means waiting, nothing is looked at."""
    if labels.device.type == "cpu" and is_wrong.any():
        raise GraphError(f"labels must be {right}, not {labels[is_wrong][0].item()}")

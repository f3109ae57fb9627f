"""A model: a network under the head of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.data.examples import Examples
from treemem.errors import CellError, RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks import NetworkConfig
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.task import Task
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from treemem.nn.row_cache import RowCache
    from treemem.schedule.tree_batch import TreeBatch
    from treemem.trees.vocabulary import Vocabulary


class Model(nn.Module):
    """A network under the head of a task.

    Args:
        task: gives the head and, by default, the vocabulary.
        network: the network and its options.
        vocabulary: the labels that the network knows.
        networks: own network classes by name, besides the registered ones.

    Attributes:
        task, network, vocabulary: what it was made of.
        encoder: the network; gives ``[examples, trees_per_example, hidden_size]``, or ``[examples, 1, hidden_size]``
            where it has an attribute ``joint`` that is true: it reads the trees of an example as one sequence.
        head: gives the outputs that the task's loss and scores read.
        temperature: what outputs are divided by before they become probabilities; see
            :mod:`treemem.metrics.calibration`.
    """

    def __init__(
        self,
        task: Task,
        network: NetworkConfig,
        vocabulary: Vocabulary | None = None,
        *,
        networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    ) -> None:
        super().__init__()
        self.task = task
        self.network = network
        self.vocabulary = task.vocabulary if vocabulary is None else vocabulary
        self.encoder = network.build(self.vocabulary, networks, form=task.token_form)
        self.temperature = 1.0
        make_head = task.joint_head if getattr(self.encoder, "joint", False) else task.head
        self.head = make_head(int(self.encoder.hidden_size))  # type: ignore[arg-type]

    def forward(self, batch: TreeBatch) -> Tensor:
        """The outputs ``[examples, ...]`` for a batch."""
        return self.head(self.encoder(batch))

    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The outputs as probabilities, at the model's temperature; see :meth:`Task.probabilities`."""
        if self.temperature != 1.0:
            outputs = self.task.tempered(outputs.double(), self.temperature)
        return self.task.probabilities(outputs, targets)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def needs_whole_batch(self) -> str | None:
        """The network's option that makes an example depend on the others of its batch, if any does."""
        return getattr(self.encoder, "needs_whole_batch", None)

    def outputs(
        self,
        examples: Examples,
        chosen: NDArray[np.int64] | None = None,
        *,
        batch_size: int = 1024,
        index: SubtreeIndex | None = None,
        cache: RowCache | None = None,
        advance: Callable[[int], object] = lambda count: None,
    ) -> Tensor:
        """The outputs for many examples, in evaluation mode and without gradients.

        Where :attr:`needs_whole_batch` names an option, examples of similar length run together.

        Args:
            examples: where the examples are.
            chosen: their numbers; all by default.
            batch_size: examples that run together.
            index: of the examples' forest, where it was made before.
            cache: of this encoder and the same ``index``: shares equal subtrees across batches; the same outputs.
            advance: told the number of examples done after each batch.

        Returns:
            ``[chosen, ...]`` on the CPU, in the order of ``chosen``.

        Raises:
            RecipeError: a cache of another network or index.
            CellError: the network's outputs are not numbers, as after a training that diverged.
        """
        if index is None:
            index = SubtreeIndex(examples.forest, self.vocabulary) if cache is None else cache.index
        loader = TreeLoader(
            index,
            chosen,
            batch_size,
            trees_per_example=examples.trees_per_example,
            sort_by_length=self.needs_whole_batch is not None,
        )
        return self.outputs_of(loader, cache=cache, advance=advance)

    def outputs_of(
        self,
        loader: TreeLoader,
        *,
        cache: RowCache | None = None,
        advance: Callable[[int], object] = lambda count: None,
        allow_nan: bool = False,
    ) -> Tensor:
        """The outputs for the examples of a loader, whatever their order in its batches; see :meth:`outputs`.

        Args:
            loader: makes the batches; with a cache, which makes them itself, says what they hold.
            cache, advance: as in :meth:`outputs`.
            allow_nan: return outputs that are not numbers, rather than raise.

        Returns:
            ``[examples, ...]`` on the CPU, in the order of ``loader.examples``.

        Raises:
            RecipeError, CellError: as in :meth:`outputs`.
        """
        if cache is not None and (cache.network is not self.encoder or cache.index is not loader.index):
            raise RecipeError("the cache is one of another network or of another index; make one of these")
        plan = loader.plan()
        done: list[Tensor] = []
        with in_evaluation_mode(self):
            for encodings in self._encodings(loader, plan, cache):
                done.append(self.head(encodings).cpu())
                advance(len(done[-1]))
        if not done:
            return torch.empty(0)
        outputs = torch.cat(done)
        ordered = torch.empty_like(outputs)
        ordered[torch.from_numpy(np.concatenate(plan))] = outputs
        if not allow_nan and ordered.isnan().any():
            number = int(loader.examples[int(ordered.isnan().reshape(len(ordered), -1).any(1).nonzero()[0])])
            raise CellError(f"the network's output for example {number} is not a number; its weights may not be either")
        return ordered

    def _encodings(self, loader: TreeLoader, plan: list[NDArray[np.int64]], cache: RowCache | None) -> Iterator[Any]:
        if cache is None:
            for batch in loader.batches(plan):
                yield self.encoder(batch.to(self.device))
            return
        before = cache.seconds
        yield from cache.encode_batches(
            [loader.examples[places] for places in plan], trees_per_example=loader.trees_per_example
        )
        loader.seconds += cache.seconds - before

    def predict(self, data: Sequence[str | Tree] | Forest, *, batch_size: int = 1024) -> NDArray[np.float64]:
        """Probabilities for texts and trees, or for a forest of the task's trees.

        Raises:
            ParseError: a text that is no example of the task; its ``line`` is the text's place, from 1.
            VocabularyError: a label that the model does not know.
            GraphError: a tree that is no example of the task, or what is no list of texts and trees.
        """
        data = self.task.forest_of(data)
        if not len(data):
            return np.empty(0)
        examples = self.task.examples(data)
        return self.probabilities(self.outputs(examples, batch_size=batch_size), examples.targets)


def weights_of(
    task: Task,
    network: NetworkConfig,
    vocabulary: Vocabulary | None = None,
    *,
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
) -> dict[str, Tensor]:
    """The names, shapes and types of a model's weights; no memory is taken for them, and no random number drawn.

    A class from outside the library may need numbers while it is made; such a model is made on the CPU.

    Args:
        task, network, vocabulary, networks: as for :class:`Model`.

    Raises:
        RecipeError: as :meth:`NetworkConfig.build`.
    """
    made_of = (network.constructor(networks), type(task))
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return Model(task, network, vocabulary, networks=networks).state_dict()
        except (RecipeError, RuntimeError, TypeError):
            if all(each.__module__.startswith("treemem.") for each in made_of):
                raise
        return Model(task, network, vocabulary, networks=networks).state_dict()

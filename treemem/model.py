"""A model: a network under the head of a task, and the one loop that scores it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module
from torch.overrides import TorchFunctionMode

from treemem.data.examples import Examples
from treemem.data.loader import Batch, BatchOptions, Loader
from treemem.data.token_batch import TokenBatch
from treemem.errors import CellError, RecipeError, TreememError, in_row
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks import NetworkConfig
from treemem.networks.encoder import Encoder
from treemem.records import check_columns
from treemem.task import Answer, ModelOutput, Task
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import first_refused, is_missing
from treemem.trees.vocabulary import children_in_words, label_arity_pairs

if TYPE_CHECKING:
    from treemem.networks.trees.row_cache import RowCache
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
        encoder: the network. Its ``hidden_size`` is the width of its encodings. A cross-encoder, whose ``joint`` is
            true, has one encoding for the trees of an example.
        head: makes the outputs that the task's loss and scores read.
        unseen: labels of the vocabulary that no training example had, sorted; empty if it is not known.
        unseen_kinds: functions of the vocabulary, ``(label, children)``, whose label training had with other numbers of
            children only, sorted.
        temperature: by which outputs are scaled before they become probabilities; see
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
        encoder = network.build(self.vocabulary, networks, form=task.token_form)
        self.encoder = task.prepared(encoder, self.vocabulary)
        self.temperature = 1.0
        self.threshold: float | None = None
        self.unseen: tuple[str, ...] = ()
        self.unseen_kinds: tuple[tuple[str, int], ...] = ()
        if not hasattr(self.encoder, "hidden_size"):
            raise RecipeError(
                f"{type(self.encoder).__name__} has no attribute hidden_size, the width of its encodings; set "
                "self.hidden_size in its constructor"
            )
        make_head = task.joint_head if getattr(self.encoder, "joint", False) else task.head
        self.head = make_head(int(self.encoder.hidden_size))  # type: ignore[arg-type]
        if getattr(self.head, "nodes", "root") == "every" and getattr(self.encoder, "sort_key", "height") == "length":
            raise RecipeError(
                f"{task.name} needs a state for each node, and {network.network} reads sequences of tokens; choose a "
                "network over trees, such as TreeLSTM"
            )

    def warnings(self, forest: Forest) -> dict[int, str]:
        """Return what training had not, by the number of the example: labels, and functions of so many children.

        Args:
            forest: examples that the model accepts.
        """
        vocabulary = self.vocabulary
        suspects = {*self.unseen, *(label for label, _ in self.unseen_kinds)}
        if vocabulary.unknown is None and suspects.isdisjoint(forest.labels):
            return {}
        examples = self.task.examples_to_predict(forest)
        if not isinstance(examples, Examples):
            return {}
        forest, labels = examples.forest, examples.forest.labels
        pairs, pair = label_arity_pairs(labels, forest.label, forest.arity)
        new, unknown = {}, {}
        for number, (label, arity) in enumerate(pairs):
            name, is_unknown = labels[label], vocabulary.is_unknown(labels[label], arity)
            shown = f"{name} with {children_in_words(arity)}" if arity and name in vocabulary.labels else name
            if is_unknown and vocabulary.unknown not in self.unseen:
                unknown[number] = shown
            elif is_unknown or (name, arity) in self.unseen_kinds:
                new[number] = shown
            elif name in self.unseen:
                new[number] = name
        by_example_text: dict[int, list[str]] = {}
        for text, unseen in (("no training example had", new), (f"read as {vocabulary.unknown}:", unknown)):
            if not unseen:
                continue
            nodes = np.flatnonzero(np.isin(pair, list(unseen)))
            trees = np.searchsorted(forest.begin, nodes, side="right") - 1
            by_example: dict[int, set[str]] = {}
            places = zip((trees // examples.trees_per_example).tolist(), pair[nodes].tolist(), strict=True)
            for example, place in places:
                by_example.setdefault(example, set()).add(unseen[place])
            for example, names in by_example.items():
                by_example_text.setdefault(example, []).append(f"{text} {', '.join(sorted(names))}")
        return {example: "; ".join(parts) for example, parts in by_example_text.items()}

    def forward(self, batch: Batch) -> Any:
        """Return the outputs of the head for a batch."""
        return self.run(batch).outputs

    def run(self, batch: Batch) -> ModelOutput:
        """Return the outputs for a batch, and what the encoder returned."""
        encoded = self.encoder(batch)
        return ModelOutput(self.head(encoded), encoded)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def needs_whole_batch(self) -> str | None:
        """The network's option that makes an example depend on the others of its batch, or None."""
        return getattr(self.encoder, "needs_whole_batch", None)

    def loader(
        self, examples: Examples, chosen: NDArray[np.int64] | None = None, options: BatchOptions | None = None
    ) -> Loader:
        """Return the batches of some examples for scoring: examples of similar size, the encoder's ``sort_key``.

        Args:
            examples: where the examples are.
            chosen: their numbers; all by default.
            options: how to make batches.
        """
        by = getattr(self.encoder, "sort_key", "length")
        options = replace(options or BatchOptions(), sort_by_height=by == "height", sort_by_length=by == "length")
        return examples.loader(self.vocabulary, chosen, options)

    def first_too_long(self, examples: Examples) -> tuple[int, TreememError] | None:
        """Return the number of the first example that is too long for the network, and why; None if none is."""
        encoder = self.encoder
        if not isinstance(encoder, Encoder) or type(encoder).check_batches is Encoder.check_batches:
            return None  # it takes any length
        return first_refused(
            len(examples),
            lambda first, end: encoder.check_batches(self.loader(examples, np.arange(first, end)).batches()),
        )

    def outputs(
        self,
        examples: Examples,
        chosen: NDArray[np.int64] | None = None,
        *,
        batch_size: int = 1024,
        advance: Callable[[int], object] = lambda count: None,
    ) -> Any:
        """Return what the task keeps of the outputs for some examples; see :meth:`outputs_of`."""
        loader = self.loader(examples, chosen, BatchOptions(batch_size))
        return self.outputs_of(examples, loader, advance=advance)

    def outputs_of(
        self,
        examples: Examples,
        loader: Loader,
        *,
        plan: Sequence[NDArray[np.int64]] | None = None,
        cache: RowCache | None = None,
        advance: Callable[[int], object] = lambda count: None,
        allow_nan: bool = False,
        on_output: Callable[[Any, ModelOutput], object] | None = None,
        run: Callable[[Batch], ModelOutput] | None = None,
    ) -> Any:
        """Return what the task keeps of the outputs, in evaluation mode and without gradients.

        Every score and prediction comes from this loop.

        Args:
            examples: the data set that the loader is of.
            loader: makes the batches.
            plan: the batches to run, if not all; each is a list of places.
            cache: shares equal subtrees across batches; of this encoder and the loader's index.
            advance: called with the number of items after each batch.
            allow_nan: return outputs that are not numbers instead of raising.
            on_output: called with each batch and its output; the batch is None with a cache.
            run: what runs a batch that is on the CPU, in place of :meth:`run`.

        Returns:
            ``[items, ...]`` on the CPU, or a list with an item each, in the order of the loader's items (with ``plan``,
            in the order of the places in it).

        Raises:
            RecipeError: a cache of another network or index.
            CellError: the outputs are not numbers, as after a training that diverged.
        """
        batches = loader.plan() if plan is None else plan
        kept: list[Any] = []
        with in_evaluation_mode(self):
            for batch, output in self._run_all(loader, batches, cache, run):
                targets = {} if batch is None else examples.known_targets(batch, self.device)
                batch_kept = self.task.kept(output, batch, targets)
                kept.append(batch_kept.cpu() if isinstance(batch_kept, Tensor) else batch_kept)
                if on_output is not None:
                    on_output(batch, output)
                advance(len(batch_kept))
        if not kept:
            return torch.empty(0)
        places = np.concatenate(batches)
        order = np.argsort(places, kind="stable") if plan is None else np.arange(len(places))
        if not isinstance(kept[0], Tensor):
            items = [item for part in kept for item in part]
            return [items[place] for place in order.tolist()]
        outputs = torch.cat(kept)[torch.from_numpy(order)]
        if not allow_nan and outputs.isnan().any():
            place = int(outputs.isnan().reshape(len(outputs), -1).any(1).nonzero()[0])
            number = int(loader.examples[places[order][place]]) + 1
            raise CellError(f"the network's output for example {number} is not a number; its weights may not be either")
        return outputs

    def _run_all(
        self,
        loader: Loader,
        plan: Sequence[NDArray[np.int64]],
        cache: RowCache | None,
        run: Callable[[Batch], ModelOutput] | None,
    ) -> Iterator[tuple[Batch | None, ModelOutput]]:
        if cache is not None:
            yield from self._run_cached(loader, plan, cache)
            return
        state: Any = None
        for batch in loader.batches(plan):
            if not batch.num_examples:  # of a process that has no part in it
                continue
            batch = batch if run is not None else batch.to(self.device)
            if isinstance(batch, TokenBatch) and batch.continues:
                batch = batch.with_state(state)
            output = (run or self.run)(batch)
            state = output.state
            yield batch, output

    def _run_cached(
        self, loader: Any, plan: Sequence[NDArray[np.int64]], cache: RowCache
    ) -> Iterator[tuple[None, ModelOutput]]:
        if cache.network is not self.encoder or cache.index is not loader.index:
            raise RecipeError("the cache is one of another network or of another index; make one of these")
        before = cache.seconds
        for encodings in cache.encode_batches(
            [loader.examples[places] for places in plan], trees_per_example=loader.trees_per_example
        ):
            yield None, ModelOutput(self.head(encodings), encodings)
        loader.seconds += cache.seconds - before

    def probabilities(self, outputs: Any, targets: Mapping[str, NDArray[Any]]) -> Any:
        """Return the outputs as probabilities at the model's temperature; see :meth:`Task.predicted`."""
        return self.task.predicted(outputs, targets, temperature=self.temperature)

    def answers(self, kept: Any, examples: Examples, *, threshold: float | None = None) -> list[Answer]:
        """Return the predictions for all of ``examples``, of which :meth:`outputs` returned ``kept``.

        Args:
            kept, examples: the outputs and their examples.
            threshold: of the probability; None: that of the model.
        """
        threshold = self.usual_threshold if threshold is None else threshold
        return self.task.answers(kept, examples.targets, temperature=self.temperature, threshold=threshold)

    @property
    def usual_threshold(self) -> float:
        """The threshold of the model, 0.5 if it has none."""
        return 0.5 if self.threshold is None else self.threshold

    def predict(self, data: Iterable[Any] | Forest, *, batch_size: int = 1024) -> Any:
        """Return probabilities for examples (:meth:`Task.forest_of`); a task without classes returns its predictions.

        A DataFrame, whose columns are the fields of the task's records, gives a Series or, of several classes or
        targets, a DataFrame with a column for each. Both have its index.

        Raises:
            RecipeError: a DataFrame without the column of the examples, or with equal names of columns or rows.
            ParseError: a text that is no example of the task; its ``line`` is the text's place, from 1.
            VocabularyError: a label that the model does not know.
            GraphError: a tree that is no example of the task, or what is no list of texts and trees.
        """
        if is_data_frame(data):
            check_frame(data, is_joined=True)
            return self._joined(self.predict(self.forest_of(data), batch_size=batch_size), data)
        forest = self.forest_of(data)
        if not len(forest):
            return self.task.no_predictions()
        examples = self.task.examples_to_predict(forest)
        kept = self.outputs(examples, batch_size=batch_size)
        return self.task.predicted(kept, examples.targets, temperature=self.temperature)

    def forest_of(self, data: Iterable[Any] | Forest) -> Forest:
        """Return examples as a forest (:meth:`Task.forest_of`); the columns of a DataFrame are the fields of records.

        Raises:
            RecipeError, ParseError, VocabularyError, GraphError: as :meth:`predict`.
        """
        if not is_data_frame(data):
            return self.task.forest_of(data)
        frame: Any = data
        reader = self.task.reader
        check_frame(frame)
        check_columns("the DataFrame", reader.example_fields, list(map(str, frame.columns)))
        nodes = []
        for place, record in zip(frame.index, frame.to_dict("records"), strict=True):
            try:
                nodes.append(reader.read({name: None if is_missing(cell) else cell for name, cell in record.items()}))
            except TreememError as error:
                raise in_row(place, error) from error
        return Forest.from_nodes(nodes)

    def _joined(self, predicted: Any, frame: Any) -> Any:
        """Return predictions with the index of a frame."""
        import pandas  # type: ignore[import-untyped]

        if isinstance(predicted, list) or predicted.ndim == 1:
            return pandas.Series(predicted, frame.index)
        return pandas.DataFrame(predicted, frame.index, self.task.output_names)


def is_data_frame(data: object) -> bool:
    """Whether this is a DataFrame of pandas, which is not imported for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def check_frame(frame: Any, *, is_joined: bool = False) -> None:
    """Check that a DataFrame names its columns differently and, if answers are joined to it, its rows.

    Raises:
        RecipeError: two columns or, with ``is_joined``, two rows have one name.
    """
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].tolist()[0]
        raise RecipeError(f"the DataFrame has two columns {twice!r}; rename one of them")
    if is_joined and not frame.index.is_unique:
        twice = frame.index[frame.index.duplicated()].tolist()[0]
        raise RecipeError(
            f"the index of the DataFrame has {twice!r} twice, so predictions could be joined to the wrong rows; give "
            "it another index with frame.reset_index(drop=True)"
        )


def weights_of(
    task: Task,
    network: NetworkConfig,
    vocabulary: Vocabulary | None = None,
    *,
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    saved: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return the names, shapes and types of a model's weights, without memory for them or random numbers drawn.

    A class from outside the library may need numbers while it is made; such a model is made on the CPU.

    Args:
        task, network, vocabulary, networks: as for :class:`Model`.
        saved: weights that the model should have. If it is much larger, this is noticed while it is made.

    Raises:
        RecipeError: as :meth:`NetworkConfig.build`, or the model is much larger than ``saved``.
    """
    made_of = (network.constructor(networks), type(task))
    try:
        with torch.random.fork_rng(devices=[]), _not_much_larger(saved):
            try:
                with torch.device("meta"), _WithoutNormalNumbers():
                    return Model(task, network, vocabulary, networks=networks).state_dict()
            except (RecipeError, RuntimeError, TypeError):
                if all(part.__module__.startswith("treemem.") for part in made_of):
                    raise
            return Model(task, network, vocabulary, networks=networks).state_dict()
    except _MuchLarger as error:
        problem = f"{network.network} with the options {network.options!s:.200} is much larger than the saved weights"
        raise RecipeError(problem) from error


class _MuchLarger(Exception):
    """No constructor takes it for a fault of its own."""


@contextlib.contextmanager
def _not_much_larger(saved: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Stop making a model that has ten times the parameters and modules, or numbers, of the saved weights.

    A small file of options can ask for 100,000,000 layers, which take hours to make even without memory.

    Raises:
        _MuchLarger: it has.
    """
    if saved is None:
        yield
        return
    thread, parts, numbers = threading.get_ident(), 0, 0
    most_parts = 1000 + 10 * len(saved)
    most_numbers = 1_000_000 + 10 * sum(tensor.numel() for tensor in saved.values())

    def counted(owner: nn.Module, name: str, part: nn.Module | nn.Parameter | None) -> None:
        nonlocal parts, numbers
        if threading.get_ident() != thread:  # another thread makes a model of its own
            return
        parts += 1
        numbers += part.numel() if isinstance(part, Tensor) else 0
        if parts > most_parts or numbers > most_numbers:
            raise _MuchLarger

    with (
        module.register_module_parameter_registration_hook(counted),
        module.register_module_module_registration_hook(counted),
    ):
        yield


class _WithoutNormalNumbers(TorchFunctionMode):
    """Leaves out ``normal_``, which changes nothing without memory, but makes torch import its compiler.

    That takes longer than everything else before a prediction.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)

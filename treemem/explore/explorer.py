"""The explorer: what a model did with examples, as one HTML file to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.checked_options import checked_count
from treemem.checkpoint import load
from treemem.data.examples import Examples
from treemem.errors import RecipeError, TreememError
from treemem.explore.decimals import coded, packed, shown
from treemem.explore.html_page import html_page
from treemem.explore.label_table import LabelTable, printable_line
from treemem.explore.projection import projection
from treemem.explore.recording import ReadSequence, Recording, record
from treemem.model import Model
from treemem.records import check_writable, replacing
from treemem.task import Task
from treemem.trees.equation_format import format_equation
from treemem.trees.equation_labels import EQUALITY
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree


def explore(
    model: Model | str | os.PathLike[str],
    examples: Iterable[str | Tree] | Forest,
    path: str | os.PathLike[str],
    *,
    labels: ArrayLike | None = None,
    ids: Sequence[object] | None = None,
    title: str = "",
    most: int = 500,
    overwrite: bool = False,
) -> Path:
    """Write a page that shows what a model does with each example: trees, states, stacks, gates, outputs.

    The page is one file that needs nothing else, no network either: open it in a browser. Of tree networks it shows the
    states of every node, and the gates where the cell tells them (:func:`treemem.ops.step_trace.trace_steps`); of
    sequence encoders the output and what was traced at every token, and where trees are read out of them, these beside
    the given ones. Numbers are rounded to four significant digits.

    Args:
        model: a model, or the folder of a checkpoint or run (see :func:`treemem.load`).
        examples: texts of the model's task, trees, or a forest of trees, whose ``tree_data["label"]`` are the right
            answers where they are known.
        path: the HTML file to write.
        labels: the right answers, ``[examples]``, -1 where nobody knows; instead of those of the forest.
        ids: what the page calls each example; numbers from 1 by default.
        title: stands above the page.
        most: refuse more examples than these, for the page would be large: each node of a network of 50 with a stack of
            5 takes up to 2,600 bytes.
        overwrite: whether a file at ``path`` may be replaced.

    Returns:
        ``path``. The file appears there only when it is whole.

    Raises:
        RecipeError: no examples or too many, labels or ids that do not fit, a file that is there already, that has
            another name than that of a page or that cannot be written.
        ParseError: a text that is no example of the task; its ``line`` is the text's place, from 1.
        VocabularyError: a label that the model does not know.
        GraphError: a tree that is no example of the task, or what is no list of texts and trees.
        CheckpointError: no checkpoint, or a torn one.

    Example:
        >>> from treemem import load_pretrained
        >>> explore(load_pretrained(), ["x + y = y + x", "x + y = y"], "page.html")  # doctest: +SKIP
        PosixPath('page.html')
    """
    path = Path(path)
    check_writable(path, overwrite=overwrite)
    if path.suffix.lower() not in (".html", ".htm", ""):
        raise RecipeError(f"{path} would be a page of HTML by another name; let it end in .html")
    if not isinstance(model, Model):
        model = load(model)
    page = html_page(page_data(model, examples, labels=labels, ids=ids, title=title, most=most))
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def page_data(
    model: Model,
    examples: Iterable[str | Tree] | Forest,
    *,
    labels: ArrayLike | None = None,
    ids: Sequence[object] | None = None,
    title: str = "",
    most: int = 500,
) -> dict[str, Any]:
    """What a page of :func:`explore` holds, as plain data; arguments and errors as there."""
    task = model.task
    given = list(examples) if isinstance(examples, Iterator) else examples
    forest = task.forest_of(given)
    own = _checked_examples(task, forest, labels, ids, most)
    recording = record(model, own)
    names = LabelTable()
    encodings = recording.encodings.reshape(-1, recording.encodings.shape[2])
    places = recording.table.place_of(encodings)
    table, row_of_item = recording.table.finish()
    answers = _answers(model, own, recording)
    trees = _trees(own, recording, row_of_item, names)
    joined = len(forest) == len(own) and own.trees_per_example > 1
    joints = [names.add(forest[number].label) if joined else None for number in range(len(own))]
    texts = _texts(task, forest, own)
    if not isinstance(given, Forest):
        texts = [example if isinstance(example, str) else text for example, text in zip(given, texts, strict=True)]
    return {
        "title": printable_line(title or f"{model.network.network} on {task.name.replace('_', ' ')}"),
        "task": task.name,
        "network": model.network.network,
        "options": [[name, str(value)] for name, value in model.network.options.items()],
        "temperature": None if model.temperature == 1 else shown(model.temperature),
        "group": task.group,
        "attendsBy": recording.attends_by,
        "items": "nodes" if recording.has_nodes else "tokens" if recording.sequences else "none",
        "examples": [
            {
                "id": printable_line(str(number + 1 if ids is None else ids[number])),
                "text": printable_line(texts[number]),
                "group": int(own.group[number]),
                **answers[number],
                "joint": joints[number],
                **trees[number],
            }
            for number in range(len(own))
        ],
        **table,
        "labels": names.entries(),
        "encodings": {"width": encodings.shape[1], "each": recording.encodings.shape[1], "places": places},
        "projection": projection(encodings),
    }


def _checked_examples(
    task: Task, forest: Forest, labels: ArrayLike | None, ids: Sequence[object] | None, most: int
) -> Examples:
    """The examples of a forest, with ``labels`` where they are given."""
    if not len(forest):
        raise RecipeError("there are no examples to show")
    own = task.examples(forest)
    if len(own) > checked_count("most", most):
        raise RecipeError(f"{len(own)} examples are more than {most}; choose some of them, or say most={len(own)}")
    if ids is not None and len(ids) != len(own):
        raise RecipeError(f"{len(ids)} ids for {len(own)} examples; give one for each")
    if labels is None:
        return own
    given = np.asarray(labels)
    if given.shape != (len(own),):
        raise RecipeError(f"labels must be one for each of the {len(own)} examples, not {list(given.shape)}")
    each = len(forest) // len(own)
    return task.examples(forest.with_data(tree_data={**forest.tree_data, "label": np.repeat(given, each)}))


def _texts(task: Task, forest: Forest, own: Examples) -> list[str]:
    """How each example of a forest reads: an equation as people write it, anything else as tokens."""
    written: list[str] = []
    if len(forest) == len(own):
        for tree in forest if forest.labels and EQUALITY in forest.labels else ():
            try:
                written.append(format_equation(tree))
            except TreememError:
                break
        if len(written) == len(own):
            return written
    words = [" ".join(words) for words in own.forest.tokens(task.token_form).strings()]
    each = own.trees_per_example
    return ["\t".join(words[first : first + each]) for first in range(0, len(words), each)]


def _answers(model: Model, own: Examples, recording: Recording) -> list[dict[str, Any]]:
    """What was answered to each example, and what would have been right."""
    task, outputs = model.task, recording.outputs
    probabilities = model.probabilities(outputs, own.targets)
    right, label = task.correct(outputs, own.targets), own.targets.get("label")
    names = _class_names(task, probabilities)
    found = []
    for number, probability in enumerate(probabilities):
        of_class = np.array([1 - probability, probability]) if probabilities.ndim == 1 else probability
        answer = int(of_class[1] > 0.5) if probabilities.ndim == 1 else int(of_class.argmax())
        is_number = not np.isnan(of_class).any()
        known = bool(own.labelled[number]) and label is not None
        found.append(
            {
                "prediction": names[answer] if is_number else "not a number",
                "probability": shown(float(of_class[answer]) if is_number else float("nan")),
                "classes": [] if probabilities.ndim == 1 else [shown(value) for value in of_class.tolist()],
                "label": names[int(label[number])] if known and label is not None else None,
                "right": (is_number and bool(right[number])) if known else None,
                "outputs": [shown(value) for value in outputs[number].double().flatten().tolist()],
            }
        )
    return found


def _class_names(task: Task, probabilities: NDArray[np.float64]) -> list[str]:
    """What the answers are called; classes of a task that does not say by their numbers."""
    if probabilities.ndim == 1:
        return ["false", "true"]
    names = task.class_names or range(probabilities.shape[1])
    return [printable_line(str(name)) for name in names]


def _trees(own: Examples, recording: Recording, row_of_item: list[int], names: LabelTable) -> list[dict[str, Any]]:
    """The given trees of each example, what was read as sequences, and the rows of the items."""
    forest, each = own.forest, own.trees_per_example
    label = names.of_forest(forest)
    arity = forest.arity.tolist()
    begin = forest.begin.tolist()
    found: list[dict[str, Any]] = []
    first_token = 0
    for number in range(len(own)):
        trees = []
        for tree in range(number * each, (number + 1) * each):
            nodes = slice(begin[tree], begin[tree + 1])
            trees.append({"label": label[nodes], "arity": arity[nodes]})
            if recording.has_nodes:
                trees[-1]["row"] = row_of_item[nodes]
        sequences = []
        for read in recording.sequences[number] if recording.sequences else ():
            tokens = slice(first_token, first_token + len(read.words))
            sequences.append(_sequence(read, row_of_item[tokens], names))
            first_token = tokens.stop
        found.append({"trees": trees, "sequences": sequences})
    return found


def _sequence(read: ReadSequence, rows: list[int], names: LabelTable) -> dict[str, Any]:
    return {
        "token": [names.add(word) for word in read.words],
        "row": rows,
        "node": read.node,
        "induced": None if read.induced is None else [node.arity for node in read.induced.postorder()],
        "whyNone": read.why_none,
        "f1": None if read.f1 is None else f"{100 * read.f1:.1f}",
        "attention": None if read.attention is None else _attention(read.attention, read.mark, names),
        "tooLong": read.too_long,
    }


def _attention(weights: NDArray[np.float64], mark: str, names: LabelTable) -> dict[str, Any]:
    """What positions attend to: ``numbers`` are packed, layer after layer, row after row."""
    return {
        "layers": weights.shape[0],
        "positions": weights.shape[1],
        "mark": names.add(mark) if mark else None,
        "most": shown(float(weights.max())),
        "numbers": packed(coded(weights)),
    }

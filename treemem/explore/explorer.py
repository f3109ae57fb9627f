"""The explorer: an HTML page of what a model does with examples."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from treemem.attribution import Explanation, Method, check_explainable, explain_forest
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
from treemem.records import check_writable, write_text
from treemem.task import ClassificationTask, Task, Verdict
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.labels import EQUALITY
from treemem.trees.tree import Tree

_NOT_A_NUMBER = "not a number"


def explore(
    model: Model | str | os.PathLike[str],
    examples: Iterable[str | Tree] | Forest,
    path: str | os.PathLike[str],
    *,
    labels: ArrayLike | None = None,
    ids: Sequence[object] | None = None,
    title: str = "",
    most: int = 100,
    explain: Method | None = None,
    explain_answer: Any = None,
    overwrite: bool = False,
) -> Path:
    """Write a page that shows what a model does with each example: trees, states, stacks, gates, outputs.

    The page is one HTML file that works offline. For tree networks it shows the states of every node, and the gates if
    the cell has them (:func:`treemem.engines.step_trace.trace_steps`). For sequence encoders it shows the output and
    the trace at every token, and induced trees beside the gold trees.

    Args:
        model: a model, or the folder of a checkpoint or run (see :func:`treemem.load`).
        examples: texts of the model's task, trees, or a forest with the known labels in ``tree_data["label"]``.
        path: the HTML file to write.
        labels: the labels, ``[examples]``, -1 for unknown. They replace those of the forest.
        ids: the name of each example on the page; by default numbers from 1.
        title: title of the page.
        most: the most examples allowed. The page grows by up to 2,600 bytes a node (hidden size 50, stack of 5 rows).
        explain: colour the nodes by how much they speak for the answer (:func:`treemem.explain`); None: not.
        explain_answer: which answer to explain, as the argument ``answer`` of :func:`treemem.explain`.
        overwrite: replace an existing file.

    Returns:
        ``path``.

    Raises:
        RecipeError: there are no examples or too many, labels or ids do not fit, the model cannot be explained, or the
            file exists, does not end in ``.html`` or cannot be written.
        ParseError: a text is not an example of the task. Its ``line`` is the number of the text, from 1.
        VocabularyError: the model does not know a label.
        GraphError: a tree is not an example of the task, or ``examples`` is a single text or tree.
        CheckpointError: the checkpoint does not exist or is damaged.

    Example:
        >>> from treemem import load_pretrained
        >>> explore(load_pretrained(), ["x + y = y + x", "x + y = y"], "page.html")  # doctest: +SKIP
        PosixPath('page.html')
    """
    path = Path(path)
    check_writable(path, overwrite=overwrite)
    if path.suffix.lower() not in (".html", ""):
        raise RecipeError(f"{path} is not the name of an HTML page; choose a name that ends in .html")
    if not isinstance(model, Model):
        model = load(model)
    if explain is not None:
        check_explainable(model, explain, explain_answer)
    data = page_data(
        model,
        examples,
        labels=labels,
        ids=ids,
        title=title,
        most=most,
        explain=explain,
        explain_answer=explain_answer,
    )
    page = html_page(data)
    write_text(path, page, overwrite=overwrite)
    return path


def page_data(
    model: Model,
    examples: Iterable[str | Tree] | Forest,
    *,
    labels: ArrayLike | None = None,
    ids: Sequence[object] | None = None,
    title: str = "",
    most: int = 100,
    explain: Method | None = None,
    explain_answer: Any = None,
) -> dict[str, Any]:
    """Return the data of a page of :func:`explore`, with the same arguments and errors."""
    task = model.task
    given = list(examples) if isinstance(examples, Iterator) else examples
    forest = model.forest_of(given)
    chosen = _checked_examples(task, forest, labels, ids, most)
    recording = record(model, chosen)
    names = LabelTable()
    encodings = recording.encodings.reshape(-1, recording.encodings.shape[2])
    places = recording.table.place_of(encodings).tolist()
    table, row_of_item = recording.table.finish()
    answers = _answers(model, chosen, recording.kept)
    verdicts = task.verdicts(forest) if len(forest) == len(chosen) else None
    trees = _trees(chosen, recording, row_of_item, names)
    warnings = model.warnings(forest)
    joined = len(forest) == len(chosen) and chosen.trees_per_example > 1
    explained: list[Any] = [None] * len(chosen)
    if explain is not None:
        called = {0: "false", 1: "true"} if task.output_names is None else {}
        explained = [
            _explained(explanation, called)
            for explanation in explain_forest(model, forest, explain, answer=explain_answer)
        ]
    texts = _texts(task, forest, chosen)
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
        "items": recording.items,
        "examples": [
            {
                "id": printable_line(str(number + 1 if ids is None else ids[number])),
                "text": printable_line(texts[number]),
                "group": int(chosen.group[number]),
                **answers[number],
                "warning": printable_line(warnings[number]) if number in warnings else None,
                "verdict": None if verdicts is None else _verdict_text(verdicts[number]),
                "explanation": explained[number],
                "joint": names.add(forest[number].label) if joined else None,
                **trees[number],
            }
            for number in range(len(chosen))
        ],
        **table,
        "labels": names.entries(),
        "encodings": {"width": encodings.shape[1], "each": recording.encodings.shape[1], "places": places},
        "projection": projection(encodings),
    }


def _explained(explanation: Explanation | TreememError, called: Mapping[Any, str]) -> dict[str, Any]:
    """Return an explanation as a page shows it, or why there is none."""
    if isinstance(explanation, TreememError):
        return {"problem": printable_line(str(explanation))}
    forest, rank = explanation.forest, np.argsort(explanation.ranking()) + 1
    return {
        "method": explanation.method.replace("_", " "),
        "answer": printable_line(str(called.get(explanation.answer, explanation.answer))),
        "value": shown(explanation.value),
        "trees": [
            {
                "score": [shown(score) for score in explanation.score[begin:end].tolist()],
                "subtree": [shown(part) for part in explanation.subtree[begin:end].tolist()],
                "rank": rank[begin:end].tolist(),
            }
            for begin, end in itertools.pairwise(forest.begin.tolist())
        ],
    }


def _checked_examples(
    task: Task, forest: Forest, labels: ArrayLike | None, ids: Sequence[object] | None, most: int
) -> Examples:
    """Return the examples of a forest, with ``labels`` if they are given."""
    if not len(forest):
        raise RecipeError("there are no examples; give at least one")
    data = task.examples_to_predict(forest)
    if len(data) > checked_count("most", most):
        raise RecipeError(f"{len(data)} examples are more than {most}; choose some of them, or set most={len(data)}")
    if ids is not None and len(ids) != len(data):
        raise RecipeError(f"{len(ids)} ids for {len(data)} examples; give one for each")
    if labels is None:
        return data
    given = np.asarray(labels)
    if given.shape != (len(data),):
        raise RecipeError(f"labels have the shape {list(given.shape)}; give one for each of {len(data)} examples")
    label = np.repeat(given, len(forest) // len(data))
    return task.examples_to_predict(forest.with_data(tree_data={**forest.tree_data, "label": label}))


def _texts(task: Task, forest: Forest, examples: Examples) -> list[str]:
    """Return the text of each example: infix for equations, tokens for anything else."""
    written: list[str] = []
    if len(forest) == len(examples):
        for tree in forest if forest.labels and EQUALITY in forest.labels else ():
            try:
                written.append(format_equation(tree))
            except TreememError:
                break
        if len(written) == len(examples):
            return written
    words = [" ".join(words) for words in examples.forest.tokens(task.token_form).strings()]
    per_example = examples.trees_per_example
    return ["\t".join(words[first : first + per_example]) for first in range(0, len(words), per_example)]


def _answers(model: Model, data: Examples, kept: Any) -> list[dict[str, Any]]:
    """Return the answer to each example at the threshold of the model, and whether it is correct."""
    task, threshold = model.task, model.threshold
    decided = kept if threshold is None else task.at_threshold(kept, threshold, temperature=model.temperature)
    correct = task.correct(decided, data.targets)
    if isinstance(task, ClassificationTask):
        probabilities, shifted = (model.probabilities(outputs, data.targets) for outputs in (kept, decided))
        answers = _class_answers(probabilities, shifted, task.class_names, data.targets["label"].tolist())
    else:
        labels = task.known_answers(data) or [None] * len(data)
        answers = [_other_answer(*parts, label) for parts, label in zip(model.answers(kept, data), labels, strict=True)]
    for number, answer in enumerate(answers):
        output, is_number = kept[number], answer["prediction"] != _NOT_A_NUMBER
        is_known = correct is not None and data.labelled[number]
        answer["correct"] = correct is not None and bool(correct[number]) and is_number if is_known else None
        numbers = output.double().flatten().tolist() if isinstance(output, Tensor) else []
        answer["outputs"] = [shown(value) for value in numbers]
    return answers


def _class_answers(
    probabilities: NDArray[np.float64],
    shifted: NDArray[np.float64],
    class_names: Sequence[str] | None,
    labels: list[int],
) -> list[dict[str, Any]]:
    """Return the class that each example is given, its probability and the label.

    Args:
        probabilities: of the examples.
        shifted: probabilities of which the largest one decides, as the threshold of the model has it.
        class_names: of a task with names.
        labels: numbers of classes; negative ones are unknown.
    """
    is_binary = probabilities.ndim == 1
    rows, deciding = (np.stack([1 - chance, chance], 1) if is_binary else chance for chance in (probabilities, shifted))
    names = ("false", "true") if is_binary else class_names or range(rows.shape[1])
    called = [printable_line(str(name)) for name in names]
    answers = []
    for row, answer, label in zip(rows, deciding.argmax(1).tolist(), labels, strict=True):
        is_number = not np.isnan(row).any()
        answers.append(
            {
                "prediction": called[answer] if is_number else _NOT_A_NUMBER,
                "probability": shown(float(row[answer]) if is_number else float("nan")),
                "classes": [] if is_binary else [shown(value) for value in row.tolist()],
                "label": called[label] if label >= 0 else None,
            }
        )
    return answers


def _verdict_text(verdict: Verdict) -> str:
    return f"{verdict.verdict}, at {verdict.point}" if verdict.point else verdict.verdict


def _other_answer(prediction: Any, probability: float | None, label: Any) -> dict[str, Any]:
    """Return an answer of a task that is not a classification."""
    return {
        "prediction": _NOT_A_NUMBER if prediction is None else _predicted_text(prediction),
        "probability": None if probability is None else shown(probability),
        "classes": [],
        "label": None if label is None else _answer_text(label),
    }


def _predicted_text(answer: Any) -> str:
    """Return a prediction as text; a number has six significant digits."""
    parts = answer if isinstance(answer, (list, tuple)) else [answer]
    return _answer_text([f"{part:.6g}" if isinstance(part, float) else part for part in parts])


def _answer_text(answer: Any) -> str:
    parts = ["?" if part is None else part for part in answer] if isinstance(answer, (list, tuple)) else [answer]
    return printable_line(" ".join(map(str, parts)) or "(none)")


def _trees(examples: Examples, recording: Recording, row_of_item: list[int], names: LabelTable) -> list[dict[str, Any]]:
    """Return the trees and sequences of each example, with the rows of their items."""
    forest, per_example = examples.forest, examples.trees_per_example
    label = names.of_forest(forest)
    arity = forest.arity.tolist()
    begin = forest.begin.tolist()
    entries: list[dict[str, Any]] = []
    first_token = 0
    for number in range(len(examples)):
        trees = []
        for tree in range(number * per_example, (number + 1) * per_example):
            nodes = slice(begin[tree], begin[tree + 1])
            trees.append({"label": label[nodes], "arity": arity[nodes]})
            if recording.items == "nodes":
                trees[-1]["row"] = row_of_item[nodes]
        sequences = []
        for read in recording.sequences[number] if recording.sequences else ():
            tokens = slice(first_token, first_token + len(read.words))
            sequences.append(_sequence(read, row_of_item[tokens], names))
            first_token = tokens.stop
        entries.append({"trees": trees, "sequences": sequences})
    return entries


def _sequence(read: ReadSequence, rows: list[int], names: LabelTable) -> dict[str, Any]:
    return {
        "token": [names.add(word) for word in read.words],
        "row": rows,
        "node": read.node,
        "induced": None if read.induced is None else [node.arity for node in read.induced.postorder()],
        "f1": None if read.f1 is None else f"{100 * read.f1:.1f}",
        "attention": None if read.attention is None else _attention(read.attention, read.mark, names),
        "tooLong": read.too_long,
    }


def _attention(weights: NDArray[np.float64], mark: str, names: LabelTable) -> dict[str, Any]:
    """Return attention weights. ``numbers`` are packed layer by layer, row by row."""
    return {
        "layers": weights.shape[0],
        "positions": weights.shape[1],
        "mark": names.add(mark) if mark else None,
        "most": shown(float(weights.max())),
        "numbers": packed(coded(weights)),
    }

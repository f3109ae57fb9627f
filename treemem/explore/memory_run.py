"""A run of an Ordered Memory, step by step: the attended slot of each token, and what the slots hold.

As figure 1 of Shen et al. 2019. ``python -m treemem.explore.memory_run MODEL TEXT`` prints the table of a trained one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from treemem.errors import RecipeError, TreememError, for_commands
from treemem.explore.memory_steps import table_of_record
from treemem.trees.induced import tree_from_pointer_probabilities

if TYPE_CHECKING:
    from treemem.model import Model

_DIGITS = 4


def memory_run_record(model: Model, text: str) -> dict[str, Any]:
    """Return what a trained Ordered Memory does on a text, to record it.

    Returns:
        ``text``; ``tokens``; ``probabilities``, ``[tokens, slots]``, the pointers ``p``; ``predicted``, the likeliest
        class; ``tree``, the induced one, in brackets.

    Raises:
        RecipeError: the model is no Ordered Memory that classifies single sequences.
        TreememError: the text cannot be read.
    """
    from treemem.networks.parsers.ordered_memory.layer import OrderedMemory
    from treemem.schedule.tree_batch import TreeBatch

    encoder, task = model.encoder, model.task
    names = getattr(task, "class_names", ())
    if not isinstance(encoder, OrderedMemory) or not names or encoder.backward_memory is not None:
        raise RecipeError("this shows runs of an Ordered Memory that classifies sequences; give a model of this kind")
    batch = TreeBatch.from_trees([task.parse(text)], model.vocabulary)
    model.eval()
    with torch.no_grad():
        states = encoder(batch, trace=True)
        predicted = int(model.head(states.root).reshape(-1, len(names)).argmax(-1)[0])
    table = np.round(states.trace["pointers"][0].double().numpy(), _DIGITS)
    words = [leaf.label for leaf in encoder.induced_trees(batch)[0].leaves()]
    return {
        "text": text,
        "tokens": words,
        "probabilities": table.tolist(),
        "predicted": names[predicted],
        "tree": str(tree_from_pointer_probabilities(table, words)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a run and, if asked, draw and record it. Return 2 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m treemem.explore.memory_run", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="folder of a run or checkpoint of an Ordered Memory")
    parser.add_argument("text", metavar="TEXT", help="what it reads, such as '[MAX 2 9 [MIN 4 7 ] 0 ]'")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the run, as PNG or SVG")
    parser.add_argument(
        "--record", metavar="FILE", type=Path, help="write the run to a JSONL file, in place of another"
    )
    options = parser.parse_args(arguments)
    from treemem.checkpoint import load
    from treemem.explore.plots import plot_memory_run
    from treemem.model_digest import weights_digest
    from treemem.records import write_records

    try:
        model = load(options.model)
        record = memory_run_record(model, options.text)
        print(table_of_record(record))
        print(f"\npredicted: {record['predicted']}; induced tree: {record['tree']}")
        if options.plot is not None:
            plot_memory_run(record, options.plot)
        if options.record is not None:
            size = sum(parameter.numel() for parameter in model.parameters())
            full_record = {**record, "parameters": size, "weights": weights_digest(model)}
            write_records(options.record, [full_record], overwrite=True)
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

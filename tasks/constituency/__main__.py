"""Score the trees that a model induces over sentences against gold trees: by layer if there are layers."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence

from treemem.checked_options import checked_count
from treemem.checkpoint import load
from treemem.errors import TreememError, for_commands
from treemem.explore import markdown_table
from treemem.native.threads import torch_threads
from treemem.records import check_writable, write_records
from treemem.tasks.constituency.evaluation import TreeScore, evaluate_trees
from treemem.tasks.constituency.gold import gold_trees

_LABELS_SHOWN = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of scores; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder of a run or checkpoint of a model that reads words")
    add("--gold", metavar="SOURCE", help="trees: .mrg, .txt, or records; default: the model's own test")
    add("--longest", type=int, metavar="N", help="leave out sentences of more than N words; 10 for WSJ10")
    add("--gate", choices=("forget", "input"), default="forget", help="whose distances (%(default)s)")
    add("--seed", type=int, default=0, help="of the random trees (%(default)s)")
    add("--output", metavar="FILE", help="write the scores to FILE, as JSONL")
    add("--overwrite", action="store_true", help="replace FILE if it exists")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        checked_count("--seed", options.seed, least=0)
        if options.longest is not None:
            checked_count("--longest", options.longest)
        if options.output is not None:
            check_writable(options.output, overwrite=options.overwrite)
        with torch_threads(1):
            gold = gold_trees(options.gold, options.model, longest=options.longest)
            scores = evaluate_trees(load(options.model), gold, gate=options.gate, seed=options.seed)
        print(score_table(scores))
        if options.output is not None:
            write_records(options.output, map(dataclasses.asdict, scores), format="jsonl", overwrite=options.overwrite)
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


def score_table(scores: Sequence[TreeScore]) -> str:
    """Return scores as a Markdown table: F1 and recall of the most frequent labels in percent."""
    labels = list(scores[0].recall)[:_LABELS_SHOWN]
    rows = [["trees", "sentence F1", "corpus F1", "depth", *labels]]
    for score in scores:
        f1 = [f"{100 * value:.1f}" for value in (score.sentence_f1, score.corpus_f1)]
        recall = [f"{100 * score.recall[label]:.1f}" for label in labels]
        rows.append([score.trees, *f1, f"{score.depth:.1f}", *recall])
    return f"{scores[0].sentences} sentences\n\n{markdown_table(rows)}"


if __name__ == "__main__":
    sys.exit(main())

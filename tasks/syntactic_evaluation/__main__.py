"""Score a language model on minimal pairs, by construction."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from treemem.checked_options import checked_count
from treemem.checkpoint import load
from treemem.errors import TreememError, for_commands
from treemem.explore import markdown_table
from treemem.model import Model
from treemem.native.threads import torch_threads
from treemem.progress_bar import progress_bar
from treemem.records import check_writable, write_records
from treemem.tasks.language_modeling.generation.english import MinimalPair
from treemem.tasks.syntactic_evaluation.generation.templates import template_pairs
from treemem.tasks.syntactic_evaluation.published import PUBLISHED
from treemem.tasks.syntactic_evaluation.readers import read_pairs
from treemem.tasks.syntactic_evaluation.scoring import ConstructionScore, pairs_of_grammar, score_pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of accuracies; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder of a run or checkpoint of a language model")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--pairs", metavar="SOURCE", help="a file or folder of minimal pairs; default: pairs of the model's grammar"
    )
    source.add_argument("--templates", action="store_true", help="the pairs of Marvin & Linzen 2018")
    add("--count", type=int, default=200, help="pairs of each construction of the grammar (%(default)s)")
    add("--seed", type=int, default=0, help="of these pairs (%(default)s)")
    add(
        "--published", action="store_true", help="as published: lower case, '.' after each sentence, no end of sentence"
    )
    add("--output", metavar="FILE", help="write the scores to FILE, as JSONL")
    add("--overwrite", action="store_true", help="replace FILE if it exists")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        checked_count("--count", options.count)
        checked_count("--seed", options.seed, least=0)
        if options.output is not None:
            check_writable(options.output, overwrite=options.overwrite)
        with torch_threads(1):
            model = load(options.model)
            pairs = _pairs(options, model)
            with progress_bar(2 * len(pairs), "scoring", None) as bar:
                scores = score_pairs(model, pairs, end=not options.published, advance=bar.update)
        print(score_table(scores, published=options.published))
        if options.output is not None:
            write_records(
                options.output, (score._asdict() for score in scores), format="jsonl", overwrite=options.overwrite
            )
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


def _pairs(options: argparse.Namespace, model: Model) -> list[MinimalPair]:
    if options.pairs is not None:
        return read_pairs(options.pairs, model.vocabulary, stop=options.published)
    if options.templates:
        return template_pairs(stop=options.published)
    return pairs_of_grammar(model, options.count, options.seed)


def score_table(scores: Sequence[ConstructionScore], *, published: bool) -> str:
    """Return scores as a Markdown table, with the published accuracies beside them if asked for; in percent."""
    has_unknown = scores[-1].known_pairs < scores[-1].pairs
    of_known = ["pairs of known words", "their accuracy"] if has_unknown else []
    rows = [["construction", "pairs", "accuracy", *of_known, *(["ON-LSTM", "LSTM"] if published else [])]]
    for score in scores:
        row = [score.construction, str(score.pairs), f"{100 * score.accuracy:.1f}"]
        if has_unknown:
            accuracy = "" if score.known_accuracy is None else f"{100 * score.known_accuracy:.1f}"
            row += [str(score.known_pairs), accuracy]
        if published:
            figure = PUBLISHED.get(score.construction)
            row += ["", ""] if figure is None else [f"{100 * value:.0f}" for value in figure]
        rows.append(row)
    return markdown_table(rows)


if __name__ == "__main__":
    sys.exit(main())

"""The best fillings of a blank, for equations as people write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from treemem.checked_options import checked_count
from treemem.errors import ParseError
from treemem.model import Model
from treemem.tasks.equation_verification.completion.blanks import Blanks
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_verification.completion.completion import Engine, filling_scores
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.parser import parse_equation
from treemem.trees.formats.equations.tokens import describe_token, read_tokens
from treemem.trees.tree import Tree

BLANK = "?"
_ENDS_OPERAND, _BEGINS_OPERAND = ("number", "name", ")", "strange"), ("number", "name", "(", "strange")


@dataclass(frozen=True)
class Filling:
    """A filling of a blank.

    Attributes:
        text: the expression, with the published names of variables: x, y, z, w, v4.
        score: the score ``z`` of the filled equation.
        probability: probability that the filled equation is true, ``sigmoid(z)``.
        tree: the expression.
    """

    text: str
    score: float
    probability: float
    tree: Tree


def fill(
    model: Model, text: str, *, top: int = 10, collapse: bool = False, candidates: Candidates | None = None
) -> list[Filling]:
    """Return the best fillings of the blank of an equation, the best first.

    Args:
        model: a trained network of equation verification.
        text: an equation with ``?`` in place of an operand. Variables have the published names x, y, z, w, v4, v5, ...,
            as in candidates.
        top: how many to return. There may be fewer: of candidates that networks read alike, only the first counts.
        collapse: whether to return only the best filling of each value class, not ``1``, ``1*1``, ...
        candidates: the published ones by default.

    Raises:
        ParseError: the text has not exactly one ``?``, or is not an equation.
        VocabularyError: the model does not know a label.
        RecipeError: the model is of another task, or ``top`` is not an integer from 1.
        CellError: a score is not a number.

    Example:
        >>> from treemem.model import Model
        >>> from treemem.tasks.equation_verification import EquationVerification
        >>> model = Model(EquationVerification(), EquationVerification.networks["Tree-LSTM"])
        >>> len(fill(model, "sin(x)^2 + ? = 1", top=3))
        3
    """
    equation, node = parse_blanked(text)
    forest = Forest.from_trees([equation])
    blanks = Blanks(np.zeros(1, np.int64), np.array([node]), np.array([-1]))
    return best_fillings(model, forest, blanks, top=top, collapse=collapse, candidates=candidates)[0]


def best_fillings(
    model: Model,
    equations: Forest,
    blanks: Blanks,
    *,
    top: int = 10,
    collapse: bool = False,
    candidates: Candidates | None = None,
    engine: Engine = "auto",
) -> list[list[Filling]]:
    """Return the best fillings of each of many blanks; arguments and errors are those of :func:`fill`."""
    checked_count("top", top)
    candidates = candidates or make_candidates()
    same = candidates.value_class if collapse else candidates.reading
    fillings = []
    for batch in filling_scores(model, equations, blanks, candidates, engine=engine):
        for scores in batch:
            order = np.argsort(-scores, kind="stable")
            _, first = np.unique(same[order], return_index=True)
            best = order[np.sort(first)[:top]]
            fillings.append([_filling(candidates, candidate, float(scores[candidate])) for candidate in best.tolist()])
    return fillings


def _filling(candidates: Candidates, candidate: int, score: float) -> Filling:
    probability = 1 / (1 + math.exp(-score)) if score > 0 else math.exp(score) / (1 + math.exp(score))
    return Filling(candidates.text(candidate), score, probability, candidates.unified[candidate])


def parse_blanked(text: str) -> tuple[Tree, int]:
    """Return an equation with one ``?`` as a tree with 0 in its place, and this place in post-order.

    Raises:
        ParseError: the text has not exactly one ``?``, or is not an equation.
    """
    tokens = read_tokens(text)
    offsets = [token.offset for token in tokens if token.text == BLANK]
    if not offsets:
        raise ParseError(f"there is no {BLANK!r}", text, len(text), f"one {BLANK!r} where the blank is")
    if len(offsets) > 1:
        raise ParseError(f"a second {BLANK!r}", text, offsets[1], "one blank in an equation")
    for before, token in pairwise(tokens):
        beside_blank = BLANK in (before.text, token.text)
        if beside_blank and before.sort in _ENDS_OPERAND and token.sort in _BEGINS_OPERAND:
            problem = f"unexpected {describe_token(token)} right after {describe_token(before)}"
            raise ParseError(problem, text, token.offset, "an operator, such as '*'")
    try:
        marked = parse_equation(text.replace(BLANK, "x"), variables="indexed")  # the same columns as the text
    except ParseError as error:
        raise ParseError(error.problem, text, error.offset, error.expected) from error
    tree = parse_equation(text.replace(BLANK, "(0)"), variables="indexed")
    pairs = enumerate(zip(tree.postorder(), marked.postorder(), strict=True))
    return tree, next(number for number, (node, other) in pairs if node.label != other.label)

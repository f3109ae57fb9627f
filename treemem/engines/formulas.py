"""What the nodes of a cell compute, by arity: printed formulas and the weights of their products."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from treemem.engines.cell import leaf_products
from treemem.engines.printer.compiled_formula import PrintedCell, cached_formula, formula_key, print_split
from treemem.engines.printer.cut import Map, cut_cell
from treemem.engines.printer.symbolic import StepError


class Formula(NamedTuple):
    """What rows of an arity compute.

    Attributes:
        printed: in C++.
        weights: for each product, key of its weights, and the set of them that each kind uses; see
            :class:`treemem.engines.cell.Product`.
    """

    printed: PrintedCell
    weights: list[tuple[str, Mapping[int, int] | None]]


Weights = dict[str, tuple[torch.Tensor, torch.Tensor]]
Widths = tuple[int | None, int | None]


def split_formulas(
    cell: Any, kinds: Mapping[int, Sequence[int]], states: Mapping[str, tuple[int, ...]], features: Widths
) -> tuple[dict[int, Formula], Weights]:
    """The formulas of a cell in the split form by arity, in ascending order, and its weights by key."""
    weights = {key: pair for key, pair in cell.weights().items() if pair[0].dim() == 3}
    key: Hashable = cell.formula_key() if callable(getattr(cell, "formula_key", None)) else formula_key(cell)
    formulas = {}
    for arity in kinds:
        products, width = cell.products(arity) if arity else leaf_products(cell), features[arity > 0]
        widths = {product.name: weights[product.weights][0].shape[1] for product in products}
        full_key = (key, arity, tuple(widths.items()), tuple(states.items()), width)
        printed_cell = cached_formula(full_key, lambda: print_split(cell, arity, products, widths, states, width))  # noqa: B023
        formulas[arity] = Formula(printed_cell, [(product.weights, product.set_of_kind) for product in products])
    return formulas, weights


def cut_formulas(
    cell: Any, kinds: Mapping[int, Sequence[int]], states: Mapping[str, tuple[int, ...]], features: Widths
) -> tuple[dict[int, Formula], Weights]:
    """The same of a user's cell, cut at its products."""
    key, formulas = formula_key(cell), {}
    weights: Weights = {}
    for arity, kinds_of_arity in kinds.items():
        cuts = {kind: cut_cell(cell, key, arity, kind, states, features[1]) for kind in kinds_of_arity}
        first = cuts[kinds_of_arity[0]].printed
        if any(cut.printed != first for cut in cuts.values()):
            raise StepError(f"its kinds of {arity} children have different formulas")
        formulas[arity] = Formula(first, [])
        for at in range(len(first.products)):
            sets = list(dict.fromkeys(cut.maps[at] for cut in cuts.values()))
            set_of_kind = {kind: sets.index(cut.maps[at]) for kind, cut in cuts.items()}
            name = f"{arity} {at}"
            formulas[arity].weights.append((name, set_of_kind if len(sets) > 1 else None))
            maps = [_map(cell, one_set) for one_set in sets]
            weights[name] = torch.stack([pair[0] for pair in maps]), torch.stack([pair[1] for pair in maps])
    return formulas, weights


def _map(cell: torch.nn.Module, maps: Sequence[Map]) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight ``[outputs, inputs]`` and bias ``[outputs]`` of maps side by side."""
    weights = [linear_map.weight.of(cell) for linear_map in maps]
    biases = [
        weight.new_zeros(len(weight)) if linear_map.bias is None else linear_map.bias.of(cell)
        for linear_map, weight in zip(maps, weights, strict=True)
    ]
    return torch.cat(weights), torch.cat(biases)

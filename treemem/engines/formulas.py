"""What the nodes of a cell compute, by arity: printed formulas and the weights of their products."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from treemem.engines.cell import Cell, Features, GivenRows, LabelVectors, cell_name, leaf_products
from treemem.engines.level_library import NotNative
from treemem.engines.printer.compiled_formula import PrintedCell, cached_formula, formula_key, print_split
from treemem.engines.printer.cut import Map, cut_cell
from treemem.engines.printer.symbolic import StepError
from treemem.schedule.schedule import GIVEN, Schedule

_logger = logging.getLogger(__name__)
_reported: set[str] = set()


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


def printable_module(cell: Cell) -> torch.nn.Module:
    """Return the module whose formula runs over the rows that are not given.

    Raises:
        NotNative: it is no module, or has forward hooks.
    """
    module = cell.cell if isinstance(cell, GivenRows) else cell
    if not isinstance(module, torch.nn.Module):
        raise NotNative(f"{cell_name(cell)} is not an nn.Module")
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        raise NotNative(f"{cell_name(cell)} has forward hooks, which would not fire")
    return module


def kinds_by_arity(schedule: Schedule, with_leaves: bool = False) -> dict[int, list[int]]:
    """Return the kinds of the inner rows by arity, and of leaves that are not given; both in ascending order."""
    segments = [part for level in schedule.levels for part in level.segments]
    pairs = sorted({(part.arity, part.kind) for part in segments if part.arity or (with_leaves and part.kind != GIVEN)})
    return {arity: [kind for of_arity, kind in pairs if of_arity == arity] for arity, _ in pairs}


def width_of(features: Features) -> int | None:
    """Return the width of the features of a row."""
    if isinstance(features, LabelVectors):
        return features.width
    return None if features is None else features.shape[1]


def not_printed(cell: Any, error: StepError) -> NotNative:
    """Return why a cell's formula does not run as a kernel; it is logged once."""
    reason = f"{cell_name(cell)} cannot be printed: {error}"
    if reason not in _reported:
        _logger.info("%s; its trees run under autograd", reason)
        _reported.add(reason)
    return NotNative(reason)


def printed_formulas(
    cell: Any, kinds: Mapping[int, Sequence[int]], states: Mapping[str, tuple[int, ...]], features: Widths
) -> tuple[dict[int, Formula], Weights]:
    """Return the formulas of a cell by arity, in ascending order, and its weights by key.

    Args:
        cell: the cell.
        kinds: by arity.
        states: shape of each state of a row.
        features: widths of what leaves and inner rows read; None if nothing.

    Raises:
        NotNative: the cell cannot be printed.
    """
    make = split_formulas if callable(getattr(cell, "step", None)) else cut_formulas
    try:
        return make(cell, kinds, states, features)
    except StepError as error:
        raise not_printed(cell, error) from None


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

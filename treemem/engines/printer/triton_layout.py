"""What a Triton kernel of a cell finds where: fields of its tables, and parts of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from treemem.engines.printer.compiled_formula import PrintedCell
from treemem.engines.printer.program import Place

WIDEST = 1024
"""Width of a vector up to which a kernel takes it as a whole."""
_WIDEST_FUSED = 256  # bytes of a vector
_MOST_PRODUCTS = 12  # of vectors and blocks of weights, in the formula of a node
_LARGEST = 2048  # numbers of a block of vectors, in float32

ROW_FIELDS = ("arity", "row", "count", "edge", "most", "feature", "factor")
"""What the table of tiles says of each: number of children, the first row, how many rows, the first edge, the most
parents of a row, and where the rows' features and factors of dropouts begin."""
PRODUCT_FIELDS = ("product", "input", "weight", "bias")
"""And of each product: where the rows' results and inputs begin, and the weight and bias of their kind."""

COMMON = ("first", "tiles", "child", "weights", "learned", "factors", "features", "products")
BACKWARD = ("parent_begin", "parent_edge", "d_products", "d_inputs", "d_learned", "d_features", "d_edges")


class Part(NamedTuple):
    """A vector or a number of a row: its place, and how many numbers come before it."""

    place: Place
    offset: int


class Rows(NamedTuple):
    """Rows that a node has of a product's inputs or results.

    Attributes:
        width: of a row.
        parts: of each row.
    """

    width: int
    parts: list[list[Part]]

    @classmethod
    def of(cls, base: str, copies: int, sizes: Sequence[int], D: int) -> Rows:
        """``copies`` rows of vectors and numbers of these sizes."""
        parts: list[list[Part]] = []
        vectors = numbers = 0
        for _ in range(copies):
            offset, row = 0, []
            for size in sizes:
                row.append(Part(Place(base, vectors, numbers, size == D), offset))
                vectors, numbers, offset = vectors + (size == D), numbers + (size != D), offset + size
            parts.append(row)
        return cls(sum(sizes), parts)

    @property
    def numbers(self) -> int:
        """How many numbers a node has."""
        return self.width * len(self.parts)


def num_learned(cell: PrintedCell) -> int:
    """Return how many numbers a formula reads beside the weights of its products."""
    return sum(int(np.prod(shape)) for shape in cell.step.shape.learned)


def num_fields(formulas: Mapping[int, PrintedCell]) -> int:
    """Return how many numbers the table of tiles has for each."""
    most = max((len(cell.products) for cell in formulas.values()), default=0)
    return len(ROW_FIELDS) + most * len(PRODUCT_FIELDS)


class Tiling(NamedTuple):
    """How a program takes a tile, so that its values fit into registers.

    Attributes:
        rows: of a tile; tensor cores multiply 16.
        fused: whether what it multiplies, the results, and blocks of weights are in registers too; else they go through
            memory.
    """

    rows: int
    fused: bool


def tiling_of(formulas: Mapping[int, PrintedCell], D: int, itemsize: int) -> Tiling:
    """Return how programs take tiles of rows with vectors of ``D`` numbers of ``itemsize`` bytes."""
    block = block_of(D)
    has_few = all(len(cell.products) <= 1 and _num_products(cell, D) <= _MOST_PRODUCTS for cell in formulas.values())
    rows = _LARGEST // (itemsize // 4) ** 3 // block  # float64 more than doubles the registers
    return Tiling(min(16, rows) or 1, has_few and block * itemsize <= _WIDEST_FUSED)


def _num_products(cell: PrintedCell, D: int) -> int:
    """How many products of vectors and blocks of weights a formula has."""
    return sum(
        copies * results.count(D) * gather.shape.inputs[1].count(D)
        for (copies, results), gather in zip(cell.step.shape.products.values(), cell.gathers, strict=True)
        if gather.shape.inputs
    )


def block_of(D: int) -> int:
    """The width of a block of vectors, a power of 2."""
    return max(16, power_of_2(D))


def power_of_2(size: int) -> int:
    """Return the least power of 2 that is not less, as which Triton counts the numbers of a block."""
    return 1 << max(0, size - 1).bit_length()


def place_in(row: str, part: Part) -> str:
    """The pointer to a part of a row."""
    pointer = f"{row} + {part.offset}" if part.offset else row
    return f"{pointer} + d" if part.place.is_vector else pointer


def owners_of(place: Place) -> str:
    """The mask of the rows, and the positions, that a place has."""
    return "there" if place.is_vector else "rows"


def kept_place(place: Place) -> Place:
    return place._replace(base=f"kept_{place.base}")


def name_of(place: Place) -> str:
    return f"{place.base}_{place.vectors}_{place.numbers}"

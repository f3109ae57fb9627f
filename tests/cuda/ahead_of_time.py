"""Compiles kernels for GPUs without one, and reads what the assembler says of them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from typing import Any, NamedTuple

import torch
import triton
from cuda.recorded_kernels import RUNS, launches_of
from tree_strategies import VOCABULARY
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from treemem.engines.cuda import kernels as plain_kernels
from treemem.engines.cuda.launcher import COMPILER_OPTIONS, printed_kernels
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.cuda.run import WIDE_OPTIONS
from treemem.engines.formulas import kinds_by_arity, printed_formulas
from treemem.engines.printer.triton import triton_source
from treemem.engines.printer.triton_layout import tiling_of
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.memories.controllers.equations import STEPS
from treemem.networks.parsers.beam_tree import cuda as beams
from treemem.networks.parsers.beam_tree import kernels as beam_steps
from treemem.networks.parsers.crvnn import cuda as crvnn
from treemem.networks.parsers.crvnn import kernels as crvnn_steps
from treemem.networks.parsers.gumbel_tree_lstm import cuda as gumbel
from treemem.networks.parsers.gumbel_tree_lstm import kernels as gumbel_steps
from treemem.networks.parsers.on_lstm import cuda as on_lstm
from treemem.networks.parsers.on_lstm import kernels as on_lstm_steps
from treemem.networks.parsers.ordered_memory import cuda as ordered_memory
from treemem.networks.parsers.ordered_memory import kernels as ordered_memory_steps
from treemem.networks.parsers.ordered_memory.equations import LayerNormScoreWeights, PlainCellWeights
from treemem.networks.parsers.prpn import cuda as prpn
from treemem.networks.parsers.prpn import kernels as prpn_steps
from treemem.networks.parsers.spinn import cuda as spinn
from treemem.networks.parsers.spinn import kernels as spinn_steps
from treemem.nn import ChildSumTreeLSTM, CRvNN, StackTreeLSTM, StackTreeRNN, TreeCell, TreeLayer, TreeLSTM, TreeRNN
from treemem.schedule.tree_batch import TreeBatch

INTEGERS = {"tiles", "child", "parent_begin", "parent_edge", "jobs", "begins", "members"}
INTEGERS |= {"lengths", "nodes", "nodes_after", "pairs", "pairs_after", "children", "places", "chosen"}
INTEGERS |= {"groups", "parents", "lineage", "lineage_after", "origins", "origins_after"}
INTEGERS |= {"last_nodes", "last_lineage", "last_origins"}
INTEGERS |= {"given", "actions", "tops", "made_of", "stack", "last"}
"""Arguments of kernels that are int64 in memory."""
NUMBERS = {"first", "width", "row_width", "first_column", "num_rows", "going_on"}
NUMBERS |= {"size", "token", "held", "pair", "slot", "front"}  # of the Ordered Memory
NUMBERS |= {"step", "num_leaves", "longest", "beams", "picks", "new_beams", "first_group", "next_group", "first_node"}
NUMBERS |= {"first_pair"}
NUMBERS |= {"now", "then", "kept", "sequences"}

ROW_STEPS = {"LSTM step": STEPS["LSTM"].printed, "gated step": gated_of_two}
"""Steps of rows, pointwise and over whole vectors."""


class Resources(NamedTuple):
    """What a kernel takes: registers of a thread, bytes that it spills to memory, bytes of shared memory."""

    registers: int
    spilled: int
    shared: int


def compiled(kernel: Any, dtype: str, arch: int, options: dict[str, Any], **constants: Any) -> Resources:
    """Compile a kernel for ``sm_{arch}``; ``dtype`` is ``"fp32"`` or ``"fp64"``."""
    names = kernel.arg_names
    constant = {name: constants[name] for name in names if name in constants}
    types = {name: "*i64" if name in INTEGERS else "i32" if _is_number(name) else f"*{dtype}" for name in names}
    signature = {name: "constexpr" if name in constant else types[name] for name in names}
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]] for name, kind in signature.items() if kind.startswith("*")
    }
    return assembled(ASTSource(kernel, signature, constant, aligned), arch, options)


def assembled(source: ASTSource, arch: int, options: dict[str, Any]) -> Resources:
    """Compile a kernel for ``sm_{arch}``, with some options beside those of all kernels."""
    said = io.StringIO()
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope(), contextlib.redirect_stdout(said):
        triton.knobs.nvidia.dump_ptxas_log = triton.knobs.compilation.always_compile = True
        made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=COMPILER_OPTIONS | options)
    registers = re.findall(r"Used (\d+) registers", said.getvalue())
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", said.getvalue())
    return Resources(max(map(int, registers)), sum(map(int, spilled)), made.metadata.shared)


def _is_number(name: str) -> bool:
    return name in NUMBERS or name.endswith(("_stride", "_row")) or name.startswith("before_")


def layers(hidden_size: int) -> dict[str, TreeLayer]:
    """A layer of each kind."""
    return {
        "Tree-RNN": TreeRNN(hidden_size, VOCABULARY),
        "Tree-LSTM": TreeLSTM(hidden_size, VOCABULARY),
        "Child-Sum Tree-LSTM": ChildSumTreeLSTM(hidden_size, VOCABULARY),
        "TreeCell": TreeCell(hidden_size, VOCABULARY),
        "Tree-RNN+stack": StackTreeRNN(hidden_size, VOCABULARY, stack_size=3),
        "Tree-LSTM+stack": StackTreeLSTM(hidden_size, VOCABULARY, stack_size=5, normalize=True, no_op=True),
    }


def kernels_of(layer: TreeLayer, itemsize: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The kernels of a layer over nodes of one and two children, and the options of the compiler."""
    batch = TreeBatch.from_trees(["(add (g x) y)"], VOCABULARY)
    states = {name: tuple(value.shape[1:]) for name, value in layer(batch).rows.items()}
    width = layer.cell.node_input_size  # type: ignore[union-attr]
    formulas, _ = printed_formulas(layer.cell, kinds_by_arity(batch.schedule), states, (None, width))  # type: ignore[arg-type]
    printed = {arity: formula.printed for arity, formula in formulas.items()}
    widths, size = [torch.Size(shape).numel() for shape in states.values()], layer.hidden_size
    tiling = tiling_of(printed, size, itemsize)
    module = printed_kernels(triton_source(printed, widths, size, tiling))
    return {name: module[name] for name in ("forward", "backward")}, {} if tiling.fused else WIDE_OPTIONS


Kernels = dict[str, tuple[Any, dict[str, Any]]]
"""Kernels by name, and the values of their constants."""


def on_lstm_kernels(hidden_size: int) -> Kernels:
    """The kernels of an ON-LSTM with 10 units in a chunk."""
    return {
        kernel.__name__: (kernel, on_lstm.constants(hidden_size, 10, kernel.__name__))
        for kernel in (on_lstm_steps.step, on_lstm_steps.step_backward)
    }


def gumbel_kernels(hidden_size: int) -> Kernels:
    """The kernels of a Gumbel Tree-LSTM over sequences of up to 64 tokens."""
    names = ("compose", "choose", "pair_gradients", "choice_backward", "add_to_children")
    return {
        name: (getattr(gumbel_steps, name), gumbel.constants(name, hidden_size, 64, torch.float32)) for name in names
    }


def ordered_memory_kernels(hidden_size: int) -> Kernels:
    """The kernels of an Ordered Memory with 21 slots and dropout, those of both cells."""
    score = ordered_memory.ROW_STEPS[LayerNormScoreWeights]
    kernels: Kernels = {}
    for name, step in (("attend", "step"), ("attend_backward", "step_backward")):
        constants = ordered_memory.attention_constants(score, step, hidden_size, 21, 0.0)
        kernels[name] = getattr(ordered_memory_steps, name), constants
    for name, step in (("compose", "step"), ("compose_backward", "step_backward")):
        for cell, unread in ((GatedCellWeights, ()), (PlainCellWeights, ("gain", "shift", "d_learned"))):
            constants = ordered_memory.slot_constants(ordered_memory.ROW_STEPS[cell], step, hidden_size, 21, 0.0)
            constants |= {"FRONT": False, **dict.fromkeys(unread)}
            kernels[f"{name} {cell.__name__}"] = getattr(ordered_memory_steps, name), constants
    return kernels


def beam_kernels(hidden_size: int) -> Kernels:
    """The kernels of EBT-GRC with five beams over sequences of up to 64 tokens."""
    choice = beams.choice_constants(hidden_size, 64, 5, True, torch.float32)
    composition = {**beams.composition_constants(hidden_size, 64), "weight": None, "bias": None}
    return {"choose": (beam_steps.choose, choice), "compose": (beam_steps.compose, composition)}


def crvnn_kernels(hidden_size: int) -> Kernels:
    """The kernels of a CRvNN with features over sequences of up to 30 tokens."""
    weights = CRvNN(hidden_size, VOCABULARY).weights()
    names = ("look", "advance", "advance_backward", "look_backward")
    return {
        name: (getattr(crvnn_steps, name), crvnn.constants(name, weights, 32, hidden_size, torch.float32))
        for name in names
    }


def prpn_kernels(hidden_size: int) -> Kernels:
    """The kernels of a PRPN with 15 slots."""
    kernels = prpn_steps.read, prpn_steps.read_backward
    return {kernel.__name__: (kernel, prpn.constants(kernel.__name__, hidden_size, 15)) for kernel in kernels}


def spinn_kernels(hidden_size: int) -> Kernels:
    """The kernels of a SPINN whose tracker is as wide as its nodes, and draws transitions."""
    kernels = spinn_steps.transitions, spinn_steps.transitions_backward
    constants = {kernel.__name__: spinn.constants(kernel.__name__, hidden_size, hidden_size) for kernel in kernels}
    constants["transitions"]["given"] = None
    return {kernel.__name__: (kernel, constants[kernel.__name__]) for kernel in kernels}


OWN = {
    "SPINN": spinn_kernels,
    "PRPN": prpn_kernels,
    "ON-LSTM": on_lstm_kernels,
    "Gumbel Tree-LSTM": gumbel_kernels,
    "EBT-GRC": beam_kernels,
    "Ordered Memory": ordered_memory_kernels,
    "CRvNN": crvnn_kernels,
}
"""Networks with kernels of their own, which depend on a width."""


def case_kernels(name: str, size: int, precision: str) -> Kernels:
    """The kernels of a layer, a step or a network; ``"plain"``: those that depend on none."""
    if name in OWN:
        return OWN[name](size)
    if name in ROW_STEPS:
        step = RowStep(ROW_STEPS[name])
        constants = {**step.constants(size), "mask": None, "mask_stride": 0}
        return {kernel: (step.kernels[kernel], constants) for kernel in ("forward", "backward")}
    if name == "plain":
        constants = {"COLUMNS": 32, "DEPTH": 32, "BLOCK": 64, "PRECISION": precision}
        names = ["weight_gradients", "segment_sums"]
        return {kernel: (getattr(plain_kernels, kernel), constants) for kernel in names}
    layer = layers(size)[name]
    unread = {"factors"} | ({"learned", "d_learned"} if name != "TreeCell" else set())
    reads_labels = layer.cell.reads_labels  # type: ignore[union-attr]
    unread |= set() if reads_labels else {"features", "d_features"}
    of_layer = {**dict.fromkeys(unread), "PRECISION": precision}
    kernels, options = kernels_of(layer, 8 if precision == "ieee" else 4)
    return {kernel: (function, {**of_layer, "OPTIONS": options}) for kernel, function in kernels.items()}


def main() -> None:
    """Print the resources of kernels as JSON; an argument is a name, a width, a type and an architecture."""
    found = {}
    for case in sys.argv[1:]:
        name, size, dtype, arch = case.split(":")
        if name in RUNS:
            for launch in launches_of(name, int(size), torch.float32 if dtype == "fp32" else torch.float64):
                source, options = launch.source(int(arch))
                found[f"{case}:{launch.kernel.__name__}"] = assembled(source, int(arch), options)
            continue
        kernels = case_kernels(name, int(size), "tf32x3" if dtype == "fp32" else "ieee")
        for kernel, (function, constants) in kernels.items():
            options = constants.pop("OPTIONS", {})
            found[f"{case}:{kernel}"] = compiled(function, dtype, int(arch), options, **constants)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

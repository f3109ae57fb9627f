"""A recurrent cell that may control a memory, over packed sequences in C++, with the backward pass written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, starmap, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from treemem.engines.sequence_lengths import of_step_before, shares_of_threads
from treemem.errors import GraphError
from treemem.native.large_pages import empty_rows
from treemem.native.run import NativeRun, Tensors, own_gradient, run_native
from treemem.native.second_derivative import refuse_transforms
from treemem.native.structures import Structure, structured_library
from treemem.networks.memories.controllers.equations import STEPS

_LEAST_TOKENS = 32  # that are worth packing the weights
_LEAST_WORK = 1 << 20  # multiplications that are worth a thread
_WHAT, _REMEDY = (
    "a run of a recurrent cell or of a memory in C++",
    "run the forward pass within treemem.ops.compile_steps(False)",
)

# At each step a controller has some blocks, each hidden_size wide: what the input and biases give is there before, and
# the state before and what was read before are added by products. A map of the new state gives the memory's controls.
_PROBLEM = Structure(  # sequences are sorted by length, longest first
    "PROBLEM",
    "int64_t threads, num_steps, num_tokens, hidden_size, cell_size",  # the latter 0 but for an LSTM
    "int64_t num_blocks, num_products",  # 0 without a controller; products with the state add to the last blocks
    "int64_t read_size, control_size",  # 0 without a memory
    "const int64_t *sizes",  # [num_steps], sequences of each step, not ascending
    "const int64_t *tokens",  # [num_steps], the number of the first token of each step
    "const int64_t *shares",  # [threads + 1], where the sequences of each thread begin
    "const REAL *of_state, *of_read",  # [products, hidden_size], [products, read_size]
    "const REAL *of_control, *control_bias",  # [control_size, hidden_size], [control_size]
    "REAL *hidden, *cell, *read",  # [sequences, ...], before the first step; `cell` is that of an LSTM
    "REAL *hidden_after, *cell_after, *read_after",  # after the last one; as before if a sequence has none
    "REAL *blocks",  # [num_tokens, blocks], become what the backward pass needs
    "REAL *states, *cells, *controls, *reads",  # [num_tokens, ...]
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "const REAL *states, *reads",  # [num_tokens, ...]
    "REAL *hidden, *cell, *read",  # [sequences, ...], those of the last states; they become those of the first ones
    "REAL *blocks, *controls",  # [num_tokens, ...]
)

ControllerName = Literal["RNN", "LSTM", "GRU"]


class ControllerWeights(NamedTuple):
    """The weights of a torch cell, and of the map from its output to what controls its memory.

    Attributes:
        input_weight, hidden_weight, input_bias, hidden_bias: of :class:`torch.nn.RNNCell`, with tanh,
            :class:`torch.nn.LSTMCell` or :class:`torch.nn.GRUCell`. What is read from the memory follows the input.
        control_weight: ``[controls, hidden_size]``; without a memory no rows.
        control_bias: ``[controls]``.
    """

    input_weight: torch.Tensor
    hidden_weight: torch.Tensor
    input_bias: torch.Tensor
    hidden_bias: torch.Tensor
    control_weight: torch.Tensor
    control_bias: torch.Tensor

    @classmethod
    def of(cls, cell: Sequence[torch.Tensor], controls: Sequence[torch.Tensor] | None = None) -> ControllerWeights:
        """Return the weights of a cell, four, and of the map to the controls, two, if it has a memory."""
        hidden_weight = cell[1]
        return cls(
            *cell, *(controls or (hidden_weight.new_empty(0, hidden_weight.shape[1]), hidden_weight.new_empty(0)))
        )


class ControllerState(NamedTuple):
    """Where sequences are.

    Attributes:
        hidden: ``h``, ``[sequences, hidden_size]``.
        cell: ``c`` of an LSTM; of other cells ``[0]``.
        read: what was read last, ``[sequences, read_size]``.
    """

    hidden: torch.Tensor
    cell: torch.Tensor
    read: torch.Tensor

    @classmethod
    def of(cls, hidden: torch.Tensor, cell: torch.Tensor | None = None) -> ControllerState:
        """Return the state of a cell that controls nothing."""
        return cls(hidden, hidden.new_empty(0) if cell is None else cell, hidden.new_empty(len(hidden), 0))


class MemorySource(NamedTuple):
    """The C++ of a memory.

    Attributes:
        file: includes ``controller.h``.
        fields: what it reads and writes, its ``Fields``.
        gradients: those of the memory's tensors in order, its ``MemoryGradients``.
    """

    file: Path
    fields: Structure
    gradients: Structure


class ControlledMemory:
    """A memory in C++; this one holds nothing.

    Attributes:
        source: its C++.
        control_size: how many numbers control it.
        tensors: what it is made of, ``[sequences, ...]`` each; a gradient may be wanted of each.
    """

    source = MemorySource(Path(__file__).with_name("kernel.cpp"), Structure("FIELDS"), Structure("MEMORY_GRADIENTS"))
    control_size = 0
    tensors: tuple[torch.Tensor, ...] = ()

    def begin(
        self, tensors: Sequence[torch.Tensor], sizes: list[int], keeps: bool
    ) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
        """Return the fields of the source, and those of their tensors that are results: what the memory has become.

        The results are what the first of its tensors have become.

        Args:
            tensors: contiguous.
            sizes: how many sequences each step has.
            keeps: whether there may be a backward pass. It does not read the results.
        """
        return {}, ()


class ControllerRun(NamedTuple):
    """What a run gives.

    Attributes:
        states: ``h`` at every token, ``[tokens, hidden_size]``.
        reads: what was read after every token, ``[tokens, read_size]``. A memory may give 0 at the end of a sequence.
        last: the state after the last token of each sequence; as it began for those without tokens.
        memory: what the memory has become.
    """

    states: torch.Tensor
    reads: torch.Tensor
    last: ControllerState
    memory: tuple[torch.Tensor, ...]


def runs_in_cpp(
    controller: ControllerName | None,
    tokens: int,
    tensors: Iterable[torch.Tensor],
    source: MemorySource = ControlledMemory.source,
) -> bool:
    """Return whether a run over so many tokens can be C++; it must be enough to be worth it.

    Args:
        controller: which cell it is; None if the controls are known.
        tokens: of all sequences together.
        tensors: all that it reads but lengths.
        source: of the memory.
    """
    return (
        tokens >= _LEAST_TOKENS
        and not torch.compiler.is_compiling()
        and _library(controller, source, tensors) is not None
    )


def _library(controller: ControllerName | None, source: MemorySource, tensors: Iterable[torch.Tensor]) -> Any:
    step = STEPS[controller or "RNN"].printed  # without a controller none is called
    return structured_library(source.file, tensors, _PROBLEM, _GRADIENTS, source.fields, source.gradients, step)


def run_controller(
    controller: ControllerName,
    inputs: torch.Tensor,
    sizes: list[int],
    first: ControllerState,
    weights: ControllerWeights,
    memory: ControlledMemory | None = None,
) -> ControllerRun:
    """Run over packed sequences, longest first, where :func:`runs_in_cpp` says so. There is no second derivative.

    The steps are those of torch's cells, and of :class:`treemem.nn.MemoryCell` with early fusion.

    Args:
        controller: which cell it is.
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending.
        first: where each sequence begins.
        weights: of the cell, and of the map to what controls the memory.
        memory: what it controls.

    Raises:
        GraphError: a state, or a memory, of another size.
    """
    memory = memory or ControlledMemory()
    sequences = sizes[0] if sizes else 0
    check_sizes(controller, sequences, inputs.shape[1], first, weights, memory.control_size, memory.tensors)
    size, width = first.hidden.shape[1], first.read.shape[1]
    of_input, of_read = weights.input_weight.split([inputs.shape[1], width], 1)
    bias = weights.input_bias + weights.hidden_bias
    if controller == "GRU":  # the candidate first, and what the state gives it by itself
        of_input, of_read = (torch.cat([blocks[2 * size :], blocks[: 2 * size]]) for blocks in (of_input, of_read))
        bias = torch.cat([weights.input_bias[2 * size :], bias[: 2 * size], weights.hidden_bias[2 * size :]])
    maps = (of_input, bias, weights.hidden_weight, of_read, weights.control_weight, weights.control_bias)
    return _run(controller, inputs, sizes, first, maps, memory)


def run_known(controls: torch.Tensor, sizes: list[int], read: torch.Tensor, memory: ControlledMemory) -> ControllerRun:
    """Run a memory without a controller, as :func:`run_controller`.

    Args:
        controls: what each step does, ``[tokens, controls]``.
        sizes: how many sequences each step has; not ascending.
        read: what was read before, ``[sequences, read_size]``.
        memory: what is controlled.
    """
    controls, nothing = controls.contiguous(), read.new_empty(len(read), 0)
    size, width = controls.shape[1], read.shape[1]
    shapes = ((0, size), (0,), (0, 0), (0, width), (size, 0), (size,))
    maps = tuple(read.new_empty(shape) for shape in shapes)
    return _run(None, controls, sizes, ControllerState(nothing, read.new_empty(0), read), maps, memory)


def check_sizes(
    controller: ControllerName,
    sequences: int,
    input_size: int,
    first: ControllerState,
    weights: ControllerWeights,
    control_size: int,
    of_memory: Sequence[torch.Tensor],
) -> None:
    """Refuse what C++ and Triton would not notice, which see addresses alone.

    Args:
        controller: which cell it is.
        sequences, input_size: their number, and the width of their inputs.
        first, weights: see :func:`run_controller`.
        control_size, of_memory: of the memory, and its tensors.

    Raises:
        GraphError: a state, or a memory, of another size.
    """
    size, read_size = weights.hidden_weight.shape[1], weights.input_weight.shape[1] - input_size
    shapes = {
        "h": (first.hidden, (sequences, size)),
        "c": (first.cell, (sequences, size) if controller == "LSTM" else (0,)),
        "what was read": (first.read, (sequences, read_size)),
    }
    for name, (tensor, shape) in shapes.items():
        if tensor.shape != shape:
            raise GraphError(f"{name} must be {[*shape]}, not {[*tensor.shape]}")
    if len(weights.control_weight) != control_size or any(len(part) != sequences for part in of_memory):
        raise GraphError(
            f"the cell has {len(weights.control_weight)} controls for a memory of {sequences} sequences, not "
            f"{control_size} and tensors of the shapes {[[*part.shape] for part in of_memory]}"
        )


def _run(
    controller: ControllerName | None,
    inputs: torch.Tensor,
    sizes: list[int],
    first: ControllerState,
    maps: tuple[torch.Tensor, ...],
    memory: ControlledMemory,
) -> ControllerRun:
    tensors = [inputs, *first, *maps, *(tensor.to(inputs.dtype) for tensor in memory.tensors)]  # whole numbers too
    keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    results = run_native(_Run(controller, memory, sizes, keeps), *tensors)
    return ControllerRun(results[0], results[1], ControllerState(*results[2:5]), results[5:])


_Tensors = _PROBLEM.tuple_of("of_state")


class _Run(NativeRun):
    """The steps one after the other, sequences sorted by length, longest first.

    Without a controller the inputs are the controls. The backward pass keeps the gradients of all blocks and controls
    and makes those of the weights at the end.
    """

    refusal = _WHAT, _REMEDY

    def __init__(
        self, controller: ControllerName | None, memory: ControlledMemory, sizes: list[int], keeps: bool
    ) -> None:
        self._controller, self._memory, self._sizes, self._keeps = controller, memory, sizes, keeps

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        inputs, hidden, cell, read, *maps, of_control, control_bias = tensors[:10]
        of_input, bias, of_state, of_read = maps
        controller, memory, sizes = self._controller, self._memory, self._sizes
        library = _library(controller, memory.source, [inputs])
        if library is None:
            raise RuntimeError(f"{_WHAT} cannot run here; see treemem.networks.memories.controllers.run.runs_in_cpp")
        tokens, size, products, controls = len(inputs), hidden.shape[1], len(of_input), len(of_control)
        widths = (len(bias), size, size if len(cell) else 0, controls, read.shape[1])
        blocks, *made = (empty_rows(inputs, tokens, width) for width in widths)
        if controller is None:
            made[2] = inputs
        else:
            torch.addmm(bias[:products], inputs, of_input.t(), out=blocks[:, :products])
            blocks[:, products:] = bias[products:]
        last = [tensor.clone(memory_format=torch.contiguous_format) for tensor in (hidden, cell, read)]
        given = (of_state, of_read, of_control, control_bias, hidden, cell, read)
        run, of_memory = _Tensors._make([*given, *last, blocks, *made]), tensors[10:]
        fields, results = memory.begin(of_memory, sizes, self._keeps)
        of_fields = {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}
        row_sizes = [tensor[0].numel() for tensor in of_fields.values() if tensor.dim() > 1 and len(tensor)]
        work = of_state.numel() + of_read.numel() + of_control.numel() + 2 * sum(row_sizes)
        threads = max(1, min(torch.get_num_threads(), len(hidden), tokens * work // _LEAST_WORK))
        first_tokens = [*accumulate(sizes[:-1], initial=0)]
        shares = shares_of_threads(sizes, threads)
        numbers = torch.tensor([*sizes, *first_tokens, *shares], dtype=torch.int64, device="cpu")
        self._library = library
        self._numbers = {
            "threads": threads,
            "num_steps": len(sizes),
            "num_tokens": tokens,
            "hidden_size": size,
            "cell_size": widths[2],
            "num_blocks": STEPS[controller].blocks if controller else 0,
            "num_products": STEPS[controller].products if controller else 0,
            "read_size": read.shape[1],
            "control_size": controls,
        }
        self._num_tensors = len(of_memory)
        memory.tensors = ()  # those that are needed are saved
        self._call("forward", numbers, run, fields)
        kept = [None if any(tensor is result for result in results) else tensor for tensor in of_fields.values()]
        self._fields, self._names = {**fields, **dict.fromkeys(of_fields)}, [*of_fields]
        run = run._replace(hidden_after=None, cell_after=None, read_after=None)  # the backward pass does not read them
        return [made[0], made[3], *last, *results], [inputs, of_input, numbers, *run, *of_memory, *kept]

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of all tensors that have one."""
        refuse_transforms(_WHAT, f"; {_REMEDY}")
        inputs, of_input, numbers, *others = kept
        d_states, d_reads, *d_others = gradients
        count = len(_Tensors._fields)
        run, others = _Tensors._make(others[:count]), others[count:]
        tensors, of_fields = others[: self._num_tensors], others[self._num_tensors :]
        fields = {**self._fields, **dict(zip(self._names, of_fields, strict=True))}
        d_states, d_reads = (None if grad is None else grad.contiguous() for grad in (d_states, d_reads))
        firsts = (run.hidden, run.cell, run.read)
        d_firsts = [own_gradient(gradient, first) for gradient, first in zip(d_others[:3], firsts, strict=True)]
        d_blocks, d_controls = torch.empty_like(run.blocks), torch.empty_like(run.controls)
        of_memory = [*starmap(own_gradient, zip_longest(d_others[3:], tensors))]
        of_source = self._memory.source.gradients
        d_hidden, d_cell, d_read = d_firsts
        filled = _GRADIENTS(
            states=d_states,
            reads=d_reads,
            hidden=d_hidden,
            cell=d_cell,
            read=d_read,
            blocks=d_blocks,
            controls=d_controls,
        )
        self._call(
            "backward",
            numbers,
            run,
            fields,
            filled,
            of_source(**dict(zip(of_source.names, of_memory, strict=True))),
        )
        to_input = d_blocks[:, : len(of_input)]
        to_state = d_blocks[:, run.blocks.shape[1] - len(run.of_state) :]
        return [
            to_input @ of_input if len(of_input) else d_controls,
            *d_firsts,
            *(to_input.t() @ inputs, d_blocks.sum(0)),
            to_state.t() @ of_step_before(run.hidden, run.states, self._sizes),
            to_input.t() @ of_step_before(run.read, run.reads, self._sizes),
            *(d_controls.t() @ run.states, d_controls.sum(0)),
            *of_memory,
        ]

    def _call(self, name: str, numbers: torch.Tensor, run: Any, fields: Mapping[str, Any], *gradients: Any) -> None:
        """Call C++ with what the run and the memory have."""
        sizes, tokens, shares = numbers.tensor_split([len(self._sizes), 2 * len(self._sizes)])
        problem = _PROBLEM(**self._numbers, sizes=sizes, tokens=tokens, shares=shares, **run._asdict())
        getattr(self._library, name)(problem, self._memory.source.fields(**fields), *gradients)

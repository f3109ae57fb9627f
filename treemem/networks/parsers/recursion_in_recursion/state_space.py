"""A diagonal state-space layer over sequences in both directions (S4D, Gu et al. 2022), as its authors use it here."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.engines.affine import Affine, linear
from treemem.engines.sequence_lengths import reversed_within, within

STATES = 32
"""Complex poles of a channel, each of which stands for a conjugate pair."""


class StateSpaceWeights(NamedTuple):
    """The weights of all channels.

    Attributes:
        log_decay: ``log(-Re A)``, ``[channels, states]``.
        frequency: ``-Im A``, ``[channels, states]``.
        read_in: ``B``, real and imaginary part, ``[channels, states, 2]``.
        read_out: ``C``, in the same way.
        log_step: ``log(Delta)``, ``[channels]``.
        skip: ``D``, ``[channels]``.
    """

    log_decay: torch.Tensor
    frequency: torch.Tensor
    read_in: torch.Tensor
    read_out: torch.Tensor
    log_step: torch.Tensor
    skip: torch.Tensor


def kernel(weights: StateSpaceWeights, length: int) -> torch.Tensor:
    """Return the kernel of each channel, ``[channels, length]``, after the bilinear discretisation.

    ``K_l = 2 Re sum B C Delta / (1 - Delta A / 2) ((1 + Delta A / 2) / (1 - Delta A / 2))^l``, with
    ``A = -exp(log_decay) - i frequency``.
    """
    poles = torch.complex(-weights.log_decay.exp(), -weights.frequency)
    step = weights.log_step.exp()[:, None]
    below = 1 - poles * step / 2
    factor = torch.view_as_complex(weights.read_in) * torch.view_as_complex(weights.read_out) * step / below
    ratio = ((1 + poles * step / 2) / below).log()
    block = math.isqrt(max(length - 1, 0)) + 1  # a power is one of few large ones times one of few small ones
    small = (ratio[:, :, None] * torch.arange(block, device=step.device)).exp()
    large = (ratio[:, None] * (block * torch.arange(-(-length // block), device=step.device)[:, None])).exp()
    return 2 * ((large * factor[:, None]) @ small).real.flatten(1)[:, :length]


def state_space(inputs: torch.Tensor, weights: StateSpaceWeights) -> torch.Tensor:
    """Return ``sum_l K_l u_(t - l) + D u_t`` of ``u [sequences, time, channels]``, by the product of their FFTs."""
    time = inputs.shape[1]
    u = inputs.transpose(1, 2)
    spectrum = torch.fft.rfft(u, 2 * time) * torch.fft.rfft(kernel(weights, time), 2 * time)
    return (torch.fft.irfft(spectrum, 2 * time)[..., :time] + weights.skip[:, None] * u).transpose(1, 2)


class BidirectionalStateSpace(torch.nn.Module):
    """``x + GLU(W [gelu(y); gelu(z)] + b)``, where ``y`` and ``z`` are read from left to right and from right to left.

    Args:
        size: of the vectors.
        dropout: of ``y`` and ``z`` before and after the activation function; the same at all times.
        trained_backwards: whether what is read from right to left has gradients. In the authors' code it has none.
    """

    def __init__(self, size: int, dropout: float, trained_backwards: bool) -> None:
        super().__init__()
        self.dropout, self.trained_backwards = dropout, trained_backwards
        self.log_decay = torch.nn.Parameter(torch.empty(2 * size, STATES))
        self.frequency = torch.nn.Parameter(torch.empty(2 * size, STATES))
        self.read_in = torch.nn.Parameter(torch.empty(2 * size, STATES, 2))
        self.read_out = torch.nn.Parameter(torch.empty(2 * size, STATES, 2))
        self.log_step = torch.nn.Parameter(torch.empty(2 * size))
        self.skip = torch.nn.Parameter(torch.empty(2 * size))
        self.map = torch.nn.Linear(2 * size, 2 * size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights: poles by the inverse law of S4D, steps log-uniform from 0.001 to 0.1."""
        number = torch.arange(STATES)
        frequency = 2 * STATES / math.pi * (2 * STATES / (2 * number + 1) - 1)
        with torch.no_grad():
            self.log_decay.fill_(math.log(0.5))
            self.frequency.copy_(frequency.expand_as(self.frequency))
            self.read_in.copy_(torch.tensor([1.0, 0.0]).expand_as(self.read_in))
        torch.nn.init.normal_(self.read_out, std=0.5**0.5)
        torch.nn.init.uniform_(self.log_step, math.log(0.001), math.log(0.1))
        torch.nn.init.normal_(self.skip)
        self.map.reset_parameters()

    def weights(self) -> StateSpaceWeights:
        """The parameters as the operation takes them."""
        return StateSpaceWeights(self.log_decay, self.frequency, self.read_in, self.read_out, self.log_step, self.skip)

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Read sequences ``[sequences, longest, size]``; ``lengths`` are on the CPU. The result at padding is any."""
        if not inputs.shape[:2].numel():
            return inputs
        present = to_device(within(lengths, inputs.shape[1]), inputs.device)[:, :, None]
        inputs = inputs.masked_fill(~present, 0)
        backwards = reversed_within(inputs, lengths)
        both = torch.cat([inputs, backwards if self.trained_backwards else backwards.detach()], 2)
        read = self._dropped(functional.gelu(self._dropped(state_space(both, self.weights()))))
        forwards, backwards = read.chunk(2, 2)
        backwards = reversed_within(backwards, lengths)
        read = torch.cat([forwards, backwards if self.trained_backwards else backwards.detach()], 2)
        return inputs + functional.glu(linear(read, Affine.of(self.map)))

    def _dropped(self, values: torch.Tensor) -> torch.Tensor:
        if not (self.training and self.dropout):
            return values
        return values * functional.dropout(torch.ones_like(values[:, :1]), self.dropout)

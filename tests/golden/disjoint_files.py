"""Checks of golden files of the parser and composition of Havrylov et al. 2019."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch
from golden.gumbel_files import gumbel
from golden.induction_files import as_tree, words
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays
from torch.nn import functional

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.induction import tree_from_splits
from treemem.networks.parsers.disjoint_tree_lstm.plan import TreePlan, tree_plan
from treemem.networks.parsers.disjoint_tree_lstm.run import choices_of, choose_trees, compose_trees
from treemem.nn import DisjointTreeLSTM
from treemem.runs.proximal_policy import ProximalPolicy, policy_loss
from treemem.trees.vocabulary import Vocabulary

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
_LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_PPO = {
    "embd_parser.weight": "parser.embedding.weight",
    "embd_tree.weight": "embedding.weight",
    "parser.q": "parser.query",
    **{f"parser.lstm.lstm.{name}": f"parser.leaves.lstm.{name}_l0" for name in _LSTM},
    **{f"parser.linear.{kind}": f"parser.leaves.map.{kind}" for kind in ("weight", "bias")},
    **{f"parser.tree_lstm_cell.linear.{kind}": f"parser.cell.map.{kind}" for kind in ("weight", "bias")},
    **{f"tree_lstm_rnn.linear.{kind}": f"leaves.map.{kind}" for kind in ("weight", "bias")},
    **{f"tree_lstm_rnn.tree_lstm_cell.linear.{kind}": f"cell.map.{kind}" for kind in ("weight", "bias")},
}  # fmt: skip
"""Our names of parameters by theirs."""


def blocks(values: np.ndarray) -> np.ndarray:
    """Input gate, two forget gates, output gate, update, from update, input gate, two forget gates, output gate."""
    update, input_gate, left, right, output = np.split(values, 5)
    return np.concatenate([input_gate, left, right, output, update])


def with_blocks(name: str, values: np.ndarray) -> np.ndarray:
    return blocks(values) if "tree_lstm_cell" in name else values


def load(layer: DisjointTreeLSTM, arrays: Arrays, prefix: str) -> None:
    with torch.no_grad():
        for theirs, name in _PPO.items():
            layer.get_parameter(name).copy_(torch.from_numpy(with_blocks(theirs, arrays[prefix + theirs])))
        assert layer.parser.leaves.start is not None
        start = np.concatenate([arrays[f"{prefix}parser.lstm.{name}"] for name in ("h0", "c0")])
        layer.parser.leaves.start.copy_(torch.from_numpy(start))


def check_gradients(layer: DisjointTreeLSTM, arrays: Arrays, prefix: str, engine: str) -> None:
    for theirs, name in _PPO.items():
        if prefix + theirs not in arrays:
            continue
        gradient = layer.get_parameter(name).grad
        found = torch.zeros_like(layer.get_parameter(name)) if gradient is None else gradient
        same(found, with_blocks(theirs, arrays[prefix + theirs]), f"{prefix}{name} ({engine})")
    assert layer.parser.leaves.start is not None
    start = layer.parser.leaves.start.grad
    found = torch.zeros_like(layer.parser.leaves.start) if start is None else start
    same(found, np.concatenate([arrays[f"{prefix}parser.lstm.{name}"] for name in ("h0", "c0")]), f"{prefix} start")


def check_ppo(arrays: Arrays) -> None:
    """Sampled trees, the advantage, and the gradients of both losses, the parser's after its weights have changed."""
    tokens, lengths = torch.from_numpy(arrays["tokens"]), torch.from_numpy(arrays["lengths"])
    labels = torch.from_numpy(arrays["labels"])
    size = len(arrays["param_old.parser.q"])
    vocabulary = Vocabulary([f"w{number}" for number in range(len(arrays["param_old.embd_tree.weight"]))], [])
    head = [torch.from_numpy(arrays[f"param_old.linear.{kind}"]).requires_grad_() for kind in ("weight", "bias")]
    for engine in ENGINES:
        layer = DisjointTreeLSTM(
            size,
            vocabulary,
            embedding_size=arrays["param_old.embd_tree.weight"].shape[1],
            form="leaves",
            ratio_clip=float(arrays["epsilon"]),
            entropy_weight=float(arrays["entropy_weight"]),
            engine=engine,
        ).double()
        load(layer, arrays, "param_old.")
        of_parser = layer._parser_leaves(layer.parser.embedding(tokens), lengths)
        rows = []
        for row, length in enumerate(lengths.tolist()):
            alone = of_parser[row : row + 1, :length].detach()
            noise = _StoredNoise(arrays, row, length)
            places = choose_trees(alone, lengths[row : row + 1], layer.parser.weights(), noise=noise, engine=engine)
            for step in range(length - 1):
                assert arrays["actions"][step, row, int(places[0, step])] == 1
            rows.append(functional.pad(places[0], (0, tokens.shape[1] - length)))
        plan = tree_plan(torch.stack(rows), lengths)
        old, entropy = layer._policy(of_parser, plan)
        same(old, arrays["log_prob_old"], f"log_prob_old ({engine})")
        same(entropy, arrays["normalized_entropy"], f"normalized_entropy ({engine})")
        steps = choices_of(of_parser, plan, layer.parser.weights(), engine=engine)
        same(steps.entropy.sum(1), arrays["entropy"], f"entropy ({engine})")
        cost = _costs(layer, tokens, lengths, labels, head, plan)
        greedy_plan = tree_plan(
            choose_trees(of_parser.detach(), lengths, layer.parser.weights(), engine=engine), lengths
        )
        greedy = _costs(layer, tokens, lengths, labels, head, greedy_plan)
        same(cost.mean(), arrays["ce_loss"], f"ce_loss ({engine})")
        learner = ProximalPolicy.__new__(ProximalPolicy)
        learner.processes = _Alone()  # type: ignore[assignment]
        advantage = learner.scaled((cost - greedy).detach())
        same(advantage, arrays["advantage"], f"advantage ({engine})")
        same(torch.tensor(learner.variance, dtype=torch.float64), arrays["running_variance"], "running_variance")
        cost.mean().backward()
        check_gradients(layer, arrays, "grad_ce.", engine)
        layer.zero_grad()
        load(layer, arrays, "param_new.")
        new, entropy = layer._policy(layer._parser_leaves(layer.parser.embedding(tokens), lengths), plan)
        same(new, arrays["log_prob_new"], f"log_prob_new ({engine})")
        same(entropy, arrays["normalized_entropy_new"], f"normalized_entropy_new ({engine})")
        same((new - old).exp(), arrays["ratio"], f"ratio ({engine})")
        loss = policy_loss(new - old.detach(), entropy, advantage, layer.ratio_clip, layer.entropy_weight).mean
        same(loss, arrays["ppo_loss"], f"ppo_loss ({engine})")
        loss.backward()
        check_gradients(layer, arrays, "grad_ppo.", engine)


class _Alone:
    """One process."""

    count = 1


class _StoredNoise:
    """The noise of one row of a batch, which has fewer pairs than the longest."""

    def __init__(self, arrays: Arrays, row: int, length: int) -> None:
        self.arrays, self.row, self.length = arrays, row, length

    def __call__(self, shape: tuple[int, ...]) -> torch.Tensor:
        drawn = torch.from_numpy(self.arrays[f"uniform{self.length - 1 - shape[1]}"])
        return gumbel(drawn[self.row : self.row + 1, : shape[1]])


def _costs(
    layer: DisjointTreeLSTM,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    labels: torch.Tensor,
    head: list[torch.Tensor],
    plan: TreePlan,
) -> torch.Tensor:
    """The cross-entropy of each sequence."""
    leaves = layer.leaves(layer.embedding(tokens), lengths)
    roots = compose_trees(leaves, plan, Affine.of(layer.cell.map), engine=layer.engine)
    logits = functional.linear(roots.chunk(2, 1)[0], *head)
    return functional.cross_entropy(logits, labels, reduction="none")


def check_parser(arrays: Arrays) -> None:
    """Trees, their probabilities and encodings in evaluation."""
    lengths = torch.from_numpy(arrays["lengths"])
    size = len(arrays["parser_q"])
    for engine in ENGINES:
        layer = DisjointTreeLSTM(
            size,
            Vocabulary(["word"], []),
            embedding_size=arrays["x_tree"].shape[2],
            parser_leaf="linear",
            engine=engine,
        ).double()
        with torch.no_grad():
            for place, prefix in ((layer.parser, "parser"), (layer, "tree")):
                for module, name in ((place.leaves.map, "leaf"), (place.cell.map, "comp")):
                    for parameter, kind in ((module.weight, "W"), (module.bias, "b")):
                        values = arrays[f"{prefix}_{kind}_{name}"]
                        parameter.copy_(torch.from_numpy(blocks(values) if name == "comp" else values))
            layer.parser.query.copy_(torch.from_numpy(arrays["parser_q"]))
        inputs, of_parser = (torch.from_numpy(arrays[name]) for name in ("x_tree", "x_parser"))
        found = layer.eval().read(inputs, lengths, trace=True, parser_inputs=of_parser)
        same(found.encoding, arrays["h"], f"h ({engine})")
        for name, golden in (("log_probability", "log_prob"), ("entropy", "normalized_entropy")):
            same(found.trace[name], arrays[golden], f"{golden} ({engine})")
        for joined, length, tree in zip(found.trace["joined"], lengths, json.loads(str(arrays["trees"])), strict=True):
            assert tree_from_splits(joined[:length], words(int(length))) == as_tree(tree)


CHECKS: dict[str, Callable[[Arrays], None]] = {"havrylov_ppo.npz": check_ppo}
SEQUENCE_CHECKS: dict[str, Callable[[Arrays], None]] = {"havrylov_parser.npz": check_parser}

"""Labels, a cell and a head of your own: who wins a game, learned from shallow games and tested on deeper ones."""

import argparse
import random

import torch

from treemem import Tree, TreeBatch, Vocabulary
from treemem.nn import TreeNetwork

VOCABULARY = Vocabulary(["won", "lost"], [(player, moves) for player in ("me", "you") for moves in (2, 3, 4)])


def game(draw: random.Random, depth: int) -> tuple[Tree, bool]:
    """A game, and whether I win it: one of my moves must be good for me, or all of yours."""
    if depth == 0:
        won = draw.random() < 0.5
        return Tree("won" if won else "lost"), won
    player = draw.choice(["me", "you"])
    moves, ends = zip(*(game(draw, depth - 1) for _ in range(draw.randint(2, 4))), strict=True)
    return Tree(player, moves), any(ends) if player == "me" else all(ends)


class PlayerCell(torch.nn.ModuleDict):  # a layer for each player
    def leaf(self, x: torch.Tensor, kind: int) -> dict[str, torch.Tensor]:
        return {"h": x}

    def forward(self, children: dict[str, torch.Tensor], x: None, kind: int) -> dict[str, torch.Tensor]:
        moves = children["h"]  # [m, arity, 8]; the largest and the smallest entries of any number of moves are read
        read = torch.cat([moves.amax(1), moves.amin(1)], dim=1)
        return {"h": torch.tanh(self[VOCABULARY.kinds[kind].label](read))}


class WinHead(torch.nn.Linear):
    def forward(self, encodings: torch.Tensor) -> torch.Tensor:  # [games, 1, 8] to scores, above 0 where I win
        return super().forward(encodings).flatten()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=400, help="games to train on (%(default)s)")
    parser.add_argument("--epochs", type=int, default=60, help="(%(default)s)")
    options, draw, _ = parser.parse_args(arguments), random.Random(1), torch.manual_seed(1)
    cell = PlayerCell({player: torch.nn.Linear(16, 8) for player in ("me", "you")})
    network, head = TreeNetwork(cell, vocabulary=VOCABULARY, embedding_size=8), WinHead(8, 1)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=0.02)
    for depth, epochs in ((3, options.epochs), (4, 0), (5, 0)):  # trained on the first, tested on the others
        games, won = zip(*(game(draw, depth) for _ in range(options.size)), strict=True)
        batch, target = TreeBatch.from_trees(games, VOCABULARY), torch.tensor(won).float()
        for _ in range(epochs):
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(head(network(batch).root), target).backward()
            optimizer.step()
        right, share = ((head(network(batch).root) > 0) == target.bool()).float().mean(), target.mean()
        print(f"depth {depth} accuracy {100 * right:5.1f} %, majority class {100 * max(share, 1 - share):.1f} %")


if __name__ == "__main__":
    main()

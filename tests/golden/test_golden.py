"""Every golden file, one test each, named by it; ``--golden-dir`` reads another set of the same layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import learned_tree_files, newer_network_files, sequence_files, stack_tree_files

FOLDER = Path(__file__).parent
SUFFIXES = (".npz", ".json")
SORTS = {
    "stack_trees": stack_tree_files,
    "sequence": sequence_files,
    "learned_trees": learned_tree_files,
    "newer_networks": newer_network_files,
}

STACK_TREES = (
    "tree_lstm", "tree_lstm_stack", "tree_lstm_stack_normalize", "tree_lstm_stack_normalize_noop",
    "tree_rnn", "tree_rnn_stack", "tree_rnn_stack_noop", "tree_rnn_tanh",
    "x_tree_lstm_stack_inputgate", "x_tree_lstm_stack_noop", "x_tree_lstm_stack_nopop",
    "x_tree_lstm_stack_normalize_noop_top3", "x_tree_lstm_stack_scalar_action",
    "x_tree_lstm_stack_scalar_action_noop", "x_tree_lstm_stack_sigmoid", "x_tree_lstm_stack_top2",
    "x_tree_lstm_stack_top2_gated",
)  # fmt: skip
NUMERIC = ("tree_lstm", "tree_lstm_stack_normalize_noop", "tree_rnn", "tree_rnn_stack")
"""Networks of the folder ``stack_trees``, and those of them with a file of a numeric equation."""


def golden_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.suffix in SUFFIXES)


def has_check(path: Path) -> bool:
    return path.parent.name in SORTS and SORTS[path.parent.name].has_check(path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "path" not in metafunc.fixturenames:
        return
    folder: Path = metafunc.config.getoption("--golden-dir")
    files = golden_files(folder)
    if not files:
        raise pytest.UsageError(f"there are no golden files in {folder}")
    metafunc.parametrize("path", files, ids=[path.relative_to(folder).as_posix() for path in files])


def test_golden(path: Path) -> None:
    if not has_check(path):
        pytest.skip(f"no test yet for {path.parent.name}/{path.name}")
    SORTS[path.parent.name].check(path)


def test_no_file_that_comes_along_is_missing_or_without_a_check() -> None:
    found = golden_files(FOLDER)
    sorts = [(network, sort) for network in STACK_TREES for sort in ("batch", "binary", "tree", "unary")]
    sorts += [*((network, "numeric") for network in NUMERIC), ("x_seq", "lstm"), ("x_seq", "rnn")]
    assert {path.relative_to(FOLDER).as_posix() for path in found} == {
        *(f"stack_trees/{network}_{sort}.npz" for network, sort in sorts),
        *(f"sequence/{name}" for name in (*sequence_files.CHECKS, *sequence_files.TREE_CHECKS)),
        *(f"learned_trees/{name}" for name in learned_tree_files.CHECKS),
        *(f"newer_networks/{name}" for name in newer_network_files.CHECKS),
    }
    assert [path for path in found if not has_check(path)] == []

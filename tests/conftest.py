"""What all tests share: where the golden vectors and the shared data are, and memory that shows when it is unset."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

# The tests' operations are small; a second thread gains nothing and waits busily where another process has the core.
# Libraries read this when they are loaded, and so do the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

TESTS = Path(__file__).parent

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # which Triton reads when it is imported

# The same examples each time, and no verdict on how long one takes; `--hypothesis-profile thorough` draws new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("repeatable")

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=TESTS / "golden",
        help="folder of golden vectors, with stack_trees, sequence and learned_trees in it (default: tests/golden)",
    )


# A file runs in one process (`--dist=loadfile`). Those that take longest begin, so that none is left alone at the end.
_LONGEST_FILES = (
    "runs/test_study.py", "runs/test_seed_records.py", "tasks/equation_verification/test_generator.py",
    "runs/test_data_parallel.py", "predict/test_shards.py", "crash/test_kill_points.py",
    "crash/test_ended_processes.py", "networks/memories/test_controllers.py", "engines/test_sequence_engines.py",
    "engines/test_saved_tensors.py",
    "examples/test_examples.py", "engines/test_cuda_levels.py", "cuda/test_ahead_of_time.py",
    "cli/test_help_examples.py", "extension/test_learners.py", "extension/test_tasks.py",
    "tasks/logical_inference/test_task.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {TESTS / name: place for place, name in enumerate(_LONGEST_FILES)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of published data, which lies beside a checkout of the project and not in it."""
    folder = TESTS.parent.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the published data are not at {folder}")
    return folder


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can be brought to disk from here on, as where the disk is full."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)


@pytest.fixture
def unset_memory_is_nan() -> Iterator[None]:
    """Memory from ``torch.empty`` and the like holds NaN, so that a row that nobody wrote shows."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]

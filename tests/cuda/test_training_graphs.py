"""Training and evaluation with CUDA graphs, which the fake device records and repeats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from fake_device import DEVICE, HAS_INTERPRETER, fake_device
from toy_task import MoreX, toy_data
from training_runs import Stopped, last_state, numbers, stopping

from treemem.engines.cuda.graphs import CapturedStep
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.predict import TreePredictor
from treemem.runs import TrainingOptions, evaluate, fit
from treemem.runs.fit import check_fit
from treemem.schedule import padded
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.value_learner import ValueLearner
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling
from treemem.tasks.sentiment import Sentiment, SentimentDataOptions

STREAM = LanguageModeling(words=100, steps=6, evaluation_columns=4)
Run = tuple[Any, NetworkConfig, Any]
"""A task, a network and data."""


def sequences(network: str = "RNN", **options: Any) -> Run:
    return MoreX(), NetworkConfig(network, {"hidden_size": 4, **options}), toy_data(26)


def stream(network: NetworkConfig | None = None) -> Run:
    task = LanguageModeling(words=100, steps=6, evaluation_columns=4)
    options = {"hidden_size": 4, "num_layers": 1, "cell": "LSTM", "output_dropout": 0.2}
    return (
        task,
        network or NetworkConfig("LanguageModel", options),
        task.make_data(LanguageDataOptions(24, 6, 6, seed=1)),
    )


def nodes(folder: Path) -> Run:
    """Trees with a class at every node, of some of which it is not known."""
    train = "(4 (2 A) (4 (4 good) (2 film)))\n(0 (0 bad) (2 film))\n(4 (2 A) (4 (2 good) (4 film)))\n"
    for name, text in (("train", train), ("dev", "(4 (4 good) (2 film))\n"), ("test", "(4 (4 good) (2 film))\n")):
        (folder / f"{name}.txt").write_text(text)
    task = Sentiment(path=str(folder), classes=2)
    return task, NetworkConfig("TreeRNN", {"hidden_size": 2}), task.make_data(SentimentDataOptions()).forest


OPTIONS: dict[str, Any] = {"epochs": 4, "batch_size": 8, "seed": 7, "precision": "64-true", "checkpoint_steps": 3}
ADAM = {**OPTIONS, "learning_rate": 0.05, "schedule": "cosine", "averaging": 0.9, "clip": 0.1}
TREES = {**ADAM, "epochs": 3, "checkpoint_steps": None}
SGD = {**OPTIONS, "optimizer": "sgd", "learning_rate": 40.0, "clip": 0.25, "average_after": 1}


needs_interpreter = pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU")


class FabricOfDevice:
    """Device and precision of a run on the fake device, in float64."""

    device = DEVICE

    def setup(self, model: Any, *optimizers: Any) -> Any:
        before = list(model.parameters())
        model.double().to(DEVICE)
        moved = dict(zip(before, model.parameters(), strict=True))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["params"] = [moved[parameter] for parameter in group["params"]]
        return model, *optimizers

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def clip_gradients(self, model: Any, _: Any, *, max_norm: float, error_if_nonfinite: bool) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, error_if_nonfinite=error_if_nonfinite)


@contextmanager
def training_on_the_device() -> Iterator[list[CapturedStep]]:
    """In this block runs train on the fake device; yields what they capture."""
    steps, make = [], CapturedStep.__init__

    def made(self: CapturedStep, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        steps.append(self)

    with (
        fake_device(),
        mock.patch("treemem.runs.training_loop.fabric_of_process", return_value=FabricOfDevice()),
        mock.patch("torch.optim.optimizer._get_fused_kernels_supported_devices", return_value=["cpu", DEVICE.type]),
        mock.patch.object(CapturedStep, "__init__", made),
    ):
        yield steps


def results(output: Path) -> Any:
    """The losses and metrics of each epoch, the last weights, their average, and the best ones."""
    records, *weights = numbers(output)
    return [{name: value for name, value in record.items() if isinstance(value, float)} for record in records], weights


def check_training(name: str, folder: Path, options: dict[str, Any]) -> None:
    """A run with graphs, and one that is stopped and resumed, give what a run without graphs gives."""
    task, network, data = sequences() if name == "sequences" else stream() if name == "stream" else nodes(folder)
    usual, graphs = (TrainingOptions(**options, cuda_graphs=cuda_graphs) for cuda_graphs in (False, True))
    fit(task, network, data, usual, output=folder / "usual")
    assert "average" in last_state(folder / "usual")[0]
    fit(task, network, data, graphs, output=folder / "whole")
    with stopping(2 if name == "nodes" else 5), suppress(Stopped):
        fit(task, network, data, graphs, output=folder / "stopped")
    fit(task, network, data, graphs, output=folder / "stopped", resume=True)
    for run in ("whole", "stopped"):
        torch.testing.assert_close(results(folder / run), results(folder / "usual"), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.*to a meta parameter")  # the name that the fake device has
@pytest.mark.parametrize(
    ("name", "options"),
    [("sequences", ADAM), ("stream", SGD), pytest.param("nodes", TREES, marks=needs_interpreter)],
)
def test_a_training_with_graphs_gives_the_same_also_if_it_is_stopped(
    name: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded, "_FEWEST_TILES", 2)  # the interpreter runs each of them
    with training_on_the_device() as steps:
        check_training(name, tmp_path, options)
    training, validation, *_ = steps
    assert training.num_graphs
    assert validation.num_graphs


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize(("name", "options"), [("sequences", ADAM), ("stream", SGD), ("nodes", TREES)])
def test_a_training_with_graphs_gives_the_same_on_a_gpu(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    check_training(name, tmp_path, {**options, "accelerator": "cuda"})


def test_evaluation_and_prediction_with_graphs_give_the_same() -> None:
    task, network, data = sequences()
    texts = [str(tree) for tree in data if tree.children]
    with training_on_the_device() as steps:
        model = Model(task, network).double().to(DEVICE)
        usual, graphs = (evaluate(model, data, batch_size=2, cuda_graphs=chosen) for chosen in (False, True))
        predictors = (TreePredictor(model, batch_size=2, cuda_graphs=chosen, processes=1) for chosen in (False, True))
        expected, found = ([answer["probability"] for answer in each.predict(texts)] for each in predictors)
    assert len(steps) == 2
    assert all(step.num_graphs for step in steps)
    np.testing.assert_allclose(graphs.predicted, usual.predicted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    with pytest.raises(RecipeError, match="cuda_graphs and cache_bytes are two ways"):
        evaluate(model, data, cuda_graphs=True, cache_bytes=100)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (sequences("TreeLSTM", engine="naive"), "TreeLSTM cannot run as a graph on these examples: the engine 'naive'"),
        (sequences("LSTM", bidirectional=True), "on these examples: it also reads from the end"),
        (sequences("CRvNN"), "on these examples: its steps depend on the lengths"),
        (
            sequences("SPINN", transitions="reinforced"),
            "ReinforcedTransitions, which trains SPINN, has a training step or",
        ),
        (
            stream(NetworkConfig("TransformerLanguageModel", {"hidden_size": 4, "num_heads": 2})),
            "TransformerLanguageModel cannot run as a graph on these examples: it cuts each batch into sentences",
        ),
    ],
)
def test_what_cannot_be_captured_is_refused(run: Any, reason: str, tmp_path: Path) -> None:
    with training_on_the_device(), pytest.raises(RecipeError, match=reason):
        check_fit(*run, TrainingOptions(**OPTIONS, cuda_graphs=True), output=tmp_path)


def test_graphs_are_refused_without_a_gpu_and_for_batches_of_so_many_nodes(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cuda_graphs: this would run on cpu, and graphs need a CUDA device"):
        check_fit(*sequences(), TrainingOptions(cuda_graphs=True, accelerator="cpu"), output=tmp_path)
    with pytest.raises(RecipeError, match="nodes_per_batch makes others; set batch_size"):
        TrainingOptions(cuda_graphs=True, nodes_per_batch=100)


@pytest.mark.parametrize(
    ("options", "is_captured"), [({}, True), ({"read_out": "values"}, False), ({"numeric": True}, False)]
)
def test_equations_are_captured_if_the_loss_is_of_whole_equations(options: dict[str, Any], is_captured: bool) -> None:
    model = Model(EquationVerification(**options), NetworkConfig("TreeRNN", {"hidden_size": 2}))
    assert ValueLearner.is_captured(model) == is_captured


def test_graphs_of_trees_are_refused_under_autocast(tmp_path: Path) -> None:
    options = TrainingOptions(cuda_graphs=True, precision="bf16-mixed")
    with training_on_the_device(), pytest.raises(RecipeError, match='trees do not run in precision "bf16-mixed"'):
        check_fit(*sequences("TreeRNN"), options, output=tmp_path)

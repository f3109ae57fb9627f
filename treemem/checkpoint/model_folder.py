"""Write a trained model to a folder, and read it back."""

from __future__ import annotations

import functools
import io
import json
import logging
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from treemem import hub_client
from treemem.checkpoint.files import (
    CONFIG,
    MALFORMED,
    MANIFEST,
    METRICS,
    MODEL_FILES,
    TEMPERATURE,
    TRAINING_STATE,
    VOCABULARY,
    WEIGHTS,
    finish_replacement,
    has_manifest,
    in_a_line,
    is_checkpoint,
    replace_checkpoint,
    verified_files,
    write_checkpoint,
)
from treemem.checkpoint.pretrained import is_pretrained_name, pretrained_folder, pretrained_names
from treemem.checkpoint.run_folder import POINTERS, RunFolder
from treemem.errors import CheckpointError, RecipeError, TreememError, near_names, quoted
from treemem.hub_client import HubAddress
from treemem.model import Model, weights_of
from treemem.networks import NetworkConfig
from treemem.plain_data import plain_data
from treemem.plain_yaml import dump_yaml, load_yaml
from treemem.records import json_line, write_text
from treemem.task import TASKS, Task
from treemem.trees.vocabulary import Vocabulary

FORMAT = 1
_logger = logging.getLogger(__name__)
_FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    tasks: Mapping[str, type[Task]] | None = None,
) -> Model:
    """Return a trained model, ready to predict. Half-precision weights are loaded as float32.

    Args:
        path: a folder, of a checkpoint, of a run (its best checkpoint), or with exactly one run in it; the name of a
            model that comes with treemem; or ``hf://owner/name@revision``, a model on the hub (:mod:`treemem.hub`). A
            damaged checkpoint of a run is skipped for the one before it, with a
            warning. A warning also says if the training of a run has not ended.
        device: of the weights.
        networks, tasks: own classes by the names that the checkpoint uses, besides the registered ones.

    Raises:
        CheckpointError: the folder is missing, damaged or no checkpoint, or names what is not registered; the hub does
            not give it; or there is no such device.

    Example:
        >>> model = treemem.load("runs/equation_verification/tree-lstm")  # doctest: +SKIP
        >>> model.predict(["sin(x)^2 + cos(x)^2 = 1"])  # doctest: +SKIP
        array([0.998])
    """
    try:
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("this machine has no CUDA device")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f'device is "{device}" and {in_a_line(error)}') from error
    if hub_client.is_address(path):
        folder, files = fetch(HubAddress.parse(os.fspath(path)))
    elif is_pretrained_name(path):
        return load_pretrained(os.fspath(path), device=device)
    else:
        folder, files = read(path)
        if not is_checkpoint(Path(path)) and (problem := RunFolder(folder.parents[1]).unfinished()) is not None:
            epoch = len(records_of(files, folder))
            _logger.warning(
                "%s. The best weights until now are used, %s; the same training command completes it, or fit with "
                "resume=True",
                problem, f"those of epoch {epoch}" if epoch else "which are from within the first epoch",
            )  # fmt: skip
    return model_of(files, folder, networks, tasks).to(device).eval()


def model_of(
    files: Mapping[str, bytes],
    folder: Path,
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    tasks: Mapping[str, type[Task]] | None = None,
) -> Model:
    """Return the model that the files of a checkpoint describe, on the CPU.

    Args:
        files: as :func:`files_of` returns them.
        folder: where they are, for errors.
        networks, tasks: as for :func:`load`.

    Raises:
        CheckpointError: they do not describe a model.
    """
    try:
        config = load_yaml(files[CONFIG])
        _check_format(config["format"], folder)
        vocabulary = Vocabulary.from_dict(json.loads(files[VOCABULARY]))
        network = NetworkConfig(config["network"]["name"], config["network"]["options"])
        task_name = config["task"]["name"]
        task = ((tasks or {}).get(task_name) or TASKS.find(task_name))(**config["task"]["options"])
        weights = _weights(files[WEIGHTS], folder)
        check_weights(weights, weights_of(task, network, vocabulary, networks=networks, saved=weights), folder)
        with torch.random.fork_rng(devices=[]):
            model = Model(task, network, vocabulary, networks=networks)
        model.temperature = _checked_temperature(config.get("temperature", 1.0))
        model.threshold = _checked_threshold(config.get("threshold"), task)
        model.unseen = tuple(map(str, config.get("unseen", ())))
        model.unseen_kinds = tuple((str(label), int(arity)) for label, arity in config.get("unseen_kinds", ()))
    except (TreememError, *MALFORMED) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{folder} does not describe a model: {in_a_line(error)}") from error
    model.to(_precision(weights)).load_state_dict(weights)
    return model


def _precision(weights: Mapping[str, Tensor]) -> torch.dtype:
    """Return the narrowest type, from float32 on, that holds all weights exactly. Networks need single precision."""
    floating = (tensor.dtype for tensor in weights.values() if tensor.is_floating_point())
    return functools.reduce(torch.promote_types, floating, torch.float32)


def load_pretrained(name: str = "equation_verification", *, device: str | torch.device = "cpu") -> Model:
    """Return a trained model that comes with a task, ready to predict, in single precision.

    ``CARD.md`` in its folder (:func:`pretrained_folder`) says what it was trained on, how, and its scores.

    Args:
        name: the task, for its best model, or ``"TASK/MODEL"``, such as ``"equation_verification/stack"``.
        device: of the weights.

    Raises:
        RecipeError: no task of that name.
        CheckpointError: no model comes with it, or it is damaged.

    Example:
        >>> model = treemem.load_pretrained()  # doctest: +SKIP
        >>> model.predict(["sin(x)^2 + cos(x)^2 = 1"]) > 0.5  # doctest: +SKIP
        array([ True])
    """
    folder = pretrained_folder(name)
    if folder is None or not folder.exists():
        raise CheckpointError(f"no trained model {name!r} comes with treemem; train one, and load its folder")
    return load(folder, device=device)


def save(path: str | os.PathLike[str], model: Model, *, overwrite: bool = False) -> None:
    """Write a model to a folder.

    Args:
        path: the folder; it may be empty or absent.
        model: what to save; its network must be known by name to be loaded again.
        overwrite: replace a checkpoint that is there. Other files in its folder stay, such as a model card.

    Raises:
        CheckpointError: the folder cannot be written, or something stands there.
        RecipeError: an option of the network or the task is not plain data.
    """
    folder = Path(os.path.realpath(path))
    files = files_of(model)
    finish_replacement(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        if folder.exists():
            folder.rmdir()
        write_checkpoint(folder, files)
    elif not has_manifest(folder):
        raise CheckpointError(f"{folder} is there already; move it away")
    elif not overwrite:
        raise CheckpointError(f"{folder} is there already; choose another folder, or replace it with overwrite")
    else:
        replace_checkpoint(folder, files)


def files_of(model: Model, metrics: Iterable[Mapping[str, Any]] = ()) -> dict[str, bytes]:
    """Return the files of a checkpoint of a model, by name, without a manifest.

    Args:
        model: the model.
        metrics: the run's records so far.

    Raises:
        RecipeError: an option of the network or the task is not plain data.
    """
    import safetensors.torch

    check_options(model)
    config = {
        "format": FORMAT,
        "task": {"name": model.task.name, "version": model.task.version, "options": model.task.options},
        "network": {"name": model.network.network, "options": dict(model.network.options)},
    }
    if model.temperature != 1.0:
        config["temperature"] = model.temperature
    if model.threshold is not None:
        config["threshold"] = model.threshold
    if model.unseen:
        config["unseen"] = list(model.unseen)
    if model.unseen_kinds:
        config["unseen_kinds"] = [list(kind) for kind in model.unseen_kinds]
    # Copies, for safetensors refuses tensors that share their memory, as tied weights do.
    weights = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    return {
        CONFIG: dump_yaml(config).encode(),
        VOCABULARY: json.dumps(model.vocabulary.to_dict(), ensure_ascii=False).encode(),
        WEIGHTS: safetensors.torch.save(weights),
        METRICS: "".join(json_line(record) for record in metrics).encode(),
    }


def training_files_of(state: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the file of a training state: tensors, numbers, texts, lists and dictionaries."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return {TRAINING_STATE: buffer.getvalue()}


def training_state_of(
    files: Mapping[str, bytes], folder: Path
) -> tuple[dict[str, Any], dict[str, Tensor], list[dict[str, Any]]]:
    """Return the training state, the weights and the records of the files of a checkpoint.

    Raises:
        CheckpointError: it was saved without a training state, or holds anything else.
    """
    if TRAINING_STATE not in files:
        raise CheckpointError(f"{folder} holds a model only; training cannot go on from it")
    problem = "it is no file of torch.save"
    if zipfile.is_zipfile(io.BytesIO(files[TRAINING_STATE])):
        try:
            state = plain_data(files[TRAINING_STATE])
        except CheckpointError as error:
            problem = str(error)
        else:
            if isinstance(state, dict):
                return state, _weights(files[WEIGHTS], folder), records_of(files, folder)
            problem = f"it holds no dictionary but {type(state).__name__}"
    raise CheckpointError(f"{folder / TRAINING_STATE} is no training state: {problem}")


def set_temperature(folder: Path, temperature: float) -> None:
    """Write the temperature of a model beside its checkpoint; it counts before the one that was saved with it.

    Raises:
        CheckpointError: the checkpoint is damaged, or the temperature is no positive number.
        RecipeError: the folder cannot be written.
    """
    verified_files(folder, with_training_state=False)
    write_text(folder / TEMPERATURE, json.dumps(_checked_temperature(temperature)) + "\n")


def _calibrated(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of a checkpoint, with the temperature that was set later in its configuration."""
    if not (folder / TEMPERATURE).is_file():
        return files
    try:
        temperature = _checked_temperature(json.loads((folder / TEMPERATURE).read_bytes()))
    except (OSError, *MALFORMED) as error:
        raise CheckpointError(f"{folder / TEMPERATURE} is damaged: {in_a_line(error)}") from error
    return {**files, CONFIG: dump_yaml({**load_yaml(files[CONFIG]), "temperature": temperature}).encode()}


def _checked_temperature(given: object) -> float:
    if not isinstance(given, (int, float)) or not 0 < given < math.inf:
        raise CheckpointError(f"a temperature must be a positive number, not {given!s:.100}")
    return float(given)


def check_options(model: Model) -> None:
    """Refuse a model whose options ``config.yaml`` cannot hold.

    Raises:
        RecipeError: the message names the option.
    """
    for owner, options in ((model.network.network, model.network.options), (model.task.name, model.task.options)):
        for name, value in options.items():
            try:
                dump_yaml(value)
            except yaml.YAMLError as error:
                raise RecipeError(
                    f"the option {name} of {owner} is {value!r:.100}, of type {type(value).__module__}."
                    f"{type(value).__qualname__}; a checkpoint holds plain numbers, texts, lists and dictionaries"
                ) from error


def described(files: Mapping[str, bytes]) -> tuple[dict[str, Any], int, list[dict[str, Any]]]:
    """Return the configuration, the number of weights and the records that the files of a checkpoint hold.

    Raises:
        CheckpointError: they hold none.
    """
    weights = _weights(files[WEIGHTS], Path())
    return load_yaml(files[CONFIG]), sum(tensor.numel() for tensor in weights.values()), records_of(files, Path())


def read(path: str | os.PathLike[str]) -> tuple[Path, dict[str, bytes]]:
    """Return the folder and the files of the checkpoint that :func:`load` takes for ``path``, the hub excepted.

    The training state is left out.

    Raises:
        CheckpointError: there is none, or none is whole.
    """
    packaged = pretrained_folder(os.fspath(path)) if is_pretrained_name(path) else None
    folder = Path(path) if packaged is None else packaged
    if is_checkpoint(folder):
        return folder, _calibrated(folder, verified_files(folder, with_training_state=False))
    best = RunFolder(folder).find("best")
    if best is not None:
        return best[1], _calibrated(best[1], best[2])
    runs = _runs_below(folder)
    if not runs and (begun := [place for place in _folders_below(folder) if RunFolder(place).is_begun()]):
        raise CheckpointError(
            f"{begun[0]} has no weights: its training was interrupted before the first checkpoint, or has not come to "
            "it yet; start the same training again to complete it"
        )
    if len(runs) == 1:
        return read(runs[0])
    name = f"{os.fspath(path):.200}"
    if runs:
        raise CheckpointError(f"{name} holds these runs, of which you may choose one: {', '.join(map(str, runs))}")
    if os.path.isdir(path):  # noqa: PTH112  # of a name too long it says no, where Path raises
        raise CheckpointError(f"{name} is no checkpoint of treemem: it has no {MANIFEST}")
    names = pretrained_names()
    near = near_names(name, names) or f"; by name there are {', '.join(names)}"
    if beside := _runs_below(folder.parent):
        near = f"; {folder.parent} holds these runs: {quoted(beside)}"
    raise CheckpointError(f"there is no checkpoint {name}{near}")


def _runs_below(folder: Path) -> list[Path]:
    """Return the folders of runs in ``folder``, and in its folders of networks."""
    return [place for place in _folders_below(folder)[1:] if (place / POINTERS).is_file()]


def _folders_below(folder: Path) -> list[Path]:
    """Return a folder, those in it and those in these."""
    return [folder, *sorted({place for depth in ("*/", "*/*/") for place in _glob(folder, depth)})]


def _glob(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern)) if os.path.isdir(folder) else []  # noqa: PTH112


def fetch(
    address: HubAddress, *, token: str | None = None, cache_folder: str | os.PathLike[str] | None = None
) -> tuple[Path, dict[str, bytes]]:
    """Fetch a checkpoint from the hub, without its training state; see :func:`treemem.hub.download`."""
    folder = hub_client.download(address, (*MODEL_FILES, MANIFEST), token=token, cache_folder=cache_folder)
    if not is_checkpoint(folder):
        raise CheckpointError(f"{address} is no checkpoint of treemem: the repository has no {MANIFEST}")
    return folder, verified_files(folder, with_training_state=False)


def _check_format(version: object, folder: Path) -> None:
    if isinstance(version, int) and version > FORMAT:
        raise CheckpointError(
            f"{folder} is of format {version}, which a newer treemem wrote; this one reads {FORMAT}: "
            "pip install --upgrade treemem"
        )
    if version != FORMAT:
        raise CheckpointError(f"{folder} is of format {version!s:.100}; this version of treemem reads {FORMAT}")


def _weights(content: bytes, folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    import safetensors
    import safetensors.torch

    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, *MALFORMED) as error:
        raise CheckpointError(f"{folder / WEIGHTS} is no safetensors file: {in_a_line(error)}") from error


def check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse weights of other names, shapes or types than those of ``expected``.

    Raises:
        CheckpointError: what is wrong.
    """
    for name, table in expected.items():
        if name.endswith("leaves.embedding.weight") and len(weights.get(name, table)) < len(table):
            raise CheckpointError(
                f"{folder} holds a network of an earlier version, which cannot tell inner nodes with different labels "
                "apart if they share parameters; train it again"
            )
    for name in sorted({*weights, *expected}):
        saved: object = list(weights[name].shape) if name in weights else "missing"
        wanted: object = list(expected[name].shape) if name in expected else "no such weight"
        if saved == wanted:
            types = _FLOATING if expected[name].is_floating_point() else (expected[name].dtype,)
            if weights[name].dtype not in types:
                saved, wanted = f"of {weights[name].dtype}", " or ".join(map(str, types))
        if saved != wanted:
            raise CheckpointError(f"{folder / WEIGHTS} does not fit the network: {name} is {saved}, not {wanted}")


def records_of(files: Mapping[str, bytes], folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run up to the moment of its checkpoint.

    Raises:
        CheckpointError: they are no JSON objects.
    """
    try:
        records = [json.loads(line) for line in io.BytesIO(files[METRICS])]
    except MALFORMED as error:
        raise CheckpointError(f"{folder / METRICS} holds no records of a run: {in_a_line(error)}") from error
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise CheckpointError(f"{folder / METRICS} holds no records of a run: line {number} is no JSON object")
    return records


def _checked_threshold(given: Any, task: Task) -> float | None:
    if given is None:
        return None
    if not isinstance(given, float) or not 0 < given < 1 or not task.has_threshold:
        raise CheckpointError(f"{task.name} cannot have the threshold {given!s:.100}")
    return given

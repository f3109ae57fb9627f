"""A trained model as a folder: written whole or not at all, checked when read, and never a pickle."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor, nn

from treemem import hub_client
from treemem.errors import CheckpointError, RecipeError, TreememError, near_names
from treemem.hub_client import HubAddress
from treemem.model import Model, weights_of
from treemem.networks import NetworkConfig
from treemem.plain_data import plain_data
from treemem.records import cannot_write, json_line
from treemem.task import TASKS, Task, task_folder, task_folders
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)
FORMAT = 1
_CONFIG, _VOCABULARY, _WEIGHTS = "config.yaml", "vocabulary.json", "model.safetensors"
_METRICS, _TRAINING_STATE, _MANIFEST = "metrics.jsonl", "training_state.pt", "manifest.json"
_BEFORE, _PRETRAINED = ".before", "pretrained"
MODEL_FILES = (_CONFIG, _VOCABULARY, _WEIGHTS, _METRICS)
"""What every checkpoint has beside its manifest."""

_FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# What readers of YAML, JSON and safetensors raise, and constructors given foreign options; a RecursionError too.
_MALFORMED = (
    TreememError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError,
)  # fmt: skip


def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    tasks: Mapping[str, type[Task]] | None = None,
) -> Model:
    """A trained model, ready to predict.

    Args:
        path: the folder of a checkpoint, or of a training run, whose best checkpoint is then taken, or a folder with
            one such run in it, as ``treemem train`` writes for one network and seed; where there is no
            such folder, the name of a task that comes with a trained model. Where a checkpoint is torn and the one
            before it is whole, that one is loaded, and a warning says so. ``hf://owner/name@revision`` is a model on
            the hub (:mod:`treemem.hub`). The training state is not read, so it may be torn.
        device: where the weights shall be.
        networks, tasks: own classes by the names that the checkpoint uses, besides the registered ones.

    Raises:
        CheckpointError: the folder is missing, torn, altered or no checkpoint, or names what is not registered; or the
            hub does not give it.

    Example:
        >>> model = treemem.load("runs/equation_verification/tree-lstm")  # doctest: +SKIP
        >>> model.predict(["sin(x)^2 + cos(x)^2 = 1"])  # doctest: +SKIP
        array([0.998])
    """
    if hub_client.is_address(path):
        folder, files = fetch(HubAddress.parse(os.fspath(path)))
    elif is_pretrained_name(path):
        return load_pretrained(os.fspath(path), device=device)
    else:
        folder, files = read(path)
    return _model_of(files, folder, networks or {}, tasks or {}).to(device).eval()


def _model_of(
    files: Mapping[str, bytes],
    folder: Path,
    networks: Mapping[str, Callable[..., nn.Module]],
    tasks: Mapping[str, type[Task]],
) -> Model:
    """The model that the files of a checkpoint describe."""
    try:
        config = yaml.safe_load(files[_CONFIG])
        _check_format(config["format"], folder)
        vocabulary = Vocabulary.from_dict(json.loads(files[_VOCABULARY]))
        weights = _weights(files[_WEIGHTS], folder)
        network = NetworkConfig(config["network"]["name"], config["network"]["options"])
        task_name = config["task"]["name"]
        task = (tasks.get(task_name) or TASKS.find(task_name))(**config["task"]["options"])
        _check_weights(weights, weights_of(task, network, vocabulary, networks=networks), folder)
        with torch.random.fork_rng(devices=[]):
            model = Model(task, network, vocabulary, networks=networks)
        model.temperature = _checked_temperature(config.get("temperature", 1.0))
    except _MALFORMED as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{folder} does not describe a model: {_told(error)}") from error
    floating = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), torch.float32)
    model.to(floating).load_state_dict(weights)
    return model


def load_pretrained(task: str = "equation_verification", *, device: str | torch.device = "cpu") -> Model:
    """The trained model that comes with a task, ready to predict, in single precision.

    ``CARD.md`` in its folder (:func:`pretrained_folder`) says what it was trained on, how, and how well it does.

    Args:
        task: name of the task.
        device: where the weights shall be.

    Raises:
        RecipeError: no task of that name.
        CheckpointError: no model comes with it, or it is torn or altered.

    Example:
        >>> model = treemem.load_pretrained()  # doctest: +SKIP
        >>> model.predict(["sin(x)^2 + cos(x)^2 = 1"]) > 0.5  # doctest: +SKIP
        array([ True])
    """
    folder = pretrained_folder(task)
    if folder is None or not folder.exists():
        raise CheckpointError(f"no trained model comes with the task {task!r}; train one, and load its folder")
    return load(folder, device=device).float()


def pretrained_names() -> list[str]:
    """The tasks with which a trained model comes."""
    return [name for name, folder in task_folders().items() if (folder / _PRETRAINED).is_dir()]


def _has_pretrained(task: str) -> bool:
    folder = pretrained_folder(task)
    return folder is not None and folder.is_dir()


def is_pretrained_name(path: str | os.PathLike[str]) -> bool:
    """Whether :func:`load` takes ``path`` for the name of a task with which a model comes.

    A folder of that name is taken before it where it is a checkpoint or a run; one that only holds runs is not.
    """
    name, signs = os.fspath(path), (folder / _MANIFEST for folder in _places_of(Path(path)))
    return name in TASKS.names() and _has_pretrained(name) and not any(sign.exists() for sign in signs)


def pretrained_folder(task: str) -> Path | None:
    """Where the trained model that comes with a task is, or would be; none for a task that is in no file.

    Raises:
        RecipeError: no task of that name.
    """
    folder = task_folder(task)
    return None if folder is None else folder / _PRETRAINED


def save(
    path: str | os.PathLike[str],
    model: Model,
    *,
    training_state: Mapping[str, Any] | None = None,
    metrics: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Write a checkpoint; the one that stood at ``path`` is kept beside it as ``<path>.before``.

    One that is torn does not take the place of a whole one before it, and what is no checkpoint is never replaced.

    Args:
        path: the folder to write; it may be there where it is empty or a checkpoint. Where it is a link, the folder
            that it leads to is written.
        model: what to save; its network must be known by name to be loaded again.
        training_state: tensors, numbers, strings, lists and dictionaries that resuming needs.
        metrics: the run's records so far.

    Raises:
        CheckpointError: the folder cannot be written, or something else than a checkpoint stands there.
        RecipeError: an option of the network or the task is not plain data.
    """
    files = files_of(model, metrics)
    if training_state is not None:
        buffer = io.BytesIO()
        torch.save(dict(training_state), buffer)
        files[_TRAINING_STATE] = buffer.getvalue()
    _write_checkpoint(Path(path), files)


def files_of(model: Model, metrics: Iterable[Mapping[str, Any]] = ()) -> dict[str, bytes]:
    """The files of a checkpoint of a model, by name, without a manifest.

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
    # Copies, for safetensors refuses tensors that share their memory, as tied weights do.
    weights = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    return {
        _CONFIG: yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode(),
        _VOCABULARY: json.dumps(model.vocabulary.to_dict(), ensure_ascii=False).encode(),
        _WEIGHTS: safetensors.torch.save(weights),
        _METRICS: "".join(json_line(record) for record in metrics).encode(),
    }


def set_temperature(path: str | os.PathLike[str], temperature: float) -> None:
    """Write the temperature of a model into its checkpoint; all else stays. The one without it is kept beside.

    Args:
        path: the folder of the checkpoint: of a run, its ``best``. Where it is the one before a checkpoint that is
            torn or lost, it takes the place of that.
        temperature: see :mod:`treemem.metrics.calibration`.

    Raises:
        CheckpointError: it is torn or altered, or cannot be written, or the temperature is no positive number.
    """
    folder = Path(path)
    files = verified_files(folder)
    left = [place for place in folder.iterdir() if place.name not in (*files, _MANIFEST)]
    others = {place.name: place.read_bytes() for place in left if place.is_file()}
    folders = [place for place in left if place.is_dir()]
    config = yaml.safe_load(files[_CONFIG])
    config["temperature"] = _checked_temperature(temperature)
    files[_CONFIG] = yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode()
    named = _named(folder)
    newer = named.with_name(named.name.removesuffix(_BEFORE) or named.name)
    _write_checkpoint(newer if newest_whole(newer).folder == named else folder, files, others, folders)


def _checked_temperature(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
        raise CheckpointError(f"a temperature must be a positive number, not {given!r}")
    return float(given)


def _write_checkpoint(
    path: Path, files: Mapping[str, bytes], others: Mapping[str, bytes] | None = None, folders: Iterable[Path] = ()
) -> None:
    """Write files with the manifest that vouches for them, and beside them others, such as a card, and folders."""
    try:
        _write_folder(path, {**with_manifest(files), **(others or {})}, folders)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {cannot_write(error)}") from error


def with_manifest(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a checkpoint, and the manifest that vouches for them."""
    manifest = {name: {"bytes": len(content), "sha256": _digest(content)} for name, content in files.items()}
    return {**files, _MANIFEST: json.dumps(manifest, indent=1).encode()}


def check_options(model: Model) -> None:
    """Refuse a model whose options ``config.yaml`` cannot hold.

    Raises:
        RecipeError: it names the option.
    """
    for owner, options in ((model.network.network, model.network.options), (model.task.name, model.task.options)):
        for name, value in options.items():
            try:
                yaml.safe_dump(value)
            except yaml.YAMLError as error:
                raise RecipeError(
                    f"the option {name} of {owner} is {value!r}, of type {type(value).__module__}."
                    f"{type(value).__qualname__}; a checkpoint holds plain numbers, texts, lists and dictionaries"
                ) from error


def described(files: Mapping[str, bytes]) -> tuple[dict[str, Any], int, list[dict[str, Any]]]:
    """The configuration, the number of weights and the records that the files of a checkpoint hold.

    Raises:
        CheckpointError: they hold none.
    """
    folder = Path()
    weights = _weights(files[_WEIGHTS], folder)
    config = yaml.safe_load(files[_CONFIG])
    return config, sum(tensor.numel() for tensor in weights.values()), _records(files, folder)


def load_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a run up to the moment of its checkpoint.

    Raises:
        CheckpointError: it is torn or altered.
    """
    folder = Path(path)
    return _records(verified_files(folder), folder)


def load_training_state(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor], list[dict[str, Any]]]:
    """What resuming needs: the training state, the weights and the records of a checkpoint.

    Raises:
        CheckpointError: it is torn or altered, or was saved without its training state.
    """
    folder = Path(path)
    files = verified_files(folder)
    if _TRAINING_STATE not in files:
        raise CheckpointError(f"{folder} holds a model only; training cannot go on from it")
    state = _training_state(files[_TRAINING_STATE], folder)
    return state, _weights(files[_WEIGHTS], folder), _records(files, folder)


class NewestWhole(NamedTuple):
    """What :func:`newest_whole` found.

    Attributes:
        folder: of the checkpoint; None where none is whole.
        problem: what was wrong with the others; empty where there were none.
        files: of the checkpoint, by name.
    """

    folder: Path | None
    problem: str
    files: dict[str, bytes]


def newest_whole(path: str | os.PathLike[str], *, with_training_state: bool = True) -> NewestWhole:
    """The checkpoint at ``path`` if it is whole, else the one before it if that is.

    Args:
        path: of the checkpoint.
        with_training_state: read that too, so that one that is torn counts.
    """
    problems = []
    for folder in (Path(path), _before(Path(path))):
        if not folder.exists():
            continue
        try:
            files = verified_files(folder, with_training_state=with_training_state)
        except CheckpointError as error:
            problems.append(str(error))
        else:
            return NewestWhole(folder, "; ".join(problems), files)
    return NewestWhole(None, "; ".join(problems), {})


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint at ``path``, or the one before it; whole or not."""
    return Path(path).exists() or _before(Path(path)).exists()


def remove(path: str | os.PathLike[str]) -> None:
    """Delete a checkpoint and the one before it, where they are; of a link, those that it leads to."""
    for folder in (_followed(Path(path)), _before(Path(path))):
        _delete(folder)


def remove_newest(path: str | os.PathLike[str]) -> None:
    """Delete a torn checkpoint, so that the next save keeps the whole one before it and not the torn one."""
    _delete(_followed(Path(path)))


def clear_unfinished(path: str | os.PathLike[str]) -> None:
    """Delete what a save to ``path`` left behind that was killed. No other process may be saving there."""
    _delete(_temporary(Path(path)))


def read(path: str | os.PathLike[str]) -> tuple[Path, dict[str, bytes]]:
    """The checkpoint that :func:`load` takes for ``path``, an address on the hub excepted.

    Returns:
        Its folder, and its files by name, without the training state.

    Raises:
        CheckpointError: neither the checkpoint there nor the one before it is whole.
    """
    packaged = pretrained_folder(os.fspath(path)) if is_pretrained_name(path) else None
    return _read(Path(path) if packaged is None else packaged)


def fetch(
    address: HubAddress, *, token: str | None = None, cache_folder: str | os.PathLike[str] | None = None
) -> tuple[Path, dict[str, bytes]]:
    """Fetch a checkpoint from the hub, without its training state; see :func:`treemem.hub.download`."""
    wanted = (*MODEL_FILES, _MANIFEST)
    folder = hub_client.download(address, wanted, token=token, cache_folder=cache_folder)
    if not (folder / _MANIFEST).is_file():
        raise CheckpointError(f"{address} is no checkpoint of treemem: the repository has no {_MANIFEST}")
    return folder, verified_files(folder, with_training_state=False)


def verified_files(folder: Path, *, with_training_state: bool = True) -> dict[str, bytes]:
    """The files of a checkpoint by name, each as long as the manifest says and with the same hash.

    Raises:
        CheckpointError: it names the file that is missing, cut off or altered.
    """
    if not folder.is_dir():
        packaged = pretrained_names()
        near = near_names(os.fspath(folder), packaged) or f"; by name there are {', '.join(packaged)}"
        raise CheckpointError(f"there is no checkpoint {folder}{near}")
    listed = _listed(folder)
    files = {}
    for name in (*MODEL_FILES, *([_TRAINING_STATE] if with_training_state and _TRAINING_STATE in listed else [])):
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error.strerror}") from error
        length, digest = listed[name]
        if len(content) != length:
            raise CheckpointError(f"{folder / name} is cut off or altered: {len(content)} bytes, not {length}")
        if _digest(content) != digest:
            raise CheckpointError(f"{folder / name} is altered: its contents do not have the hash that was saved")
        files[name] = content
    return files


def _listed(folder: Path) -> dict[str, tuple[int, str]]:
    """How long each file of a checkpoint is and what its hash is, as the manifest says."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        listed = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except FileNotFoundError as error:
        inner = ", ".join(map(str, _runs_within(folder)))
        near = f"; it holds these runs, of which you may choose one: {inner}" if inner else ""
        raise CheckpointError(f"{folder} is no checkpoint of treemem: it has no {_MANIFEST}{near}") from error
    except (OSError, *_MALFORMED) as error:
        raise CheckpointError(f"{folder / _MANIFEST} is damaged: {_told(error)}") from error
    for name in MODEL_FILES:
        if name not in listed:
            raise CheckpointError(f"{folder} is no checkpoint of treemem: its {_MANIFEST} does not list {name}")
    return listed


def _read(path: Path) -> tuple[Path, dict[str, bytes]]:
    """The checkpoint that ``path`` means: itself or the best of a run, or the one before where that is not whole."""
    best = path / "best"
    for place in _places_of(path):
        if (place / _MANIFEST).exists():
            folder = best if place in (best, _before(best)) else path
            whole, problem, files = newest_whole(folder, with_training_state=False)
            if whole is None:
                last = newest_whole(path / "last", with_training_state=False).folder if folder == best else None
                raise CheckpointError(f"{problem}; the run's last checkpoint, {last}, is whole" if last else problem)
            if problem:
                _logger.warning("%s; loading %s", problem, whole)
            return whole, files
    runs = _runs_within(path)
    return _read(runs[0]) if len(runs) == 1 else (path, verified_files(path, with_training_state=False))


def _places_of(path: Path) -> tuple[Path, Path, Path, Path]:
    """Where a checkpoint that ``path`` means may be, the first that is there first."""
    best = path / "best"
    return path, best, _before(best), _before(path)


def _runs_within(folder: Path) -> list[Path]:
    """The runs in a folder that has one for each network, or for each network and seed."""
    signs = (f"{depth}{name}/{_MANIFEST}" for depth in ("*/", "*/*/") for name in ("best", "best.before"))
    return sorted({sign.parent.parent for pattern in signs for sign in folder.glob(pattern)})


def _check_format(found: object, folder: Path) -> None:
    """Refuse a format that this version does not read."""
    if isinstance(found, int) and found > FORMAT:
        raise CheckpointError(
            f"{folder} is of format {found}, which a newer treemem wrote; this one reads {FORMAT}: "
            "pip install --upgrade treemem"
        )
    if found != FORMAT:
        raise CheckpointError(f"{folder} is of format {found!r}; this version of treemem reads {FORMAT}")


def _weights(content: bytes, folder: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    import safetensors
    import safetensors.torch

    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, *_MALFORMED) as error:
        raise CheckpointError(f"{folder / _WEIGHTS} is no safetensors file: {_told(error)}") from error


def _check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse weights of other names, shapes or types than those of ``expected``."""
    for name in sorted({*weights, *expected}):
        saved: object = list(weights[name].shape) if name in weights else "missing"
        wanted: object = list(expected[name].shape) if name in expected else "no such weight"
        if saved == wanted:
            types = _FLOATING if expected[name].is_floating_point() else (expected[name].dtype,)
            if weights[name].dtype not in types:
                saved, wanted = f"of {weights[name].dtype}", " or ".join(map(str, types))
        if saved != wanted:
            raise CheckpointError(f"{folder / _WEIGHTS} does not fit the network: {name} is {saved}, not {wanted}")


def _training_state(content: bytes, folder: Path) -> dict[str, Any]:
    """What :func:`save` was given as training state. Anything but plain data and tensors is refused, never loaded."""
    problem = "it is no file of torch.save"
    if zipfile.is_zipfile(io.BytesIO(content)):
        try:
            state = plain_data(content)
        except CheckpointError as error:
            problem = str(error)
        else:
            if isinstance(state, dict):
                return state
            problem = f"it holds no dictionary but {type(state).__name__}"
    raise CheckpointError(f"{folder / _TRAINING_STATE} is no training state: {problem}")


def _write_folder(path: Path, files: Mapping[str, bytes], folders: Iterable[Path] = ()) -> None:
    """Write files, and copies of folders, into a folder that takes the place of the one at ``path``."""
    path = _followed(path)
    for folder in (path, _before(path)):
        _check_replaceable(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    _delete(temporary)
    temporary.mkdir()
    try:
        for name, content in files.items():
            with (temporary / name).open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        for folder in folders:
            if folder.is_symlink():
                (temporary / folder.name).symlink_to(folder.readlink())
            else:
                shutil.copytree(folder, temporary / folder.name, symlinks=True)
        if _is_empty(path) or newest_whole(path).folder == _before(path):
            _delete(path)
        elif path.exists():
            _delete(_before(path))
            path.rename(_before(path))
        temporary.rename(path)
    finally:
        _delete(temporary)


def _check_replaceable(folder: Path) -> None:
    """Refuse to write over what no save has left there: a run, a folder of somebody's own, a file."""
    if folder.exists() and not _is_empty(folder):
        try:
            _listed(folder)
        except CheckpointError as error:
            raise CheckpointError(
                f"{folder} is there and is no checkpoint of treemem, so nothing is written over it; choose another "
                "folder, or move that one away"
            ) from error


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _records(files: Mapping[str, bytes], folder: Path) -> list[dict[str, Any]]:
    try:
        records = [json.loads(line) for line in io.BytesIO(files[_METRICS])]
    except _MALFORMED as error:
        raise CheckpointError(f"{folder / _METRICS} holds no records of a run: {_told(error)}") from error
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise CheckpointError(f"{folder / _METRICS} holds no records of a run: line {number} is no JSON object")
    return records


def _delete(folder: Path) -> None:
    """Delete a folder, the manifest last, so that what is left of it where this is killed is still a checkpoint's.

    Of a link nothing is deleted but the link.
    """
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _MANIFEST:
                path.unlink()
        shutil.rmtree(folder)


def _temporary(path: Path) -> Path:
    path = _named(path)
    return path.parent / f".{path.name}.tmp"


def _before(path: Path) -> Path:
    path = _named(path)
    return path.parent / f"{path.name}{_BEFORE}"


def _named(path: Path) -> Path:
    """The same folder under its name, which ``.``, ``..`` and a link do not say."""
    return path.resolve() if path.name in ("", "..") else _followed(path)


def _followed(path: Path) -> Path:
    """Where a link leads to; what is none stays."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _told(error: Exception) -> str:
    """What an error says, in one line."""
    text = f"no {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__

"""Trained models on a hub of models: see ``docs/model_hub.md``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from treemem import checkpoint, hub_client
from treemem.errors import RecipeError
from treemem.hub_client import HubAddress
from treemem.metrics.score import Score
from treemem.model import Model
from treemem.task import TASKS

CARD = "README.md"
_OWN_CARDS = (CARD, "CARD.md")


def push(
    model: Model | str | os.PathLike[str],
    repository: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    scores: Sequence[Score] = (),
    message: str = "",
) -> str:
    """Put a trained model into a repository on the hub, for :func:`treemem.load` to load by ``hf://owner/name``.

    Of a checkpoint go the configuration, the vocabulary, the weights, the records and the manifest, and never the
    training state. A card goes with them: ``README.md`` or ``CARD.md`` of the folder, or else, where the repository has
    none, one that says what the model is, as :func:`model_card` writes it.

    Args:
        model: a model, the folder of a checkpoint or run, or the name of a task that comes with a trained model.
        repository: ``owner/name``; it is made where there is none, and its main branch is written.
        private: whether a new repository can be seen by its owners alone; by default as the owner's settings say.
        token: by default the one of ``hf auth login`` or of the variable ``HF_TOKEN``.
        scores: how well it does on a test, by group, for the card that is written.
        message: of the commit.

    Returns:
        The page of the repository.

    Raises:
        CheckpointError: there is no whole checkpoint, no huggingface_hub, no permission, or no way to the hub.
        RecipeError: an option of the network or the task is not plain data, or ``repository`` names a revision.

    Example:
        >>> treemem.hub.push("runs/equation_verification", "me/equations", private=True)  # doctest: +SKIP
        'https://huggingface.co/me/equations'
    """
    address = HubAddress.parse(repository)
    if address.revision is not None:
        raise RecipeError(
            f"{repository} names a revision, and only the main branch is pushed to: push to {address.repository}, and "
            f'give that the tag by huggingface_hub.HfApi().create_tag("{address.repository}", tag="{address.revision}")'
        )
    if isinstance(model, Model):
        folder, files = None, checkpoint.files_of(model)
    else:
        folder, files = checkpoint.read(model)
    own = {} if folder is None else _own_card(folder)
    card = {} if own else {CARD: model_card(files, repository=address.repository, scores=scores).encode()}
    return hub_client.upload(
        address,
        {**checkpoint.with_manifest(files), **own},
        where_missing=card,
        message=message or "Add a model of treemem",
        private=private,
        token=token,
    )


def download(
    repository: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Fetch a model from the hub; what the cache has of it is not fetched again.

    Args:
        repository: ``owner/name``.
        revision: a branch, a tag or a commit; the main branch by default.
        token: by default the one of ``hf auth login`` or of the variable ``HF_TOKEN``.
        cache_folder: by default the one of huggingface_hub.

    Returns:
        The folder of its checkpoint, for :func:`treemem.load`.

    Raises:
        CheckpointError: there is no huggingface_hub, no such repository or revision, no permission, no way to the hub,
            or what is there is no whole checkpoint.
        RecipeError: two revisions.
    """
    address = HubAddress.parse(repository)
    if revision is not None and address.revision is not None:
        raise RecipeError(f"{repository} names a revision, and revision={revision!r} another way; name it once")
    if revision is not None:
        address = HubAddress(address.repository, revision)
    return checkpoint.fetch(address, token=token, cache_folder=cache_folder)[0]


def model_card(files: Mapping[str, bytes], *, repository: str = "", scores: Sequence[Score] = ()) -> str:
    """What the model of a checkpoint is, as Markdown with the head that hubs read.

    Args:
        files: of the checkpoint, by name (:func:`treemem.checkpoint.verified_files`).
        repository: where it can be loaded from.
        scores: how well it does on a test, by group.
    """
    config, parameters, records = checkpoint.described(files)
    network, task = config["network"], config["task"]
    head = {"library_name": "treemem", "tags": ["treemem", task["name"], network["name"]]}
    lines = [f"# {network['name']} for {task['name'].replace('_', ' ')}", ""]
    if about := _about_task(task["name"]):
        lines += [about, ""]
    lines += [
        f"- Network: {network['name']}{_said(network['options'])}; {parameters:,} parameters.",
        f"- Task: {task['name']}, version {task['version']}{_said(task['options'])}.",
    ]
    if "temperature" in config:
        lines.append(f"- Temperature of its probabilities: {config['temperature']:.4g}.")
    validated = [(place, each) for place, each in enumerate(records, start=1) if "validation_accuracy" in each]
    if validated:
        epoch, last = validated[-1]
        lines.append(f"- Validation accuracy: {last['validation_accuracy']:.2%}, of epoch {last.get('epoch', epoch)}.")
    if scores:
        lines += ["", "| test | examples | accuracy, % | majority class, % |", "|---|---:|---:|---:|"]
        lines += [
            f"| {each.group} | {each.examples} | {100 * each.accuracy:.2f} | {100 * each.majority:.2f} |"
            for each in scores
        ]
    if repository:
        load = f'model = treemem.load("{hub_client.SCHEME}{repository}")'
        lines += ["", "```python", "import treemem  # pip install 'treemem[hub]'", "", load, "```"]
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n" + "\n".join(lines) + "\n"


def _own_card(folder: Path) -> dict[str, bytes]:
    found = [folder / name for name in _OWN_CARDS if (folder / name).is_file()]
    return {CARD: found[0].read_bytes()} if found else {}


def _about_task(name: str) -> str:
    """The first line of what a task says of itself; nothing of one that is not registered here."""
    try:
        task = TASKS.find(name)
    except RecipeError:
        return ""
    return (inspect.getdoc(task) or "").partition("\n")[0]


def _said(options: Mapping[str, Any]) -> str:
    return "".join(f", {name} {value}" for name, value in options.items())

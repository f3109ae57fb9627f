"""Trained models on the Hugging Face Hub: see ``docs/model_hub.md``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from treemem import checkpoint, hub_client
from treemem.errors import RecipeError
from treemem.hub_client import HubAddress
from treemem.metrics.score import Monitor, Score
from treemem.model import Model
from treemem.task import TASKS

CARD = "README.md"
_OWN_CARDS = (CARD, "CARD.md")
_TEMPLATE = Path(__file__).with_name("model_card.md")


def push(
    model: Model | str | os.PathLike[str],
    repository: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    scores: Sequence[Score] = (),
    message: str = "",
) -> str:
    """Put a trained model into a repository on the hub. :func:`treemem.load` loads it by ``hf://owner/name``.

    The configuration, the vocabulary, the weights, the records and the manifest of the checkpoint are pushed; the
    training state is not. The card is ``README.md`` or ``CARD.md`` of the folder. If neither exists and the
    repository has no card, :func:`model_card` writes one.

    Args:
        model: a model, the folder of a checkpoint or run, or the name of a task that comes with a trained model.
        repository: ``owner/name``; its main branch is written. A missing repository is created.
        private: whether a new repository is visible to its owners only; None: as the owner's settings say.
        token: None: that of ``hf auth login`` or of the variable ``HF_TOKEN``.
        scores: of a test, by group, for the card that is written.
        message: of the commit.

    Returns:
        The page of the repository.

    Raises:
        CheckpointError: there is no whole checkpoint, or the hub refuses or cannot be reached.
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
    places: list[Path] = []
    if isinstance(model, Model):
        files = checkpoint.files_of(model)
    else:
        folder, files = checkpoint.read(model)
        places = [Path(model), folder]  # of a run, whose checkpoint is further in
    cards = [place / name for place in places for name in _OWN_CARDS if (place / name).is_file()]
    existing = {CARD: cards[0].read_bytes()} if cards else {}
    card = {} if existing else {CARD: model_card(files, repository=address.repository, scores=scores).encode()}
    return hub_client.upload(
        address,
        {**checkpoint.with_manifest(files), **existing},
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
    """Fetch a model from the hub. Files in the cache are not fetched again.

    Args:
        repository: ``owner/name``.
        revision: a branch, a tag or a commit; None: the main branch.
        token: None: that of ``hf auth login`` or of the variable ``HF_TOKEN``.
        cache_folder: None: that of huggingface_hub.

    Returns:
        The folder of its checkpoint, for :func:`treemem.load`.

    Raises:
        CheckpointError: the hub refuses or cannot be reached, or the repository is not a whole checkpoint.
        RecipeError: two revisions.
    """
    address = HubAddress.parse(repository)
    if revision is not None:
        if address.revision is not None:
            raise RecipeError(f"{repository} names a revision, and revision={revision!r} another way; name it once")
        address = HubAddress(address.repository, revision)
    return checkpoint.fetch(address, token=token, cache_folder=cache_folder)[0]


def model_card(files: Mapping[str, bytes], *, repository: str = "", scores: Sequence[Score] = ()) -> str:
    """Return the card of a checkpoint: Markdown with the head that the hub reads.

    Args:
        files: of the checkpoint, by name (:func:`treemem.checkpoint.verified_files`).
        repository: where it can be loaded from.
        scores: of a test, by group.

    Raises:
        CheckpointError: huggingface_hub is not installed.
    """
    hub = hub_client.imported_hub()
    config, parameters, records = checkpoint.described(files)
    network, task = config["network"], config["task"]
    monitor = _monitor(task["name"])
    monitored = f"validation_{monitor.metric}"
    validated = [
        {"epoch": epoch, "value": monitor.shown(record[monitored])}
        for epoch, record in enumerate(records, 1)
        if monitored in record
    ]
    card = hub.ModelCard.from_template(
        hub.ModelCardData(library_name="treemem", tags=["treemem", task["name"], network["name"]]),
        template_path=str(_TEMPLATE),
        network=network,
        task=task,
        about=_first_line(task["name"]),
        parameters=parameters,
        temperature=config.get("temperature"),
        best=validated[-1] if validated else None,
        metric=monitor.metric,
        unit="%" if monitor.percent else "",
        scores=[(score, monitor.shown(score.metrics.get(monitor.metric))) for score in scores],
        address=f"{hub_client.SCHEME}{repository}" if repository else "",
    )
    return str(card)


def _monitor(task: str) -> Monitor:
    """Return the monitor of a task; accuracy if the task is not registered here."""
    try:
        return TASKS.find(task).monitor
    except RecipeError:
        return Monitor("accuracy")


def _first_line(task: str) -> str:
    """Return the first line of a task's docstring, or nothing if the task is not registered here."""
    try:
        return (inspect.getdoc(TASKS.find(task)) or "").partition("\n")[0]
    except RecipeError:
        return ""

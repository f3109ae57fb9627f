"""Repositories on the Hugging Face Hub. huggingface_hub is optional and imported when the hub is used."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treemem.errors import CheckpointError
from treemem.records import cannot_write

SCHEME = "hf://"
_LOG_IN = "log in by 'hf auth login', or put a token into the variable HF_TOKEN"


@dataclass(frozen=True)
class HubAddress:
    """A repository on the hub and a revision of it: a branch, a tag or a commit. None is the main branch."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """Return the address of ``hf://owner/name@revision``; ``hf://`` and ``@revision`` are optional.

        Raises:
            CheckpointError: it has another form.
        """
        repository, at, revision = text.removeprefix(SCHEME).partition("@")
        owner, _, name = repository.partition("/")
        if not owner or not name or "/" in name or (at and not revision):
            raise CheckpointError(f"{text!r} is not the address of a model; expected {SCHEME}owner/name[@revision]")
        return cls(repository, revision or None)

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether ``path`` is an address on the hub, not a folder."""
    return os.fspath(path).startswith(SCHEME)


def download(
    address: HubAddress,
    files: Collection[str],
    *,
    token: str | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Fetch those of ``files`` that a revision has and the cache does not have.

    Returns:
        The folder of the cache that holds them.

    Raises:
        CheckpointError: huggingface_hub is not installed, there is no such repository or revision, the user has no
            permission, the hub cannot be reached, or the disk is full.
    """
    with _hub(address) as hub:
        folder = hub.snapshot_download(
            address.repository,
            revision=address.revision,
            token=token,
            cache_dir=cache_folder,
            allow_patterns=sorted(files),
            library_name="treemem",
        )
    return Path(folder)


def upload(
    address: HubAddress,
    files: Mapping[str, bytes],
    *,
    where_missing: Mapping[str, bytes],
    message: str,
    private: bool | None = None,
    token: str | None = None,
) -> str:
    """Put files into a repository in one commit. A missing repository is created.

    Args:
        address: of the repository, whose main branch is written.
        files: by name.
        where_missing: files that are added only if the repository has no file of that name.
        message: of the commit.
        private: whether a new repository is visible to its owners only; None: as the owner's settings say.
        token: None: that of the login, or of the variable ``HF_TOKEN``.

    Returns:
        The page of the repository.

    Raises:
        CheckpointError: as in :func:`download`.
    """
    with _hub(address) as hub:
        api = hub.HfApi(token=token, library_name="treemem")
        page = api.create_repo(address.repository, private=private, exist_ok=True)
        added = {name: text for name, text in where_missing.items() if not api.file_exists(address.repository, name)}
        operations = [
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in {**added, **files}.items()
        ]
        api.create_commit(address.repository, operations, commit_message=message)
    return str(page)


def imported_hub() -> Any:
    """Return the package huggingface_hub.

    Raises:
        CheckpointError: it is not installed.
    """
    try:
        import huggingface_hub.errors
        import huggingface_hub.utils  # both by name: the package itself does not import them
    except ImportError as error:
        raise CheckpointError("models on a hub need huggingface_hub: pip install 'treemem[hub]'") from error
    return huggingface_hub


@contextlib.contextmanager
def _hub(address: HubAddress) -> Iterator[Any]:
    """Yield huggingface_hub, without progress bars unless on a terminal. Raise its errors as CheckpointError."""
    hub = imported_hub()
    is_quiet = not sys.stderr.isatty() and not hub.utils.are_progress_bars_disabled()
    if is_quiet:
        hub.utils.disable_progress_bars()
    # The HTTP library below raises classes that differ from release to release.
    raised: tuple[type[Exception], ...] = (OSError, hub.errors.HFValidationError, *hub.errors.HfHubHTTPError.__bases__)
    try:
        yield hub
    except raised as error:
        raise CheckpointError(_problem(address, error, hub.errors)) from error
    finally:
        if is_quiet:
            hub.utils.enable_progress_bars()


def _problem(address: HubAddress, error: Exception, errors: Any) -> str:
    """Return what is wrong and what to do, of an error of huggingface_hub or of the library below it."""
    problem = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
    if isinstance(error, errors.HFValidationError):
        return f"{address} is not the address of a model: {problem}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"there is no repository {address.repository} on the hub, or you may not see it; check the name, and if it "
            f"is private, {_LOG_IN}"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"the repository {address.repository} has no revision {address.revision!r}"
    is_offline = isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled))
    if isinstance(error, errors.HfHubHTTPError) and not is_offline:
        if error.response.status_code in (401, 403):
            return f"you may not do this with {address.repository}; {_LOG_IN}, of its owner"
        return f"the hub refused {address} (HTTP {error.response.status_code}): {problem}"
    is_of_disk = isinstance(error, OSError) and (
        error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT)
    )
    if is_of_disk and not is_offline:
        return f"cannot keep {address} in the cache: {cannot_write(error)} by HF_HOME"  # type: ignore[arg-type]
    cause = " ".join(str(error.__cause__ or error).split())[:200]
    return (
        f"{address} needs the hub, which cannot be reached ({cause}); check the network and HF_HUB_OFFLINE, or give "
        "the folder of a checkpoint"
    )

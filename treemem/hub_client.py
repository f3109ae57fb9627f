"""Repositories on a hub of models: huggingface_hub, an optional package, imported where a hub is asked for."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from treemem.errors import CheckpointError
from treemem.records import cannot_write

SCHEME = "hf://"
_LOG_IN = "log in by 'hf auth login', or put a token into the variable HF_TOKEN"


@dataclass(frozen=True)
class HubAddress:
    """A repository on the hub, and one of its revisions: a branch, a tag or a commit; the main branch by default."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """The address that ``hf://owner/name@revision`` says; ``hf://`` and ``@revision`` may be left out.

        Raises:
            CheckpointError: it is no such text.
        """
        repository, at, revision = text.removeprefix(SCHEME).partition("@")
        owner, _, name = repository.partition("/")
        if not owner or not name or "/" in name or (at and not revision):
            raise CheckpointError(f"{text!r} is no address of a model; expected {SCHEME}owner/name[@revision]")
        return cls(repository, revision or None)

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is an address on the hub, not a folder."""
    return os.fspath(path).startswith(SCHEME)


def download(
    address: HubAddress,
    files: Collection[str],
    *,
    token: str | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Fetch those of ``files`` that a revision has and the cache has not.

    Returns:
        The folder of the cache with what the revision has of them.

    Raises:
        CheckpointError: there is no huggingface_hub, no such repository or revision, no permission, no way to the hub,
            or no place on the disk.
    """
    hub = _imported_hub()
    with _errors_told(address), _bars_on_a_terminal_alone():
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
    """Put files into a repository, which is made where there is none, by one commit, so that they fit each other.

    Args:
        address: of the repository, whose main branch is written.
        files: by name.
        where_missing: files that are put there only where the repository has none of that name.
        message: of the commit.
        private: whether a new repository can be seen by its owners alone; by default as the owner's settings say.
        token: by default the one of the login, or of the variable ``HF_TOKEN``.

    Returns:
        The page of the repository.

    Raises:
        CheckpointError: as in :func:`download`.
    """
    hub = _imported_hub()
    with _errors_told(address), _bars_on_a_terminal_alone():
        api = hub.HfApi(token=token, library_name="treemem")
        page = api.create_repo(address.repository, private=private, exist_ok=True)
        missing = {
            name: content for name, content in where_missing.items() if not api.file_exists(address.repository, name)
        }
        additions = [
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in {**missing, **files}.items()
        ]
        api.create_commit(address.repository, additions, commit_message=message)
    return str(page)


def _imported_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError("models on a hub need huggingface_hub: pip install 'treemem[hub]'") from error
    return huggingface_hub


@contextlib.contextmanager
def _bars_on_a_terminal_alone() -> Iterator[None]:
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


@contextlib.contextmanager
def _errors_told(address: HubAddress) -> Iterator[None]:
    """Raise what huggingface_hub raises as a CheckpointError that says what to do."""
    from huggingface_hub import errors

    # What the library for HTTP beneath raises has a class that differs from release to release.
    of_transport: tuple[type[Exception], ...] = (OSError, *errors.HfHubHTTPError.__bases__)
    try:
        yield
    except errors.HFValidationError as error:
        raise CheckpointError(f"{address} is no address of a model: {_line(error)}") from error
    except errors.GatedRepoError as error:
        raise CheckpointError(f"{address} is open to some alone; ask for access on its page, and {_LOG_IN}") from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"there is no repository {address.repository} on the hub, or you may not see it; is the name right? "
            f"where it is private, {_LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"the repository {address.repository} has no revision {address.revision!r}") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        _raise_unreachable(address, error)
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise CheckpointError(f"you may not do this with {address.repository}; {_LOG_IN}, of its owner") from error
        raise CheckpointError(f"the hub refused {address} (HTTP {status}): {_line(error)}") from error
    except of_transport as error:
        full = (errno.ENOSPC, errno.EDQUOT)
        if isinstance(error, OSError) and (error.filename is not None or error.errno in full):
            raise CheckpointError(f"cannot keep {address} in the cache: {cannot_write(error)} by HF_HOME") from error
        _raise_unreachable(address, error)


def _raise_unreachable(address: HubAddress, error: Exception) -> NoReturn:
    raise CheckpointError(
        f"{address} needs the hub, which cannot be reached ({_line(error.__cause__ or error)}); check the network and "
        "HF_HUB_OFFLINE, or give the folder of a checkpoint"
    ) from error


def _line(error: BaseException) -> str:
    """The first sentence of what an error says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]

"""Addresses of pinned revisions on the Hugging Face hub, checked before anything is read."""

import re
from typing import Literal

from marin_corpus.errors import BadConfig, BadInput

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_url(repository: str, *, revision: str, files: str, kind: Literal["dataset", "model"]) -> str:
    """`hf://datasets/org/name@<commit>/<files>`, for `InputFiles`.

    Raises:
        BadConfig: the revision is a branch or tag, which may be another one tomorrow.
        BadInput: the hub has no such repository or revision, or does not show it to whoever `HF_TOKEN` says we are.
        ImportError: the client is not installed.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise BadConfig(f"repository={repository!r} must be 'organisation/name'")
    place = f"datasets/{repository}" if kind == "dataset" else repository
    if not _COMMIT.fullmatch(revision):
        raise BadConfig(
            f"revision={revision!r} must be the 40 hex digits of a commit",
            why="a branch or tag may be another one tomorrow, and nobody would notice",
            next=f"`git ls-remote https://huggingface.co/{place}` prints the commits of its branches and tags",
        )
    _check(repository, revision, kind)
    return f"hf://{place}@{revision}/{files.lstrip('/')}"


def _check(repository: str, revision: str, kind: str) -> None:
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError as error:
        raise ImportError("the client of the Hugging Face hub is missing: pip install 'marin-pipe[hf]'") from error
    try:
        HfApi().repo_info(repository, revision=revision, repo_type=kind)
    except GatedRepoError as error:
        raise BadInput(
            f"the {kind} {repository} asks for an agreement",
            next="accept it on the hub, and set HF_TOKEN to a token of that account",
        ) from error
    except RepositoryNotFoundError as error:
        raise BadInput(
            f"the hub has no {kind} {repository}, or does not show it to us",
            next="check the name; for a private one set HF_TOKEN to a token that may read it",
        ) from error
    except RevisionNotFoundError as error:
        raise BadInput(f"the {kind} {repository} has no revision {revision}", next="check the commit") from error
    except Exception as error:
        # Of the connection, of the HTTP library that the client's version uses, of the client itself.
        raise BadInput(
            f"the hub cannot be asked for the {kind} {repository}",
            why=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}",
            next="check the connection",
        ) from error

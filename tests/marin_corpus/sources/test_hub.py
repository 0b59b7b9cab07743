"""Addresses on the Hugging Face hub: what cannot be meant is refused before anything is asked."""

from typing import Literal

import pytest
from marin_corpus.errors import BadConfig
from marin_corpus.sources.hub import hub_url


@pytest.mark.parametrize("revision", ["main", "v1.0", "0123456", "refs/pr/1", "F" * 40, ""])
@pytest.mark.parametrize(
    ("kind", "place"), [("dataset", "datasets/people/speeches"), ("model", "people/speeches")], ids=["data", "model"]
)
def test_only_commits_are_revisions(kind: Literal["dataset", "model"], place: str, revision: str) -> None:
    with pytest.raises(BadConfig, match="must be the 40 hex digits of a commit") as caught:
        hub_url("people/speeches", revision=revision, files="*", kind=kind)
    assert f"git ls-remote https://huggingface.co/{place}`" in caught.value.next


@pytest.mark.parametrize(
    "repository", ["speeches", "a/b/c", "../etc", "people/", "people/speeches@main", "p\u00e9/x", ""]
)
def test_a_repository_has_an_organisation_and_a_name(repository: str) -> None:
    with pytest.raises(BadConfig, match="must be 'organisation/name'"):
        hub_url(repository, revision="0" * 40, files="*", kind="dataset")

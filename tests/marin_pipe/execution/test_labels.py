from collections.abc import Callable

import pytest
from faults import FaultyBackend
from marin_storage import Store, open_store

from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.labels import label_problem, list_labels, move_label, read_label


@pytest.fixture
def store(tmp_path) -> Store:
    return open_store(str(tmp_path))


def counting(store: Store, before: Callable[[str, str], None] | None = None) -> tuple[Store, FaultyBackend]:
    backend = FaultyBackend(store.backend, before=before)
    return Store(backend), backend


def first(action: Callable[[], object]) -> Callable[[str, str], None]:
    """Act before the first mutation."""
    waiting = [action]

    def before(_: str, __: str) -> None:
        if waiting:
            waiting.pop()()

    return before


def test_a_label_names_a_commit_and_is_listed(store: Store) -> None:
    assert read_label(store, "corpus/clean") is None
    move_label(store, "corpus/clean", "a-0123456789abcdef", 2, user="ada")
    move_label(store, "best", "b-0123456789abcdef", None, user="ada")
    read = read_label(store, "corpus/clean")
    assert read is not None
    assert (read.directory, read.commit, read.user) == ("a-0123456789abcdef", 2, "ada")
    assert [label.label for label in list_labels(store)] == ["best", "corpus/clean"]


def test_a_label_does_not_change_unless_it_is_moved(store: Store) -> None:
    move_label(store, "best", "a-0123456789abcdef", 1, user="ada", move=False)
    with pytest.raises(ConfigurationError, match="names a-0123456789abcdef, commit 1 already"):
        move_label(store, "best", "b-0123456789abcdef", 1, user="bob", move=False)
    with pytest.raises(ConfigurationError, match="already"):
        move_label(store, "best", "a-0123456789abcdef", 2, user="bob", move=False)
    assert move_label(store, "best", "b-0123456789abcdef", 1, user="bob").directory == "b-0123456789abcdef"
    assert [label.user for label in list_labels(store)] == ["bob"]


def test_a_label_that_is_right_is_not_written(store: Store) -> None:
    move_label(store, "best", "a-0123456789abcdef", 1, user="ada")
    watched, backend = counting(store)
    for move in (True, False):
        assert move_label(watched, "best", "a-0123456789abcdef", 1, user="bob", move=move).user == "ada"
    assert backend.mutations == 0


@pytest.mark.parametrize("present", [True, False])
def test_of_two_that_move_a_label_at_once_the_later_stands_and_none_is_lost_unseen(store: Store, present: bool) -> None:
    if present:
        move_label(store, "best", "a-0123456789abcdef", 1, user="ada")
    watched, backend = counting(
        store, before=first(lambda: move_label(store, "best", "b-0123456789abcdef", 1, user="bob"))
    )
    move_label(watched, "best", "c-0123456789abcdef", 1, user="eve")
    assert [label.user for label in list_labels(store)] == ["eve"]
    assert backend.mutations == 2


def test_without_move_a_label_made_meanwhile_is_respected(store: Store) -> None:
    watched, _ = counting(store, before=first(lambda: move_label(store, "best", "b-0123456789abcdef", 1, user="bob")))
    with pytest.raises(ConfigurationError, match="bob made this one"):
        move_label(watched, "best", "c-0123456789abcdef", 1, user="eve", move=False)


@pytest.mark.parametrize("name", ["", "a//b", "../a", "a b", "a.json", "a.json/b", "x/.hidden", "é", "a\n"])
def test_names_that_no_store_would_carry_are_refused(store: Store, name: str) -> None:
    assert label_problem(name) is not None
    with pytest.raises(ConfigurationError, match="cannot be a label"):
        move_label(store, name, "a-0123456789abcdef", 1, user="ada")
    assert list_labels(store) == []

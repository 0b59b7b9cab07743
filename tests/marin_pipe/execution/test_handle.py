"""Handles are not values: using one as such is refused with the way out."""

from typing import Any

import pytest
from lab_steps import node

from marin_pipe.execution.errors import GraphError


@pytest.mark.parametrize("misuse", [str, bool, list, "{}".format, lambda step: f"{step}", lambda step: step.words])
def test_a_handle_used_as_a_value_is_refused(misuse: Any) -> None:
    step = node("a").named("write")
    with pytest.raises((GraphError, AttributeError), match=r"step write (has no|cannot)"):
        misuse(step)

"""One edit at a time, and what the fingerprint must and must not make of it: the table is in `source_edits`."""

import pytest
from source_edits import EFFECT, NO_EFFECT, Edit
from source_project import Project

from marin_pipe.execution.source import changed_parts, fingerprint


@pytest.mark.parametrize("edit", NO_EFFECT, ids=lambda edit: edit.name)
def test_edit_without_effect(project: Project, edit: Edit) -> None:
    project.write(edit.files)
    before = project.fingerprint()
    project.edit(edit.at, edit.old, edit.new)
    after = project.fingerprint()
    assert changed_parts(before.parts, after.parts) == []
    assert after.digest == before.digest
    assert "exp.main" in before.parts


@pytest.mark.parametrize("edit", EFFECT, ids=lambda edit: edit.name)
def test_edit_with_effect(project: Project, edit: Edit) -> None:
    project.write(edit.files)
    root = project.root()
    before = fingerprint([root])
    project.edit(edit.at, edit.old, edit.new)
    after = fingerprint([root])  # the same function: what is kept must notice the edit
    assert changed_parts(before.parts, after.parts) == edit.changed
    assert after.digest != before.digest

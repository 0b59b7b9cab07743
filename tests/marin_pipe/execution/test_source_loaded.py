import importlib
import sys

from source_project import HELPER, Project

from marin_pipe.execution.source_loaded import check_loaded


def import_anew(name: str) -> None:
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    importlib.import_module(name)


def test_what_was_imported_is_compared_with_the_fingerprint(project: Project) -> None:
    project.write({"exp.py": "import lazy_helpers\ndef main(): lazy_helpers.clean('')\n", "lazy_helpers.py": HELPER})
    files = project.fingerprint().files
    exp, helpers = (str(project.folder / name) for name in ("exp.py", "lazy_helpers.py"))
    sys.modules.pop("exp")
    assert check_loaded(files) == []  # nothing is imported yet
    project.edit("lazy_helpers.py", "strip", "lstrip")
    import_anew("exp")
    assert check_loaded(files) == [helpers]
    assert check_loaded({exp: files[exp]}) == []


def test_an_edit_after_the_import_does_no_harm(project: Project) -> None:
    project.write({"early.py": HELPER, "late_package/__init__.py": "", "late_package/late.py": HELPER})
    files = {**project.fingerprint("early", "clean").files, **project.fingerprint("late_package.late", "clean").files}
    for name in ("early", "late_package.late"):
        sys.modules.pop(name)
    import_anew("early")
    assert check_loaded(files) == []
    project.edit("early.py", "strip", "lstrip")
    assert check_loaded(files) == []
    import_anew("late_package.late")  # as a step's body may
    project.edit("late_package/late.py", "strip", "lstrip")
    assert check_loaded(files) == []


def test_an_edit_before_a_late_import_is_reported(project: Project) -> None:
    project.write({"tardy.py": HELPER})
    files = project.fingerprint("tardy", "clean").files
    sys.modules.pop("tardy")
    assert check_loaded(files) == []
    project.edit("tardy.py", "strip", "lstrip")
    import_anew("tardy")
    assert check_loaded(files) == [str(project.folder / "tardy.py")]

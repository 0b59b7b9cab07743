import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_project import HELPER, Project

from marin_pipe.execution.source import changed_parts, fingerprint

DYNAMIC = {
    "getattr(model, name)": "def main(model, name): return getattr(model, name)",
    "importlib.import_module(name)": "import importlib\ndef main(name): return importlib.import_module(name)",
    "load(f'plugins.{name}')": "from importlib import import_module as load\ndef main(name): load(f'plugins.{name}')",
    "__import__(name)": "def main(name): return __import__(name)",
    "globals()": "def main(name): return globals()[name]",
    "eval(text)": "def main(text): return eval(text)",
    "exec": "def main(texts): return map(exec, texts)",
    "sys.modules": "import sys\ndef main(name): return sys.modules[name]",
    "subprocess.run(['python', 'other.py'])": "import subprocess\ndef main(): subprocess.run(['python', 'other.py'])",
    "missing": "def main(): return missing",
    "helpers.missing": "import helpers\ndef main(): return helpers.missing",
}


@pytest.mark.parametrize("text", DYNAMIC)
def test_what_cannot_be_followed_is_listed(project: Project, text: str) -> None:
    project.write({"exp.py": DYNAMIC[text], "helpers.py": HELPER})
    assert project.fingerprint().untraced == (f"exp.main: {text}",)


@pytest.mark.parametrize(
    "text",
    [
        "def main(function, data): return function(data).read(), data.method(), len(data), __file__",
        "import numpy as np\ndef main(a): return np.anything.at_all(a)",
        """
        class A:
            x = 1
            y = x
            @property
            def z(self): return 1
            @z.setter
            def z(self, v): ...
        def main(): return A
        """,
        """
        def main(a):
            try: ...
            except E as error: return error
        E = ValueError
        """,
        """
        def main(a):
            match a:
                case {'b': b, **rest}: return b, rest
                case [c, *d] as e: return c, d, e
        """,
        """
        def main(a):
            def inner():
                nonlocal a
                a = 1
            return [b for c in a if (b := c)], b, inner
        """,
        "from marin_pipe import step\n@step\ndef main(ctx): return ctx.output",
    ],
)
def test_ordinary_code_is_wholly_traced(project: Project, text: str) -> None:
    project.write({"exp.py": text})
    assert project.fingerprint().untraced == ()


def test_code_that_was_moved_unchanged_has_the_same_digest(project: Project) -> None:
    project.write(
        {
            "exp.py": "from helpers import clean\nA = 1\ndef main(): return clean(A)\n",
            "other.py": "from helpers import clean\nA = 1\ndef main(): return clean(A)\n",
            "third.py": "from moved import clean\nfrom exp import A\ndef main(): return clean(A)\n",
            "helpers.py": HELPER,
            "moved.py": HELPER,
        }
    )
    first, second, third = (project.fingerprint(name) for name in ("exp", "other", "third"))
    assert first.digest == second.digest == third.digest
    assert sorted(first.parts) == ["exp.A", "exp.main", "helpers.clean"]
    assert changed_parts(first.parts, third.parts) == [
        "moved exp.main to third.main",
        "moved helpers.clean to moved.clean",
    ]


def test_installed_code_and_the_engine_are_not_followed(project: Project) -> None:
    project.write(
        {
            "exp.py": """
                import json
                import thirdparty
                from marin_pipe.execution.errors import PipelineError
                from marin_pipe import step
                def main(): return json.dumps, thirdparty.f, PipelineError, step
                """,
            "site-packages/thirdparty.py": "def f(): return 1\n",
        }
    )
    sys.path.insert(1, str(project.folder / "site-packages"))
    assert list(project.fingerprint().parts) == ["exp.main"]


def test_the_projects_own_libraries_count_where_ever_they_are_installed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(
        {
            "exp.py": "import marin_corpus.text\ndef main(): return marin_corpus.text.clean('')\n",
            "site-packages/marin_corpus/__init__.py": "",
            "site-packages/marin_corpus/text.py": HELPER,
        }
    )
    monkeypatch.syspath_prepend(project.folder / "site-packages")
    for name in [name for name in sys.modules if name.partition(".")[0] == "marin_corpus"]:
        monkeypatch.delitem(sys.modules, name)
    assert "marin_corpus.text.clean" in project.fingerprint().parts


def test_a_root_counts_even_if_it_is_installed(project: Project) -> None:
    project.write({"site-packages/plugin.py": HELPER})
    project.folder /= "site-packages"
    assert list(project.fingerprint("plugin", "clean").parts) == ["plugin.clean"]


def test_functions_and_classes_given_as_arguments_count(project: Project) -> None:
    project.write({"exp.py": "def main(f): return f()\ndef b(): return 1\nclass C:\n    def m(self): return 1\n"})
    roots = [project.root(), project.root(qualname="b"), project.root(qualname="C")]
    assert list(fingerprint(roots).parts) == ["exp.C", "exp.C.m", "exp.b", "exp.main"]
    assert fingerprint(roots).digest == fingerprint(roots[::-1]).digest
    assert fingerprint([len]).untraced == ("builtins.len: it has no Python source",)


def test_files_are_those_that_were_read(project: Project) -> None:
    project.write(
        {
            "exp.py": "from pkg import clean\nimport unused\ndef main(): clean('')\n",
            "pkg/__init__.py": "from .impl import clean",
        }
    )
    project.write({"pkg/impl.py": HELPER, "unused.py": ""})
    files = project.fingerprint().files
    assert [os.path.relpath(path, project.folder) for path in files] == ["exp.py", "pkg/__init__.py", "pkg/impl.py"]


def test_a_script_is_called_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("def helper(): return 1\n")
    (tmp_path / "my_script.py").write_text(
        "import tool\nfrom marin_pipe.execution.source import fingerprint\n"
        "def main(): return tool.helper()\n"
        "if __name__ == '__main__':\n    print(*fingerprint([main]).parts)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for command in (["my_script.py"], ["-m", "my_script"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["my_script.main", "tool.helper"]


def test_a_file_that_does_not_parse_counts_as_a_whole(project: Project) -> None:
    project.write({"exp.py": "def main():\n    import broken\n    broken.f()\n", "broken.py": "def f(:\n"})
    before = project.fingerprint()
    project.edit("broken.py", "def f(:", "def g(:")
    after = project.fingerprint()
    assert changed_parts(before.parts, after.parts) == ["changed broken"]
    assert any("broken.py cannot be parsed" in line for line in after.untraced)


def test_long_chains_and_deep_expressions_need_no_python_stack(project: Project) -> None:
    calls = "".join(f"def f{i}(): return f{i + 1}()\n" for i in range(3000))
    deep = "+".join(["1"] * 700)
    project.write({"exp.py": f"{calls}def f3000(): return {deep}\ndef main(): f0()\n"})
    limit = sys.getrecursionlimit()
    root = project.root()
    ast_depth = 300  # what pytest itself uses
    try:
        sys.setrecursionlimit(ast_depth)
        assert len(fingerprint([root]).parts) == 3002
    finally:
        sys.setrecursionlimit(limit)


COMMENTED = """
import helpers

RATE = {"a": 1}


class Base:
    def run(self):
        return helpers.clean(RATE["a"])


def main(text):
    def inner(x):
        if x:
            return 1
        return f"{x!r:>3}"

    return [inner(word) for word in text], Base
"""


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_comments_blank_lines_and_docstrings_never_count(project: Project, data: st.DataObject) -> None:
    project.write({"exp.py": COMMENTED, "helpers.py": HELPER})
    expected = project.fingerprint()
    text = st.text(
        st.characters(codec="utf-8", exclude_characters="\r\n\f\0", exclude_categories=("C", "Zl", "Zp")), max_size=20
    )
    lines: list[str] = []
    for line in COMMENTED.splitlines():
        lines += data.draw(st.lists(st.sampled_from(["", "   ", "# note"]), max_size=2))
        comment = data.draw(text)
        lines.append(f"{line}  # {comment}" if line and data.draw(st.booleans()) else line)
        if line.endswith(":") and line.lstrip().startswith(("def ", "class ")) and data.draw(st.booleans()):
            indent = " " * (len(line) - len(line.lstrip()) + 4)
            lines.append(indent + repr(data.draw(text)))
    (project.folder / "exp.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = project.fingerprint()
    assert found.parts == expected.parts
    assert found.digest == expected.digest


def test_the_normal_form_is_the_same_in_all_python_versions(project: Project) -> None:
    project.write(
        {"exp.py": "def main(x, *, y=0x10):\n    return [f'{x:{\"#\"}1{0}x}' 'a' for z in y if not (z := x)], -1e3\n"}
    )
    assert project.fingerprint().digest == "2ffb830c7403299bcb0ddd550894695c869f186694bc2b046bc4528769fd7f34"


def test_an_edit_within_one_tick_of_the_clock_is_seen(project: Project) -> None:
    project.write({"exp.py": "def main(): return 1\n"})
    path = project.folder / "exp.py"
    root = project.root()
    before, status = fingerprint([root]), path.stat()
    path.write_text("def main(): return 2\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint([root]).digest != before.digest


def test_an_unchanged_fingerprint_is_kept(project: Project) -> None:
    project.write({"exp.py": "def main(): return 1\n"})
    root = project.root()
    assert fingerprint([root]) is fingerprint([root])


def test_added_and_removed_parts_are_named() -> None:
    assert changed_parts({"m.a": "1", "m.b": "2", "m.c": "3"}, {"m.a": "4", "m.c": "3", "m.d": "5"}) == [
        "changed m.a",
        "added m.d",
        "removed m.b",
    ]

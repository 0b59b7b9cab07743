"""Edits of code that nothing names: what modules do to others when they are imported."""

from dataclasses import dataclass

import pytest
from source_project import Project

from marin_pipe.execution.source import changed_parts, fingerprint


@dataclass(frozen=True, kw_only=True)
class Edit:
    """`1` becomes `2` in `at`; `changed` says which parts notice."""

    name: str
    files: dict[str, str]
    at: str = "plugin.py"
    changed: list[str]


def edit(name: str, main: str, *changed: str, at: str = "plugin.py", **files: str) -> Edit:
    modules = {f"{module}.py": text for module, text in files.items()}
    return Edit(name=name, files={"exp.py": main, **modules}, at=at, changed=[f"changed {part}" for part in changed])


HANDLER = "from functools import singledispatch\n@singledispatch\ndef h(x): return 0\n"
USES_TABLE = "import plugin\nfrom tables import TABLE\ndef main(k): return TABLE[k]()\n"
USES_HELPER = "import plugin\nimport helpers\ndef main(x): return helpers.clean(x)\n"
HELPERS = "def clean(x): return x\nclass Tool:\n    def run(self): return 0\n    size = 3\n"
BASE = """
class Base:
    registry = {}
    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.registry[cls.__name__] = cls
"""
USES_BASE = "import plugin\nfrom base import Base\ndef main(k): return Base.registry[k]()\n"
SUBCLASS = "from base import Base\nclass Large(Base):\n    size = 1\n"

EFFECT = [
    # singledispatch
    edit(
        "singledispatch in one file",
        HANDLER + "@h.register\ndef _(x: int): return 1\ndef main(x): return h(x)\n",
        "exp._",
        at="exp.py",
    ),
    edit(
        "singledispatch with a type",
        HANDLER + "@h.register(int)\ndef whole(x): return 1\ndef main(x): return h(x)\n",
        "exp.whole",
        at="exp.py",
    ),
    edit(
        "singledispatch elsewhere",
        "import plugin\nfrom handlers import h\ndef main(x): return h(x)\n",
        "plugin.whole",
        handlers=HANDLER,
        plugin="import handlers\n@handlers.h.register\ndef whole(x: int): return 1\n",
    ),
    edit(
        "singledispatch by a call",
        "import plugin\nfrom handlers import h\ndef main(x): return h(x)\n",
        "plugin.whole",
        handlers=HANDLER,
        plugin="from handlers import h\ndef whole(x): return 1\nh.register(int, whole)\n",
    ),
    edit(
        "the type that is dispatched on",
        "import plugin\nfrom handlers import h\ndef main(x): return h(x)\n",
        "plugin.whole",
        handlers=HANDLER,
        plugin="from typing import Literal\nfrom handlers import h\n@h.register\ndef whole(x: Literal[1]): return 3\n",
    ),
    # globals
    edit(
        "global set by a call",
        "X = 0\ndef setup():\n    global X\n    X = 1\nsetup()\ndef main(): return X\n",
        "exp.setup",
        at="exp.py",
    ),
    edit(
        "what is given to the call",
        "X = 0\ndef setup(value):\n    global X\n    X = value\nsetup(1)\ndef main(): return X\n",
        "exp.<change of X>",
        at="exp.py",
    ),
    edit(
        "global without another definition",
        "def setup():\n    global X\n    X = 1\nsetup()\ndef main(): return X\n",
        "exp.X",
        "exp.setup",
        at="exp.py",
    ),
    edit(
        "global set two calls away, in another module",
        "import plugin\nfrom state import read\ndef main(): return read()\n",
        "plugin.<change of X>",
        state="X = 0\ndef read(): return X\ndef write(value):\n    global X\n    X = value\n",
        plugin="import state\ndef begin(value): state.write(value)\nbegin(1)\n",
    ),
    edit(
        "global set under a condition",
        "X = 0\ndef setup(v):\n    global X\n    X = v\n"
        "if True:\n    for v in [1]:\n        setup(v)\ndef main(): return X\n",
        "exp.<change of X>",
        at="exp.py",
    ),
    # subclasses
    edit("__init_subclass__", USES_BASE, "plugin.Large", base=BASE, plugin=SUBCLASS),
    edit(
        "__init_subclass__ of the base's base",
        USES_BASE,
        "plugin.Huge",
        base=BASE,
        plugin="from base import Base\nclass Large(Base): pass\nclass Huge(Large):\n    size = 1\n",
    ),
    edit(
        "__init_subclass__ with a table of its own",
        "import plugin\nfrom base import TABLE\ndef main(k): return TABLE[k]()\n",
        "plugin.Large",
        base="TABLE = {}\ndef note(c): TABLE[c.__name__] = c\nclass Base:\n    def __init_subclass__(cls): note(cls)\n",
        plugin=SUBCLASS,
    ),
    edit(
        "metaclass",
        "import plugin\nfrom base import Meta\ndef main(k): return Meta.known[k]()\n",
        "plugin.Large",
        base="class Meta(type):\n    known = {}\n    def __init__(cls, name, *rest):\n        Meta.known[name] = cls\n"
        "class Base(metaclass=Meta): pass\n",
        plugin=SUBCLASS,
    ),
    edit(
        "__subclasses__",
        "import plugin\nfrom base import Base\ndef main(): return [c() for c in Base.__subclasses__()]\n",
        "plugin.Large",
        base="class Base: pass\n",
        plugin=SUBCLASS,
    ),
    edit(
        "__subclasses__ of whatever is asked",
        "import plugin\nfrom base import Base\ndef main(): return Base.all()\n",
        "plugin.Large",
        base="class Base:\n    @classmethod\n    def all(cls): return cls.__subclasses__()\n",
        plugin=SUBCLASS,
    ),
    # containers of other modules
    *(
        edit(f"container: {statement}", USES_TABLE, "plugin.go", tables="TABLE = {}\n", plugin=f"{intro}{statement}\n")
        for intro, statement in [
            ("import tables\ndef go(): return 1\n", "tables.TABLE.append(go)"),
            ("import tables\ndef go(): return 1\n", "tables.TABLE['go'] = go"),
            ("from tables import TABLE as T\ndef go(): return 1\n", "T.update(go=go)"),
            ("from tables import TABLE\ndef go(): return 1\n", "TABLE += [go]"),
            ("from tables import TABLE\ndef go(): return 1\n", "TABLE.setdefault('a', []).append(go)"),
            ("import tables\ndef go(): return 1\n", "for n in 'ab':\n    tables.TABLE[n] = go"),
            ("import tables\ndef go(): return 1\n", "if True:\n    tables.TABLE['a'] = go"),
            ("import tables\ndef go(): return 1\n", "with f():\n    tables.TABLE['a'] = go"),
            ("import tables\ndef go(): return 1\ndef enter(): tables.TABLE['a'] = go\n", "enter()"),
            ("import tables\ndef go(): return 1\ndef enter(name): tables.TABLE[name] = go\n", "enter('a')"),
            ("from tables import TABLE\ndef go(): return 1\ndef enter(t): t['a'] = go\n", "enter(TABLE)"),
            ("import tables\ndef go(): return 1\n", "class Own:\n    tables.TABLE['a'] = go"),
        ]
    ),
    edit(
        "container: the statement itself",
        USES_TABLE,
        "plugin.<change of TABLE>",
        tables="TABLE = {}\n",
        plugin="import tables\ntables.TABLE['a'] = 1\n",
    ),
    edit(
        "container filled by a decorator of another module",
        USES_TABLE,
        "plugin.go",
        tables="TABLE = {}\n",
        doors="from tables import TABLE\ndef enter(f):\n    TABLE[f.__name__] = f\n    return f\n",
        plugin="from doors import enter\n@enter\ndef go(): return 1\n",
    ),
    edit(
        "container filled two imports away",
        "import middle\nfrom tables import TABLE\ndef main(k): return TABLE[k]()\n",
        "plugin.go",
        tables="TABLE = {}\n",
        middle="import importlib\nimportlib.import_module('plugin')\n",
        plugin="import tables\ndef go(): return 1\ntables.TABLE['go'] = go\n",
    ),
    # patches
    *(
        edit(f"patch: {statement}", USES_HELPER, "plugin.better", helpers=HELPERS, plugin=f"{intro}{statement}\n")
        for intro, statement in [
            ("import helpers\ndef better(x): return 1\n", "helpers.clean = better"),
            ("import helpers as h\ndef better(x): return 1\n", "h.clean, h.other = better, None"),
            ("import helpers\ndef better(x): return 1\n", "setattr(helpers, 'clean', better)"),
            ("import helpers\ndef better(x): return 1\n", "for n in ['clean']:\n    setattr(helpers, n, better)"),
            ("import helpers\ndef better(x): return 1\ndef patch(): helpers.clean = better\n", "patch()"),
            ("def better(x): return 1\ndef patch():\n    import helpers\n    helpers.clean = better\n", "patch()"),
        ]
    ),
    edit(
        "patch of a method",
        "import plugin\nfrom helpers import Tool\ndef main(): return Tool().run()\n",
        "plugin.better",
        helpers=HELPERS,
        plugin="from helpers import Tool\ndef better(self): return 1\nTool.run = better\n",
    ),
    edit(
        "patch of an installed module",
        "import json\nimport plugin\ndef main(x): return json.dumps(x)\n",
        "plugin.better",
        plugin="import json\ndef better(x): return 1\njson.dumps = better\n",
    ),
    edit(
        "environment",
        "import os\nimport plugin\ndef main(): return os.environ['N']\n",
        "plugin.<change of os.environ>",
        plugin="import os\nos.environ['N'] = '1'\n",
    ),
    edit(
        "own globals",
        "def better(): return 1\nX = None\nglobals()['X'] = better\ndef main(): return X()\n",
        "exp.better",
        at="exp.py",
    ),
]

NO_EFFECT = [
    edit(
        "another table",
        USES_TABLE,
        tables="TABLE = {}\nOTHER = {}\n",
        plugin="import tables\ntables.OTHER[1] = 1\n",
    ),
    edit("patch of something else", USES_HELPER, helpers=HELPERS, plugin="import helpers\nhelpers.Tool.size = 1\n"),
    edit(
        "subclass of another base",
        USES_BASE,
        base=BASE + "class Other: pass\n",
        plugin="from base import Other\nclass Large(Other):\n    size = 1\n",
    ),
    edit(
        "subclass that its base does not enter anywhere",
        "import plugin\nfrom base import Base\ndef main(): return Base()\n",
        base="class Base:\n    def __init_subclass__(cls): cls.size = 0\n",
        plugin=SUBCLASS,
    ),
    edit("a module that nothing imports", "def main(): return 1 - 1\n", plugin=SUBCLASS, base=BASE),
    edit(
        "a cache that another module fills",
        "import plugin\nfrom tables import get\ndef main(k): return get(k)\n",
        tables="C = {}\ndef get(k):\n    if k not in C:\n        C[k] = f(k)\n    return C[k]\n",
        plugin="from tables import get\nget(1)\n",
    ),
    edit(
        "a decorator that is used elsewhere, too",
        "import plugin\nfrom doors import enter\n@enter\ndef main(): return 0\n",
        doors="def enter(f): return f\n",
        plugin="import doors\n@doors.enter\ndef go(): return 1\n",
    ),
    edit(
        "registered with another handler",
        "import plugin\nfrom handlers import h\ndef main(x): return h(x)\n",
        handlers=HANDLER + "@singledispatch\ndef g(x): return 0\n",
        plugin="from handlers import g\n@g.register\ndef whole(x: int): return 1\n",
    ),
    edit(
        "a call that changes nothing",
        "import plugin\nfrom state import X\ndef main(): return X\n",
        state="X = 0\ndef show(v): print(v)\n",
        plugin="import state\nstate.show(1)\n",
    ),
]


@pytest.mark.parametrize("edit", EFFECT + NO_EFFECT, ids=lambda edit: edit.name)
def test_edits(project: Project, edit: Edit) -> None:
    project.write(edit.files)
    root = project.root()
    before = fingerprint([root])
    project.edit(edit.at, "1", "2")
    after = fingerprint([root])
    assert changed_parts(before.parts, after.parts) == edit.changed
    assert (after.digest != before.digest) == bool(edit.changed)


def test_a_registration_that_is_added_is_noticed(project: Project) -> None:
    project.write({"exp.py": USES_TABLE, "tables.py": "TABLE = {}\n", "plugin.py": "import tables\n"})
    root = project.root()
    before = fingerprint([root])
    (project.folder / "plugin.py").write_text("import tables\ntables.TABLE['a'] = len\n")
    assert changed_parts(before.parts, fingerprint([root]).parts) == ["added plugin.<change of TABLE>"]


def test_modules_that_were_searched_in_vain_are_no_part_of_the_work(project: Project) -> None:
    files = {"exp.py": USES_TABLE, "tables.py": "TABLE = {}\n", "plugin.py": "import tables\n"}
    project.write(files)
    assert sorted(project.fingerprint().files) == [str(project.folder / name) for name in ("exp.py", "tables.py")]


@pytest.mark.parametrize(
    ("files", "untraced"),
    [
        (
            {
                "exp.py": "from pathlib import Path\n"
                "def main(): return open(Path(__file__).parent / 'words.txt').read()\n"
            },
            ["exp.main: reads files: return open(Path(__file__).parent / 'words.txt').read()"],
        ),
        (
            {"exp.py": "import os\nHERE = os.path.dirname(__file__)\ndef main():\n    with open(HERE) as f: pass\n"},
            ["exp.HERE: reads files: HERE = os.path.dirname(__file__)"],
        ),
        (
            {"exp.py": "def main():\n    with open(__file__ + '.txt') as f:\n        pass\n"},
            ["exp.main: reads files: open(__file__ + '.txt')"],
        ),
        (
            {"exp.py": "from importlib.resources import files\ndef main(): return files('exp')\n"},
            ["exp.main: files('exp')"],
        ),
        (
            {
                "exp.py": "import plugins\nTABLE = {}\ndef main(k): return TABLE[k]\n",
                "plugins/__init__.py": "import importlib\nfor n in names():\n    importlib.import_module(n)\n",
            },
            ["plugins: importlib.import_module(n)"],
        ),
        ({"exp.py": "import sys\nsys.path.append(__file__)\ndef main(): pass\n"}, []),
    ],
)
def test_what_cannot_be_followed_is_listed(project: Project, files: dict[str, str], untraced: list[str]) -> None:
    project.write(files)
    assert list(project.fingerprint().untraced) == untraced

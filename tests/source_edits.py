from dataclasses import dataclass, field

from source_project import HELPER


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One edit of `files` and what it changes; by default in exp.py."""

    name: str
    files: dict[str, str]
    old: str
    new: str
    at: str = "exp.py"
    changed: list[str] = field(default_factory=list)


STRIP = {"at": "helpers.py", "old": "strip", "new": "lstrip", "changed": ["changed helpers.clean"]}

NO_EFFECT = [
    Edit(name="comment", files={"exp.py": "def main():\n    return 1  # one\n"}, old="# one", new="# the number one"),
    Edit(name="docstring", files={"exp.py": 'def main():\n    """Old."""\n    return 1\n'}, old="Old", new="New"),
    Edit(name="docstring added", files={"exp.py": "def main():\n    pass\n"}, old="pass", new='"""New."""'),
    Edit(name="layout", files={"exp.py": "def main(a):\n    return f(a,1)\n"}, old="f(a,1)", new="f(\n  a, 1,\n )"),
    Edit(name="quotes", files={"exp.py": "def main():\n    return 'a'\n"}, old="'a'", new='"a"'),
    Edit(
        name="parameter hint",
        files={"exp.py": "def main(a: int):\n    return a\n"},
        old=": int",
        new=": 'float | None'",
    ),
    Edit(name="return hint", files={"exp.py": "def main():\n    return 1\n"}, old="main()", new="main() -> int"),
    Edit(name="variable hint", files={"exp.py": "def main():\n    a: int = 1\n"}, old=": int", new=""),
    Edit(name="hint of a constant", files={"exp.py": "A = 1\ndef main():\n    return A\n"}, old="A =", new="A: int ="),
    Edit(
        name="declaration",
        files={"exp.py": "def main():\n    a = 1\n    return a\n"},
        old="    a = 1",
        new="    a: int\n    a = 1",
    ),
    Edit(
        name="hint in a plain class",
        files={"exp.py": "class A:\n    x: int = 1\ndef main():\n    return A\n"},
        old=": int",
        new=": float",
    ),
    Edit(
        name="class used in hints only",
        files={"exp.py": "class A:\n    x = 1\ndef main(a: A) -> A:\n    b: A = a\n    return b\n"},
        old="x = 1",
        new="x = 2",
    ),
    Edit(
        name="overload",
        files={"exp.py": "from typing import overload\ndef main(a): return a\n"},
        old="def main",
        new="@overload\ndef main(a: int) -> int: ...\ndef main",
    ),
    Edit(
        name="type-only import",
        files={
            "exp.py": """
                from typing import TYPE_CHECKING
                if TYPE_CHECKING:
                    from helpers import clean
                def main(a: "clean"):
                    return a
                """,
            "helpers.py": HELPER,
        },
        old="clean",
        new="other",
    ),
    Edit(
        name="other function of the file",
        files={"exp.py": "def main(): return 1\ndef b(): return 2\n"},
        old="2",
        new="3",
    ),
    Edit(name="other constant of the file", files={"exp.py": "A = 2\ndef main(): return 1\n"}, old="2", new="3"),
    Edit(
        name="other function of a helper's file",
        files={"exp.py": "from helpers import clean\ndef main(): return clean('')\n", "helpers.py": HELPER},
        at="helpers.py",
        old="return 1",
        new="return 2",
    ),
    Edit(
        name="local variable of a function's name",
        files={"exp.py": "def data(): return 1\ndef main():\n    data = 3\n    return data\n"},
        old="return 1",
        new="return 2",
    ),
    Edit(
        name="parameter of a function's name",
        files={"exp.py": "def data(): return 1\ndef main(data):\n    return [data for x in data]\n"},
        old="return 1",
        new="return 2",
    ),
    Edit(
        name="comprehension variable of a function's name",
        files={"exp.py": "def data(): return 1\ndef main(a):\n    return [data for data in a]\n"},
        old="return 1",
        new="return 2",
    ),
    Edit(
        name="main guard",
        files={"exp.py": "def main(): return A\nA = 1\nif __name__ == '__main__':\n    A = 2\n"},
        old="A = 2",
        new="A = 3",
    ),
    Edit(
        name="comment in a helper",
        files={"exp.py": "import helpers\ndef main(): return helpers.clean('')\n", "helpers.py": HELPER},
        at="helpers.py",
        old="text.strip()",
        new="text.strip()  # spaces",
    ),
    Edit(
        name="unused import", files={"exp.py": "import re\nimport os\ndef main(): return os\n"}, old="import re", new=""
    ),
]


def one_file(name: str, text: str, old: str, new: str, *changed: str) -> Edit:
    return Edit(name=name, files={"exp.py": text}, old=old, new=new, changed=list(changed))


def through(name: str, text: str, **files: str) -> Edit:
    """exp.py reaches `helpers.clean` in the given way; the helper changes."""
    named = {key.replace("__", "/") + ".py": value for key, value in files.items()}
    return Edit(name=name, files={"exp.py": text, "helpers.py": HELPER, **named}, **STRIP)  # type: ignore[arg-type]


def in_package(name: str, text: str, init: str, **files: str) -> Edit:
    """exp.py reaches `pkg.impl.clean` through the package; the helper changes."""
    named = {f"pkg/{key}.py": value for key, value in files.items()}
    return Edit(
        name=name,
        files={"exp.py": text, "pkg/__init__.py": init, "pkg/impl.py": HELPER, **named},
        at="pkg/impl.py",
        old="strip",
        new="lstrip",
        changed=["changed pkg.impl.clean"],
    )


EFFECT = [
    one_file("the function", "def main(): return 1\n", "1", "2", "changed exp.main"),
    one_file("operator", "def main(a, b): return a + b\n", "+", "-", "changed exp.main"),
    one_file("number type", "def main(): return 1\n", "1", "1.0", "changed exp.main"),
    one_file("text type", "def main(): return 'a'\n", "'a'", "b'a'", "changed exp.main"),
    one_file("default", "def main(a=1): return a\n", "1", "2", "changed exp.main"),
    one_file("parameter kind", "def main(a, b): return a\n", "a, b)", "a, *, b)", "changed exp.main"),
    one_file("f-string", "def main(a): return f'{a:>3}'\n", ">3", ">4", "changed exp.main"),
    one_file("async", "async def main(): return 1\n", "async ", "", "changed exp.main"),
    one_file("helper", "def main(): return b()\ndef b(): return 1\n", "1", "2", "changed exp.b"),
    one_file("helper's helper", "def main(): b()\ndef b(): c()\ndef c(): return 1\n", "1", "2", "changed exp.c"),
    one_file("recursion", "def main(): b()\ndef b(): main(1)\n", "1", "2", "changed exp.b"),
    one_file("function as a value", "def main(a): return map(b, a)\ndef b(x): return 1\n", "1", "2", "changed exp.b"),
    one_file("default's function", "def b(): return 1\ndef main(a=b): return a\n", "1", "2", "changed exp.b"),
    one_file("nested function", "def main():\n    def b(): return 1\n    return b\n", "1", "2", "changed exp.main"),
    one_file("used in a closure", "def b(): 1+1\ndef main():\n    return lambda: b()\n", "1+1", "f()", "changed exp.b"),
    one_file("comprehension", "def b(): return 1\ndef main(a): return [b() for b2 in a]\n", "1", "2", "changed exp.b"),
    one_file("iterable", "def x(): return 1\ndef main(): return [x for x in x()]\n", "1", "2", "changed exp.x"),
    one_file("lambda constant", "b = lambda x: 1\ndef main(): return b(0)\n", "1", "2", "changed exp.b"),
    one_file(
        "partial",
        "from functools import partial\ndef b(x): return 1\nc = partial(b, 2)\ndef main(): return c()\n",
        "1",
        "3",
        "changed exp.b",
    ),
    one_file(
        "dict of functions", "def b(): return 1\nT = {'b': b}\ndef main(k): return T[k]()\n", "1", "2", "changed exp.b"
    ),
    one_file("constant", "A = 1\ndef main(): return A\n", "1", "2", "changed exp.A"),
    one_file("constant of a constant", "A = 1\nB = A + 5\ndef main(): return B\n", "1", "2", "changed exp.A"),
    one_file("tuple constant", "A, (B, *C) = f(1)\ndef main(): return C\n", "1", "2", "changed exp.C"),
    one_file("value in a call", "def main(): return g(x=B)\nB = 1\n", "1", "2", "changed exp.B"),
    one_file("item set later", "T = {}\nT['x'] = 1\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("attribute set later", "T = f()\nT.x.y = 1\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("augmented", "T = 0\nT += 1\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("deleted", "T = {}\ndel T[1]\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("assigned again", "T = 0\nT = 1\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("method call that changes", "T = {}\nT.update(a=1)\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("call that changes", "T = []\nadd(T, 1)\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file(
        "filled in a loop", "T = {}\nfor i in f(1):\n    T[i] = i\ndef main(): return T\n", "1", "2", "changed exp.T"
    ),
    one_file(
        "filled by a helper", "T = {}\ndef b(): return 1\nT['a'] = b\ndef main(): return T\n", "1", "2", "changed exp.b"
    ),
    one_file("with statement", "with f(1) as g:\n    T = g\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("match statement", "match f(1):\n    case [T]: pass\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file("walrus", "if (T := f(1)): pass\ndef main(): return T\n", "1", "2", "changed exp.T"),
    one_file(
        "attribute of a function", "def b(): pass\nb.rate = 1\ndef main(): return b()\n", "1", "2", "changed exp.b"
    ),
    one_file("else branch", "if f():\n    A = 0\nelse:\n    A = 1\ndef main(): return A\n", "1", "2", "changed exp.A"),
    one_file("condition", "if f(1):\n    A = 0\nelse:\n    A = 5\ndef main(): return A\n", "1", "2", "changed exp.A"),
    one_file(
        "negated", "if f:\n    A = 0\nelse:\n    A = 5\ndef main(): return A\n", "if f", "if not f", "changed exp.A"
    ),
    one_file("elif", "if f:\n    A = 0\nelif g(1):\n    A = 5\ndef main(): return A\n", "1", "2", "changed exp.A"),
    one_file(
        "except branch",
        "try:\n    import ujson as json\nexcept ImportError:\n    def json(): return 1\ndef main(): return json\n",
        "1",
        "2",
        "changed exp.json",
    ),
    one_file(
        "condition of an import",
        """
        import os
        if os.name == 'a':
            from re import sub as s
        else:
            from re import match as s
        def main(): return s
        """,
        "== 'a'",
        "!= 'a'",
        "changed exp.s",
    ),
    one_file("third-party name", "from re import sub as s\ndef main(): return s\n", "sub", "match", "changed exp.main"),
    one_file(
        "third-party module", "import re as m\ndef main(): return m.x\n", "import re", "import math", "changed exp.main"
    ),
    one_file(
        "a builtin replaced", "def main(): return max(1)\n", "def", "from re import sub as max\ndef", "changed exp.main"
    ),
    one_file(
        "method", "class A:\n    def f(self): return 1\ndef main(): return A().f()\n", "1", "2", "changed exp.A.f"
    ),
    one_file(
        "property",
        "class A:\n    @property\n    def f(self): return 1\ndef main(): return A().f\n",
        "1",
        "2",
        "changed exp.A.f",
    ),
    one_file(
        "setter",
        """
        class A:
            @property
            def f(self): return 0
            @f.setter
            def f(self, v): self.v = 1
        def main(): return A().f
        """,
        "1",
        "2",
        "changed exp.A.f",
    ),
    one_file("class attribute", "class A:\n    x = 1\ndef main(): return A().x\n", "1", "2", "changed exp.A"),
    one_file("class decorator", "@f(1)\nclass A:\n    x = 5\ndef main(): return A().x\n", "1", "2", "changed exp.A"),
    one_file(
        "class keyword",
        "class A(metaclass=M):\n    x = 5\nclass M: y = 1\ndef main(): return A\n",
        "1",
        "2",
        "changed exp.M",
    ),
    one_file(
        "method through self",
        "class A:\n    def f(self): return self.g()\n    def g(self): return 1\ndef main(): return A().f()\n",
        "1",
        "2",
        "changed exp.A.g",
    ),
    one_file(
        "used in a method",
        "class A:\n    def f(self): return b()\ndef b(): return 1\ndef main(): A().f()\n",
        "1",
        "2",
        "changed exp.b",
    ),
    one_file(
        "function of a method's name",
        "class A:\n    def b(self): return b()\ndef b(): return 1\ndef main(): A().b()\n",
        "return 1",
        "return 2",
        "changed exp.b",
    ),
    one_file(
        "base",
        "class B:\n    def f(self): return 1\nclass A(B): pass\ndef main(): A().f()\n",
        "1",
        "2",
        "changed exp.B.f",
    ),
    one_file(
        "inner class",
        "class A:\n    class B:\n        def f(self): return 1\ndef main(): return A\n",
        "1",
        "2",
        "changed exp.A.B.f",
    ),
    one_file(
        "class attribute's function",
        "class A:\n    f = staticmethod(b)\ndef main(): A.f()\n",
        "main():",
        "main(x=1):",
        "changed exp.main",
    ),
    one_file("field default", "@dataclass\nclass A:\n    x: int = 1\ndef main(): A()\n", "1", "2", "changed exp.A"),
    one_file("field type", "@dataclass\nclass A:\n    x: int = 1\ndef main(): A()\n", "int", "str", "changed exp.A"),
    one_file(
        "field", "class A(Model):\n    x: int\ndef main(): A()\n", "x: int", "x: int\n    y: int", "changed exp.A"
    ),
    one_file(
        "instance",
        "class A:\n    def f(self): return 1\na = A()\ndef main(): return a.f()\n",
        "1",
        "2",
        "changed exp.A.f",
    ),
    one_file("decorator", "def d(f): return 1\n@d\ndef b(): pass\ndef main(): b()\n", "1", "2", "changed exp.d"),
    one_file(
        "decorator's argument", "def d(n): pass\n@d(1)\ndef b(): pass\ndef main(): b()\n", "1", "2", "changed exp.b"
    ),
    one_file("decorated", "def d(f): pass\n@d\ndef b(): return 1\ndef main(): b()\n", "1", "2", "changed exp.b"),
    one_file("own decorator", "def d(f): return 1\n@d\ndef main(): pass\n", "1", "2", "changed exp.d"),
    one_file(
        "step in a body",
        "from marin_pipe import step\n@step\ndef b(): return 1\ndef main(): b.fn()\n",
        "1",
        "2",
        "changed exp.b",
    ),
    one_file("global", "A = 1\ndef main():\n    global A\n    A += 5\n", "1", "2", "changed exp.A"),
    one_file(
        "constant getattr",
        "import exp\ndef b(): return 1\ndef main(): getattr(exp, 'b', None)()\n",
        "1",
        "2",
        "changed exp.b",
    ),
    one_file(
        "used in getattr's default", "def b(): return 1\ndef main(m): getattr(m, 'x', b)()\n", "1", "2", "changed exp.b"
    ),
    one_file(
        "conditional import in the body",
        "def main():\n    try:\n        import a as x\n    except E:\n        import b as x\n",
        "b as",
        "c as",
        "changed exp.main",
    ),
    one_file(
        "new helper", "def b(): pass\ndef main(): return f\n", "return f", "return b", "changed exp.main", "added exp.b"
    ),
    one_file(
        "helper dropped",
        "def b(): pass\ndef main(): return b\n",
        "return b",
        "return f",
        "changed exp.main",
        "removed exp.b",
    ),
    through("from import", "from helpers import clean\ndef main(): clean('')\n"),
    through("from import as", "from helpers import clean as c\ndef main(): c('')\n"),
    through("import", "import helpers\ndef main(): helpers.clean('')\n"),
    through("import as", "import helpers as h\ndef main(): h.clean('')\n"),
    through("import in the body", "def main():\n    import helpers\n    helpers.clean('')\n"),
    through("from import in the body", "def main():\n    from helpers import clean as c\n    return lambda: c('')\n"),
    through(
        "import in a method",
        "class A:\n    def f(self):\n        from helpers import clean\n        clean('')\ndef main(): A()\n",
    ),
    through("import in a class", "class A:\n    from helpers import clean\n    x = clean('')\ndef main(): A()\n"),
    through("star import", "from helpers import *\ndef main(): clean('')\n"),
    through(
        "try import",
        "try:\n    from helpers import clean\nexcept ImportError:\n    clean = None\ndef main(): clean('')\n",
    ),
    through("with import", "with f():\n    from helpers import clean\ndef main(): clean('')\n"),
    through("module as a value", "import helpers\ndef main(): f(helpers)\n"),
    through("import_module", "from importlib import import_module as im\ndef main(): im('helpers').clean('')\n"),
    through(
        "two modules away",
        "from mid import go\ndef main(): go()\n",
        mid="import helpers\ndef go(): helpers.clean('')\n",
    ),
    through("imported module's import", "import mid\ndef main(): mid.helpers.clean('')\n", mid="import helpers\n"),
    through("imported constant", "from mid import T\ndef main(): T\n", mid="from helpers import clean\nT = [clean]\n"),
    through(
        "base's method",
        "from mid import B\nclass A(B): pass\ndef main(): A()\n",
        mid="from helpers import clean\nclass B:\n    def f(self): clean('')\n",
    ),
    through(
        "circular imports",
        "import mid\nclean = mid.clean\ndef main(): clean\n",
        mid="from exp import main\nfrom helpers import clean\n",
    ),
    in_package("from package", "from pkg import clean\ndef main(): clean('')\n", "from .impl import clean\n"),
    in_package("package attribute", "import pkg\ndef main(): pkg.clean('')\n", "from pkg.impl import clean\n"),
    in_package(
        "renamed by the package", "from pkg import tidy\ndef main(): tidy('')\n", "from .impl import clean as tidy\n"
    ),
    in_package("star in the package", "from pkg import clean\ndef main(): clean('')\n", "from .impl import *\n"),
    in_package(
        "star with __all__", "from pkg import *\ndef main(): clean('')\n", "from .impl import *\n__all__ = ['clean']\n"
    ),
    in_package(
        "star over star",
        "from pkg import *\ndef main(): clean('')\n",
        "from .mid import *\n",
        mid="from .impl import *\n",
    ),
    in_package("submodule", "import pkg.impl\ndef main(): pkg.impl.clean('')\n", ""),
    in_package("submodule as", "import pkg.impl as s\ndef main(): s.clean('')\n", ""),
    in_package("from package import submodule", "from pkg import impl\ndef main(): impl.clean('')\n", ""),
    in_package("submodule by the package", "import pkg\ndef main(): pkg.impl.clean('')\n", "from . import impl\n"),
    in_package(
        "relative in a sibling",
        "from pkg.mid import go\ndef main(): go()\n",
        "",
        mid="from .impl import clean\ndef go(): clean('')\n",
    ),
    in_package(
        "relative module",
        "from pkg.mid import go\ndef main(): go()\n",
        "",
        mid="from . import impl\ndef go(): impl.clean('')\n",
    ),
    in_package(
        "relative in a body",
        "from pkg.mid import go\ndef main(): go()\n",
        "",
        mid="def go():\n    from .impl import clean\n    clean('')\n",
    ),
    in_package(
        "two levels up",
        "from pkg.sub.mid import go\ndef main(): go()\n",
        "",
        **{"sub/__init__": "", "sub/mid": "from ..impl import clean\ndef go(): clean('')\n"},
    ),
    in_package(
        "lazy package",
        "from pkg import clean\ndef main(): clean('')\n",
        "def __getattr__(name):\n    from .impl import clean\n    return clean\n",
    ),
    Edit(
        name="package without __init__",
        files={"exp.py": "from space.mod import clean\ndef main(): clean('')\n", "space/mod.py": HELPER},
        at="space/mod.py",
        old="strip",
        new="lstrip",
        changed=["changed space.mod.clean"],
    ),
    Edit(
        name="another helper",
        files={"exp.py": "from helpers import clean as c\ndef main(): c('')\n", "helpers.py": HELPER},
        old="clean as",
        new="other as",
        changed=["changed exp.main", "added helpers.other", "removed helpers.clean"],
    ),
    Edit(
        name="two helpers swapped",
        files={"exp.py": "from helpers import clean as a, other as b\ndef main(): a(b)\n", "helpers.py": HELPER},
        old="clean as a, other as b",
        new="other as a, clean as b",
        changed=["changed exp.main"],
    ),
    Edit(
        name="two modules swapped",
        files={
            "exp.py": "import h as x, g as y\ndef main(): x.f(y.f)\n",
            "h.py": "def f(): return 1\n",
            "g.py": "def f(): return 2\n",
        },
        old="h as x, g as y",
        new="g as x, h as y",
        changed=["changed exp.main"],
    ),
]


ARGUMENT = """
class Base:
    def rows(self): return 1
@dataclass
class Inner:
    size: int = 3
    def encode(self): return 4
@dataclass
class Config(Base):
    inner: "Inner"
    def unused(self): return 5
def main(config: Optional["Config"]): return config.inner, config.size
"""

REGISTRY = """
MODELS = {}
def register(function):
    MODELS[function.__name__] = function
    return function
def named(name):
    def enter(function):
        MODELS.setdefault(name, []).append(function)
        return function
    return enter
"""
LOOKED_UP = "from registry import MODELS\nimport models.moe\ndef main(name): return MODELS[name]()\n"


def registered(name: str, module: str, registry: str = REGISTRY, package: str = "", text: str = LOOKED_UP) -> Edit:
    """exp.py looks up in a registry of another file what a third file has entered; that changes."""
    return Edit(
        name=name,
        files={"exp.py": text, "registry.py": registry, "models/__init__.py": package, "models/moe.py": module},
        at="models/moe.py",
        old="1",
        new="2",
        changed=["changed models.moe.moe"],
    )


def argument(name: str, body: str, old: str, *changed: str) -> Edit:
    """exp.py does `body` with an argument whose class only hints name; `old` changes."""
    return one_file(name, ARGUMENT.replace("config.size", body), old, "9", *changed)


EFFECT += [
    argument("method of an argument's base", "config.rows()", "1", "changed exp.Base.rows"),
    argument("method of an argument's field", "config.inner.encode()", "4", "changed exp.Inner.encode"),
    argument("method of an argument in a loop", "[c.encode() for c in config]", "4", "changed exp.Inner.encode"),
    one_file(
        "operator of an argument",
        "class Docs:\n    def __iter__(self): return 1\ndef main(docs: list[Docs]): return [d for d in docs]\n",
        "1",
        "2",
        "changed exp.Docs.__iter__",
    ),
    one_file(
        "registry in the same file",
        f"{REGISTRY}@register\ndef b(): return 1\ndef main(k): return MODELS[k]()\n",
        "1",
        "2",
        "changed exp.b",
    ),
    registered("registry", "from registry import register\n@register\ndef moe(): return 1\n"),
    registered("registry with a name", "import registry as r\n@r.named('m')\nclass moe:\n    x = 1\n"),
    registered("registry by a call", "from registry import named\ndef moe(): return 1\nnamed('m')(moe)\n"),
    registered(
        "registry object",
        "from registry import MODELS\n@MODELS.enter\ndef moe(): return 1\n",
        "class Registry:\n    def enter(self, f): self.f = f\nMODELS = Registry()\n",
    ),
    registered(
        "registry that is filled by a package",
        "from registry import register\n@register\ndef moe(): return 1\n",
        package="from . import moe\n",
        text=LOOKED_UP.replace("models.moe", "models"),
    ),
]
NO_EFFECT += [
    argument("unused method of an argument", "config.size", "5"),
    argument("default of an argument's field", "config.size", "3"),
    one_file(
        "not in the registry",
        f"{REGISTRY}@register\ndef b(): return 1\n@other\ndef c(): return 5\ndef main(k): return MODELS[k]()\n",
        "5",
        "6",
    ),
    one_file(
        "user of a cache",
        "C = {}\ndef get(x):\n    C[x] = f(x)\n    return C[x]\nget(1)\ndef main(x): return get(x)\n",
        "get(1)",
        "get(2)",
    ),
]

"""The walk from a step's function over all first-party code it reaches."""

import ast
import builtins
import hashlib
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from marin_pipe.execution.source_effects import Effects
from marin_pipe.execution.source_file import Part
from marin_pipe.execution.source_find import Module
from marin_pipe.execution.source_lookup import Definition, Outside, Resolver, Target, Whole
from marin_pipe.execution.source_names import Reference, attribute_chain
from marin_pipe.execution.source_registry import Registration

_SHOWN_CHARACTERS = 100

# Uses of these reach code that no name leads to.
_DYNAMIC = {
    "builtins.__import__",
    "builtins.eval",
    "builtins.exec",
    "builtins.getattr",
    "builtins.globals",
    "importlib.import_module",
    "importlib.resources.files",
    "importlib.resources.open_binary",
    "importlib.resources.open_text",
    "importlib.resources.read_binary",
    "importlib.resources.read_text",
    "importlib.util.spec_from_file_location",
    "os.popen",
    "os.system",
    "pkgutil.get_data",
    "runpy.run_module",
    "runpy.run_path",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.run",
    "sys.modules",
}
_IMPORTERS = {"builtins.__import__", "importlib.import_module"}

# What runs when an object is made or shown, which is not done by the code that is handed the object.
_CONSTRUCTION = {"__init__", "__new__", "__post_init__", "__init_subclass__", "__repr__", "__str__"}


class Trace:
    """One walk. Iterative: chains of calls of any length cost no Python stack."""

    def __init__(self) -> None:
        self.resolver = Resolver()
        self.untraced: set[str] = set()
        self._reached: set[tuple[Module, str]] = set()
        self._queue: deque[Definition] = deque()
        # Classes that hints name, with the names of their methods; and the attributes that are read of anything.
        self._hinted: dict[Definition, set[str]] = {}
        self._attributes: set[str] = set()
        # Statements of other modules that change what was reached; and how much was known when they were looked for.
        self._calls: set[ast.AST] = set()
        self._scanned = (0, 0)
        self._effects = Effects(self.resolver, _IMPORTERS)
        self._searched: tuple[object, ...] = ()
        # What was reached of code that is not first-party.
        self._outside: set[str] = set()
        # Reached parts, with what the names in them turned out to be.
        self._parts: list[tuple[Module, Part, list[tuple[str, Target]]]] = []

    def start(self, root: Any) -> None:
        module = self.resolver.home(root)
        qualname = root.__qualname__
        if module is None or module.path is None:
            self.untraced.add(f"{root.__module__}.{qualname}: it has no Python source")
            return
        file = self.resolver.file(module)
        name: str | None = qualname.partition(".")[0]
        if name not in file.statements and (code := getattr(root, "__code__", None)) is not None:
            name = file.name_at(code.co_firstlineno)
        if name is None or name not in file.statements:
            self.untraced.add(f"{module.name}.{qualname}: its definition is not at the top level of {module.path}")
            return
        self._reach(Definition(module, name))

    def _reach(self, definition: Definition) -> None:
        key = (definition.module, definition.name)
        if key not in self._reached:
            self._reached.add(key)
            self._queue.append(definition)

    def follow(self) -> None:
        """Reach everything."""
        while self._queue:
            while self._queue:
                definition = self._queue.popleft()
                for part in self.resolver.file(definition.module).parts(definition.name):
                    self._follow_part(definition.module, part)
            self._follow_registries()
            self._follow_effects()
            self._follow_hints()

    def _follow_part(self, module: Module, part: Part) -> None:
        uses: list[tuple[str, Target]] = []
        self._attributes |= part.names.attributes
        for reference in part.names.references:
            if reference.hint:
                self._hint(module, reference)
                continue
            text = ".".join((reference.name, *reference.attributes))
            for target in self._targets(module, part, reference):
                uses.append((text, target))
                if not self._within(part, target):
                    self._arrive(target)
        self._parts.append((module, part, uses))
        for read in _files_beside(part):
            self.untraced.add(f"{module.name}.{part.qualname}: reads files: {_shown(read)}")

    def _follow_registries(self) -> None:
        """Reach what other code enters into the containers that were reached."""
        doors = {door for module, name in self._reached for door in self._doors(module, name)}
        if not doors or (len(doors), len(self.resolver.files)) == self._scanned:
            return
        entered: list[tuple[Module, Registration]] = []
        with self.resolver.search():
            for module in self.resolver.imported_modules():
                for entry in self.resolver.file(module).registrations:
                    found = self.resolver.look_up(module, entry.name, entry.attributes, own=True)
                    if not doors.isdisjoint(target for target in found if isinstance(target, Definition)):
                        entered.append((module, entry))
        for module, entry in entered:
            if entry.defines is not None:
                self._reach(Definition(module, entry.defines))
            elif entry.node not in self._calls and not self.resolver.file(module).holds(entry.name, entry.node):
                self._calls.add(entry.node)
                self._follow_part(module, Part(entry.name, (entry.node,)))
        self._scanned = (len(doors), len(self.resolver.files))

    def _follow_effects(self) -> None:
        """Reach what importing the modules does to what was reached."""
        subclasses = "__subclasses__" in self._attributes
        known = (len(self._reached), len(self._outside), len(self.resolver.files), subclasses)
        if known == self._searched:
            return
        self._searched = known
        with self.resolver.search():
            events = [e for module in self.resolver.imported_modules() for e in self._effects.of(module)]
        for event in events:
            self.untraced.update(f"{event.module.name}: {_shown(call)}" for call in event.imports)
            changed = min((name for target in event.changed if (name := self._changes(target))), default=None)
            if isinstance(event.what, Definition):
                if changed is not None or (subclasses and any(self._is_reached(base) for base in event.bases)):
                    self._reach(event.what)
            elif changed is not None:
                node = event.what.nodes[-1]
                if node not in self._calls and not self._holds(event.module, node):
                    self._calls.add(node)
                    self._follow_part(event.module, Part(f"<change of {changed}>", event.what.nodes))

    def _changes(self, target: Target) -> str | None:
        """The name of what was reached, if `target` is or holds it."""
        if isinstance(target, Definition):
            return target.name if self._is_reached(target) else None
        if isinstance(target, Whole):
            return "*" if any(module.path == target.module.path for module, _ in self._reached) else None
        prefix = f"{target.name}."
        return next((name for name in sorted(self._outside) if name == target.name or name.startswith(prefix)), None)

    def _is_reached(self, definition: Definition) -> bool:
        return (definition.module, definition.name) in self._reached

    def _holds(self, module: Module, node: ast.AST) -> bool:
        """Whether a statement at top level belongs to a name that was reached."""
        file = self.resolver.file(module)
        return any(
            statement.node is node
            for name, statements in file.statements.items()
            if (module, name) in self._reached
            for statement in statements
        )

    def _doors(self, module: Module, name: str) -> Iterator[Definition]:
        """How code enters something into the container `name`: through a function beside it, or through its methods."""
        file = self.resolver.file(module)
        values = [value for statement in file.statements[name] if (value := _assigned(statement.node)) is not None]
        if not any(isinstance(value, ast.Dict | ast.List | ast.Set | ast.Call) for value in values):
            return
        for registrar in file.registrars(name):
            yield Definition(module, registrar)
        if any(isinstance(value, ast.Call) and self._makes_instance(module, value) for value in values):
            yield Definition(module, name)

    def _makes_instance(self, module: Module, call: ast.Call) -> bool:
        """Whether a call at top level makes an object of a first-party class."""
        base, attributes, _ = attribute_chain(call.func)
        found = self.resolver.look_up(module, base.id, attributes, own=True) if isinstance(base, ast.Name) else []
        return any(self._is_class(target) for target in found)

    def _hint(self, module: Module, reference: Reference) -> None:
        """Remember the class that a hint names, its bases and the classes that the hints of its fields name."""
        waiting = self.resolver.look_up(module, reference.name, reference.attributes, own=True)[:]
        while waiting:
            target = waiting.pop()
            if target in self._hinted or not self._is_class(target):
                continue
            assert isinstance(target, Definition)
            parts = self.resolver.file(target.module).parts(target.name)
            self._hinted[target] = {part.qualname.removeprefix(f"{target.name}.") for part in parts}
            for inner in parts[0].names.references:
                waiting += self.resolver.look_up(target.module, inner.name, inner.attributes, own=True)

    def _follow_hints(self) -> None:
        """Reach a class that only hints name if one of its methods may be called: its objects come as arguments."""
        for definition, methods in self._hinted.items():
            operators = (name for name in methods if name.startswith("__") and name not in _CONSTRUCTION)
            if not self._attributes.isdisjoint(methods) or any(operators):
                self._reach(definition)

    def _is_class(self, target: Target) -> bool:
        return isinstance(target, Definition) and self.resolver.file(target.module).is_class(target.name)

    def _within(self, part: Part, target: Target) -> bool:
        """Whether all that defines `target` is in `part` already, as the variable of a loop at top level is."""
        if not isinstance(target, Definition):
            return False
        statements = self.resolver.file(target.module).statements[target.name]
        return all(statement.node in part.nodes for statement in statements)

    def _arrive(self, target: Target) -> None:
        if isinstance(target, Definition):
            self._reach(target)
        elif isinstance(target, Whole) and target.module.path is not None:
            file = self.resolver.file(target.module)
            for name in file.statements:
                self._reach(Definition(target.module, name))
            if target.module.directories is not None:
                for name in file.imports:
                    for inner in self.resolver.look_up(target.module, name, ()):
                        if isinstance(inner, Definition):
                            self._reach(inner)

    def _targets(self, module: Module, part: Part, reference: Reference) -> Iterator[Target]:
        where = f"{module.name}.{part.qualname}"
        if reference.imported is not None:
            found = self.resolver.look_up_import(module, reference.imported, reference.attributes)
        else:
            found = self.resolver.look_up(module, reference.name, reference.attributes, own=True)
        if not found and hasattr(builtins, reference.name):
            found = [Outside(f"builtins.{reference.name}")]
        if not found and not reference.optional and not reference.name.startswith("__"):
            self.untraced.add(f"{where}: {_shown(reference.node)}")
        for target in found:
            if isinstance(target, Outside):
                self._outside.add(target.name)
            if isinstance(target, Outside) and target.name in _DYNAMIC:
                whole = self._imported_by_text(target.name, reference.node)
                if whole is None:
                    self.untraced.add(f"{where}: {_shown(reference.node)}")
                    continue
                yield whole
            else:
                yield target

    def _imported_by_text(self, function: str, node: ast.expr) -> Target | None:
        """`import_module("package.module")` names its module."""
        if function not in _IMPORTERS or not isinstance(node, ast.Call) or len(node.args) != 1:
            return None
        name = getattr(node.args[0], "value", None)
        if not isinstance(name, str) or name.startswith("."):
            return None
        module = self.resolver.find(name)
        return Outside(name) if module is None else Whole(module)

    def parts(self) -> list[tuple[str, str, str]]:
        """Module name, name within the module, digest of everything that was reached."""
        owners = Counter(part.qualname for _, part, _ in self._parts)
        found: list[tuple[str, str, str]] = []
        for module, part, uses in self._parts:
            meanings = sorted({text for use in uses if (text := _meaning(module, use, owners)) is not None})
            text = "\n".join((part.form, *meanings))
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            found.append((module.name, part.qualname, digest))
        for path, file in self.resolver.files.items():
            if file.problem is not None:
                name = self.resolver.modules[path].name
                self.untraced.add(f"{name}: {path} cannot be parsed: {file.problem}")
                found.append((name, "", file.digest))
        return found


def _assigned(node: ast.stmt) -> ast.expr | None:
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None


def _meaning(module: Module, use: tuple[str, Target], owners: Counter[str]) -> str | None:
    """What a name stands for, where the text of the code and the other parts do not tell.

    Modules of first-party code are named only if two reached parts share a name: code may move between modules.
    """
    text, target = use
    if isinstance(target, Outside):
        return None if target.name in (text, f"builtins.{text}") else f"{text} = {target.name}"
    if isinstance(target, Whole) or target.module.path == module.path:
        return None
    if owners[target.name] > 1:
        return f"{text} = {target.module.name}.{target.name}"
    return None if target.name in text.split(".") else f"{text} = {target.name}"


def _files_beside(part: Part) -> Iterator[ast.AST]:
    """The statements, or the largest expressions in those with a body, that build paths from where the module lies."""
    if not any(reference.name == "__file__" for reference in part.names.references):
        return
    waiting: list[ast.AST] = list(part.nodes)
    while waiting:
        node = waiting.pop()
        if not any(isinstance(inner, ast.Call | ast.BinOp) and _names_file(inner) for inner in ast.walk(node)):
            continue
        if isinstance(node, ast.expr) or (isinstance(node, ast.stmt) and not hasattr(node, "body")):
            yield node
        else:
            waiting += ast.iter_child_nodes(node)


def _names_file(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == "__file__" for inner in ast.walk(node))


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."

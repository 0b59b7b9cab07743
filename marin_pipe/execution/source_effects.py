"""What importing a module does to others: it registers, patches, fills their containers. Their users do not name it."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from marin_pipe.execution.source_changes import METHODS, collects
from marin_pipe.execution.source_file import Part, SourceFile
from marin_pipe.execution.source_find import Module
from marin_pipe.execution.source_lookup import Definition, Outside, Resolver, Target, Whole
from marin_pipe.execution.source_names import Names, Reference

_HOOKS = ("__init_subclass__",)
_METACLASS_HOOKS = ("__init__", "__new__")


@dataclass(frozen=True, kw_only=True, eq=False)
class Event:
    """Something that happens when a module is imported, and what it changes."""

    module: Module
    what: Definition | Part
    """A class or decorated function, or another statement."""
    changed: frozenset[Target]
    bases: frozenset[Definition] = frozenset()
    """All first-party bases of a class."""
    imports: tuple[ast.expr, ...] = ()
    """Imports whose modules only running the statement tells."""


class Effects:
    """The events of modules, each module read once."""

    def __init__(self, resolver: Resolver, importers: Iterable[str]) -> None:
        self._resolver = resolver
        self._importers = frozenset(importers)
        self._known: dict[str | None, list[Event]] = {}
        self._runs: dict[Definition, tuple[frozenset[Target], frozenset[Definition]]] = {}
        self._ancestors: dict[Definition, tuple[frozenset[Definition], frozenset[Definition]]] = {}

    def of(self, module: Module) -> list[Event]:
        known = self._known.get(module.path)
        if known is None:
            known = self._known[module.path] = list(self._events(module, self._resolver.file(module)))
        return known

    def _events(self, module: Module, file: SourceFile) -> Iterator[Event]:
        for part in file.actions:
            changed = self._run(module, [part]) | self._given(module, part)
            imports = tuple(self._dynamic_imports(module, part.names))
            if changed or imports:
                yield Event(module=module, what=part, changed=changed, imports=imports)
        for defined in file.definitions():
            what = Definition(module, defined.name)
            changed = self._decorated(module, defined.decorators)
            bases: frozenset[Definition] = frozenset()
            if isinstance(defined.node, ast.ClassDef):
                bases, _ = self._family(what)
                changed |= self._made(what)
            if changed or bases:
                yield Event(module=module, what=what, changed=changed, bases=bases)

    def _run(self, module: Module, parts: Iterable[Part]) -> frozenset[Target]:
        """What running code changes, the functions that it calls included."""
        changed, calls = self._directly(module, parts)
        found, waiting, seen = set(changed), list(calls), set(calls)
        while waiting:
            changed, calls = self._called(waiting.pop())
            found |= changed
            waiting += calls - seen
            seen |= calls
        return frozenset(found)

    def _called(self, definition: Definition) -> tuple[frozenset[Target], frozenset[Definition]]:
        known = self._runs.get(definition)
        if known is None:
            parts = self._code(definition)
            known = self._runs[definition] = self._directly(definition.module, parts)
        return known

    def _directly(self, module: Module, parts: Iterable[Part]) -> tuple[frozenset[Target], frozenset[Definition]]:
        changed: set[Target] = set()
        calls: set[Definition] = set()
        for part in parts:
            for reference in part.changes:
                changed.update(self._changed(module, reference))
            for reference in part.names.references:
                if isinstance(reference.node, ast.Call):
                    calls.update(t for t in self._resolve(module, reference) if isinstance(t, Definition))
        return frozenset(changed), frozenset(calls)

    def _changed(self, module: Module, reference: Reference) -> Iterator[Target]:
        method = reference.attributes[-1] if isinstance(reference.node, ast.Call) and reference.attributes else ""
        for target in self._resolve(module, reference):
            if isinstance(target, Outside):
                yield Outside(target.name.removesuffix(f".{method}") if method in METHODS else target.name)
            elif not isinstance(target, Definition) or target.name != method:
                # Else it is a function that happens to be called like a method that changes something.
                yield target
        if reference.name in ("globals", "exec"):
            yield Whole(module)

    def _given(self, module: Module, part: Part) -> frozenset[Target]:
        """Containers and classes of others that a bare call of a first-party function is given."""
        node = part.nodes[-1]
        call = getattr(node, "value", None)
        if not isinstance(node, ast.Expr) or not isinstance(call, ast.Call):
            return frozenset()
        by_node = {id(reference.node): reference for reference in part.names.references}
        callee = by_node.get(id(call))
        if callee is None or not any(isinstance(t, Definition) for t in self._resolve(module, callee)):
            return frozenset()
        given = (by_node[id(argument)] for argument in call.args if id(argument) in by_node)
        targets = (target for reference in given for target in self._resolve(module, reference))
        return frozenset(
            t for t in targets if isinstance(t, Definition) and not self._resolver.file(t.module).is_function(t.name)
        )

    def _decorated(self, module: Module, decorators: Part) -> frozenset[Target]:
        """What decorators enter a definition into: `@handler.register`, `@register("name")`."""
        found: set[Target] = set()
        for reference in decorators.names.references:
            for target in self._resolve(module, reference):
                method = reference.attributes[-1:]
                if not isinstance(target, Definition):
                    continue
                if method and method[0] in METHODS and method[0] != target.name:
                    found.add(target)
                else:
                    found |= self._run(target.module, self._code(target))
        return frozenset(found)

    def _made(self, definition: Definition) -> frozenset[Target]:
        """What making a class changes: by statements in its body, and through hooks of its bases and metaclasses."""
        file = self._resolver.file(definition.module)
        found = set(self._run(definition.module, file.parts(definition.name)[:1]))
        bases, metaclasses = self._family(definition)
        for owners, hooks in ((bases, _HOOKS), (metaclasses, _METACLASS_HOOKS)):
            for owner in owners:
                wanted = {f"{owner.name}.{hook}" for hook in hooks}
                parts = [p for p in self._resolver.file(owner.module).parts(owner.name) if p.qualname in wanted]
                found |= self._run(owner.module, parts)
                if any(collects(node) for part in parts for node in part.nodes):
                    found |= {owner, *(bases if owner in metaclasses else ())}
        return frozenset(found)

    def _family(self, definition: Definition) -> tuple[frozenset[Definition], frozenset[Definition]]:
        """All first-party bases and metaclasses of a class."""
        known = self._ancestors.get(definition)
        if known is None:
            bases: set[Definition] = set()
            metaclasses: set[Definition] = set()
            waiting = [definition]
            while waiting:
                current = waiting.pop()
                for defined in self._resolver.file(current.module).definitions():
                    if defined.name == current.name:
                        above = set(self._classes(current.module, defined.bases)) - bases
                        bases |= above
                        waiting += above
                        metaclasses |= set(self._classes(current.module, defined.metaclass))
            known = self._ancestors[definition] = (frozenset(bases), frozenset(metaclasses))
        return known

    def _classes(self, module: Module, part: Part) -> Iterator[Definition]:
        for reference in part.names.references:
            for target in self._resolve(module, reference):
                if isinstance(target, Definition) and self._resolver.file(target.module).is_class(target.name):
                    yield target

    def _code(self, definition: Definition) -> list[Part]:
        file = self._resolver.file(definition.module)
        return file.parts(definition.name) if file.is_code(definition.name) else []

    def _dynamic_imports(self, module: Module, names: Names) -> Iterator[ast.expr]:
        for reference in names.references:
            if isinstance(reference.node, ast.Call) and not _is_literal(reference.node):
                for target in self._resolve(module, reference):
                    if isinstance(target, Outside) and target.name in self._importers:
                        yield reference.node

    def _resolve(self, module: Module, reference: Reference) -> list[Target]:
        if reference.imported is not None:
            return self._resolver.look_up_import(module, reference.imported, reference.attributes)
        return self._resolver.look_up(module, reference.name, reference.attributes, own=True)


def _is_literal(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant)

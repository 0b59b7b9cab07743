"""Binding the arguments of a call to a step's parameters, and putting loaded values back in their place."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NoReturn

from marin_pipe.execution.declared import Declared, class_spec, declared
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Step, StepPath
from marin_pipe.execution.identity import RuntimeUse, Shape, form, omitted, shape
from marin_pipe.execution.inputs import InputFile, InputFiles
from marin_pipe.execution.mismatch import Mismatch, shown
from marin_pipe.execution.secret import Secret, redact, refuse_secrets
from marin_pipe.execution.values import ATOMS, Coercer, coercer, rebuild, snapshot

if TYPE_CHECKING:
    from marin_pipe.execution.step import StepFunction


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The arguments of one step."""

    arguments: Mapping[str, Any]
    """Coerced values by parameter, defaults and `Runtime` ones included, without `ctx`. `*args` is a tuple and
    `**kwargs` a dict under the parameter's own name: see `call_arguments`."""
    canonical: Mapping[str, Any]
    """Canonical form of the identity-bearing arguments."""
    runtime: Mapping[str, str]
    """`Runtime` arguments and fields as text, by path."""
    inputs: tuple[tuple[str, Step[Any] | StepPath], ...]
    """Upstream handles with their path in the arguments, such as `config.sources[1]`."""
    files: tuple[tuple[str, InputFile | InputFiles], ...]
    secrets: tuple[str, ...]
    """Names of the secrets the step may reveal."""
    functions: tuple[Callable[..., Any], ...]
    """Functions and classes the arguments name, and the classes of dataclasses, models and enums in them."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Stands for an upstream output where arguments travel to a worker."""

    directory: str
    """The upstream step's directory."""
    path: str | None = None
    """Path inside its data; None for the loaded result."""


_HANDLES = (Step, StepPath, Placeholder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    name: str
    kind: Any
    declared: Declared
    default: Any
    coerce: Coercer
    shape: Shape


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is known of a function before any call."""

    parameters: tuple[_Parameter, ...]
    by_keyword: frozenset[str]
    positional: tuple[str, ...]
    var_positional: str | None
    var_keyword: str | None
    context: str | None
    """Name of the parameter that receives the StepContext."""


@functools.cache
def _plan(function: "StepFunction[Any]") -> _Plan:
    hints = function.hints
    parameters, context = [], None
    for name, parameter in function.signature.parameters.items():
        annotation = hints.get(name, Any)
        if name == "ctx" or getattr(annotation, "__name__", "") == "StepContext":
            context = name
            continue
        marked = declared(annotation)
        each: Any = marked.annotation
        if parameter.kind is Parameter.VAR_POSITIONAL:
            each = GenericAlias(tuple, (each, ...))
        elif parameter.kind is Parameter.VAR_KEYWORD:
            each = GenericAlias(dict, (str, each))
        marked = Declared(each, marked.runtime, marked.omit_at)
        parameters.append(
            _Parameter(
                name=name,
                kind=parameter.kind,
                declared=marked,
                default=parameter.default,
                coerce=coercer(each),
                shape=shape(each),
            )
        )
    named = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    kinds = {p.kind: p.name for p in parameters}
    return _Plan(
        parameters=tuple(parameters),
        by_keyword=frozenset(p.name for p in parameters if p.kind in named),
        positional=tuple(
            p.name for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        ),
        var_positional=kinds.get(Parameter.VAR_POSITIONAL),
        var_keyword=kinds.get(Parameter.VAR_KEYWORD),
        context=context,
    )


def bind(function: "StepFunction[Any]", args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    """Match, coerce and copy the arguments of a call, and compute their canonical form.

    Raises:
        GraphError: an unknown, missing or doubled argument, a wrong type, a value without canonical form, a secret
            given as text. Names step and argument.
    """
    try:
        return _bind(_plan(function), args, kwargs)
    except Mismatch as mismatch:
        error = mismatch.as_error("argument ")
    except GraphError as raised:
        error = raised
    except RecursionError:
        error = GraphError("an argument contains itself or is nested too deeply", next="pass a flat value")
    # The message shows the value, and the value may be a secret.
    raise GraphError(
        redact(f"step {function.name}: {error.what}"), why=redact(error.why), next=redact(error.next)
    ) from None


def _bind(plan: _Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    given = _match(plan, args, kwargs)
    found = _Found()
    arguments: dict[str, Any] = {}
    canonical: dict[str, Any] = {}
    for parameter in plan.parameters:
        name = parameter.name
        if name in given:
            value = given[name]
        elif parameter.default is not Parameter.empty:
            value = parameter.default
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            value = ()
        elif parameter.kind is Parameter.VAR_KEYWORD:
            value = {}
        else:
            raise GraphError(f"argument {name} is missing", next=f"pass {name}=...")
        try:
            value = parameter.coerce(value)
        except Mismatch as mismatch:
            raise mismatch.as_error(f"argument {name}") from None
        if type(value) not in ATOMS:
            value = snapshot(value)
        arguments[name] = value
        if parameter.declared.runtime:
            found(name, RuntimeUse(value))
            continue
        made = form(value, parameter.shape, name, found)
        if not omitted(made, parameter.declared):
            canonical[name] = made
    refuse_secrets({**canonical, **found.runtime, **found.bytes})
    if found.files:
        refuse_secrets({where: file.text for where, file in found.files})
    return Bound(
        arguments=arguments,
        canonical=canonical,
        runtime=found.runtime,
        inputs=tuple(found.inputs),
        files=tuple(found.files),
        secrets=tuple(dict.fromkeys(found.secrets)),
        functions=tuple(found.functions),
    )


def _match(plan: _Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Values by parameter name, as Python would assign them."""
    given: dict[str, Any] = dict(zip(plan.positional, args, strict=False))
    surplus = args[len(plan.positional) :]
    if surplus:
        if plan.var_positional is None:
            raise GraphError(
                f"{len(args)} positional arguments were given, at most {len(plan.positional)} are taken",
                next=f"pass {shown(surplus[0])} by name",
            )
        given[plan.var_positional] = surplus
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name == plan.context:
            raise GraphError(
                f"argument {name} was given", why="the engine passes the StepContext itself", next=f"leave {name} out"
            )
        if name not in plan.by_keyword:
            if plan.var_keyword is None:
                _refuse_unknown(plan, name)
            extra[name] = value
        elif name in given:
            raise GraphError(f"argument {name} was given twice, by position and by name", next="give it once")
        else:
            given[name] = value
    if extra:
        assert plan.var_keyword is not None
        given[plan.var_keyword] = extra
    return given


def _refuse_unknown(plan: _Plan, name: str) -> NoReturn:
    import difflib

    known = [p.name for p in plan.parameters if p.kind is not Parameter.VAR_POSITIONAL]
    nearest = difflib.get_close_matches(name, known, n=1)
    raise GraphError(
        f"there is no argument {name}",
        why=f"its arguments are {', '.join(known)}" if known else "it takes no arguments",
        next=f"did you mean {nearest[0]}?" if nearest else "",
    )


class _Found:
    """Collects what the arguments name."""

    def __init__(self) -> None:
        self.runtime: dict[str, str] = {}
        self.inputs: list[tuple[str, Step[Any] | StepPath]] = []
        self.files: list[tuple[str, InputFile | InputFiles]] = []
        self.secrets: list[str] = []
        self.bytes: dict[str, str] = {}
        self.functions: list[Callable[..., Any]] = []

    def __call__(self, where: str, obj: object) -> None:
        if isinstance(obj, RuntimeUse):
            self.runtime[where] = repr(obj.value)
            if type(obj.value) not in ATOMS:
                _replace(obj.value, (*_HANDLES, InputFile, InputFiles, Secret), functools.partial(self._runtime, where))
        elif isinstance(obj, Step | StepPath):
            self.inputs.append((where, obj))
        elif isinstance(obj, InputFile | InputFiles):
            self.files.append((where, obj))
        elif isinstance(obj, Secret):
            self.secrets.append(obj.name)
        elif isinstance(obj, bytes | bytearray):
            self.bytes[where] = obj.decode("latin-1")
        elif callable(obj):
            self._function(where, obj)

    def _runtime(self, where: str, obj: object) -> object:
        if isinstance(obj, Secret):
            self.secrets.append(obj.name)
            return obj
        raise GraphError(
            f"argument {where}: {obj!r} is in a Runtime argument",
            why="what a step reads must be in its key, or a change upstream would go unnoticed",
            next="remove Runtime[...] from this argument",
        )

    def _function(self, where: str, obj: Callable[..., Any]) -> None:
        from marin_pipe.execution.step import StepFunction

        if isinstance(obj, StepFunction):
            raise GraphError(
                f"argument {where}: {obj.name} is a step function, not a step", next=f"call it: {obj.name}(...)"
            )
        if not any(obj is known for known in self.functions):
            self.functions.append(obj)


def substitute(value: Any, lookup: Callable[[Any], Any]) -> Any:
    """`value` with every Step, StepPath and Placeholder in it replaced by `lookup(handle)`.

    Dataclasses and models are rebuilt through their constructors, so that validators see real values; what holds no
    handle is returned as it is.
    """
    return _replace(value, _HANDLES, lookup)


def _replace(value: Any, kinds: tuple[type, ...], lookup: Callable[[Any], Any]) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, kinds):
        return lookup(value)
    if kind in (list, tuple, set, frozenset):
        new = [_replace(v, kinds, lookup) for v in value]
        return value if all(a is b for a, b in zip(value, new, strict=True)) else kind(new)
    if kind is dict:
        replaced = {k: _replace(v, kinds, lookup) for k, v in value.items()}
        return value if all(replaced[k] is v for k, v in value.items()) else replaced
    spec = None if isinstance(value, type) or hasattr(kind, "__canonical__") else class_spec(kind)
    if spec is None:
        return value
    changed = {}
    for field in spec.fields:
        item = getattr(value, field.name)
        made = _replace(item, kinds, lookup)
        if made is not item:
            changed[field.name] = made
    return rebuild(value, spec, changed) if changed else value


def call_arguments(
    function: "StepFunction[Any]", arguments: Mapping[str, Any], context: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments that call `function.fn` with `arguments` (named as in `Bound`) and `context`."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    context_name = _plan(function).context
    spread = any(p.kind is Parameter.VAR_POSITIONAL for p in function.signature.parameters.values())
    for name, parameter in function.signature.parameters.items():
        value = context if name == context_name else arguments[name]
        if parameter.kind is Parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            keywords.update(value)
        elif parameter.kind is Parameter.KEYWORD_ONLY or (
            parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and not spread
        ):
            keywords[name] = value
        else:
            positional.append(value)
    return positional, keywords


def takes_context(function: "StepFunction[Any]") -> bool:
    """Whether the body asks for a StepContext."""
    return _plan(function).context is not None

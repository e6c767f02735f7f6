"""Callables: what Python can tell about a function, and where it refuses.

Partials, bound methods, callable objects and decorators made with `functools.wraps` are seen
through: the signature is that of what will be called, the names in annotations and the docstring
are those of the function that was written.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Union, get_args, get_origin

import attrs

__all__ = ["Inspected", "Parameter", "SignatureError"]


class SignatureError(TypeError):
    """A function cannot be offered; the message names the parameter and says what to do instead."""


@attrs.define
class Parameter:
    """A parameter that a peer may fill in; ``kind`` is its annotation as `msgspec` wants it."""

    name: str
    annotation: Any
    default: Any
    kind: Any = Any

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@attrs.define
class Inspected:
    """The function as written, below partials, bound methods and decorators."""

    name: str
    signature: inspect.Signature
    fixed: frozenset[str]
    doc: str | None
    names: dict[str, Any]
    context_type: type
    context_parameter: str | None = None

    @classmethod
    def of(cls, fn: Callable[..., Any], context_type: type) -> Inspected:
        inner = _innermost(fn)
        name = getattr(inner, "__qualname__", repr(fn)).rpartition("<locals>.")[2]
        if isinstance(fn, type):
            raise SignatureError(f"{name} is a class; offer a function or an object with __call__")
        try:
            signature = inspect.signature(fn)
        except (TypeError, ValueError, NameError) as error:
            raise SignatureError(f"{name}() has no signature that can be read: {error}") from error
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise SignatureError(
                f"{name}() is a generator, and has one result: return a list, and report with "
                "ctx.progress on the way"
            )
        fixed = frozenset(fn.keywords) if isinstance(fn, functools.partial) else frozenset[str]()
        names = {context_type.__name__: context_type, **_names_seen_by(inner)}
        return cls(name, signature, fixed, _doc(fn, inner), names, context_type)

    def parameters(self) -> list[Parameter]:
        """What the peer may fill in, in order; finds `context_parameter` on the way."""
        found = []
        for place, (name, parameter) in enumerate(self.signature.parameters.items()):
            if name in self.fixed:
                continue
            if place == 0 and name in ("self", "cls") and parameter.annotation is parameter.empty:
                raise SignatureError(
                    f"{self.name}() is a method without its object: offer the bound one, as in "
                    f"server.tool(shop.{self.name})"
                )
            self._refuse_nameless(parameter)
            annotation = self.evaluate(f"parameter {name!r}", parameter.annotation)
            if not self._is_context(annotation):
                found.append(Parameter(name, annotation, parameter.default))
            elif self.context_parameter is None:
                self.context_parameter = name
            else:
                raise SignatureError(
                    f"{self.name}() has two context parameters, {self.context_parameter!r} and "
                    f"{name!r}; keep one"
                )
        return found

    def refuse_bare_context(self, parameters: Iterable[Parameter]) -> None:
        """Without its annotation a context would be an argument that the peer has to send."""
        if self.context_parameter is not None:
            return
        bare = inspect.Parameter.empty
        for name in (known.name for known in parameters if known.name in ("ctx", "context")):
            if self.signature.parameters[name].annotation is bare:
                kind = self.context_type.__name__
                raise SignatureError(
                    f"parameter {name!r} of {self.name}() has no annotation: write `{name}: {kind}`"
                    f" for the request's context, or `{name}: Any` for an argument of this name"
                )

    def evaluate(self, where: str, annotation: Any) -> Any:
        """An annotation without forward references; a missing one is `Any`."""
        if annotation is inspect.Parameter.empty:
            return Any

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        try:
            return typing.get_type_hints(holder, self.names, include_extras=True)["it"]
        except Exception as error:  # whatever evaluating an annotation raises
            raise SignatureError(
                f"{where} of {self.name}() cannot be resolved ({error}); define or import what "
                "it names at module level, outside of `if TYPE_CHECKING:`"
            ) from error

    def blame(self, where: str, error: Exception) -> SignatureError:
        text = " ".join(str(getattr(error, "message", error)).split())
        return SignatureError(f"{where} of {self.name}() cannot be offered: {text}")

    def _refuse_nameless(self, parameter: inspect.Parameter) -> None:
        advice = {
            parameter.POSITIONAL_ONLY: "arguments are passed by name: remove the `/` after it",
            parameter.VAR_POSITIONAL: "use one parameter with a list instead",
            parameter.VAR_KEYWORD: "name the parameters, or use one parameter with a dict[str, …]",
        }
        if parameter.kind in advice:
            shown = str(parameter.replace(annotation=parameter.empty))
            raise SignatureError(
                f"parameter {shown!r} of {self.name}() cannot be offered: {advice[parameter.kind]}"
            )

    def _is_context(self, annotation: Any) -> bool:
        origin = get_origin(annotation)
        if origin is Annotated:
            return self._is_context(annotation.__origin__)
        if origin is Union or origin is types.UnionType:
            return any(self._is_context(member) for member in get_args(annotation))
        cls = origin or annotation
        return isinstance(cls, type) and issubclass(cls, self.context_type)


def _innermost(fn: Any) -> Any:
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif inspect.isroutine(fn) or isinstance(fn, type) or not callable(fn):
            return fn
        else:
            fn = type(fn).__call__


def _names_seen_by(fn: Any) -> dict[str, Any]:
    """The names that annotations of a function may use, those of an enclosing function included."""
    names: dict[str, Any] = {p.__name__: p for p in getattr(fn, "__type_params__", ())}
    names.update(getattr(fn, "__globals__", {}))
    if inspect.isfunction(fn):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # defined further down in the enclosing function
                continue
    return names


def _doc(fn: Any, inner: Any) -> str | None:
    if inspect.isroutine(fn):
        return fn.__doc__
    own = getattr(fn, "__dict__", {}).get("__doc__")  # a partial may have been given one
    cls_doc = None if isinstance(fn, functools.partial) else type(fn).__doc__
    text: str | None = own or inner.__doc__ or cls_doc
    return text

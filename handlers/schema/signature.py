"""From a Python signature to a tool: input schema, arguments, output schema.

`inspect_function` looks at a function once, when it is registered. The `FunctionSchema` it returns
then turns the arguments of each call into keyword arguments (`FunctionSchema.bind`) and what the
function returned into JSON (`FunctionSchema.structure_output`).

What is published is what is enforced: a validator for the schema runs first, in a fraction of a
microsecond, and `msgspec` then makes the values. Conversion checks beyond the schema only what JSON
Schema (2020-12) cannot say or takes for a remark: date formats, base64, the keys of
``dict[int, …]``, and the validators of `attrs` classes.

Specification: *Tools*, "Tool" and "Output Schema"; *Base Protocol*, "JSON Schema Usage".
"""

from __future__ import annotations

import functools
import math
import re
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import attrs
import jsonschema_rs
import msgspec

from ...runtime.jsonrpc import NonFiniteNumber
from .callables import Inspected, Parameter, SignatureError
from .docstrings import parse_docstring
from .fields import UnsupportedAnnotation
from .given import GivenSchema
from .problems import MAX_DEPTH, Checker, has_non_finite, summarise
from .pydantic_models import is_field
from .type_hints import Translation, convert_custom, encode_custom
from .type_schemas import Schema, describe_types, in_written_order, is_open, self_contained

__all__ = [
    "FunctionSchema",
    "InvalidArguments",
    "NonFiniteOutput",
    "OutputError",
    "SignatureError",
    "inspect_function",
]

_UNFIT = (UnsupportedAnnotation, jsonschema_rs.ValidationError)
_NO_SCHEMA: tuple[Any, ...] = (
    str,
    bytes,
    bytearray,
    type(None),
    typing.NoReturn,
    typing.Never,
    Any,
    object,
)


class InvalidArguments(ValueError):
    """The arguments of a call do not fit; the text is meant for the model that sent them.

    ``problems`` has one entry per problem, at most eight.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return summarise(self.problems)


class OutputError(ValueError):
    """A function returned something else than its annotation promises, or no JSON at all.

    ``problems`` has one entry per problem, at most eight; each names its place in the result.
    """

    def __init__(self, function: str, problems: Iterable[str]) -> None:
        self.function = function
        self.problems = tuple(problems)
        super().__init__(self.function, self.problems)

    def __str__(self) -> str:
        return summarise(self.problems, f"{self.function}() did not return what it promises")


class NonFiniteOutput(OutputError, NonFiniteNumber):
    """It returned NaN or an infinity, which JSON does not have; the text says where."""


@attrs.frozen(eq=False)
class FunctionSchema:
    """What a peer may know of a function, and the way in and out.

    Attributes:
        input_schema: JSON Schema of the arguments, always an object without further properties.
        output_schema: JSON Schema of the structured result; None if the result is only content.
        description: the docstring without its parameter section, possibly empty.
        context_parameter: the parameter to pass the context to, which no schema shows.
        function: its name, for messages.
        plain: what it returns if it promises text or nothing; empty if it promises something else.
    """

    input_schema: Schema
    output_schema: Schema | None
    description: str
    context_parameter: str | None
    function: str
    plain: tuple[type, ...]
    _incoming: _Incoming | _Given = attrs.field(repr=False)
    _outgoing: _Outgoing = attrs.field(repr=False)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function: the given arguments, checked and converted.

        Arguments that were not given are left out, so that the function's own defaults hold. Whole
        floats are integers, as in JSON Schema: ``5.0`` is passed as ``5`` where an `int` is wanted.

        Raises:
            InvalidArguments: with every problem, up to eight. A `ValueError` or `TypeError` from
                the validators or ``__post_init__`` of a class counts as one; what else they raise
                passes through.
        """
        return self._incoming.bind(arguments)

    def structure_output(self, value: Any) -> Any:
        """What the function returned, as builtins that JSON can hold.

        With an `output_schema` the result is checked against it; without one (`str`, content
        and the like) the value is only converted.

        Raises:
            OutputError: with the path of what is no JSON, not finite, or not as promised.
        """
        return self._outgoing.structure(value)

    def check_plain(self, value: Any) -> None:
        """Hold the result of a function without an output schema against `plain`.

        Raises:
            OutputError: it promises text, or nothing, and has returned something else.
        """
        if self.plain and not isinstance(value, self.plain):
            expected = " or ".join(_PLAIN_WORDS[kind] for kind in self.plain)
            raise OutputError(
                self.function, [f"the result must be {expected}, not {type(value).__name__}"]
            )


def inspect_function(
    fn: Callable[..., Any],
    *,
    context_type: type,
    unstructured_types: tuple[type, ...] = (),
    wrapper: type | None = None,
    input_schema: GivenSchema | None = None,
    output_schema: GivenSchema | None = None,
    value_depth: int = MAX_DEPTH,
) -> FunctionSchema:
    """Derive everything from a signature: functions, bound methods, partials, callable objects.

    Decorators that use `functools.wraps` are seen through. Arguments that `functools.partial` has
    fixed, by position or by name, are not offered to the peer. A parameter without an annotation
    takes any JSON value.

    Args:
        context_type: the class whose parameter is the `FunctionSchema.context_parameter`.
        unstructured_types: a return annotation with one of these classes (or a list, tuple or union
            with one) means content, for which there is no output schema.
        wrapper: a generic class: ``wrapper[X]`` as the return annotation means ``X``, and without
            ``X`` there is no output schema.
        input_schema: arguments are checked against this one, and passed as they are, in one dict,
            to the one parameter that the function has besides the context.
        output_schema: results are checked against this one, whatever the annotation says.
        value_depth: most levels of values that a given schema is for.

    Raises:
        SignatureError: the signature cannot be offered.
    """
    subject = Inspected.of(fn, context_type)
    parameters = subject.parameters()
    subject.refuse_bare_context(parameters)
    docs = parse_docstring(subject.doc)
    returns = subject.evaluate("the return annotation", subject.signature.return_annotation)
    incoming: _Incoming | _Given
    try:
        if input_schema is not None:
            incoming = _Given.of(subject, parameters, input_schema, value_depth)
        else:
            incoming = _Incoming.of(parameters, docs.parameters)
    except _UNFIT as error:
        for parameter in parameters:  # find out whose fault it is
            try:
                _Incoming.of([parameter], {})
            except _UNFIT as reason:
                raise subject.blame(f"parameter {parameter.name!r}", reason) from reason
        raise subject.blame("a parameter", error) from error
    try:
        if output_schema is not None:
            published: Schema | None = output_schema.schema
            checker = Checker.given("result", output_schema, value_depth)
            outgoing = _Outgoing(subject.name, checker, None)
        else:
            published = _output_schema(returns, unstructured_types, wrapper)
            outgoing = _Outgoing.of(subject.name, {} if published is None else published)
    except _UNFIT as error:
        raise subject.blame("the return annotation", error) from error
    return FunctionSchema(
        input_schema=incoming.checker.schema,
        output_schema=published,
        description=docs.description,
        context_parameter=subject.context_parameter,
        function=subject.name,
        plain=_plain_types(returns),
        incoming=incoming,
        outgoing=outgoing,
    )


# -- in and out ----------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Incoming:
    """Arguments: checked against the schema, then converted in one go."""

    checker: Checker
    struct: type[msgspec.Struct]
    count: int
    convert: Callable[[Any, Any], Any]

    @classmethod
    def of(cls, parameters: Sequence[Parameter], texts: dict[str, str]) -> _Incoming:
        """Raises one of `_UNFIT` if a parameter has no JSON Schema."""
        translation = Translation(incoming=True)
        for parameter in parameters:
            parameter.kind = translation.translate(parameter.annotation)
        schema = _input_schema(parameters, texts, translation)
        fields = [(p.name, p.kind) if p.required else (p.name, p.kind, None) for p in parameters]
        try:
            struct = msgspec.defstruct(
                "Arguments", fields, forbid_unknown_fields=True, kw_only=True
            )
        except (TypeError, ValueError, RuntimeError) as error:  # __private is one such name
            raise UnsupportedAnnotation("its name has a meaning in classes; rename it") from error
        convert: Any = msgspec.convert  # keyword arguments cost more than the conversion itself
        if translation.custom or translation.converted_keys:
            convert = functools.partial(convert, dec_hook=convert_custom, str_keys=True)
        checker = Checker.of("argument", schema, open=is_open(schema))
        return cls(checker, struct, len(parameters), convert)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self.checker.accepts(arguments):
            raise InvalidArguments(self.checker.explain(arguments))
        try:
            bound = self.convert(arguments, self.struct)
        except (msgspec.ValidationError, RecursionError):
            bound = self._convert_whole_floats(arguments)
        if len(arguments) == self.count:
            return msgspec.structs.asdict(bound)
        return {name: getattr(bound, name) for name in arguments}

    def _convert_whole_floats(self, arguments: dict[str, Any]) -> Any:
        """JSON Schema calls 5.0 an integer, conversion does not."""
        try:
            return self.convert(_whole_floats_as_integers(arguments), self.struct)
        except msgspec.ValidationError as error:
            raise InvalidArguments(self.checker.explain_conversion(error)) from error
        except RecursionError as error:
            raise InvalidArguments(self.checker.explain(arguments)) from error


@attrs.frozen(eq=False)
class _Given:
    """Arguments of a function that takes them all in one dict."""

    checker: Checker
    parameter: str

    @classmethod
    def of(
        cls,
        subject: Inspected,
        parameters: Sequence[Parameter],
        schema: GivenSchema,
        value_depth: int,
    ) -> _Given:
        """Raises `SignatureError` for a function that takes something else."""
        if len(parameters) != 1 or not _takes_dict(parameters[0].annotation):
            raise SignatureError(
                f"{subject.name}() has an input schema of its own, so it takes all arguments in "
                "one parameter, besides a Context: write `arguments: dict[str, Any]`"
            )
        return cls(Checker.given("argument", schema, value_depth), parameters[0].name)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self.checker.accepts(arguments):
            raise InvalidArguments(self.checker.explain(arguments))
        return {self.parameter: arguments}


def _takes_dict(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _takes_dict(annotation.__origin__)
    kind = get_origin(annotation) or annotation
    return kind in (Any, object, dict, Mapping, MutableMapping) or typing.is_typeddict(kind)


@attrs.frozen(eq=False)
class _Outgoing:
    """Results: made into builtins, then checked against the schema."""

    function: str
    checker: Checker
    scalar: type | None

    @classmethod
    def of(cls, function: str, schema: Schema) -> _Outgoing:
        plain = schema.keys() <= {"type", "title", "description", "examples"}
        checker = Checker.of("result", schema, open=is_open(schema, extras=True))
        return cls(function, checker, _SCALARS.get(schema.get("type")) if plain else None)

    def structure(self, value: Any) -> Any:
        kind = type(value)
        if kind is self.scalar and (kind is not float or math.isfinite(value)):
            return value
        try:
            built = msgspec.to_builtins(value, str_keys=True, enc_hook=encode_custom)
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"the result cannot be represented as JSON: {error}"
            raise OutputError(self.function, [problem]) from error
        if not self.checker.accepts(built):
            kind = NonFiniteOutput if has_non_finite(built) else OutputError
            raise kind(self.function, self.checker.explain(built))
        return built


_PLAIN_WORDS: dict[type, str] = {str: "a str", type(None): "None"}
_WRONG_KIND = re.compile(r", got `|^Invalid enum value")
_JSON_KINDS = frozenset({str, int, float, bool, list, dict, tuple})
_SCALARS: dict[Any, type] = {"integer": int, "number": float, "boolean": bool}


def _whole_floats_as_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _whole_floats_as_integers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole_floats_as_integers(part) for part in value]
    return value


# -- schemas -------------------------------------------------------------------------------------


def _input_schema(
    parameters: Sequence[Parameter], texts: dict[str, str], translation: Translation
) -> Schema:
    schemas, definitions = describe_types([p.kind for p in parameters], translation)
    schemas = [
        in_written_order(parameter.annotation, schema)
        for parameter, schema in zip(parameters, schemas, strict=True)
    ]
    for parameter, schema in zip(parameters, schemas, strict=True):
        if parameter.name in texts:
            schema.setdefault("description", texts[parameter.name])
        schema.update(_default(parameter))
    required = [p.name for p in parameters if p.required]
    root: Schema = {
        "type": "object",
        "properties": {p.name: schema for p, schema in zip(parameters, schemas, strict=True)},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }
    return self_contained(root, definitions)


def _default(parameter: Parameter) -> Schema:
    """The default as JSON, if it is one that a peer could send as well.

    Raises `UnsupportedAnnotation` for one that is a mistake.
    """
    if parameter.required:
        return {}
    default = parameter.default
    if is_field(default):
        raise UnsupportedAnnotation(
            f"its default is {type(default).__name__}(…), which would be passed as it is: write "
            "`name: Annotated[int, Field(ge=1)] = 3`"
        )
    try:
        built = msgspec.to_builtins(default, str_keys=True, enc_hook=encode_custom)
        msgspec.convert(built, parameter.kind, dec_hook=convert_custom, str_keys=True)
    except (TypeError, ValueError, RecursionError, msgspec.ValidationError) as error:
        # None, or a value below a bound, often stands for "not given", and an object may be a mark
        # that only the function knows. What a type checker would refuse is a mistake.
        if type(default) in _JSON_KINDS and _WRONG_KIND.search(str(error)):
            raise UnsupportedAnnotation(
                f"its default {reprlib.repr(default)} does not fit its annotation: {error}"
            ) from error
        return {}
    return {} if has_non_finite(built) else {"default": built}


def _output_schema(
    annotation: Any, unstructured: tuple[type, ...], wrapper: type | None
) -> Schema | None:
    bare = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
    if wrapper is not None and get_origin(bare) is wrapper:
        (annotation,) = get_args(bare)
    elif wrapper is not None:
        unstructured = (*unstructured, wrapper)
    if _mentions(annotation, unstructured) or _is_plain_content(annotation):
        return None
    translation = Translation(incoming=False)
    (root,), definitions = describe_types([translation.translate(annotation)], translation)
    return self_contained(in_written_order(annotation, root), definitions)


def _mentions(annotation: Any, classes: tuple[type, ...]) -> bool:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return issubclass(annotation, classes)
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, classes):
        return True
    return any(_mentions(arg, classes) for arg in get_args(annotation))


def _plain_types(annotation: Any) -> tuple[type, ...]:
    """`str`, `None` or both, if the annotation says nothing else."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain_types(annotation.__origin__)
    if origin is Union or origin is types.UnionType:
        members = [_plain_types(member) for member in get_args(annotation)]
        found = {kind for kinds in members for kind in kinds}
        return tuple(kind for kind in _PLAIN_WORDS if kind in found) if all(members) else ()
    kind = getattr(annotation, "__supertype__", None) or annotation  # NewType
    if kind is None or kind is type(None):
        return (type(None),)
    return (str,) if kind is str else ()


def _is_plain_content(annotation: Any) -> bool:
    """Text, bytes, nothing, or anything at all."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_plain_content(annotation.__origin__)
    if origin is Union or origin is types.UnionType:
        return all(_is_plain_content(member) for member in get_args(annotation))
    if isinstance(annotation, typing.TypeVar):
        return True
    supertype = getattr(annotation, "__supertype__", None)  # NewType
    return any((supertype or annotation) is kind for kind in _NO_SCHEMA)

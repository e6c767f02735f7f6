"""What is wrong with a JSON value, in words that a language model can act on.

Everything here is bounded, because values come from a peer: the number of problems, the length of
each piece of text, how much of a value is shown, and how many errors are made to choose from.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NoReturn, cast

import attrs
import jsonschema_rs
import msgspec

from .brief import alternatives, errors_per_part, is_costly, without_alternatives
from .given import GivenSchema, mentions_unevaluated
from .pydantic_models import ModelProblems
from .type_schemas import reference_of

__all__ = ["Checker", "has_non_finite", "summarise"]

Schema = dict[str, Any]
Path = Sequence[str | int]

#: How many problems one message lists.
MAX_PROBLEMS = 8
#: How many problems are looked at, the same ones included.
MAX_EXAMINED = 100
#: How many errors the validator may make of one value, at 20 µs and 1.6 KB each; of a value that
#: may have more, only the first problem is named.
MAX_ERRORS = 5_000
#: How many characters one problem takes.
MAX_PROBLEM = 500
#: How many characters of a value, a name or a pattern one message shows.
MAX_SHOWN = 60
#: How many characters a position or a foreign message has at most.
MAX_TEXT = 100
#: How many alternatives or known names one message lists.
MAX_LISTED = 20
#: How many levels a value may have; the validator reads a few more, and recurses on the C stack.
MAX_DEPTH = 200
#: How many references and unions are looked through to say what a schema asks for.
MAX_LEVELS = 4
#: How many large integers a value may have that are the same number once rounded to a float, if
#: somewhere its items must be unique: the validator compares each of these with all others.
MAX_ALIKE = 32
#: Integers beyond this are described rather than shown.
MAX_INTEGER = 10**20
#: Up to here each integer is a float of its own.
EXACT = 2**53

_CONVERSION_ERROR = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_EXAMPLES = {
    "date-time": "date and time such as 2026-01-31T12:00:00Z",
    "date": "date such as 2026-01-31",
    "time": "time such as 12:00:00Z",
    "partial-time": "time such as 12:00:00",
    "duration": "duration such as PT1H30M",
    "uuid": "UUID",
    "decimal": 'decimal number in a string, such as "12.50"',
    "path": "string with a path",
}
_FORMATS = {  # of forms: texts that are checked, and stay texts
    "email": "email address such as ann@example.com",
    "uri": "URI such as https://example.com/page",
}
_COMPARISONS = {
    "minimum": "at least",
    "exclusiveMinimum": "greater than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}
_SIZES = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "item"),
    "maxItems": ("at most", "item"),
    "minProperties": ("at least", "entry"),
    "maxProperties": ("at most", "entry"),
}
_PLURALS = {"entry": "entries"}


def _checks(kind: type) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            msgspec.convert(text, kind)
        except msgspec.ValidationError:
            return False
        return True

    return check


_FORMAT_CHECKS = {  # what conversion accepts, neither more nor less
    "date-time": _checks(datetime.datetime),
    "date": _checks(datetime.date),
    "time": _checks(datetime.time),
    "partial-time": _checks(datetime.time),
    "duration": _checks(datetime.timedelta),
    "uuid": _checks(uuid.UUID),
}


def _refuse_to_retrieve(uri: str) -> NoReturn:
    raise ValueError(f"references to other documents are not followed: {uri}")


def _mentions_unique(schema: Schema) -> bool:
    return b'"uniqueItems":true' in msgspec.json.encode(schema)


def summarise(problems: Sequence[str], heading: str = "") -> str:
    """One message from some problems: on one line, or a list if there are several."""
    if len(problems) == 1:
        return f"{heading}: {problems[0]}" if heading else problems[0]
    return "\n- ".join([f"{heading or f'{len(problems)} problems'}:", *problems])


def has_non_finite(value: Any) -> bool:
    """Whether NaN or an infinity is anywhere in a value made of builtins."""
    rest = [value]
    while rest:
        item = rest.pop()
        kind = type(item)
        if kind is dict:
            rest.extend(item.values())
        elif kind is list or kind is tuple:
            rest.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            return True
    return False


def has_alike_integers(value: Any) -> bool:
    """Whether a value made of builtins has more than `MAX_ALIKE` integers, not all the same, that
    are one number as floats. Those of very many digits count for more, as it takes longer to
    compare them."""
    alike: dict[float, tuple[int, int, bool]] = {}
    rest = [value]
    while rest:
        item = rest.pop()
        kind = type(item)
        if kind is dict:
            rest.extend(item.values())
        elif kind is list or kind is tuple:
            rest.extend(item)
        elif kind is int and not -EXACT <= item <= EXACT:
            try:
                rounded = float(item)
            except OverflowError:
                rounded = math.inf
            first, count, differ = alike.get(rounded, (item, 0, False))
            count, differ = count + 1 + item.bit_length() // 256, differ or item != first
            if differ and count > MAX_ALIKE:
                return True
            alike[rounded] = first, count, differ
    return False


def is_too_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a value made of builtins has more than so many levels."""
    level = [value]
    for _ in range(levels):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inside.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inside.extend(item)
        if not inside:
            return False
        level = inside
    return True


def _is_flat(value: Any) -> bool:
    """Whether an object has nothing but texts, finite numbers, booleans and nulls, as most have:
    nothing deep. To find that out first is cheaper."""
    if type(value) is not dict:
        return False
    for item in value.values():
        kind = type(item)
        if kind is float:
            if not math.isfinite(item):
                return False
        elif kind not in _SCALARS:
            return False
    return True


_SCALARS = frozenset({str, int, bool, type(None)})


@attrs.frozen(eq=False)
class Checker:
    """Says whether a tool's arguments or its result fit a schema, and in words why not."""

    subject: Literal["argument", "result"]
    schema: Schema
    _is_valid: Callable[[Any], bool]
    _iter_errors: Callable[[Any], Iterable[jsonschema_rs.ValidationError]]
    _validate: Callable[[Any], None]
    _open: bool
    _deep: bool
    _max_parts: float
    _brief: Checker | None  # with a schema without alternatives, if it has any
    _max_depth: int = MAX_DEPTH
    _vague: bool = False  # of a large value it can only be said that it does not fit
    _unique: bool = False  # somewhere the items of an array must be unique

    @classmethod
    def of(cls, subject: Literal["argument", "result"], schema: Schema, *, open: bool) -> Checker:
        """``open`` tells that somewhere in the schema any JSON value fits.

        Values of recursive schemas, and results that are open, have at most `MAX_DEPTH` levels.

        Raises:
            jsonschema_rs.ValidationError: the schema is not valid, or refers to other documents.
        """
        validator = jsonschema_rs.Draft202012Validator(
            schema, formats=_FORMAT_CHECKS, validate_formats=True, retriever=_refuse_to_retrieve
        )
        deep = "$defs" in schema or (open and subject == "result")
        max_parts = MAX_ERRORS / errors_per_part(schema)
        simpler = without_alternatives(schema)
        brief = None if simpler == schema else cls.of(subject, simpler, open=open)
        ways = (validator.is_valid, validator.iter_errors, validator.validate)
        unique = _mentions_unique(schema)
        return cls(subject, schema, *ways, open, deep, max_parts, brief, unique=unique)

    @classmethod
    def given(
        cls, subject: Literal["argument", "result"], given: GivenSchema, max_depth: int
    ) -> Checker:
        """For a schema that the application gave; values have at most ``max_depth`` levels."""
        validator = given.make(given.schema)
        ways = (validator.is_valid, validator.iter_errors, validator.validate)
        max_parts = MAX_ERRORS / given.errors_per_part
        brief = _brief_of_given(subject, given, max_depth)
        return cls(
            subject,
            given.schema,
            *ways,
            True,
            True,
            max_parts,
            brief,
            max_depth,
            brief is None,
            _mentions_unique(given.schema),
        )

    def accepts(self, value: Any) -> bool:
        """Whether a value made of builtins fits, down to formats and finite numbers."""
        flat = _is_flat(value)
        if self._deep and not flat and is_too_deep(value, self._max_depth):
            return False
        if self._unique and has_alike_integers(value):
            return False
        try:
            valid = self._is_valid(value)
        except ValueError:  # text or nesting that the validator cannot read
            return False
        return valid and (flat or not (self._open and has_non_finite(value)))

    def explain(self, value: Any) -> list[str]:
        """The problems of a value, at most `MAX_PROBLEMS`; none if it is accepted.

        Of a large value it is only the first one, see `MAX_ERRORS`.
        """
        if is_too_deep(value, self._max_depth):
            return [f"{self._place(())}: nested more than {self._max_depth} levels deep"]
        if self._unique and has_alike_integers(value):
            return [f"{self._place(())}: too many large integers that are almost the same"]
        try:
            if has_non_finite(value):
                return _chosen(self._non_finite(value))
            if is_costly(value, self._max_parts):
                return (self._brief or self)._first(value)
            errors = self._iter_errors(value)
            return _chosen(itertools.chain.from_iterable(map(self._explain, errors)))
        except UnicodeError:
            return [f"{self._place(())}: contains text that is not valid Unicode"]
        except ValueError as error:  # the validator cannot even read it
            return [f"{self._place(())}: {_clip(str(error))}"]

    def explain_conversion(self, error: msgspec.ValidationError) -> list[str]:
        """The words of `msgspec`, with its path turned into the name of an argument."""
        parsed = _CONVERSION_ERROR.fullmatch(str(error))
        what, path = (parsed["what"], parsed["path"] or "") if parsed else (str(error), "")
        above = [path.removeprefix(".")] if path else []
        if isinstance(error.__cause__, ModelProblems):
            inner = error.__cause__.problems
            return _chosen(f"{self._place([*above, *at])}: {_clip(text)}" for at, text in inner)
        return [f"{self._place(above)}: {_clip(what)}"]

    def _first(self, value: Any) -> list[str]:
        """The problems in the validator's first error, which may be several unknown names."""
        if self._vague:
            return [f"{self._place(())}: too large to say where it does not fit the schema"]
        try:
            self._validate(value)
        except jsonschema_rs.ValidationError as error:
            return _chosen(self._explain(error))
        return []

    def _place(self, path: Path) -> str:
        if self.subject == "argument":
            return f"argument '{_format_path(path)}'" if path else "the arguments"
        return _format_path(["result", *path]) if path else "the result"

    def _non_finite(self, value: Any) -> Iterator[str]:
        rest: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
        while rest:
            path, item = rest.pop()
            if isinstance(item, dict):
                rest.extend(((*path, key), part) for key, part in reversed(item.items()))
            elif isinstance(item, (list, tuple)):
                rest.extend(((*path, at), part) for at, part in reversed(list(enumerate(item))))
            elif isinstance(item, float) and not math.isfinite(item):
                yield f"{self._place(path)}: expected a finite number, got {item}"

    def _explain(self, error: jsonschema_rs.ValidationError) -> Iterator[str]:
        kind: Any = error.kind
        path = error.instance_path
        whole = not path and self.subject == "argument"
        noun, prefix = ("argument", "") if whole else ("field", f"{self._place(path)}: ")
        if kind.name == "required":
            properties = self._schema_at(error).get("properties", {})
            if kind.property not in properties and not path:  # as in "then": {"required": …}
                properties = self.schema.get("properties", {})
            expected = self._expected(properties.get(kind.property, True))
            yield f"{prefix}missing required {noun} {_quoted(kind.property)} ({expected})"
        elif kind.name in ("additionalProperties", "unevaluatedProperties"):
            known = _listed(self._schema_at(error).get("properties", {}))
            for name in kind.unexpected:
                yield f"{prefix}unknown {noun} {_quoted(name)} (known: {known or 'none'})"
        elif kind.name in ("anyOf", "oneOf") and hasattr(kind, "context"):
            yield from self._explain_alternatives(error, kind.context)
        else:
            yield f"{self._place(path)}: {self._reason(error)}"

    def _explain_alternatives(
        self,
        error: jsonschema_rs.ValidationError,
        branches: list[list[jsonschema_rs.ValidationError]],
    ) -> Iterator[str]:
        """Only alternatives of the right kind are worth explaining; often that is one."""
        path = error.instance_path
        near = [branch for branch in branches if not any(_is_other_kind(e, path) for e in branch)]
        near = [branch for branch in near if not any(_is_tag(e, path) for e in branch)] or near
        if not near:
            yield f"{self._place(path)}: {self._unexpected(error)}"
        elif len(near) == 1:
            for inner in near[0]:
                yield from self._explain(inner)
        else:
            first = (min(branch, key=lambda e: not _is_tag(e, path)) for branch in near if branch)
            reasons = dict.fromkeys(next(self._explain(inner)) for inner in first)
            unique = "; or ".join([*reasons][:MAX_PROBLEMS])
            yield f"{self._place(path)}: fits no alternative ({unique})"

    def _reason(self, error: jsonschema_rs.ValidationError) -> str:
        kind: Any = error.kind
        value, instance = kind.value, cast(Any, error.instance)
        if kind.name in ("type", "enum", "const", "format"):
            return self._unexpected(error)
        if kind.name in _COMPARISONS:
            return f"must be {_COMPARISONS[kind.name]} {value}, got {_show(instance)}"
        if kind.name in _SIZES:
            bound, noun = _SIZES[kind.name]
            return f"must have {bound} {_count(value, noun)}, got {len(instance)}"
        if kind.name == "pattern":
            if self._schema_at(error).get("format") in _EXAMPLES:
                return self._unexpected(error)
            return f"must match the pattern {_quoted(value)}, got {_show(instance)}"
        if kind.name == "not" and (union := alternatives(self._schema_at(error))):
            return f"fits no alternative ({self._expected(union)}), got {_show(instance)}"
        if kind.name == "uniqueItems":
            return "must not have the same item twice"
        if kind.name == "propertyNames":
            inner = kind.error
            return f"key {_show(inner.instance)}: {self._reason(inner)}"
        return _clip(error.message)

    def _unexpected(self, error: jsonschema_rs.ValidationError) -> str:
        if not (schema := self._schema_at(error)):
            return _clip(error.message)
        expected = self._expected(schema)
        return f"expected {expected}, got {_show(error.instance)}"

    def _schema_at(self, error: jsonschema_rs.ValidationError) -> Schema:
        """The schema whose keyword failed."""
        at: Any = self.schema
        try:
            for step in error.schema_path[:-1]:
                at = at[step]
        except (LookupError, TypeError):
            return {}
        return at if isinstance(at, dict) else {}

    def _expected(self, schema: Any, levels: int = MAX_LEVELS) -> str:
        """What a schema asks for, in a few words."""
        while levels > 0 and (name := reference_of(schema)) is not None:
            schema = self.schema.get("$defs", {}).get(name, True)
            levels -= 1
        if levels <= 0 or not isinstance(schema, dict):
            return "nothing" if schema is False else "any value"
        schema = alternatives(schema) or schema
        if options := schema.get("enum"):
            shown = _listed(options, _show)
            return shown if len(options) == 1 else f"one of {shown}"
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                options = schema[keyword][:MAX_LISTED]
                parts = dict.fromkeys(self._expected(option, levels - 1) for option in options)
                return " or ".join(parts)
        kind = schema.get("type", "any value")
        if kind == "string":
            encoded = "base64 text" if "contentEncoding" in schema else "string"
            kind = schema.get("format", "")
            return _EXAMPLES.get(kind) or _FORMATS.get(kind, encoded)
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = schema["items"].get("type")
            return f"array of {item}s" if isinstance(item, str) and item != "null" else "array"
        return kind if isinstance(kind, str) else " or ".join(kind)


def _brief_of_given(
    subject: Literal["argument", "result"], given: GivenSchema, max_depth: int
) -> Checker | None:
    """None if there is none that accepts the same."""
    if mentions_unevaluated(given.schema):  # depends on which alternatives were taken
        return None
    schema = without_alternatives(given.schema)
    try:
        validator = given.make(schema)
    except (jsonschema_rs.ValidationError, ValueError):  # a reference led into an alternative
        return None
    ways = (validator.is_valid, validator.iter_errors, validator.validate)
    return Checker(subject, schema, *ways, True, True, 0, None, max_depth)


def _chosen(problems: Iterable[str]) -> list[str]:
    """The first `MAX_PROBLEMS` different ones, looking at `MAX_EXAMINED`."""
    found: list[str] = []
    for place, text in enumerate(problems):
        problem = _clip(text, MAX_PROBLEM)
        if place < MAX_EXAMINED and problem in found:
            continue
        if len(found) == MAX_PROBLEMS:
            found.pop()
        elif place < MAX_EXAMINED:
            found.append(problem)
            continue
        return [*found, "and more problems"]
    return found


def _is_other_kind(error: jsonschema_rs.ValidationError, path: Path) -> bool:
    """Whether the value itself is of another type than an alternative asks for."""
    return len(error.instance_path) == len(path) and error.kind.name in ("type", "enum", "const")


def _is_tag(error: jsonschema_rs.ValidationError, path: Path) -> bool:
    """Whether a property that tells alternatives apart has another alternative's value."""
    kind: Any = error.kind
    direct = len(error.instance_path) == len(path) + 1
    return direct and kind.name == "enum" and len(kind.options) == 1


def _format_path(path: Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
        if len(text) > MAX_TEXT:
            break
    return _clip(text)


def _show(value: Any) -> str:
    """A value as JSON if it is short, else what kind of value it is."""
    if isinstance(value, str):
        short = value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}…"
        return json.dumps(short, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "an integer of many digits"
    if isinstance(value, (list, tuple)):
        return f"an array with {_count(len(value), 'item')}" if value else "an empty array"
    if isinstance(value, dict):
        return f"an object with {_count(len(value), 'key')}" if value else "an empty object"
    return _clip(repr(value))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {_PLURALS.get(noun, noun + 's')}"


def _listed(values: Iterable[Any], show: Callable[[Any], str] = str) -> str:
    shown = [show(value) for value in itertools.islice(values, MAX_LISTED + 1)]
    if len(shown) > MAX_LISTED:
        shown[-1] = "…"
    return ", ".join(shown)


def _quoted(name: str) -> str:
    return f"'{name if len(name) <= MAX_SHOWN else name[:MAX_SHOWN] + '…'}'"


def _clip(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"

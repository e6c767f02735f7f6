"""URI templates (RFC 6570), expanded and matched back.

Expansion is the work of ``uritemplate``. Matching is ours, because the RFC defines none: it finds
the values from which a template makes a given URI. Not every template can be matched back; those
which cannot are refused when they are made, so that no surprise is left for the first request.

Theory of operation. A template that can be matched back is, in this order::

    places   fixed text, {var}, {+var}, {.var}, {/var}, {;var}
    form     {?var} {&var}                                     may be missing
    fragment {#var}                                            may be missing

The places are matched from left to right, once. Each variable has a set of characters, and its
*run* is all that follows of these. Where a variable ends is decided without trying:

- before a group or the end, it takes its run;
- before fixed text with a character outside of the set, and before the last fixed text, that text
  must stand where the run ends, so there is one place where it can begin;
- before other fixed text with a variable after it, the first place of that text counts:
  ``{year}-{rest}`` splits ``2026-01-31`` into ``2026`` and ``01-31``.

So nothing is ever tried twice: each variable reads its run once and searches it once, and the time
is linear in the length of the URI, whatever it contains.

Rules for values

- ``{var}`` takes one path segment: no ``/ ? # [ ]``. Other characters need no percent-encoding,
  since many clients leave some of them as they are. ``{+var}`` takes all, also ``/``; but no ``?``
  or ``#`` if the template goes on with these.
- Empty and missing values leave no trace in ``{var}`` and ``{+var}``, so these match only what has
  one character or more. The others may be missing, and then are not among the values; empty, as in
  ``?q=``, they are the empty string.
- ``{.a,b}`` and ``{/a,b}`` are filled from the left. A value has no ``.`` in ``{.a}``, nor in
  front of it, and no ``;`` in front of ``{;a}``.
- Parameters (``;``, ``?``, ``&``) come in any order. Unknown and repeated ones do not match, nor
  does one without ``=`` in a query. ``+`` is a plus.
- ``{list*}`` is a list, always; all else is a string, also when a list was expanded: ``a,b``.
- ``{var:3}`` is a string of at most three characters, as that is what expansion leaves of one.
- Percent-encoding is undone once, after the URI has been taken apart, so ``%2F`` in a value is a
  slash of the value. What is no UTF-8 then does not match. ``{+var}`` is expanded with triplets
  left as they are (RFC 6570, 3.2.3), so a value that contains ``%20`` comes back with a space.
- Fixed text is compared after normalisation (RFC 3986, 6.2.2.2): ``%7e`` is ``~``, ``é`` is
  ``%C3%A9``. Upper and lower case differ, also in schemes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import attrs
import uritemplate

__all__ = ["MAX_TEMPLATE", "MAX_VARIABLES", "UriTemplate"]

#: How many characters a template has at most.
MAX_TEMPLATE = 2000
#: How many variables a template has at most; each may read a URI once more.
MAX_VARIABLES = 32

Value: TypeAlias = str | list[str]
Scalar: TypeAlias = str | int | float

_GENERAL: Final = ":/?#[]@"
_SUB: Final = "!$&'()*+,;="
_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
#: What a normalised URI consists of; ``%`` only as the beginning of a triplet.
_ALL: Final = frozenset(_UNRESERVED + _GENERAL + _SUB + "%")
#: What a path segment consists of.
_SEGMENT: Final = _ALL - frozenset("/?#[]")
_QUERY: Final = _ALL - frozenset("#[]")

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_NAME: Final = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*+"
_VARIABLE: Final = re.compile(rf"({_NAME})(?:(\*)|:([1-9][0-9]{{0,3}}))?")
_NOT_LITERAL: Final = re.compile(r'[\x00-\x20\x7f-\x9f"<>\\^`|{}\ud800-\udfff]')
_TO_NORMALISE: Final = re.compile(r"%(..)?|[^%A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]+", re.DOTALL)
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

#: Expressions among the places that may be missing.
_GROUPS: Final = frozenset("./;")
_FORM: Final = frozenset("?&")
_RESERVED: Final = frozenset("+#")


@attrs.frozen
class _Variable:
    """One variable of an expression. ``parameter`` is its name as it stands in a URI."""

    name: str
    parameter: str
    explode: bool
    prefix: int | None

    def value(self, text: str) -> str | None:
        """Percent-decoded; ``None`` for what is no UTF-8 or longer than the prefix."""
        try:
            value = unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            return None
        return None if self.prefix is not None and len(value) > self.prefix else value

    def values(self, texts: Sequence[str]) -> list[str] | None:
        decoded = [self.value(text) for text in texts]
        known = [value for value in decoded if value is not None]
        return known if len(known) == len(decoded) else None


@attrs.frozen
class _Literal:
    """Fixed text, normalised."""

    text: str


@attrs.frozen
class _Expression:
    """``operator`` is empty for ``{var}``."""

    source: str
    operator: str
    variables: tuple[_Variable, ...]


@attrs.frozen
class _Place:
    """An expression among the places, with all that decides where it ends.

    ``literal`` is the fixed text after it. ``search``: look for its first place in the run;
    otherwise it begins ``overlap`` characters before the end of the run.
    """

    expression: _Expression
    run: re.Pattern[str]
    literal: str = ""
    search: bool = False
    overlap: int = 0


class UriTemplate:
    """A template that can be expanded and matched back; compared and hashed by its text.

    Raises ``ValueError`` that says what is wrong: the syntax, an expression that cannot be matched
    back, a variable that occurs twice, a template that is too long.
    """

    __slots__ = ("_expander", "_form", "_fragment", "_places", "_reserved", "_start", "text")

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEMPLATE:
            raise ValueError(f"a URI template has at most {MAX_TEMPLATE} characters")
        self.text: Final = text
        parts = [*_parse(text)]
        _check_names(parts)
        places, self._form, self._fragment = _divide(parts)
        self._start, self._places = _compile(places, bool(self._form), self._fragment is not None)
        expressions = [part for part in parts if isinstance(part, _Expression)]
        self._reserved: Final = frozenset(
            variable.name
            for e in expressions
            if e.operator in _RESERVED
            for variable in e.variables
        )
        self._expander: Final = uritemplate.URITemplate("".join(map(_without_prefixes, parts)))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, in their order."""
        return tuple(variable.name for variable in self._all_variables())

    def expand(self, values: Mapping[str, Scalar | Sequence[Scalar] | None]) -> str:
        """The URI with these values. Missing ones and ``None`` are left out, others are ignored.

        Raises ``TypeError`` for a value that is no string, number, or sequence of these, and
        ``ValueError`` (``UnicodeEncodeError``) for text that is no Unicode.
        """
        ready: dict[str, str | list[str]] = {}
        for variable in self._all_variables():
            value = values.get(variable.name)
            if value is None:
                continue
            reserved = variable.name in self._reserved
            if isinstance(value, list | tuple):
                if not value:
                    continue  # an empty list is as good as none (RFC 6570, 2.3)
                ready[variable.name] = [_scalar(each, None, reserved) for each in value]
            else:
                ready[variable.name] = _scalar(value, variable.prefix, reserved)
        return self._expander.expand({**ready})

    def match(self, uri: str) -> dict[str, Value] | None:
        """The values from which :meth:`expand` makes this URI, or ``None``; never raises.

        A list for ``{name*}``, a string for the rest; variables that are missing in the URI are
        missing here. Takes time in proportion to the length of ``uri``, which the caller bounds.
        """
        normal = _normalised(uri)
        if normal is None or not normal.startswith(self._start):
            return None
        found: dict[str, Value] = {}
        at = len(self._start)
        for place in self._places:
            after = _match_place(place, normal, at, found)
            if after is None:
                return None
            at = after
        if not self._match_rest(normal[at:], found):
            return None
        return {name: found[name] for name in self.variables if name in found}

    def _match_rest(self, rest: str, found: dict[str, Value]) -> bool:
        """Form and fragment, all that is left of the URI."""
        query, hash_sign, fragment = rest.partition("#")
        if hash_sign:
            if self._fragment is None:
                return False
            value = self._fragment.value(fragment)
            if value is None:
                return False
            found[self._fragment.name] = value
        if not query:
            return True
        if not self._form or query[0] != self._form[0].operator:
            return False
        variables = [variable for expression in self._form for variable in expression.variables]
        return _match_parameters(variables, query[1:].split("&"), "&", found)

    def _all_variables(self) -> Iterator[_Variable]:
        for place in self._places:
            yield from place.expression.variables
        for expression in self._form:
            yield from expression.variables
        if self._fragment is not None:
            yield self._fragment

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, UriTemplate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"


# From text to parts -------------------------------------------------------------------------------


def _parse(text: str) -> Iterator[_Literal | _Expression]:
    at = 0
    for found in _EXPRESSION.finditer(text):
        if found.start() > at:
            yield _literal(text[at : found.start()])
        yield _expression(found[1])
        at = found.end()
    if at < len(text):
        yield _literal(text[at:])


def _literal(text: str) -> _Literal:
    wrong = _NOT_LITERAL.search(text)
    if wrong:
        raise ValueError(f"{wrong[0]!r} cannot stand in a URI template outside of an expression")
    normal = _normalised(text)
    if normal is None:
        raise ValueError(f"a % in a URI template needs two hexadecimal digits after it: {text!r}")
    return _Literal(normal)


def _expression(source: str) -> _Expression:
    shown = f"{{{source}}}"
    if source.startswith(("=", ",", "!", "@", "|")):
        raise ValueError(f"{shown}: the operator {source[0]} is reserved (RFC 6570, 2.2)")
    operator = source[:1] if source[:1] in _GROUPS | _FORM | _RESERVED else ""
    variables = []
    for each in source.removeprefix(operator).split(","):
        found = _VARIABLE.fullmatch(each)
        if not found:
            raise ValueError(
                f"{shown}: {each!r} is no variable; write name, name* or name:3, with letters, "
                f"digits, _ and . in the name"
            )
        name, explode, prefix = found.groups()
        parameter = _normalised(name) or name
        variables.append(_Variable(name, parameter, bool(explode), int(prefix) if prefix else None))
    exploded = [variable for variable in variables if variable.explode]
    if operator in _RESERVED and (len(variables) > 1 or exploded):
        raise ValueError(f"{shown} cannot be matched back: a value may contain the comma, too")
    if operator not in _FORM | {";"} and exploded not in ([], variables[-1:]):
        raise ValueError(f"{shown} cannot be matched back: only the last variable may have a *")
    return _Expression(shown, operator, tuple(variables))


def _check_names(parts: list[_Literal | _Expression]) -> None:
    seen: set[str] = set()
    for part in parts:
        for variable in part.variables if isinstance(part, _Expression) else ():
            if variable.parameter in seen:
                raise ValueError(f"the variable {variable.name!r} occurs twice in the URI template")
            seen.add(variable.parameter)
    if len(seen) > MAX_VARIABLES:
        raise ValueError(f"a URI template has at most {MAX_VARIABLES} variables")


def _without_prefixes(part: _Literal | _Expression) -> str:
    """For the expander; prefixes are cut by us, before reserved values are encoded."""
    if isinstance(part, _Literal):
        return part.text
    names = [variable.name + "*" * variable.explode for variable in part.variables]
    return f"{{{part.operator}{','.join(names)}}}"


# From parts to a plan -----------------------------------------------------------------------------


def _divide(
    parts: list[_Literal | _Expression],
) -> tuple[list[_Literal | _Expression], tuple[_Expression, ...], _Variable | None]:
    """Places, form, fragment. Raises ``ValueError`` where they are mixed."""
    places: list[_Literal | _Expression] = []
    form: list[_Expression] = []
    fragment: _Variable | None = None
    fixed = ""
    for part in parts:
        operator = part.operator if isinstance(part, _Expression) else ""
        if fragment is not None:
            raise ValueError("nothing can follow {#…} in a URI template: a fragment is the end")
        if isinstance(part, _Expression) and operator == "#":
            fragment = part.variables[0]
        elif isinstance(part, _Expression) and operator in _FORM:
            _check_form(part, operator, fixed, form)
            form.append(part)
        elif form:
            raise ValueError(f"only {{&…}} and {{#…}} can follow {form[-1].source}")
        else:
            fixed += part.text if isinstance(part, _Literal) else ""
            places.append(part)
    if "#" in fixed and (form or fragment is not None):
        raise ValueError("an expression with ?, & or # cannot follow a # in a URI template")
    return places, tuple(form), fragment


def _check_form(part: _Expression, operator: str, fixed: str, form: list[_Expression]) -> None:
    if operator == "?" and form:
        raise ValueError(f"{part.source}: a query begins once; go on with {{&…}}")
    if operator == "?" and "?" in fixed:
        raise ValueError(f"{part.source}: the query has begun before it; go on with {{&…}}")
    if operator == "&" and not form and "?" not in fixed:
        raise ValueError(f"{part.source}: no query has begun before it; begin it with {{?…}}")


def _compile(
    parts: list[_Literal | _Expression], form: bool, fragment: bool
) -> tuple[str, tuple[_Place, ...]]:
    """The fixed text at the start, and the places after it."""
    start = ""
    if parts and isinstance(parts[0], _Literal):
        start, parts = parts[0].text, parts[1:]
    before, places = start, []
    for index, part in enumerate(parts):
        if isinstance(part, _Literal):
            before += part.text
            continue
        rest = parts[index + 1 :]
        _check_neighbour(part, rest)
        taken = _characters(part, rest, before, form, fragment)
        places.append(_place(part, rest, taken))
    return start, tuple(places)


def _check_neighbour(part: _Expression, rest: list[_Literal | _Expression]) -> None:
    after = rest[0] if rest else None
    if part.operator == "+":
        if any(isinstance(each, _Expression) for each in rest):
            raise ValueError(
                f"{part.source} takes all that follows; only fixed text, {{?…}} and {{#…}} can "
                f"come after it, so make it the last or write {{{part.source[2:]}"
            )
    elif isinstance(after, _Expression) and after.operator in ("", "+"):
        raise ValueError(
            f"it cannot be told where {part.source} ends and {after.source} begins; put fixed "
            f"text between them"
        )


def _characters(
    part: _Expression,
    rest: list[_Literal | _Expression],
    before: str,
    form: bool,
    fragment: bool,
) -> frozenset[str]:
    """What a value may consist of (commas in ``{a,b}`` are told apart later)."""
    if part.operator == "+":
        later = "".join(each.text for each in rest if isinstance(each, _Literal))
        stops = {"?"} if form or "?" in later else set()
        return _ALL - stops - ({"#"} if fragment or "#" in later else set())
    stops = {part.operator} if part.operator else set()
    for each in _groups_after(part, rest):
        if each.operator == part.operator:
            raise ValueError(
                f"it cannot be told where {part.source} ends and {each.source} begins; write "
                f"them as one expression"
            )
        stops.add(each.operator)
    if "?" in before:
        stops.add("&")
    return _SEGMENT - stops


def _groups_after(part: _Expression, rest: list[_Literal | _Expression]) -> Iterator[_Expression]:
    """The groups that can begin right where a value of ``part`` ends. Fixed text between them is
    no help to a ``{var}`` if a value may contain it."""
    if not part.operator and rest and isinstance(rest[0], _Literal):
        rest = rest[1:] if _SEGMENT.issuperset(rest[0].text) else []
    for each in rest:
        if isinstance(each, _Literal) or each.operator not in _GROUPS:
            return
        yield each


def _place(part: _Expression, rest: list[_Literal | _Expression], taken: frozenset[str]) -> _Place:
    literal = rest[0].text if rest and isinstance(rest[0], _Literal) else ""
    if part.operator in _GROUPS:
        own = taken | {part.operator}
        follower = next((each for each in rest if isinstance(each, _Literal)), None)
        if follower is not None and follower.text[0] in own:
            raise ValueError(
                f"it cannot be told where {part.source} ends: {follower.text[0]!r} after it can "
                f"be part of it, too"
            )
        return _Place(part, _run(own), literal)
    overlap = next((at for at, char in enumerate(literal) if char not in taken), len(literal))
    after = rest[1] if literal and len(rest) > 1 else None
    search = overlap == len(literal) and (
        isinstance(after, _Expression) and after.operator not in _GROUPS
    )
    return _Place(part, _run(taken), literal, search, overlap)


def _run(characters: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(sorted(characters)))}]*+")


# Matching -----------------------------------------------------------------------------------------


def _normalised(uri: str) -> str | None:
    """Only the characters of a URI, triplets in upper case and only where they are needed.

    ``None`` for a ``%`` without two hexadecimal digits, and for lone surrogates.
    """
    if _STRAY_PERCENT.search(uri):
        return None
    try:
        return _TO_NORMALISE.sub(_normalise_one, uri)
    except UnicodeEncodeError:
        return None


def _normalise_one(found: re.Match[str]) -> str:
    digits = found[1]
    if digits is None:
        return quote(found[0], safe="")
    char = chr(int(digits, 16))
    return char if char in _UNRESERVED else found[0].upper()


def _match_place(place: _Place, uri: str, at: int, found: dict[str, Value]) -> int | None:
    """Where to go on after the place and its literal, ``None`` if it does not match."""
    run = place.run.match(uri, at)
    end = run.end() if run else at
    if place.expression.operator in _GROUPS:
        if end > at and not _match_group(place.expression, uri[at:end], found):
            return None
    else:
        end = _end_of_value(place, uri, at, end)
        if end <= at or not _match_values(place.expression, uri[at:end], found):
            return None
    return end + len(place.literal) if uri.startswith(place.literal, end) else None


def _end_of_value(place: _Place, uri: str, at: int, run_end: int) -> int:
    """``at`` or less if there is none. Never within a triplet: the ``20`` of ``%20`` is no text."""
    if not place.search:
        end = run_end - place.overlap
        return end if end > at and "%" not in uri[max(at, end - 2) : end] else at
    end = uri.find(place.literal, at + 1, run_end)
    while end > at and "%" in uri[max(at, end - 2) : end]:
        end = uri.find(place.literal, end + 1, run_end)
    return end


def _match_values(expression: _Expression, text: str, found: dict[str, Value]) -> bool:
    """``{var}``, ``{a,b}``, ``{list*}``, ``{+var}``: each has something to show."""
    variables = expression.variables
    if len(variables) == 1 and not variables[0].explode:
        return _fill(variables, [text], found)
    texts = text.split(",")
    strings = len(variables) - variables[-1].explode
    if len(texts) < len(variables) or not all(texts[:strings]) or texts[strings:] == [""]:
        return False
    return _fill(variables, texts, found)


def _match_group(expression: _Expression, text: str, found: dict[str, Value]) -> bool:
    """``{.a}``, ``{/a}``, ``{;a}`` of which something is there."""
    separator = expression.operator
    if text[0] != separator:
        return False
    texts = text[1:].split(separator)
    if separator == ";":
        return _match_parameters(expression.variables, texts, separator, found)
    return _fill(expression.variables, texts, found)


def _fill(variables: Sequence[_Variable], texts: list[str], found: dict[str, Value]) -> bool:
    """Give the texts to the variables from the left; a ``*`` takes what is left."""
    for index, variable in enumerate(variables[: len(texts)]):
        value: Value | None
        if variable.explode:
            value, texts = variable.values(texts[index:]), texts[: index + 1]
        else:
            value = variable.value(texts[index])
        if value is None:
            return False
        found[variable.name] = value
    return len(texts) <= len(variables)


def _match_parameters(
    variables: Sequence[_Variable], texts: list[str], separator: str, found: dict[str, Value]
) -> bool:
    """``name=value``, in any order. Only after ``;`` an empty value may do without the ``=``."""
    known = {variable.parameter: variable for variable in variables}
    for text in texts:
        name, equals, raw = text.partition("=")
        variable = known.get(name)
        if variable is None or not (equals or separator == ";"):
            return False
        value = variable.value(raw)
        if value is None:
            return False
        if variable.explode:
            so_far = found.setdefault(variable.name, [])
            assert isinstance(so_far, list)
            so_far.append(value)
        elif variable.name in found:
            return False
        else:
            found[variable.name] = value
    return True


# Expansion ----------------------------------------------------------------------------------------


def _scalar(value: object, prefix: int | None, reserved: bool) -> str:
    if not isinstance(value, str | int | float):
        raise TypeError(f"a value of a URI template is text or a number, not {value!r}")
    text = str(value)[:prefix]
    if not reserved:
        return text
    # All but reserved characters and triplets (RFC 6570, 3.2.3); the expander encodes none of a
    # value with a triplet in it.
    return quote(_STRAY_PERCENT.sub("%25", text), safe=_GENERAL + _SUB + "%~")

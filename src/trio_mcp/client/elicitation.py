"""A server's questions to the user, as the application sees them. Specification: *Elicitation*."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs
import jsonschema_rs

from ..handlers.schema.problems import Checker
from ..runtime.errors import ProtocolViolation
from ..runtime.models.base import JSONObject
from ..runtime.models.elicitation import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

__all__ = ["Elicitation", "check_answer", "elicitation_of", "problems_of"]

_CHECKED: Final = (
    *("type", "enum", "minLength", "maxLength", "format"),
    *("minimum", "maximum", "minItems", "maxItems"),
)
"""Keywords of a form's field that an answer is held against. All of them cost time in proportion to
the schema and the answer: the schema is the server's."""


@attrs.frozen
class Elicitation:
    """A question to the user: what ``on_elicit`` gets. It returns :meth:`accept`, :meth:`decline`
    or :meth:`cancel` of it.

    All of it was written by the server. Show who asks, and let the user see what is sent; a
    ``url`` is shown in full, and opened only if the user agrees (specification: *Elicitation*,
    "Safe URL Handling").

    :param key: the server's name for the question; different among those that are asked together.
    :param message: what is asked, and why.
    :param mode: ``"form"`` with a ``schema``, or ``"url"`` with a ``url``.
    :param schema: JSON Schema of a flat object: texts, numbers, booleans, choices.
    :param url: of the page that the user is asked to visit.
    """

    key: str
    message: str
    mode: Literal["form", "url"]
    schema: JSONObject | None = None
    url: str | None = None
    _checker: Checker | None = attrs.field(default=None, repr=False, eq=False, alias="checker")

    def accept(self, content: Mapping[str, Any] | None = None) -> ElicitResult:
        """The user agrees; ``content`` is the filled form, and there is none for a page.

        Raises ``ValueError`` for content that does not fit the schema.
        """
        answer = ElicitResult("accept", None if content is None else dict(content))
        return check_answer(self, answer)

    def decline(self) -> ElicitResult:
        """The user refuses."""
        return ElicitResult("decline")

    def cancel(self) -> ElicitResult:
        """The user closed the question without a decision."""
        return ElicitResult("cancel")


def elicitation_of(key: str, params: ElicitRequestParams, name: str) -> Elicitation:
    """The question in a request. Raises :class:`ProtocolViolation` for a schema that is none."""
    if not isinstance(params, ElicitRequestFormParams):
        return Elicitation(key, params.message, "url", url=params.url)
    try:
        checker = Checker.of("argument", _checked_part(params.requested_schema), open=True)
    except (jsonschema_rs.ValidationError, ValueError, RecursionError) as error:
        what = str(error).partition("\n")[0][:200]
        raise ProtocolViolation(f"{name}: the server asks with an invalid schema: {what}") from None
    schema = params.requested_schema
    return Elicitation(key, params.message, "form", schema=schema, checker=checker)


def check_answer(question: Elicitation, answer: object) -> ElicitResult:
    """The answer, if it is one to this question. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(answer, ElicitResult):
        raise TypeError(
            "on_elicit returns question.accept(content), question.decline() or question.cancel(), "
            f"not {answer!r}"
        )
    if answer.action not in ("accept", "decline", "cancel"):
        raise ValueError(f"an answer accepts, declines or cancels; {answer.action!r} does not")
    if answer.action != "accept" or question.mode == "url":
        if answer.content is not None:
            raise ValueError("only a form that was accepted has content")
        return answer
    content: JSONObject = {} if answer.content is None else answer.content
    if problems := problems_of(question, content):
        raise ValueError(
            f"the answer to {question.key!r} does not fit the form: " + "; ".join(problems)
        )
    return ElicitResult("accept", content)


def problems_of(question: Elicitation, content: JSONObject) -> list[str]:
    """What is wrong with a filled form; empty if it fits."""
    checker = question._checker
    return [] if checker is None or checker.accepts(content) else checker.explain(content)


def _checked_part(schema: JSONObject) -> JSONObject:
    """What answers are held against. The rest is the server's own business."""
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise ValueError('it has no "type": "object" with "properties"')
    checked: JSONObject = {name: _checked_field(field) for name, field in properties.items()}
    return {"type": "object", "properties": checked, "required": schema.get("required", [])}


def _checked_field(field: object) -> JSONObject:
    checked = _checked_value(field)
    if isinstance(field, dict) and "items" in field:
        checked["items"] = _checked_value(field["items"])
    return checked


def _checked_value(field: object) -> JSONObject:
    if not isinstance(field, dict):
        raise ValueError("a property is no object")
    checked = {word: field[word] for word in _CHECKED if word in field}
    for word in ("oneOf", "anyOf"):
        if isinstance(field.get(word), list):
            checked["enum"] = [_choice(option) for option in field[word]]
    return checked


def _choice(option: object) -> Any:
    if not isinstance(option, dict) or "const" not in option:
        raise ValueError('a choice has no "const"')
    return option["const"]

"""Descriptions of tools and of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import attrs
import pytest

from trio_mcp.handlers.schema.signature import FunctionSchema, inspect_function


class Context:
    """Stands for what handlers get."""


def inspected(fn: Callable[..., Any]) -> FunctionSchema:
    return inspect_function(fn, context_type=Context)


@attrs.frozen
class Book:
    """A printed book.

    Attributes:
        title: What is printed on it.
    """

    title: str


GOOGLE = """Find books.

    Looks everywhere.

    Args:
        query (str): What to look
            for.
        limit: At most this many: ten
            are plenty.
        ctx: Not shown.

    Returns:
        The books.
    """
NUMPY = """Find books.

    Looks everywhere.

    Parameters
    ----------
    query : str
        What to look
        for.
    limit
        At most this many: ten are plenty.

    Returns
    -------
    list
        The books.
    """
SPHINX = """Find books.

    Looks everywhere.

    :param str query: What to look
        for.
    :param limit: At most this many: ten are plenty.
    :type limit: int
    :returns: The books.
    """


@pytest.mark.parametrize(
    ("docstring", "ending"),
    [
        (GOOGLE, "Returns:\n    The books."),
        (NUMPY, "Returns\n-------\nlist\n    The books."),
        (SPHINX, ":returns: The books."),
    ],
    ids=["Google", "NumPy", "Sphinx"],
)
def test_docstrings(docstring: str, ending: str) -> None:
    def tool(query: str, limit: int, ctx: Context) -> None: ...

    tool.__doc__ = docstring
    schema = inspected(tool)
    properties = schema.input_schema["properties"]
    assert properties["query"] == {"type": "string", "description": "What to look for."}
    assert properties["limit"]["description"] == "At most this many: ten are plenty."
    assert schema.description == f"Find books.\n\nLooks everywhere.\n\n{ending}"


def test_an_annotated_description_wins() -> None:
    def tool(a: Annotated[int, "From the annotation."], b: Book) -> None:
        """Do.

        Args:
            a: From the docstring.
            b: This one.
        """

    properties = inspected(tool).input_schema["properties"]
    assert properties["a"]["description"] == "From the annotation."
    assert properties["b"]["description"] == "This one."  # rather than the docstring of the class


def test_a_class_explains_itself_and_its_fields() -> None:
    def tool(book: Book) -> None: ...

    book = inspected(tool).input_schema["properties"]["book"]
    assert book["description"] == "A printed book."
    assert book["properties"]["title"]["description"] == "What is printed on it."


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (None, ""),
        ("", ""),
        ("Args: are explained here.", "Args: are explained here."),
        ("Do.\n\nArgs:", "Do."),
        ("Do.\n\nNote:\n    a: stays\n", "Do.\n\nNote:\n    a: stays"),
        (
            "Do.\n\nParameters\n----------\na\n    An a.\n\nMore text here.",
            "Do.\n\nMore text here.",
        ),
    ],
)
def test_odd_docstrings_lose_nothing(text: str | None, description: str) -> None:
    def tool(a: int) -> None: ...

    tool.__doc__ = text
    assert inspected(tool).description == description

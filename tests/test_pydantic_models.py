"""Models of pydantic as arguments and results, wherever they are in an annotation."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import attrs
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.checked import checked_client
from tests.peers.raw import call, text_of

from trio_mcp import Server, ToolResult
from trio_mcp.handlers.schema.fields import MAX_HASHED
from trio_mcp.handlers.schema.signature import (
    FunctionSchema,
    InvalidArguments,
    OutputError,
    SignatureError,
    inspect_function,
)

pytest.importorskip("pydantic", minversion="2")

from pydantic import BaseModel, Field, field_validator


class Context:
    """Stands for what handlers get."""


class Line(BaseModel):
    """One line of an order.

    Attributes:
        sku: What is ordered.
    """

    sku: str
    count: int = Field(ge=1, default=1, description="How many.")

    @field_validator("sku")
    @classmethod
    def upper(cls, sku: str) -> str:
        if not sku.isupper():
            raise ValueError("must be in capitals")
        return sku


class Order(BaseModel):
    lines: list[Line]
    due: date | None = None
    tags: set[int] = set()
    total: Decimal = Decimal(0)
    before: Order | None = None
    the_key: int = Field(default=0, alias="theKey")


@dataclasses.dataclass
class Parcel:
    order: Order
    more: list[Line]


@attrs.frozen
class Box:
    parcel: Parcel
    line: Line | None = None


def taking(annotation: Any) -> FunctionSchema:
    def tool(it: Any) -> None: ...

    tool.__annotations__["it"] = annotation
    return inspect_function(tool, context_type=Context)


def returning(annotation: Any) -> FunctionSchema:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    return inspect_function(tool, context_type=Context)


def refusal(schema: FunctionSchema, value: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        schema.bind({"it": value})
    return str(caught.value)


def test_a_schema_reads_like_that_of_other_classes() -> None:
    assert taking(Line).input_schema["properties"]["it"] == {
        "type": "object",
        "description": "One line of an order.",
        "properties": {
            "sku": {"type": "string", "description": "What is ordered."},
            "count": {"type": "integer", "minimum": 1, "default": 1, "description": "How many."},
        },
        "required": ["sku"],
    }


def test_a_schema_has_all_that_it_refers_to() -> None:
    schema = taking(Order).input_schema
    assert schema["properties"]["it"] == {"$ref": "#/$defs/Order"}
    order = schema["$defs"]["Order"]["properties"]
    assert order["before"]["anyOf"][0] == {"$ref": "#/$defs/Order"}
    assert order["lines"]["items"]["properties"]["count"]["minimum"] == 1
    assert order["theKey"] == {"type": "integer", "default": 0}
    assert order["tags"]["maxItems"] == MAX_HASHED


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Line, {"sku": "A"}, Line(sku="A")),
        (list[Line], [{"sku": "A", "count": 2}], [Line(sku="A", count=2)]),
        (dict[str, Line], {"x": {"sku": "A"}}, {"x": Line(sku="A")}),
        (Line | None, None, None),
        (Line | str, "text", "text"),
        (Line | str, {"sku": "A"}, Line(sku="A")),
        (Annotated[Line, "a remark"], {"sku": "A"}, Line(sku="A")),
        (
            Order,
            {"lines": [], "due": "2026-01-31", "tags": [1], "total": "1.5", "theKey": 4},
            Order(lines=[], due=date(2026, 1, 31), tags={1}, total=Decimal("1.5"), theKey=4),
        ),
        (
            Box,
            {"parcel": {"order": {"lines": []}, "more": [{"sku": "B"}]}, "line": {"sku": "C"}},
            Box(Parcel(Order(lines=[]), [Line(sku="B")]), Line(sku="C")),
        ),
    ],
)
def test_models_are_arguments(annotation: Any, value: Any, expected: Any) -> None:
    assert taking(annotation).bind({"it": value}) == {"it": expected}


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (Line, {}, "argument 'it': missing required field 'sku' (string)"),
        (Line, {"sku": 5}, "argument 'it.sku': expected string, got 5"),
        (Line, {"sku": "A", "count": 0}, "argument 'it.count': must be at least 1, got 0"),
        (Line, {"sku": "a"}, "argument 'it.sku': must be in capitals"),
        (list[Line], [{"sku": "A"}, {"sku": "a"}], "argument 'it[1].sku': must be in capitals"),
        (
            Parcel,
            {"order": {"lines": [{"sku": "a"}, {"sku": "b"}]}, "more": []},
            "2 problems:\n- argument 'it.order.lines[0].sku': must be in capitals\n"
            "- argument 'it.order.lines[1].sku': must be in capitals",
        ),
        (Order, {"lines": [{"sku": "a"}] * 50}, "and more problems"),
        (Order, {"lines": [], "tags": [*range(MAX_HASHED + 1)]}, "at most 1000 items"),
    ],
)
def test_what_is_wrong_is_told_in_words(annotation: Any, value: Any, says: str) -> None:
    assert says in refusal(taking(annotation), value)


def test_models_are_results() -> None:
    schema = returning(list[Order])
    order = Order(lines=[Line(sku="A")], due=date(2026, 1, 31), theKey=3)
    (told,) = schema.structure_output([order])
    assert told == {
        "lines": [{"sku": "A", "count": 1}],
        "due": "2026-01-31",
        "tags": [],
        "total": "0",
        "before": None,
        "theKey": 3,
    }
    assert schema.output_schema is not None
    assert jsonschema_rs.Draft202012Validator(schema.output_schema).is_valid([told])
    wrong = Order.model_construct(lines="none")
    with pytest.raises(OutputError, match=r"result\[0\]\.lines"):
        schema.structure_output([wrong])


def test_two_classes_of_one_name_are_told_apart() -> None:
    @dataclasses.dataclass
    class Line:
        text: str

    both = tuple[Line, Line, Order, Order]
    definitions = taking(both).input_schema["$defs"]
    assert definitions["Line"]["properties"] == {"text": {"type": "string"}}
    assert "lines" in definitions["pydantic.Order"]["properties"]


def test_a_field_says_what_a_plain_argument_may_be() -> None:
    field = Field(ge=1, le=5, description="How many.")
    code = Field(pattern="^[a-z]$", max_length=3)
    schema = taking(Annotated[int, field])
    assert schema.input_schema["properties"]["it"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "How many.",
    }
    assert "at most 5" in refusal(schema, 6)
    assert "pattern" in refusal(taking(Annotated[str, code]), "A")


def test_a_model_without_a_schema_is_refused() -> None:
    class Odd(BaseModel):
        call: Callable[[], None]

    with pytest.raises(SignatureError, match="parameter 'it'"):
        taking(Odd)


async def test_models_on_the_wire() -> None:
    server = Server("models", version="1")

    @server.tool
    async def double(line: Line) -> ToolResult[Line]:
        line.count *= 2
        return ToolResult(f"{line.count} of {line.sku}", structured_content=line)

    async with checked_client(server) as peer:
        await peer.send(call(1, "double", line={"sku": "A", "count": 2}))
        message = await peer.receive()
        await peer.send(call(2, "double", line={"sku": "a"}))
        wrong = await peer.receive()
    assert message["result"]["structuredContent"] == {"sku": "A", "count": 4}
    assert text_of(message) == "4 of A"
    assert wrong["result"]["isError"]
    assert text_of(wrong) == "argument 'line.sku': must be in capitals"


LINES = st.fixed_dictionaries(
    {},
    optional={
        "sku": st.sampled_from(["A", "", "BC", 5, None]),
        "count": st.sampled_from([-1, 0, 1, 2.0, 2.5, "3", True, None]),
        "other": st.none(),
    },
)
ORDERS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "lines": st.lists(LINES, max_size=2) | st.none(),
            "due": st.sampled_from([None, "2026-01-31", "yesterday", 5]),
            "tags": st.lists(st.integers(0, 3), max_size=3),
            "theKey": st.sampled_from([1, 1.0, "1", None]),
        },
    ),
    lambda inner: st.fixed_dictionaries({"lines": st.just([]), "before": inner | st.none()}),
    max_leaves=3,
)
ORDER = taking(Order)


@given(order=ORDERS)
def test_what_is_published_is_enforced(order: dict[str, Any]) -> None:
    validator = jsonschema_rs.Draft202012Validator(ORDER.input_schema, validate_formats=True)
    if not validator.is_valid({"it": order}):
        refusal(ORDER, order)
        return
    try:
        expected = Order.model_validate(order)
    except ValueError:  # a sku that is not in capitals
        assert "must be in capitals" in refusal(ORDER, order)
    else:
        assert ORDER.bind({"it": order})["it"] == expected


def test_who_does_not_use_pydantic_does_not_import_it() -> None:
    program = (
        "import sys, dataclasses, trio_mcp\n"
        "server = trio_mcp.Server('x', version='1')\n"
        "@dataclasses.dataclass\n"
        "class A:\n    b: int\n"
        "@server.tool\n"
        "def tool(a: A, c: list[A]) -> A: return a\n"
        "print([name for name in sys.modules if name.partition('.')[0].startswith('pydantic')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"

"""Who may do what, read from the syntax tree. The layers' imports are import-linter's business."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("runtime", "transports", "handlers", "src/trio_mcp")


def product_files() -> Iterator[tuple[str, ast.Module]]:
    for part in PRODUCT:
        for path in (ROOT / part).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if part == "src/trio_mcp" and any(f"/{p}/" in name for p in PRODUCT[:3]):
                continue  # through the links: seen already
            yield name, ast.parse(path.read_text())


def calls_of_cancel_with_a_source(tree: ast.Module) -> Iterator[ast.Call]:
    """``something.cancel(CancelSource.X, …)`` and the like: an exchange or a call is cancelled."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "cancel"
            and any(
                "CancelSource" in ast.unparse(arg) or ast.unparse(arg) == "source"
                for arg in node.args
            )
        ):
            yield node


def test_invariant_5_only_transports_turn_wire_events_into_cancellations() -> None:
    callers = {name for name, tree in product_files() for _ in calls_of_cancel_with_a_source(tree)}
    assert callers  # the test sees something
    # A client cancels its own calls, never an exchange. The face has the operator's call.
    assert {name for name in callers if not name.startswith("transports/")} == {
        "src/trio_mcp/client/calls.py",
        "src/trio_mcp/server.py",
    }
    for name, tree in product_files():
        if name == "src/trio_mcp/server.py":
            (operators,) = calls_of_cancel_with_a_source(tree)
            assert ast.unparse(operators.args[0]) == "CancelSource.OPERATOR"
        else:
            sources = [ast.unparse(c.args[0]) for c in calls_of_cancel_with_a_source(tree)]
            assert "CancelSource.OPERATOR" not in sources, name
        if name == "src/trio_mcp/client/calls.py":
            assert "Exchange" not in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def test_invariant_1_only_the_lifecycle_assigns_a_state() -> None:
    assigned: dict[str, int] = {}
    for name, tree in product_files():
        for node in ast.walk(tree):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, (ast.AugAssign, ast.AnnAssign))
                else []
            )
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr in ("_state", "state"):
                    assigned[name] = assigned.get(name, 0) + 1
    assert assigned == {"runtime/lifecycle.py": 2}  # at birth, and through the table


def test_invariant_12_all_time_is_trios() -> None:
    """No clock but Trio's in the library. Threads that a demo or the command line blocks may, and
    the stamp of an OpenTelemetry event, which is of the wall clock by definition.

    One file tells the time of day, for sealed states: these outlive the process.
    """
    elsewhere = (
        "src/trio_mcp/cli",
        "src/trio_mcp/demo",
        "src/trio_mcp/otel.py",
        "handlers/input/wall_clock.py",
    )
    for name, tree in product_files():
        if name.startswith(elsewhere):
            continue
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert "time" not in imported, name


def test_nobody_tests_for_a_revision_outside_of_the_eras() -> None:
    for name, tree in product_files():
        if name.startswith("runtime/eras/"):
            continue
        compared = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare) and "protocol_version" in ast.unparse(node)
        ]
        assert not compared, name


def test_nothing_swallows_a_cancellation() -> None:
    """No bare ``except``, and no handler of ``Cancelled`` or ``BaseException`` that only passes."""
    for name, tree in product_files():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            assert node.type is not None, f"{name}:{node.lineno}: a bare except"
            caught = ast.unparse(node.type)
            if "trio.Cancelled" in caught or caught == "BaseException":
                body = "\n".join(ast.unparse(statement) for statement in node.body)
                assert "raise" in body or "= raised" in body, f"{name}:{node.lineno}"

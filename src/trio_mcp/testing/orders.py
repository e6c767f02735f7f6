"""Which orders are tried: all of the short ones, the smallest first, and samples of longer ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .actions import AT_ONCE, SETTLED, Action, Gap, Order, Step

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["short_orders", "smallest_failing"]

_GAPS: Final = (
    SETTLED,
    AT_ONCE,
    *(Gap(quiet=False, ticks=ticks) for ticks in range(1, 9)),
    *(Gap(moves=moves, ticks=ticks) for moves in range(1, 5) for ticks in range(9)),
)
_LONGEST: Final = 6
_TURNS: Final = 12
_PERMUTATIONS: Final = 6  # of three tasks; of more, some


def short_orders(actions: Sequence[Action], longest: int) -> Iterator[Order]:
    """All orders of up to ``longest`` actions, each at once or when all is quiet; shorter ones
    first, and quieter ones."""
    for length in range(1, longest + 1):
        chosen = [
            some
            for some in itertools.product(actions, repeat=length)
            if len(_order(some, [SETTLED] * length).made_possible(actions).steps) == length
        ]
        gaps = sorted(
            itertools.product((SETTLED, AT_ONCE), repeat=length), key=lambda it: it.count(AT_ONCE)
        )
        for between in gaps:
            for some in chosen:
                yield _order(some, between)


def _order(actions: Sequence[Action], gaps: Sequence[Gap]) -> Order:
    return Order(tuple(Step(action, gap) for action, gap in zip(actions, gaps, strict=True)))


def smallest_failing(
    actions: Sequence[Action],
    fails: Callable[[Order], bool],
    *,
    examples: int,
    seed: int,
    database: Any,
) -> Order | None:
    """Have Hypothesis look for an order that fails, and shrink it."""
    import hypothesis

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=database,
        derandomize=False,  # the seed is ours
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        phases=[
            *([hypothesis.Phase.reuse] if database is not None else []),
            hypothesis.Phase.generate,
            hypothesis.Phase.shrink,
        ],
    )
    try:
        return hypothesis.find(
            _strategy(actions),
            fails,
            settings=settings,
            random=random.Random(seed),
            database_key=b"trio_mcp.testing.race" if database is not None else None,
        )
    except hypothesis.errors.NoSuchExample:
        return None


def _strategy(actions: Sequence[Action]) -> SearchStrategy[Order]:
    """Few draws for each order, the simplest first: so it is quick to make, and to shrink."""
    from hypothesis import strategies as st

    steps = st.sampled_from([Step(action, gap) for gap in _GAPS for action in actions])
    orders = st.builds(
        lambda steps, number: Order(tuple(steps), _turns(number)),
        st.lists(steps, min_size=1, max_size=_LONGEST),
        st.integers(0, _PERMUTATIONS**_TURNS - 1),
    )
    return orders.map(lambda order: order.made_possible(actions))


def _turns(number: int) -> tuple[int, ...]:
    """Its digits, the smallest first; most of the smaller numbers have few."""
    turns = []
    while number:
        number, turn = divmod(number, _PERMUTATIONS)
        turns.append(turn)
    return tuple(turns)

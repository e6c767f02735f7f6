"""Which orders are tried: all of the short ones, the smallest first, and samples of longer ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .actions import AT_ONCE, SETTLED, Action, Gap, Order, Step

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["pairs", "short_orders", "smallest_failing"]

_MOVES: Final = 4
_TICKS: Final = 8
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


def pairs(actions: Sequence[Action]) -> Iterator[tuple[Order, Action]]:
    """Each action, after nothing and after each of the others."""
    for action in actions:
        yield Order(), action
    for first in actions:
        for action in actions:
            before = Order((Step(first),))
            both = Order((Step(first), Step(action)))
            if both.made_possible(actions) == both:
                yield before, action


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
    from hypothesis import strategies as st

    steps = st.builds(
        lambda action, rushed, moves, ticks: Step(action, Gap(not (rushed or ticks), moves, ticks)),
        st.sampled_from(actions),
        st.booleans(),
        st.integers(0, _MOVES),
        st.integers(0, _TICKS),
    )
    orders = st.builds(
        lambda steps, turns: Order(tuple(steps), tuple(turns)),
        st.lists(steps, min_size=1, max_size=_LONGEST),
        st.lists(st.integers(0, _PERMUTATIONS - 1), max_size=_TURNS),
    )
    return orders.map(lambda order: order.made_possible(actions))

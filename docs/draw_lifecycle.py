"""Draw ``docs/lifecycle.svg`` from the table of transitions: ``python docs/draw_lifecycle.py``."""

from __future__ import annotations

from pathlib import Path

from trio_mcp.runtime.lifecycle import TRANSITIONS, State

PICTURE = Path(__file__).with_name("lifecycle.svg")

WIDTH, HEIGHT = 150, 44
PLACES = {
    State.RUNNING: (40, 120),
    State.CANCELLING: (330, 120),
    State.CANCELLED: (620, 120),
    State.COMPLETED: (330, 20),
    State.FAILED: (330, 220),
}
STYLE = """
  text { font: 14px sans-serif; fill: #1b1f24; text-anchor: middle; }
  .event { font-size: 12px; fill: #57606a; }
  rect { fill: #ffffff; stroke: #1b1f24; stroke-width: 1.5; }
  .terminal { fill: #eaeef2; stroke-width: 3; }
  line { stroke: #57606a; stroke-width: 1.5; marker-end: url(#arrow); }
"""


def draw() -> str:
    """The picture. Fails if the table has a state that has no place in it."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 810 284" role="img"',
        '  aria-label="The lifecycle of a request">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"',
        '  markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#57606a"/>',
        "</marker></defs>",
        '<rect x="0" y="0" width="810" height="284" style="stroke: none"/>',
    ]
    for state, events in TRANSITIONS.items():
        for event, target in events.items():
            parts += _arrow(state, target, event.value)
    for state, events in TRANSITIONS.items():
        x, y = PLACES[state]
        kind = ' class="terminal"' if not events else ""
        parts.append(f'<rect{kind} x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>')
        parts.append(f'<text x="{x + WIDTH // 2}" y="{y + 27}">{state.name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(source: State, target: State, label: str) -> list[str]:
    (x1, y1), (x2, y2) = PLACES[source], PLACES[target]
    x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2
    middle, height = (x1 + x2) // 2, (y1 + y2) // 2
    lift = 8 if y1 == y2 else 10 if y2 < y1 else -18
    middle -= 0 if y1 == y2 else 48  # beside the slanting arrows, not on them
    return [
        f'<line x1="{x1}" y1="{y1}" x2="{x2 - 2}" y2="{y2}"/>',
        f'<text class="event" x="{middle}" y="{height - lift}">{label}</text>',
    ]


if __name__ == "__main__":
    PICTURE.write_text(draw())

"""What others wrote, as it may be shown: nothing in it is obeyed, hidden or reordered.

A terminal obeys control characters (it sets its title, clears its screen, answers as if its user
had typed), and bidirectional controls make a line read otherwise than it runs. Whatever a server
says passes through here on its way out, to a terminal or to a pipe: who knows where that ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["few", "json_text", "one_line", "printable"]

_NAMES_SHOWN: Final = 12
"""Names that an error message offers."""

_SIGN: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for each character that is not shown."""

_C0: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f"
"""But for tab, newline and carriage return, which are harmless in their places."""
_NOT_ASCII: Final = r"\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1, the bidirectional controls, and lone surrogates, which no encoding has."""
_SEPARATORS: Final = r"\u2028\u2029"
"""Ends of lines for some who read lines."""

_UNSHOWN: Final = re.compile(rf"[{_C0}{_NOT_ASCII}]|\r(?!\n)")
_NOT_IN_LINES: Final = re.compile(rf"[\t\n\r{_C0}{_NOT_ASCII}{_SEPARATORS}]")
_ESCAPED: Final = re.compile(rf"[{_NOT_ASCII}{_SEPARATORS}]")


def printable(text: str) -> str:
    """A text, perhaps of several lines."""
    return _UNSHOWN.sub(_SIGN, text)


def one_line(text: str) -> str:
    """A name, or another text that shall not look like two lines."""
    return _NOT_IN_LINES.sub(_SIGN, text)


def few(names: Iterable[str]) -> str:
    """Names for an error message, and how many more there are: ``a, b … and 33 more``."""
    shown = [one_line(name) for name in names]
    more = len(shown) - _NAMES_SHOWN
    rest = f" … and {more} more" if more > 0 else ""
    return ", ".join(shown[:_NAMES_SHOWN]) + rest


def json_text(data: bytes) -> str:
    r"""A JSON document that says the same: what is not to be shown is written as ``\u009b``.

    Below U+0080 JSON itself wants that, except for DEL; and all others can only be in strings.
    """
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode())

"""Docstrings: what a function or class is for, and what each parameter means.

Three styles are read, also mixed: Google (``Args:`` with an indented block), NumPy (``Parameters``
over a line of dashes) and Sphinx (``:param name: …``). Only parameter sections are taken out;
everything else, returns and raises included, stays part of the description.
"""

from __future__ import annotations

import inspect
import re

import attrs

__all__ = ["Docstring", "parse_docstring"]

_SECTIONS = (
    r"args|arguments|parameters|params|other parameters|keyword args|keyword arguments|attributes"
)
_GOOGLE_HEADER = re.compile(rf"(?:{_SECTIONS})\s*:\s*", re.IGNORECASE)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:(?:\s+(?P<text>.*))?")
_NUMPY_HEADER = re.compile(rf"(?:{_SECTIONS})\s*", re.IGNORECASE)
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX_ENTRY = re.compile(
    r":(?P<role>param|parameter|arg|argument|key|keyword|ivar|attribute|type|vartype)\s+"
    r"(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:\s*(?P<text>.*)"
)


@attrs.frozen
class Docstring:
    """A docstring in two halves.

    ``description`` is the text without its parameter sections, ``parameters`` maps a parameter's
    name to its text, on one line.
    """

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Split a raw docstring (None counts as empty). Never fails: odd text stays description."""
    lines = inspect.cleandoc(text).splitlines() if text else []
    kept: list[str] = []
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if _NUMPY_HEADER.fullmatch(line) and _NUMPY_RULE.fullmatch(following):
            at = _read_numpy(lines, at + 2, found)
        elif _GOOGLE_HEADER.fullmatch(line) and (not following or following[0].isspace()):
            at = _read_google(lines, at + 1, found)
        elif entry := _SPHINX_ENTRY.fullmatch(line):
            end = _block_end(lines, at + 1)
            if entry["role"] not in ("type", "vartype"):
                found[entry["name"]] = [entry["text"], *lines[at + 1 : end]]
            at = end
        else:
            kept.append(line)
            at += 1
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    texts = {name: " ".join(" ".join(parts).split()) for name, parts in found.items()}
    return Docstring(description, {name: text for name, text in texts.items() if text})


def _block_end(lines: list[str], start: int) -> int:
    """The index after an indented block; blank lines belong to it only if it goes on after them."""
    end = start
    for at in range(start, len(lines)):
        if not lines[at].strip():
            continue
        if not lines[at][0].isspace():
            break
        end = at + 1
    return end


def _read_google(lines: list[str], start: int, found: dict[str, list[str]]) -> int:
    end = _block_end(lines, start)
    block = [line for line in lines[start:end] if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in block), default=0)
    current: list[str] = []
    for line in block:
        entry = None if line[margin].isspace() else _GOOGLE_ENTRY.fullmatch(line.strip())
        if entry:
            current = found[entry["name"]] = [entry["text"] or ""]
        else:
            current.append(line)
    return end


def _read_numpy(lines: list[str], start: int, found: dict[str, list[str]]) -> int:
    current: list[str] = []
    for at in range(start, len(lines)):
        line = lines[at]
        if not line.strip():
            continue
        if line[0].isspace():
            current.append(line)
            continue
        next_section = at + 1 < len(lines) and _NUMPY_RULE.fullmatch(lines[at + 1])
        entry = _NUMPY_ENTRY.fullmatch(line)
        if next_section or entry is None:
            return at
        current = []
        for name in entry["names"].split(","):
            found[name.strip().lstrip("*")] = current
    return len(lines)

"""A client that lets a server ask: ``python examples/asking_client.py``.

The user is played by a table; a real one would see the message, the form and who asks, could change
what is sent, and could refuse.
"""

import sys
from pathlib import Path
from typing import Any

import trio

from trio_mcp import Elicitation, ElicitResult, connect

SERVER = [sys.executable, str(Path(__file__).parent / "asking_server.py")]

ANSWERS: dict[str, dict[str, Any]] = {
    "delivery": {"street": "Harbour Street 1", "wrapping": "paper"},
    "confirmation": {"sure": True},
    "Dune": {"like": True},
}


async def ask_the_user(question: Elicitation) -> ElicitResult:
    """Called in the task that waits for the call, and cancelled with it."""
    assert question.schema is not None
    print(f"{question.key}: {question.message} {list(question.schema['properties'])}")
    if question.key == "Emma":
        return question.decline()
    await trio.sleep(0.1)  # users think
    return question.accept(ANSWERS[question.key])  # checked against the form, before it is sent


async def fall_asleep(question: Elicitation) -> ElicitResult:
    """A user who does not answer."""
    await trio.sleep_forever()
    raise AssertionError


async def main() -> None:
    async with connect(SERVER, on_elicit=ask_the_user) as client:
        print((await client.call_tool("order_book", {"title": "Dune"})).text)
        print((await client.call_tool("rate_books")).structured_content)
    async with connect(SERVER, on_elicit=fall_asleep) as client:
        with trio.move_on_after(0.2) as waiting:
            await client.call_tool("order_book", {"title": "Emma"})
        print("given up:", waiting.cancelled_caught)


if __name__ == "__main__":
    trio.run(main)

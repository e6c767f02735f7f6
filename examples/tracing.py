"""One trace through two servers, and a cancellation in it: ``python examples/tracing.py``.

Needs ``trio-mcp[otel]`` and ``opentelemetry-sdk``. Prints the spans instead of exporting them.
"""

import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trio_mcp import Server, connect
from trio_mcp.otel import OpenTelemetry

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("bakery")
tracing = OpenTelemetry(provider)

mill = Server("mill", version="1.0.0", tracing=tracing)
bakery = Server("bakery", version="1.0.0", tracing=tracing)


@mill.tool
async def grind(seconds: float) -> str:
    """Grind flour."""
    with tracer.start_as_current_span("turn the stones"):
        await trio.sleep(seconds)
    return "flour"


@bakery.tool
async def bake(seconds: float) -> str:
    """Bake bread, of flour from the mill."""
    async with connect(mill, tracing=tracing) as client:
        await client.call_tool("grind", {"seconds": seconds})
    return "bread"


async def main() -> None:
    async with connect(bakery, tracing=tracing) as client:
        with tracer.start_as_current_span("breakfast"):
            await client.call_tool("bake", {"seconds": 0.01})
        with tracer.start_as_current_span("brunch"), trio.move_on_after(0.1):
            await client.call_tool("bake", {"seconds": 60})


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        if (span.parent.span_id if span.parent else None) == parent:
            source = (span.attributes or {}).get("mcp.cancel.source")
            end = f": cancelled by {source}" if source else ""
            if not span.name.startswith("server/discover"):
                print("  " * depth + f"{span.kind.name.lower()} {span.name}{end}")
            show(spans, span.context.span_id, depth + 1)


if __name__ == "__main__":
    trio.run(main)
    show(list(exporter.get_finished_spans()))

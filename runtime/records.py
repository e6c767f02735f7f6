"""What is written down of an exchange once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .journal import Record
from .lifecycle import State
from .tracing import trace_id_of

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["record_of"]


def record_of(exchange: Exchange) -> Record:
    """Its record; a peer's texts are clipped to ``Limits.text_length``."""
    assert exchange.ended_at is not None
    clip = exchange.core.limits.text_length
    request, target, error = exchange.request, exchange.target, exchange.error_text
    metadata, principal, era = exchange.metadata, exchange.principal, exchange.era
    progress, logs, span = exchange.progress, exchange.logs, exchange.span
    return Record(
        role="server",
        key=exchange.key,
        request_id=request.id,
        method=request.method[:clip],
        target=target[:clip] if target is not None else None,
        connection=exchange.peer.label,
        peer=metadata.client_name(clip) if metadata is not None else None,
        principal=principal.name[:clip] if principal is not None else None,
        protocol_version=era.version if era is not None else None,
        received_at=exchange.received_at,
        started_at=exchange.started_at,
        unwound_at=exchange.unwound_at,
        ended_at=exchange.ended_at,
        state=exchange.state,
        cause=exchange.cause,
        extra_cancels=exchange.extra_cancels,
        error=error[:clip] if error is not None else None,
        is_error=exchange.is_error,
        asked=exchange.asked if exchange.state is State.COMPLETED else (),
        delivered=exchange.delivered,
        cleanup=_cleanup_of(exchange),
        cleanups=exchange.cleanups,
        late=exchange.late,
        progress_reported=progress.reported if progress is not None else 0,
        progress_sent=progress.sent if progress is not None else 0,
        logs_sent=logs.sent if logs is not None else 0,
        logs_dropped=logs.dropped if logs is not None else 0,
        trace_id=(span and span.trace_id) or trace_id_of(request.params.get("_meta")),
        work=exchange.work_records,
        changes_sent=exchange.changes_sent,
        changes_coalesced=exchange.changes_coalesced,
        queued=exchange.queued,
    )


def _cleanup_of(exchange: Exchange) -> str | None:
    """What went wrong is never lost; that nothing did is said of what was cancelled."""
    outcome = exchange.cleanup_outcome
    return None if exchange.cause is None and outcome == "clean" else outcome

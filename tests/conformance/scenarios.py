"""What has to pass: the scenarios that revision 2026-07-28 requires, and some that it does not; and
those that revision 2025-11-25 requires of a client.

The suite says which they are, in ``requirements/*.yaml``, and runs all of a server's in
one go; what it runs beyond these lists and :data:`EXTENSIONS` has to pass too.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLIENT", "EARLIER", "EARLIER_CLIENT", "EXTENSIONS", "REVISION", "SERVER", "SKIPPED"]

REVISION: Final = "2026-07-28"
EARLIER: Final = "2025-11-25"

SERVER: Final = (
    "server-stateless",
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "sep-2164-resource-not-found",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
    "caching",
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-non-tool-request",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
    # Not required, because the suite's own server does not pass them yet.
    "json-schema-2020-12",
    "http-header-validation",
    "http-custom-header-server-validation",
)

EXTENSIONS: Final = "tasks-"
"""How the names of scenarios begin that are about an extension which we do not offer."""

CLIENT: Final = (
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    # Not required: it came after the revision.
    "json-schema-2020-12-preservation",
)
"""Without those of authorization (``auth/``): how to get a token is the application's business."""

EARLIER_CLIENT: Final = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    # Not required: it came after the revision.
    "json-schema-2020-12-preservation",
)
"""The same, of the earlier revision."""

SKIPPED: Final = (
    "ClientMcpMethodHeader_initialize",
    "ClientMcpMethodHeader_notifications_initialized",
)
"""Checks of what the revision does not have, by their names."""

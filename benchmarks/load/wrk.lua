-- One `tools/call`, again and again; prints what `wrk.py` reads.
-- Arguments: the tool's name, the body.

wrk.method = "POST"
wrk.path = "/mcp"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept"] = "application/json, text/event-stream"
wrk.headers["MCP-Protocol-Version"] = "2026-07-28"
wrk.headers["Mcp-Method"] = "tools/call"

function init(arguments)
  wrk.headers["Mcp-Name"] = arguments[1]
  wrk.body = arguments[2]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nsummary {"answers":%d,"bytes":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"refused":%d,"broken":%d}\n',
    summary.requests, summary.bytes, summary.duration / 1e6,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end

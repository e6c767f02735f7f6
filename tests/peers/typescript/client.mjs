// A client on the official TypeScript SDK, driven by lines of JSON on standard input.
//
//     node client.mjs '{"address": "http://127.0.0.1:8000/mcp", "mode": "auto"}'
//     node client.mjs '{"command": ["python", "server.py"], "mode": {"pin": "2026-07-28"}}'
//
// `mode` is the SDK's `versionNegotiation.mode`; without one the SDK speaks 2025-11-25, and a server
// of 2026-07-28 never sees anything else from it.
//
// | line in | lines out |
// | --- | --- |
// | – | `{"ready": {era, version, server}}`, or `{"refused": error}` and the end |
// | `{"do": "list", "id"}` | `{"id", "result": {tools}}` |
// | `{"do": "call", "id", "name", "arguments", "progress", "options"}` | `{"id", "progress"}` …, then `{"id", "result"}` or `{"id", "error"}` |
// | `{"do": "abort", "id", "reason"}` | the aborted call's `{"id", "error"}` |
// | end of input | `{"closed": true}` and the end |
//
// `{"complaint": text}` is what the SDK hands to `onerror`.

import { createInterface } from 'node:readline';

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const target = JSON.parse(process.argv[2]);
const aborts = new Map();

function say(message) {
    process.stdout.write(JSON.stringify(message) + '\n');
}

function described(error) {
    const { name, message, code, data } = error;
    return { name, message, code, data };
}

function transport() {
    if (target.address) return new StreamableHTTPClientTransport(new URL(target.address));
    const [command, ...args] = target.command;
    return new StdioClientTransport({ command, args, env: process.env });
}

async function call(client, { id, name, arguments: given, progress, options }) {
    const abort = new AbortController();
    aborts.set(id, abort);
    const onprogress = progress ? update => say({ id, progress: update }) : undefined;
    try {
        const request = { name, arguments: given };
        const result = await client.callTool(request, { ...options, signal: abort.signal, onprogress });
        say({ id, result });
    } catch (error) {
        say({ id, error: described(error) });
    } finally {
        aborts.delete(id);
    }
}

async function list(client, { id }) {
    try {
        say({ id, result: await client.listTools() });
    } catch (error) {
        say({ id, error: described(error) });
    }
}

const versionNegotiation = target.mode ? { mode: target.mode } : undefined;
const client = new Client({ name: 'typescript-peer', version: '1.0.0' }, { versionNegotiation });
client.onerror = error => say({ complaint: String(error) });
try {
    await client.connect(transport());
} catch (error) {
    say({ refused: described(error) });
    process.exit(0);
}
say({
    ready: {
        era: client.getProtocolEra(),
        version: client.getNegotiatedProtocolVersion(),
        server: client.getServerVersion()
    }
});
for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.do === 'list') void list(client, command);
    else if (command.do === 'call') void call(client, command);
    else aborts.get(command.id)?.abort(command.reason);
}
await client.close();
say({ closed: true });

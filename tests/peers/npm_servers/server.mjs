// A server on the official TypeScript SDK of before 2026-07-28 (1.x), over stdio or, with `--http`,
// over Streamable HTTP on a port of 127.0.0.1, in sessions, as its documentation says.
//
// | tool | what it does |
// | --- | --- |
// | `echo(text)` | returns the text |
// | `add(a, b)` | returns the sum: the number as text, and `{"result": sum}` as structured content |
// | `sleep(seconds)` | waits, then returns "slept" |
// | `tick(n, dt)` | reports progress 1/n to n/n, `dt` seconds apart, then returns "done" |
// | `boom()` | throws: the answer is a tool result with `isError` |
// | `change(uri)` | tells that a resource, and the list of tools, has changed |
//
// Clients can subscribe to any resource. Lines out, over HTTP: the port. Notes, of `sleep` and of
// the end of a session, are appended to the file that the environment variable `PEER_LOG` names.

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

function note(line) {
    if (process.env.PEER_LOG) appendFileSync(process.env.PEER_LOG, line + '\n');
}

function text(said) {
    return { content: [{ type: 'text', text: said }] };
}

function makeServer() {
    const server = new McpServer(
        { name: 'typescript-1.x-peer', version: '1.0.0' },
        { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } }
    );
    server.registerTool('echo', { inputSchema: { text: z.string() } }, async ({ text: said }) => text(said));
    server.registerTool(
        'add',
        { inputSchema: { a: z.number(), b: z.number() }, outputSchema: { result: z.number() } },
        async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } })
    );
    server.registerTool('sleep', { inputSchema: { seconds: z.number() } }, async ({ seconds }, { signal }) => {
        note('sleep started');
        signal.addEventListener('abort', () => note(`sleep aborted: ${signal.reason}`));
        await setTimeout(seconds * 1000, undefined, { signal });
        return text('slept');
    });
    server.registerTool('tick', { inputSchema: { n: z.number(), dt: z.number() } }, async ({ n, dt }, extra) => {
        for (let progress = 1; progress <= n; progress++) {
            await setTimeout(dt * 1000, undefined, { signal: extra.signal });
            const progressToken = extra._meta?.progressToken;
            if (progressToken === undefined) continue;
            const params = { progressToken, progress, total: n, message: `tick ${progress}` };
            await extra.sendNotification({ method: 'notifications/progress', params });
        }
        return text('done');
    });
    server.registerTool('boom', {}, async () => {
        throw new Error('boom');
    });
    server.registerTool('change', { inputSchema: { uri: z.string() } }, async ({ uri }) => {
        await server.server.sendResourceUpdated({ uri });
        server.sendToolListChanged();
        return text('changed');
    });
    server.server.setRequestHandler(SubscribeRequestSchema, async () => ({}));
    server.server.setRequestHandler(UnsubscribeRequestSchema, async () => ({}));
    return server;
}

// Sessions by id: their transports.
const sessions = new Map();

async function handle(request, response) {
    const id = request.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (id && !transport) {
        response.writeHead(404).end();
        return;
    }
    if (!transport) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: () => randomUUID(),
            onsessioninitialized: id => void sessions.set(id, transport),
            onsessionclosed: id => {
                sessions.delete(id);
                note('session closed');
            }
        });
        await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
}

if (process.argv.includes('--http')) {
    const http = createServer((request, response) => void handle(request, response));
    http.listen(0, '127.0.0.1', () => console.log(http.address().port));
} else {
    await makeServer().connect(new StdioServerTransport());
}

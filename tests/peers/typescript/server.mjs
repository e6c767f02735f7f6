// A server on the official TypeScript SDK, over Streamable HTTP on 127.0.0.1 or over stdio.
//
//     node server.mjs '{"responseMode": "sse"}'    with options of the SDK's createMcpHandler
//     node server.mjs --stdio
//     node server.mjs --older                      in sessions only, as before 2026-07-28
//     node server.mjs --stdio --older
//
// It is put together as the SDK's documentation says for `node:http`: a factory of servers, one for
// each request, behind `createMcpHandler`, `toNodeHandler` and the guards of a local server. It
// speaks 2026-07-28 without an option, and earlier revisions besides. The older one is a server and
// a transport for each session, as the documentation says for the SDK's transports.
//
// | tool | what it does |
// | --- | --- |
// | `echo(text)` | returns the text |
// | `add(a, b)` | returns the sum: the number as text, and `{"result": sum}` as structured content |
// | `sleep(seconds, label)` | waits, then returns "slept" |
// | `tick(n, dt)` | reports progress 1/n to n/n, `dt` seconds apart, then returns "done" |
// | `boom()` | throws: the answer is a tool result with `isError` |
// | `buy(region, size)` | returns `"SIZE in REGION"`; both are mirrored into headers |
// | `change(uri)` | tells that a resource, and the list of tools, has changed |
//
// In a session clients can subscribe to any resource.
//
// Lines out: the port, then notes: that `sleep` (by its label) or `tick` has started, and why its
// AbortSignal fired. With `--stdio` the notes go to standard error. They are also appended to the file
// that the environment variable `PEER_LOG` names, if it does.

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';

import {
    localhostHostValidation,
    localhostOriginValidation,
    NodeStreamableHTTPServerTransport,
    toNodeHandler
} from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const overStdio = process.argv.includes('--stdio');
const older = process.argv.includes('--older');
const options = older || overStdio ? {} : JSON.parse(process.argv[2] ?? '{}');
let handler; // over HTTP, what tells all who listen

function note(line) {
    if (process.env.PEER_LOG) appendFileSync(process.env.PEER_LOG, line + '\n');
    (overStdio ? process.stderr : process.stdout).write(line + '\n');
}

function watch(label, signal) {
    note(`${label} started`);
    signal.addEventListener('abort', () => note(`${label} aborted: ${signal.reason}`));
}

function text(said) {
    return { content: [{ type: 'text', text: said }] };
}

function makeServer() {
    const server = new McpServer(
        { name: 'typescript-peer', version: '1.0.0' },
        { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } }
    );
    server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, async ({ text: said }) => text(said));
    server.registerTool(
        'add',
        {
            inputSchema: z.object({ a: z.int(), b: z.int() }),
            outputSchema: z.object({ result: z.int() })
        },
        async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } })
    );
    server.registerTool(
        'sleep',
        { inputSchema: z.object({ seconds: z.number(), label: z.string().default('sleep') }) },
        async ({ seconds, label }, ctx) => {
            const { signal } = ctx.mcpReq;
            watch(label, signal);
            await setTimeout(seconds * 1000, undefined, { signal });
            return text('slept');
        }
    );
    server.registerTool('tick', { inputSchema: z.object({ n: z.int(), dt: z.number() }) }, async ({ n, dt }, ctx) => {
        const { _meta, signal, notify } = ctx.mcpReq;
        watch('tick', signal);
        for (let progress = 1; progress <= n; progress++) {
            await setTimeout(dt * 1000, undefined, { signal });
            if (_meta?.progressToken === undefined) continue;
            const params = { progressToken: _meta.progressToken, progress, total: n, message: `tick ${progress}` };
            await notify({ method: 'notifications/progress', params });
        }
        return text('done');
    });
    server.registerTool('boom', {}, async () => {
        throw new Error('boom');
    });
    const region = z.string().meta({ 'x-mcp-header': 'Region' });
    const size = z.int().default(1).meta({ 'x-mcp-header': 'Size' });
    server.registerTool('buy', { inputSchema: z.object({ region, size }) }, async given =>
        text(`${given.size} in ${given.region}`)
    );
    server.registerTool('change', { inputSchema: z.object({ uri: z.string() }) }, async ({ uri }) => {
        if (handler) {
            handler.notify.resourceUpdated(uri);
            handler.notify.toolsChanged();
        } else {
            await server.server.sendResourceUpdated({ uri });
            await server.server.sendToolListChanged();
        }
        return text('changed');
    });
    if (older) {
        server.server.setRequestHandler('resources/subscribe', async () => ({}));
        server.server.setRequestHandler('resources/unsubscribe', async () => ({}));
    }
    return server;
}

// Sessions by id: their transports.
const sessions = new Map();

async function handleInSession(request, response) {
    const id = request.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (id && !transport) {
        response.writeHead(404).end();
        return;
    }
    if (!transport) {
        transport = new NodeStreamableHTTPServerTransport({
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

async function serveHttp() {
    if (!older) handler = createMcpHandler(makeServer, options);
    const handle = older ? handleInSession : toNodeHandler(handler);
    const validHost = localhostHostValidation();
    const validOrigin = localhostOriginValidation();
    const http = createServer((request, response) => {
        if (validHost(request, response) && validOrigin(request, response)) void handle(request, response);
    });
    http.listen(0, '127.0.0.1', () => process.stdout.write(http.address().port + '\n'));
}

if (!overStdio) await serveHttp();
else if (older) await makeServer().connect(new StdioServerTransport());
else serveStdio(makeServer);

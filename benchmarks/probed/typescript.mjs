// What `python -m benchmarks.probe` probes of the TypeScript SDK; its twins are `official.py` and
// `fast.py`. The tools obey their AbortSignal, which is how the SDK tells them of a cancellation.
//
//     node typescript.mjs                         standard input and output
//     node typescript.mjs --http                  Streamable HTTP; the port is the first line
//     node typescript.mjs --http --json           with one JSON body for an answer
//     node typescript.mjs --http --sessions       in sessions, as before 2026-07-28

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';

import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const json = process.argv.includes('--json');
let alive = 0;

const text = said => ({ content: [{ type: 'text', text: String(said) }] });

async function counted(work) {
    alive++;
    try {
        return await work();
    } finally {
        alive--;
    }
}

function makeServer() {
    const server = new McpServer({ name: 'typescript', version: '1.0.0' });
    const inputSchema = z.object({ seconds: z.number() });
    server.registerTool('slow', { inputSchema }, ({ seconds }, ctx) =>
        counted(async () => {
            await setTimeout(seconds * 1000, undefined, { signal: ctx.mcpReq.signal });
            return text('waited');
        })
    );
    server.registerTool('stream', { inputSchema }, ({ seconds }, ctx) =>
        counted(async () => {
            const { _meta, signal, notify } = ctx.mcpReq;
            for (let progress = 0; progress < seconds * 10; progress++) {
                if (_meta?.progressToken !== undefined) {
                    const params = { progressToken: _meta.progressToken, progress };
                    await notify({ method: 'notifications/progress', params });
                }
                await setTimeout(100, undefined, { signal });
            }
            return text('waited');
        })
    );
    server.registerTool('alive', {}, async () => text(alive));
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
            enableJsonResponse: json,
            onsessioninitialized: id => void sessions.set(id, transport),
            onsessionclosed: id => sessions.delete(id)
        });
        await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
}

if (process.argv.includes('--http')) {
    const options = json ? { responseMode: 'json' } : {};
    const handle = process.argv.includes('--sessions')
        ? handleInSession
        : toNodeHandler(createMcpHandler(makeServer, options));
    const http = createServer((request, response) => void handle(request, response));
    http.listen(0, '127.0.0.1', () => process.stdout.write(http.address().port + '\n'));
} else {
    serveStdio(makeServer);
}

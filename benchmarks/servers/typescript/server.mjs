// The servers on the official TypeScript SDK: `node server.mjs WIRE [PORT]`; the tools are those of `../ours.py`.

import { createServer } from 'node:http';
import {
    localhostHostValidation,
    localhostOriginValidation,
    toNodeHandler
} from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const titleInput = z.object({ title: z.string() });
const stockOutput = z.object({ title: z.string(), copies: z.number().int(), price: z.number() });
const sleepInput = z.object({ seconds: z.number(), label: z.string().default('') });
const endedInput = z.object({ label: z.string() });

let calls = 0;
let alive = 0;
const endedAt = new Map();

const text = value => ({ content: [{ type: 'text', text: String(value) }] });

function stockOf(title) {
    calls += 1;
    const stock = { title, copies: 3, price: 12.5 };
    return { ...text(JSON.stringify(stock)), structuredContent: stock };
}

/** Seconds of CLOCK_MONOTONIC, as Python's time.monotonic() tells them. */
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;

/** Resolves after so many seconds, or at once when the request is cancelled. */
const pause = (seconds, signal) =>
    new Promise(resolve => {
        const timer = setTimeout(resolve, seconds * 1000);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            resolve();
        });
    });

function build() {
    const server = new McpServer({ name: 'benchmark', version: '1.0.0' });
    server.registerTool(
        'stock',
        { description: 'What is in stock of a book.', inputSchema: titleInput, outputSchema: stockOutput },
        ({ title }) => stockOf(title)
    );
    server.registerTool(
        'search',
        { description: 'The same, with progress on the way.', inputSchema: titleInput, outputSchema: stockOutput },
        async ({ title }, ctx) => {
            const { _meta, notify } = ctx.mcpReq;
            for (let progress = 1; progress < 4 && _meta?.progressToken !== undefined; progress++) {
                const params = { progressToken: _meta.progressToken, progress, total: 3 };
                await notify({ method: 'notifications/progress', params });
            }
            return stockOf(title);
        }
    );
    server.registerTool(
        'sleep',
        { description: 'Wait for some seconds.', inputSchema: sleepInput },
        async ({ seconds, label }, ctx) => {
            alive += 1;
            try {
                await pause(seconds, ctx.mcpReq.signal);
            } finally {
                alive -= 1;
                if (label) endedAt.set(label, monotonic());
            }
            return text('slept');
        }
    );
    server.registerTool('calls', { description: 'How often stock was called.' }, () => text(calls));
    server.registerTool('alive', { description: 'Live sleep handlers.' }, () => text(alive));
    server.registerTool(
        'ended',
        { description: 'When the sleep handler of that label ended.', inputSchema: endedInput },
        ({ label }) => text(endedAt.get(label) ?? 0)
    );
    return server;
}

function serveHttp(port, options) {
    const handle = toNodeHandler(createMcpHandler(build, { legacy: 'reject', ...options }));
    const hostIsLocal = localhostHostValidation();
    const originIsLocal = localhostOriginValidation();
    createServer((request, response) => {
        if (hostIsLocal(request, response) && originIsLocal(request, response)) handle(request, response);
    }).listen(port, '127.0.0.1');
}

const [wire, port] = process.argv.slice(2);
if (wire === 'stdio') serveStdio(build);
else serveHttp(Number(port), wire === 'http-json' ? { responseMode: 'json' } : {});

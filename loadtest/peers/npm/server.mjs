// `node server.mjs PORT`: an echo tool at `/mcp`, served by the official TypeScript SDK: a server for each request, as its handler does it.
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';

const inputSchema = z.object({ message: z.string() });
const handle = toNodeHandler(
  createMcpHandler(() => {
    const server = new McpServer({ name: 'peer', version: '1.0.0' });
    server.registerTool('echo', { description: 'Returns the message.', inputSchema }, async ({ message }) => ({
      content: [{ type: 'text', text: message }]
    }));
    return server;
  })
);
createServer((request, response) => handle(request, response)).listen(Number(process.argv[2]), '127.0.0.1');

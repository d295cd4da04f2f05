// Two real servers with one key and one state, behind a balancer without affinity:
// each request goes to the other one. Then one after the other is killed without
// warning and started again, and the client must not notice.
//
//   node replicas.mjs LIFECYCLE http
//
// LIFECYCLE is `session` (the v1 line of the TypeScript client) or `stateless` (the v2
// line). INTEROP_SERVER names the server, INTEROP_REDIS the
// program that holds the state.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import net from 'node:net';
import { Client as ClientV2, StreamableHTTPClientTransport as TransportV2 } from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import { ANSWERS, CAPABILITIES, check, main, pages } from './check.mjs';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function listens(port) {
  for (let i = 0; i < 200; i++) {
    const open = await new Promise((resolve) => {
      const socket = net.connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
      socket.on('connect', () => socket.destroy());
    });
    if (open) return;
    await sleep(50);
  }
  assert.fail(`nothing listens on port ${port}`);
}

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

function start(program, args, env = {}) {
  const child = spawn(program, args, { stdio: 'ignore', env: { ...process.env, ...env } });
  running.add(child);
  child.gone = new Promise((resolve) => child.once('exit', resolve)).then(() => running.delete(child));
  return child;
}

/** A balancer: each request goes to the next of `ports`, and past those that are gone. */
async function balance(ports) {
  const sent = [];
  let next = 0;
  const front = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => forward(ports.length));
    const forward = (tries) => {
      const port = ports[next++ % ports.length];
      const { method, url: path, headers } = request;
      const upstream = http.request({ host: '127.0.0.1', port, method, path, headers, agent: false });
      upstream.on('response', (answer) => {
        sent.push(port);
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
        answer.on('error', () => response.destroy());
      });
      upstream.on('error', (error) => {
        if (error.code === 'ECONNREFUSED' && tries > 1) forward(tries - 1);
        else response.destroy();
      });
      response.on('close', () => upstream.destroy());
      upstream.end(Buffer.concat(parts));
    };
  });
  await new Promise((resolve) => front.listen(0, '127.0.0.1', resolve));
  return { front, sent, url: `http://127.0.0.1:${front.address().port}/mcp` };
}

const seen = new Map();
const count = (method) => seen.set(method, (seen.get(method) ?? 0) + 1);
const about = { name: 'longshore-interop', version: '1' };

async function connectV1(url) {
  const client = new ClientV1(about, { capabilities: CAPABILITIES });
  client.setRequestHandler(CreateMessageRequestSchema, ANSWERS['sampling/createMessage']);
  client.setRequestHandler(ElicitRequestSchema, ANSWERS['elicitation/create']);
  client.setRequestHandler(ListRootsRequestSchema, ANSWERS['roots/list']);
  for (const schema of [LoggingMessageNotificationSchema, ResourceUpdatedNotificationSchema]) {
    client.setNotificationHandler(schema, ({ method }) => count(method));
  }
  await client.connect(new TransportV1(new URL(url)));
  const call = (params, options) => client.callTool(params, CallToolResultSchema, options);
  const subscribe = async (client, uri) => {
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  };
  return { client, version: '2025-11-25', its: { call, subscribe, notified: (method) => seen.get(method) ?? 0 } };
}

async function connectV2(url) {
  const client = new ClientV2(about, { versionNegotiation: { mode: 'auto' }, capabilities: CAPABILITIES });
  for (const [method, answer] of Object.entries(ANSWERS)) client.setRequestHandler(method, answer);
  for (const method of ['notifications/message', 'notifications/resources/updated']) {
    client.setNotificationHandler(method, () => count(method));
  }
  await client.connect(new TransportV2(new URL(url)));
  const call = (params, options) => client.callTool(params, options);
  const subscribe = async (client, uri) => {
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    return () => subscription.close();
  };
  return { client, version: '2026-07-28', its: { call, subscribe, notified: (method) => seen.get(method) ?? 0 } };
}

await main(async ([lifecycle]) => {
  const redis = await freePort();
  start(process.env.INTEROP_REDIS, ['--port', String(redis), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']);
  await listens(redis);
  const env = {
    LONGSHORE_SEAL__KEYS: randomBytes(32).toString('hex'),
    LONGSHORE_STATE__URL: `redis://127.0.0.1:${redis}`,
    LONGSHORE_SERVER__PAGE_SIZE: '7'
  };
  const ports = [await freePort(), await freePort()];
  const serve = async (port) => {
    const child = start(
      process.env.INTEROP_SERVER,
      ['run', '--host', '127.0.0.1', '--port', String(port), '--toolset', 'everything'],
      env
    );
    await listens(port);
    return child;
  };
  const replicas = await Promise.all(ports.map(serve));
  const { url, sent } = await balance(ports);

  const { client, version, its } = lifecycle === 'session' ? await connectV1(url) : await connectV2(url);
  const did = await check(client, version, its);
  const alternated = sent.slice(1).filter((port, i) => port !== sent[i]).length;
  assert.ok(alternated > 10 && new Set(sent).size === 2, 'the requests did not alternate');
  did.push('two replicas');

  const echo = async (message) => {
    const { content } = await its.call({ name: 'echo', arguments: { message } });
    assert.equal(content[0].text, message);
  };
  for (let i = 0; i < 4; i++) {
    const which = i % 2;
    replicas[which].kill('SIGKILL');
    await replicas[which].gone;
    for (let n = 0; n < 6; n++) await echo(`without ${which}, ${n}`);
    replicas[which] = await serve(ports[which]);
    for (let n = 0; n < 6; n++) await echo(`with both again, ${n}`);
    // Pages go on across servers, and past one that was replaced.
    const tools = await pages((params) => client.listTools(params), 'tools');
    assert.ok(tools.length > 20, `${tools.length} tools`);
    const { content } = await its.call({ name: 'test_elicitation', arguments: { message: 'Still there?' } });
    assert.match(content[0].text, /action=accept/);
  }
  did.push('4 times kill -9 and restart');
  await client.close();
  return did;
});

// The official TypeScript client, v1 line. It knows the session lifecycle only, offers
// 2025-11-25 and cannot be told another revision.
//
//   node typescript-v1.mjs 2025-11-25 http URL
//   node typescript-v1.mjs 2025-11-25 stdio COMMAND...
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import { ANSWERS, CAPABILITIES, check, main } from './check.mjs';

/** Has the client answer questions and count notifications. */
function equip(client) {
  client.setRequestHandler(CreateMessageRequestSchema, ANSWERS['sampling/createMessage']);
  client.setRequestHandler(ElicitRequestSchema, ANSWERS['elicitation/create']);
  client.setRequestHandler(ListRootsRequestSchema, ANSWERS['roots/list']);
  const seen = new Map();
  for (const schema of [LoggingMessageNotificationSchema, ResourceUpdatedNotificationSchema]) {
    client.setNotificationHandler(schema, ({ method }) => {
      seen.set(method, (seen.get(method) ?? 0) + 1);
    });
  }
  return {
    call: (params, options) => client.callTool(params, CallToolResultSchema, options),
    notified: (method) => seen.get(method) ?? 0,
    subscribe: async (client, uri) => {
      await client.subscribeResource({ uri });
      return () => client.unsubscribeResource({ uri });
    }
  };
}

await main(async ([revision, kind, target, ...args]) => {
  const transport =
    kind === 'http'
      ? new StreamableHTTPClientTransport(new URL(target))
      : new StdioClientTransport({ command: target, args });
  let version;
  // The client has no method that tells the revision; it tells its transport.
  transport.setProtocolVersion = new Proxy(transport.setProtocolVersion ?? (() => {}), {
    apply(set, self, [value]) {
      version = value;
      return set.call(self, value);
    }
  });
  const client = new Client({ name: 'longshore-interop', version: '1' }, { capabilities: CAPABILITIES });
  const its = equip(client);
  await client.connect(transport);
  assert.equal(version, revision);
  const did = await check(client, version, its);

  const seen = [];
  const slow = { name: 'slow_compute', arguments: { seconds: 0.1, label: 'x' } };
  const options = { task: { ttl: 60_000 } };
  for await (const message of client.experimental.tasks.callToolStream(slow, CallToolResultSchema, options)) {
    seen.push(message.type);
    if (message.type === 'error') throw message.error;
    if (message.type === 'result') assert.equal(message.result.content[0].text, 'x: computed for 0.1 s');
  }
  assert.equal(seen[0], 'taskCreated');
  assert.equal(seen.at(-1), 'result');
  did.push('task');

  if (kind === 'http') {
    assert.ok(transport.sessionId, 'the server opened no session');
    await transport.terminateSession();
    did.push('session ended');
  }
  await client.close();
  return did;
});

// The official TypeScript client, v1 line. It knows the session era only, offers
// 2025-11-25 and cannot be told another revision.
//
//   node typescript-v1.mjs 2025-11-25 http URL
//   node typescript-v1.mjs 2025-11-25 stdio COMMAND...
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { check, main } from './check.mjs';

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
  const client = new Client({ name: 'longshore-interop', version: '1' });
  await client.connect(transport);
  assert.equal(version, revision);
  const did = await check(client, version);
  if (kind === 'http') {
    assert.ok(transport.sessionId, 'the server opened no session');
    await transport.terminateSession();
    did.push('session ended');
  }
  await client.close();
  return did;
});

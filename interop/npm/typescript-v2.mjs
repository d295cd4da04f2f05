// The official TypeScript client, v2 line.
//
//   node typescript-v2.mjs LIFECYCLE http URL
//   node typescript-v2.mjs LIFECYCLE stdio COMMAND...
//
// LIFECYCLE is `default` (no option: sessions), `auto` (probes with
// `server/discover`), `2026-07-28` (pinned, no way back) or a revision of the
// session lifecycle to offer in `initialize`.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { ANSWERS, CAPABILITIES, check, main, SESSION_REVISIONS } from './check.mjs';

function optionsFor(lifecycle) {
  if (lifecycle === 'default') return [{}, '2025-11-25'];
  if (lifecycle === 'auto') return [{ versionNegotiation: { mode: 'auto' } }, '2026-07-28'];
  if (SESSION_REVISIONS.includes(lifecycle)) return [{ supportedProtocolVersions: [lifecycle] }, lifecycle];
  return [{ versionNegotiation: { mode: { pin: lifecycle } } }, lifecycle];
}

/** Has the client answer questions and count notifications. */
function equip(client, version) {
  const seen = new Map();
  return {
    call: (params, options) => client.callTool(params, options),
    notified: (method) => seen.get(method) ?? 0,
    subscribe: async (client, uri) => {
      if (SESSION_REVISIONS.includes(version)) {
        await client.subscribeResource({ uri });
        return () => client.unsubscribeResource({ uri });
      }
      const subscription = await client.listen({ resourceSubscriptions: [uri] });
      return () => subscription.close();
    },
    prepare: () => {
      for (const [method, answer] of Object.entries(ANSWERS)) client.setRequestHandler(method, answer);
      for (const method of ['notifications/message', 'notifications/resources/updated']) {
        client.setNotificationHandler(method, () => {
          seen.set(method, (seen.get(method) ?? 0) + 1);
        });
      }
    }
  };
}

await main(async ([lifecycle, kind, target, ...args]) => {
  const [options, expected] = optionsFor(lifecycle);
  const transport =
    kind === 'http'
      ? new StreamableHTTPClientTransport(new URL(target))
      : new StdioClientTransport({ command: target, args });
  const client = new Client(
    { name: 'longshore-interop', version: '1' },
    { ...options, capabilities: CAPABILITIES }
  );
  const its = equip(client, expected);
  its.prepare();
  await client.connect(transport);
  const version = client.getNegotiatedProtocolVersion();
  assert.equal(version, expected);
  const did = await check(client, version, its);
  if (kind === 'http' && SESSION_REVISIONS.includes(version)) {
    assert.ok(transport.sessionId, 'the server opened no session');
    await transport.terminateSession();
    did.push('session ended');
  }
  await client.close();
  return did;
});

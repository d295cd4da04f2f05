// The official TypeScript client, v2 line.
//
//   node typescript-v2.mjs ERA http URL
//   node typescript-v2.mjs ERA stdio COMMAND...
//
// ERA is `default` (nothing is told: the session era), `auto` (probes with
// `server/discover`), `2026-07-28` (pinned, no way back) or a revision of the
// session era to offer in `initialize`.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { check, main, SESSION_ERA } from './check.mjs';

function optionsFor(era) {
  if (era === 'default') return [{}, '2025-11-25'];
  if (era === 'auto') return [{ versionNegotiation: { mode: 'auto' } }, '2026-07-28'];
  if (SESSION_ERA.includes(era)) return [{ supportedProtocolVersions: [era] }, era];
  return [{ versionNegotiation: { mode: { pin: era } } }, era];
}

await main(async ([era, kind, target, ...args]) => {
  const [options, expected] = optionsFor(era);
  const transport =
    kind === 'http'
      ? new StreamableHTTPClientTransport(new URL(target))
      : new StdioClientTransport({ command: target, args });
  const client = new Client({ name: 'longshore-interop', version: '1' }, options);
  await client.connect(transport);
  const version = client.getNegotiatedProtocolVersion();
  assert.equal(version, expected);
  const did = await check(client, version);
  if (kind === 'http' && SESSION_ERA.includes(version)) {
    assert.ok(transport.sessionId, 'the server opened no session');
    await transport.terminateSession();
    did.push('session ended');
  }
  await client.close();
  return did;
});

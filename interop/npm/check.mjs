// What both lines of the TypeScript client are asked to do; their `Client`
// classes have these methods in common.
import assert from 'node:assert/strict';

export const SESSION_ERA = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];

/** Uses a connected client at revision `version`; returns what it did. */
export async function check(client, version) {
  const { tools } = await client.listTools();
  const names = tools.map((tool) => tool.name);
  for (const name of ['echo', 'fail']) assert.ok(names.includes(name), `${name} is not among ${names}`);

  for (const message of ['hello', 'héllo "wörld"\n🦀']) {
    const { content, isError } = await client.callTool({ name: 'echo', arguments: { message } });
    assert.ok(!isError, 'echo answers isError');
    assert.equal(content[0].text, message);
  }
  const failed = await client.callTool({ name: 'fail', arguments: {} });
  assert.equal(failed.isError, true, 'fail does not answer isError');

  const did = [version, `${names.length} tools`, 'echo', 'fail'];
  // The stateless era has no ping.
  if (SESSION_ERA.includes(version)) {
    await client.ping();
    did.push('ping');
  }
  return did;
}

/** Prints the result in one line and ends, whatever timers the client still has. */
export async function main(run) {
  try {
    console.log((await run(process.argv.slice(2))).join(', '));
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

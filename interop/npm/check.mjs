// What both lines of the TypeScript client are asked to do; their `Client`
// classes have these methods in common.
import assert from 'node:assert/strict';

export const SESSION_REVISIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];

/** What the client says that it can be asked. */
export const CAPABILITIES = { sampling: {}, elicitation: {}, roots: {} };

/** How the client answers, by method. */
export const ANSWERS = {
  'sampling/createMessage': () => ({
    role: 'assistant',
    model: 'none',
    content: { type: 'text', text: 'Paris' }
  }),
  'elicitation/create': () => ({
    action: 'accept',
    content: { username: 'Ada', email: 'ada@example.com' }
  }),
  'roots/list': () => ({ roots: [{ uri: 'file:///project', name: 'work' }] })
};

/** All pages of a list. */
export async function pages(list, member) {
  const all = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    all.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return all;
}

/** Waits until `done()` says so, or fails with what was waited for. */
async function until(done, what) {
  for (let i = 0; i < 100; i++) {
    if (done()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`never came: ${what}`);
}

/**
 * Uses a connected client at revision `version`; returns what it did. `its` has what
 * the two lines do each in their own way:
 *
 * - `call(params, options)`: calls a tool
 * - `notified`: notifications so far, by method
 * - `subscribe(client, uri)`: resolves once changes of a resource are reported
 */
export async function check(client, version, its) {
  const inSession = SESSION_REVISIONS.includes(version);
  const text = ({ content, isError }) => {
    assert.ok(!isError, `isError: ${content?.[0]?.text}`);
    return content[0].text;
  };
  const tools = await pages((params) => client.listTools(params), 'tools');
  const names = tools.map((tool) => tool.name);
  for (const name of ['echo', 'test_error_handling']) assert.ok(names.includes(name), `${name} is not among ${names}`);
  const did = [version, `${names.length} tools`];

  for (const message of ['hello', 'héllo "wörld"\n🦀']) {
    assert.equal(text(await its.call({ name: 'echo', arguments: { message } })), message);
  }
  const failed = await its.call({ name: 'test_error_handling', arguments: {} });
  assert.equal(failed.isError, true, 'test_error_handling does not answer isError');
  did.push('call');

  const resources = await pages((params) => client.listResources(params), 'resources');
  assert.equal(resources[0].uri, 'test://static-text');
  const resourceTemplates = await pages((params) => client.listResourceTemplates(params), 'resourceTemplates');
  assert.ok(resourceTemplates.some((template) => template.uriTemplate === 'test://template/{id}/data'));
  const read = await client.readResource({ uri: 'test://template/7/data' });
  assert.equal(JSON.parse(read.contents[0].text).id, '7');
  did.push('read');

  assert.ok((await pages((params) => client.listPrompts(params), 'prompts')).length >= 5);
  const got = await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } });
  assert.equal(got.messages[0].content.text, "Prompt with arguments: arg1='a', arg2='b'");
  did.push('get');

  // 2024-11-05 has no capability that says so, and the clients ask for one.
  if (version !== '2024-11-05') {
    const ref = { type: 'ref/prompt', name: 'introduce_colleague' };
    const { completion } = await client.complete({ ref, argument: { name: 'team', value: 's' } });
    assert.deepEqual(completion.values, ['sales', 'support']);
    did.push('complete');
  }

  const reports = [];
  const progress = { onprogress: ({ progress }) => reports.push(progress) };
  await its.call({ name: 'test_tool_with_progress', arguments: {} }, progress);
  assert.deepEqual(reports, [0, 50, 100]);
  did.push('progress');

  // A session has a level; in the stateless lifecycle each request says its own, and hears nothing without it.
  const logging = { name: 'test_tool_with_logging', arguments: {} };
  if (inSession) {
    await client.setLoggingLevel('debug');
    await its.call(logging);
  } else {
    await its.call(logging);
    assert.equal(its.notified('notifications/message'), 0, 'log messages that nobody asked for');
    await its.call({ ...logging, _meta: { 'io.modelcontextprotocol/logLevel': 'debug' } });
  }
  await until(() => its.notified('notifications/message') >= 3, 'log messages');
  did.push('logging');

  // Streamable HTTP is younger than 2024-11-05: its clients cannot be asked there.
  if (version !== '2024-11-05') {
    assert.equal(text(await its.call({ name: 'test_sampling', arguments: { prompt: 'Where?' } })), 'LLM response: Paris');
    assert.match(text(await its.call({ name: 'list_roots', arguments: {} })), /file:\/\/\/project/);
    did.push('sampling', 'roots');
  }
  // Elicitation came with 2025-06-18.
  if (!['2024-11-05', '2025-03-26'].includes(version)) {
    const answer = text(await its.call({ name: 'test_elicitation', arguments: { message: 'Who?' } }));
    assert.match(answer, /action=accept.*ada@example\.com/);
    did.push('elicitation');
  }

  const end = await its.subscribe(client, 'test://watched-resource');
  await its.call({ name: 'touch_watched_resource', arguments: {} });
  await until(() => its.notified('notifications/resources/updated') > 0, 'an update');
  await end();
  did.push('subscription');

  const cancel = new AbortController();
  const begun = Date.now();
  const long = its.call(
    { name: 'long_operation', arguments: { seconds: 30, steps: 100 } },
    { signal: cancel.signal, onprogress: () => cancel.abort('enough') }
  );
  await assert.rejects(long);
  assert.ok(Date.now() - begun < 10_000, 'cancelled too late');
  assert.equal(text(await its.call({ name: 'echo', arguments: { message: 'still here' } })), 'still here');
  did.push('cancellation');

  // The stateless lifecycle has no ping.
  if (inSession) {
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

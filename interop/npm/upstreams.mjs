// Compares the results of a reference server, called directly and behind Longshore.
//
//   node upstreams.mjs LIFECYCLE NAME URL FOLDER PAGES_PORT COMMAND...
//
// The server is started by the client for the direct calls, and by Longshore for the others, which is at URL and offers
// its tools as NAME__TOOL. Calls that change something are made twice, once on each side.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [lifecycle, name, url, folder, pages, command, ...args] = process.argv.slice(2);

const CALLS = {
  filesystem: [
    ['list_allowed_directories', {}],
    ['list_directory', { path: `${folder}/files` }],
    ['read_text_file', { path: `${folder}/files/one.txt` }],
    ['write_file', { path: `${folder}/files/two.txt`, content: 'two\n' }],
    ['edit_file', { path: `${folder}/files/two.txt`, edits: [{ oldText: 'two', newText: 'two' }], dryRun: true }],
    ['search_files', { path: `${folder}/files`, pattern: '**/*.txt' }],
    ['read_text_file', { path: '/etc/passwd' }],
    ['read_text_file', {}]
  ],
  memory: [
    ['read_graph', {}],
    ['search_nodes', { query: 'Ada' }],
    ['open_nodes', { names: ['Ada'] }]
  ],
  everything: [
    ['echo', { message: 'hello \u00e9' }],
    ['get-sum', { a: 2, b: 3 }],
    ['get-tiny-image', {}],
    ['get-structured-content', { location: 'Chicago' }],
    ['get-annotated-message', { messageType: 'error', includeImage: true }],
    ['trigger-long-running-operation', { duration: 1, steps: 2 }],
    ['get-sum', { a: 'x' }]
  ],
  fetch: [
    ['fetch', { url: `http://127.0.0.1:${pages}/page.html` }],
    ['fetch', { url: `http://127.0.0.1:${pages}/page.html`, raw: true, max_length: 10 }],
    ['fetch', { url: `http://127.0.0.1:${pages}/missing` }],
    ['fetch', { url: 'nowhere' }]
  ],
  git: [
    ['git_status', { repo_path: `${folder}/repository` }],
    ['git_log', { repo_path: `${folder}/repository`, max_count: 1 }],
    ['git_show', { repo_path: `${folder}/repository`, revision: 'HEAD' }],
    ['git_branch', { repo_path: `${folder}/repository`, branch_type: 'local' }],
    ['git_status', { repo_path: '/' }]
  ],
  time: [
    ['convert_time', { source_timezone: 'UTC', time: '12:00', target_timezone: 'Asia/Tokyo' }],
    ['get_current_time', { timezone: 'Nowhere/Land' }]
  ]
};

const CHANGES = {
  memory: [
    ['create_entities', { entities: [{ name: 'Ada', entityType: 'person', observations: ['writes'] }] }],
    ['add_observations', { observations: [{ entityName: 'Ada', contents: ['reads'] }] }],
    ['delete_entities', { entityNames: ['Ada'] }]
  ]
};

const options =
  lifecycle === '2026-07-28' ? { versionNegotiation: { mode: { pin: lifecycle } } } : { supportedProtocolVersions: [lifecycle] };

async function connect(transport, how = {}) {
  const client = new Client({ name: 'longshore-interop', version: '1' }, how);
  await client.connect(transport);
  return client;
}

/** What a call comes to: its result, or that it failed. */
async function outcome(client, tool, given) {
  try {
    const { content, structuredContent, isError } = await client.callTool({ name: tool, arguments: given });
    return { content, structuredContent, isError: isError ?? false };
  } catch (error) {
    return { refused: true, code: error.code };
  }
}

/** Failures may be told in other words: the hop says whose they are, and eras tell them in other ways. */
function alike(direct, relayed) {
  if (direct.refused || direct.isError) return relayed.refused === true || relayed.isError === true;
  assert.deepEqual(relayed, direct);
  return true;
}

const direct = await connect(new StdioClientTransport({ command, args, stderr: 'ignore' }));
const relayed = await connect(new StreamableHTTPClientTransport(new URL(url)), options);
assert.equal(relayed.getNegotiatedProtocolVersion(), lifecycle);

const names = async (client) => (await client.listTools()).tools.map((tool) => tool.name).sort();
const own = await names(direct);
// Tools that need what this client does not declare are offered by Longshore, whose callers may declare it.
const there = (await names(relayed)).filter((tool) => own.includes(tool.slice(name.length + 2)));
assert.deepEqual(there, own.map((tool) => `${name}__${tool}`));

let calls = 0;
for (const [tool, given] of CALLS[name]) {
  if (!own.includes(tool)) continue;
  const [one, other] = [await outcome(direct, tool, given), await outcome(relayed, `${name}__${tool}`, given)];
  assert.ok(alike(one, other), `${tool} ${JSON.stringify(given)}: ${JSON.stringify(one)} and ${JSON.stringify(other)}`);
  calls += 1;
}
for (const [tool, given] of CHANGES[name] ?? []) {
  const other = await outcome(relayed, `${name}__${tool}`, given);
  assert.ok(!other.refused && !other.isError, `${tool}: ${JSON.stringify(other)}`);
  calls += 1;
}

let more = 0;
const has = direct.getServerCapabilities() ?? {};
if (has.resources) {
  const uris = (list) => list.resources.map((resource) => resource.uri).sort();
  const mine = uris(await direct.listResources());
  assert.deepEqual(uris(await relayed.listResources()), mine);
  if (mine.length > 0) {
    const [one, other] = await Promise.all([direct, relayed].map((client) => client.readResource({ uri: mine[0] })));
    assert.deepEqual(other.contents, one.contents);
    more += 1;
  }
}
if (has.prompts) {
  const prompts = (await direct.listPrompts()).prompts;
  const through = (await relayed.listPrompts()).prompts.map((prompt) => prompt.name);
  assert.deepEqual(through, prompts.map((prompt) => `${name}__${prompt.name}`));
  const simple = prompts.find((prompt) => !(prompt.arguments ?? []).some((argument) => argument.required));
  if (simple) {
    const [one, other] = [
      await direct.getPrompt({ name: simple.name }),
      await relayed.getPrompt({ name: `${name}__${simple.name}` })
    ];
    assert.deepEqual(other.messages, one.messages);
    more += 1;
  }
}
await Promise.all([direct.close(), relayed.close()]);
console.log(`${own.length} tools, ${calls} calls, ${more} reads and prompts alike`);

// The client that the suite starts for each scenario: `client-driver.mjs URL`. It does with the commands of longshore what
// the scenario (MCP_CONFORMANCE_SCENARIO) wants from a client, and nothing by itself: no request to the server under URL
// is its own.
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const url = process.argv.at(-1);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const program = process.env.LONGSHORE_CONFORMANCE_PROGRAM;
const home = process.env.LONGSHORE_CONFORMANCE_HOME;
mkdirSync(home, { recursive: true });

/** How often one command may be made again after a login. */
const LOGINS_MAX = 3;

function longshore(args, input) {
  const env = { PATH: process.env.PATH, HOME: home, LONGSHORE_TOKENS: path.join(home, 'tokens') };
  if (context.client_secret) env.LONGSHORE_CLIENT_SECRET = context.client_secret;
  const done = spawnSync(program, args, { input: input ?? '', env, encoding: 'utf8', timeout: 30_000 });
  console.error(`$ longshore ${args.join(' ')}\n${done.stdout}${done.stderr}`);
  return { ok: done.status === 0, out: done.stdout ?? '', said: done.stderr ?? '' };
}

function login() {
  const args = ['login', url, '--timeout', '20', '--browser', path.join(HERE, 'client-browser.mjs')];
  args.push('--client-metadata', 'https://conformance-test.local/client-metadata.json');
  if (context.client_id) args.push('--client-id', context.client_id);
  const done = longshore(args);
  // A client secret is sent to a named issuer only. The suite does not name it; the refusal repeats the server's.
  const issuer = /--issuer/.test(done.said) && /"(https?:\/\/[^"]+)"/.exec(done.said)?.[1];
  return issuer ? longshore([...args, '--issuer', issuer]).ok : done.ok;
}

/** A command, after a login wherever it asks for one. */
function command(args, input) {
  let done = longshore(args, input);
  for (let logins = 0; !done.ok && /`longshore login/.test(done.said) && logins < LOGINS_MAX; logins++) {
    if (!login()) return done;
    done = longshore(args, input);
  }
  return done;
}

/** Scenarios whose servers send forms. The others are not told that they may. */
const ASKS = ['elicitation-sep1034-client-defaults', 'sep-2322-client-request-state'];

function call(name, args) {
  const answer = ASKS.includes(scenario) ? ['--answer', 'accept-defaults'] : [];
  return command(['call', url, name, '-', '--json', ...answer], JSON.stringify(args));
}

/** Arguments that a schema takes: each required property by its type. */
function argumentsFor(schema) {
  const samples = { number: 5, integer: 5, boolean: true, string: 'x', array: [], object: {}, null: null };
  const values = {};
  for (const name of schema?.required ?? []) {
    const type = [schema.properties?.[name]?.type ?? 'string'].flat()[0];
    values[name] = samples[type] ?? 'x';
  }
  return values;
}

const listed = command(['list', url, '--json']);
const all = listed.ok ? JSON.parse(listed.out) : {};
const tools = all.tools ?? [];
const results = [listed];
if (context.toolCalls) {
  for (const { name, arguments: values } of context.toolCalls) results.push(call(name, values));
} else if (scenario === 'json-schema-2020-12-preservation') {
  const focal = tools.find((tool) => tool.name !== 'json_schema_echo');
  results.push(call('json_schema_echo', { schema: focal?.inputSchema }));
} else if (scenario !== 'json-schema-ref-no-deref') {
  // That one only offers its tool.
  for (const tool of tools) results.push(call(tool.name, argumentsFor(tool.inputSchema)));
}
for (const { uri } of all.resources ?? []) results.push(command(['read', url, uri, '--json']));
for (const { name } of all.prompts ?? []) results.push(command(['prompt', url, name, '--json']));
process.exit(results.every((done) => done.ok) ? 0 : 1);

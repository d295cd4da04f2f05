// The client that the suite starts for each scenario: `client-driver.mjs URL`. It does with the commands of longshore what
// the scenario (MCP_CONFORMANCE_SCENARIO) wants from a client, and nothing by itself: no request to the server under URL
// is its own, except that it reads which issuer the server names, as the operator of a gateway would.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const server = process.argv.at(-1);
let url = server;
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

/** Settings of `upstreams.NAME.auth` for the scenarios of machines; the others log in as a person. */
const CREDENTIALS = {
  'auth/client-credentials-basic': ({ token_url }) => ({
    oauth: { token_url, client_id: context.client_id, client_secret: context.client_secret }
  }),
  'auth/client-credentials-jwt': ({ issuer, token_url }) => ({
    oauth: { token_url, client_id: context.client_id, client_key: { file: file('key.pem', context.private_key_pem), audience: issuer } }
  }),
  'auth/wif-jwt-bearer': ({ token_url }) => ({
    oauth: { token_url, client_id: context.client_id, assertion_file: file('assertion', context.valid_jwt) }
  }),
  'auth/enterprise-managed-authorization': ({ issuer, token_url }) => ({
    oauth: {
      token_url: context.idp_token_endpoint,
      client_id: context.idp_client_id,
      subject_token_file: file('id-token', context.idp_id_token),
      subject_token_type: 'urn:ietf:params:oauth:token-type:id_token',
      identity_assertion: { issuer, token_url, client_id: context.client_id, client_secret: context.client_secret }
    }
  })
};

function file(name, content) {
  const where = path.join(home, name);
  writeFileSync(where, content);
  return where;
}

/** The issuer that the server under URL names, and its token endpoint. */
async function issuerOfServer() {
  const at = new URL(server);
  const read = async (where) => (await fetch(where)).json();
  const resource = await read(new URL(`/.well-known/oauth-protected-resource${at.pathname}`, at));
  const issuer = resource.authorization_servers[0];
  const metadata = await read(new URL('/.well-known/oauth-authorization-server', issuer));
  return { issuer: metadata.issuer, token_url: metadata.token_endpoint };
}

const freePort = () =>
  new Promise((done) => {
    const listener = createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => done(port));
    });
  });

/** Starts a gateway in front of the server, with credentials of its own. The commands then talk to the gateway. */
async function startGateway(auth) {
  const port = await freePort();
  const config = { http: { host: '127.0.0.1', port }, upstreams: { server: { url: server, prefix: '', auth } } };
  const settings = file('gateway.json', JSON.stringify(config));
  const env = { PATH: process.env.PATH, HOME: home };
  const gateway = spawn(program, ['run', '--config', settings], { env, stdio: ['ignore', 'inherit', 'inherit'] });
  url = `http://127.0.0.1:${port}/mcp`;
  for (let times = 0; times < 100; times += 1) {
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    if (ready?.ok) break;
    await new Promise((done) => setTimeout(done, 100));
  }
  return gateway;
}

// Its name in the suite's version 0.1.
CREDENTIALS['auth/cross-app-access-complete-flow'] = CREDENTIALS['auth/enterprise-managed-authorization'];

const credentials = CREDENTIALS[scenario];
const gateway = credentials && (await startGateway(credentials(await issuerOfServer())));
process.on('exit', () => gateway?.kill());

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

// Clients × identity providers × lifecycles: who logs in, calls a tool, calls again when the token has ended, and gets a scope that was
// lacking.
//
//   node matrix.mjs SERVER [--python PYTHON] [--only TEXT] [--write README]
//
// SERVER is the program. Each column is a provider of shapes.mjs behind `auth.oauth.facade`, with a server of its own; in the first one,
// clients register with the provider itself. Each row is a client in a lifecycle. --only takes the rows and columns whose name contains a
// text. --write replaces the table in a file. The status is 1 if a step failed that is expected (`steps`).
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { shapes } from './shapes.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { python: { type: 'string' }, only: { type: 'string', default: '' }, write: { type: 'string' } }
});
const [program] = positionals;
const here = dirname(fileURLToPath(import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'longshore-matrix-'));
const all = ['sign-in', 'call', 'refresh', 'step-up'];

/** What runs each client: `at` has the URL, the issuer, the seconds that tokens live, and the groups of the user. */
const node = (file, ...rest) => [process.execPath, join(here, file), ...rest];
const python = (at, client, mode) => values.python && [values.python, '-W', 'ignore', join(here, 'drive.py'), client, at.url, at.seconds, mode];
const clients = [
  ['`@modelcontextprotocol/client`', '2025-11-25', (at) => node('drive.mjs', at.url, at.issuer, at.seconds, '2025-11-25', at.groups)],
  ['`@modelcontextprotocol/client`', '2026-07-28', (at) => node('drive.mjs', at.url, at.issuer, at.seconds, '2026-07-28', at.groups)],
  ['`mcp` (Python)', '2025-11-25', (at) => python(at, 'mcp', 'legacy')],
  ['`mcp` (Python)', '2026-07-28', (at) => python(at, 'mcp', '2026-07-28')],
  ['`fastmcp`', '2025-11-25', (at) => python(at, 'fastmcp', 'legacy')],
  ['`fastmcp`', '2026-07-28', (at) => python(at, 'fastmcp', '2026-07-28')],
  ['`mcp-remote`', '2025-06-18', (at) => node('remote.mjs', at.url, at.seconds)],
  ['`@modelcontextprotocol/inspector`', '2025-11-25', (at) => node('inspector.mjs', at.url, 'legacy'), all.slice(0, 2)],
  ['`@modelcontextprotocol/inspector`', '2026-07-28', (at) => node('inspector.mjs', at.url, 'modern'), all.slice(0, 2)],
  ['`longshore login`', '2025-11-25', (at) => node('own.mjs', program, at.url, at.seconds, 'legacy')],
  ['`longshore login`', '2026-07-28', (at) => node('own.mjs', program, at.url, at.seconds, 'modern')]
];
const columns = ['registers', ...Object.keys(shapes)];
const wanted = (name) => name.includes(values.only);
const anyColumn = columns.some(wanted);

async function freePort() {
  return new Promise((done) => {
    const listener = createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => done(port));
    });
  });
}

const started = new Set();
/** Starts a program; its output is in `log.text`. */
function start(command, log) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('LONGSHORE_') && name !== 'PORT'));
  const child = spawn(command[0], command.slice(1), { env, stdio: ['ignore', 'pipe', 'pipe'] });
  started.add(child);
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (part) => (log.text += part));
  const ended = new Promise((done) => child.on('close', done));
  ended.then(() => started.delete(child));
  return { child, ended };
}
process.on('exit', () => {
  for (const child of started) child.kill('SIGKILL');
  rmSync(scratch, { recursive: true, force: true });
});

async function answers(url) {
  for (let tries = 0; tries < 150; tries += 1) {
    if (await fetch(url).then((response) => response.ok, () => false)) return;
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`no response from ${url}`);
}

/** Runs one client; returns the steps that it printed, and what went wrong. */
async function drive([name, lifecycle, command, steps = all], column, at) {
  const arguments_ = command(at);
  if (!arguments_) return { skipped: true };
  const log = { text: '' };
  const { child, ended } = start(arguments_, log);
  const timer = setTimeout(() => child.kill('SIGKILL'), (Number(at.seconds) + 90) * 1000);
  await ended;
  clearTimeout(timer);
  const done = all.filter((step) => new RegExp(`^${step}: `, 'm').test(log.text));
  const failed = steps.filter((step) => !done.includes(step));
  console.log(`${failed.length ? 'FAIL' : 'PASS'} ${column} ${name.replaceAll('`', '')} ${lifecycle}: ${done.join(', ')}`);
  if (failed.length) console.log(log.text.replace(/^/gm, '    '));
  return { done, failed };
}

async function runColumn(column) {
  const [providerPort, port] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${port}`;
  const shape = shapes[column];
  const issuer = `http://127.0.0.1:${providerPort}${shape?.path ?? ''}`;
  const seconds = shape ? 60 : 10;
  const facade = shape && {
    provider: issuer,
    client_id: 'longshore',
    client_secret: 'only for this run',
    scopes: ['math'],
    access_seconds: seconds,
    ...shape.facade
  };
  // JSON is YAML.
  const config = {
    toolsets: ['demo'],
    http: { host: '127.0.0.1', port, public_url: url },
    auth: { oauth: { scopes: ['mcp'], leeway_seconds: 0, ...(facade ? { facade } : { issuer }) } },
    policy: { rules: [{ effect: 'allow' }, { effect: 'allow', tools: ['calculate'], requires: ['math'] }] }
  };
  const file = join(scratch, `${column}.yaml`);
  writeFileSync(file, JSON.stringify(config));
  const log = { text: '' };
  const own = [
    start(node('provider.mjs', String(providerPort), String(seconds), ...(shape ? [`${url}/oauth/callback`, column] : [])), log),
    start([program, 'run', '--config', file], log)
  ];
  try {
    await answers(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`);
    await answers(`${url}/readyz`);
    const at = { url: `${url}/mcp`, issuer: shape ? url : issuer, seconds: String(seconds), groups: (shape?.groups ?? []).join(',') };
    const rows = clients.map((client) =>
      anyColumn || wanted(`${client[0]} ${client[1]}`) ? drive(client, column, at) : { skipped: true }
    );
    return await Promise.all(rows);
  } catch (error) {
    console.log(`FAIL ${column}: ${error.message}\n${log.text}`);
    return clients.map(() => ({ done: [], failed: all }));
  } finally {
    for (const { child } of own) child.kill();
    await Promise.all(own.map(({ ended }) => ended));
  }
}

const run = columns.filter((column) => !anyColumn || wanted(column));
const results = new Map();
// Clients wait for the end of their tokens most of the time, so some columns run side by side.
const queue = [...run];
await Promise.all(
  [1, 2].map(async () => {
    for (let column = queue.shift(); column; column = queue.shift()) results.set(column, await runColumn(column));
  })
);
const cells = [...results.values()].flat().filter((cell) => !cell.skipped);
const failures = cells.filter((cell) => cell.failed.length).length;
console.log(`${cells.length - failures} passed, ${failures} failed, ${run.length * clients.length - cells.length} skipped`);
if (values.write) {
  const letters = { 'sign-in': 'L', call: 'C', refresh: 'R', 'step-up': 'S' };
  const head = `| Client | Lifecycle | ${run.join(' | ')} |\n|---|---|${run.map(() => '---').join('|')}|\n`;
  const body = clients.map(([name, lifecycle], i) => {
    const row = run.map((column) => results.get(column)[i].done?.map((step) => letters[step]).join(' ') || '-');
    return `| ${name} | ${lifecycle} | ${row.join(' | ')} |\n`;
  });
  const [begin, end] = ['<!-- matrix -->\n', '<!-- end of matrix -->'];
  const text = readFileSync(values.write, 'utf8');
  const [from, to] = [text.indexOf(begin) + begin.length, text.indexOf(end)];
  writeFileSync(values.write, `${text.slice(0, from)}\n${head}${body.join('')}\n${text.slice(to)}`);
}
process.exit(failures ? 1 : 0);

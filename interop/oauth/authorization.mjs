// The official conformance suite's scenarios for authorization servers, against the server that issues tokens in front of a provider
// (`auth.oauth.facade`). The client is public: with a secret, the suite does not send it if the server also accepts public clients.
//
//   node authorization.mjs PROGRAM SUITE NODE20
//
// SUITE is the folder where conformance/install.sh has installed the suite, NODE20 conformance/node20.mjs. The person in front of the
// browser follows the link that the suite prints. Prints a line for each scenario; the status is 1 if one failed.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { signIn } from './person.mjs';

const [program, suite, node20] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'longshore-authorization-'));
const started = [];
process.on('exit', () => {
  for (const child of started) child.kill('SIGKILL');
  rmSync(scratch, { recursive: true, force: true });
});

const freePort = () =>
  new Promise((done) => {
    const listener = createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => done(port));
    });
  });

/** Starts a program; `heard` gets all that it has written so far. */
function start(command, heard) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('LONGSHORE_') && name !== 'PORT'));
  const child = spawn(command[0], command.slice(1), { env, stdio: ['ignore', 'pipe', 'pipe'] });
  started.push(child);
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (part) => {
      text += part;
      heard?.(text);
    });
  }
  return new Promise((done) => child.on('close', (status) => done({ status, text })));
}

async function answers(url) {
  for (let tries = 0; tries < 150; tries += 1) {
    if (await fetch(url).then((response) => response.ok, () => false)) return;
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`no response from ${url}`);
}

const [providerPort, port] = [await freePort(), await freePort()];
const url = `http://127.0.0.1:${port}`;
const config = {
  toolsets: ['demo'],
  http: { host: '127.0.0.1', port, public_url: url },
  auth: {
    oauth: {
      scopes: ['mcp'],
      facade: {
        provider: `http://127.0.0.1:${providerPort}`,
        client_id: 'longshore',
        client_secret: 'only for this run',
        clients: [{ id: 'suite', redirect_uris: ['http://127.0.0.1/callback'] }]
      }
    }
  }
};
const file = join(scratch, 'longshore.yaml');
writeFileSync(file, JSON.stringify(config));
start([process.execPath, join(here, 'provider.mjs'), String(providerPort), '60', `${url}/oauth/callback`]);
start([program, 'run', '--config', file]);
await answers(`http://127.0.0.1:${providerPort}/.well-known/openid-configuration`);
await answers(`${url}/readyz`);

const callback = await freePort();
let opened;
const { status, text } = await start(
  [
    process.execPath, '--import', node20, join(suite, 'node_modules/conformance-0-2/dist/index.js'), 'authorization', '--url', url,
    '--client-id', 'suite', '--resource', `${url}/mcp`, '--port', String(callback)
  ],
  async (text) => {
    const link = /(http\S+response_type=code\S*)\s/.exec(text)?.[1];
    if (!link || opened) return;
    opened = link;
    const back = await signIn(link, `http://127.0.0.1:${callback}/callback`, 'suite');
    const page = await fetch(`http://127.0.0.1:${callback}/callback?${back}`);
    assert.equal(page.status, 200);
  }
);
const scenarios = [...text.matchAll(/^([✓✗]) (\S+): (.*)$/gm)];
for (const [, mark, name, counts] of scenarios) console.log(`${mark === '✓' ? 'PASS' : 'FAIL'} ${name} (${counts})`);
const good = status === 0 && scenarios.length === 2 && scenarios.every(([, mark]) => mark === '✓');
if (!good) console.log(text.replace(/^/gm, '    '));
process.exit(good ? 0 : 1);

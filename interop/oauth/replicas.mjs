// A thousand logins at three replicas of the authorization server (auth.oauth.facade), each request to another replica, while one
// replica after the other is killed (kill -9) and started again.
//
//   node replicas.mjs SERVER LOGINS [REDIS_URL]
//
// A login registers a client, agrees on the consent page, comes back from a provider in this process, redeems the code, calls a
// tool, refreshes, calls again, and uses the old code and the old refresh token a second time, which must be refused. Prints what
// was lost, and what was accepted that should not have been.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [server, logins, redis] = [process.argv[2], Number(process.argv[3] ?? 1000), process.argv[4]];
const PUBLIC = 'https://mcp.example.com';
const REPLICAS = 3;
const AT_ONCE = 24;
const encode = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

// --- The provider: every login succeeds ---

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const nonces = new Map();
const provider = http.createServer((request, answer) => {
  const url = new URL(request.url, 'http://127.0.0.1');
  const json = (value) => answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  const issuer = `http://127.0.0.1:${provider.address().port}`;
  if (url.pathname === '/.well-known/openid-configuration') {
    return json({ issuer, authorization_endpoint: `${issuer}/login`, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/keys` });
  }
  if (url.pathname === '/keys') return json({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: '1', alg: 'EdDSA' }] });
  let body = '';
  request.on('data', (part) => (body += part)).on('end', () => {
    const nonce = nonces.get(new URLSearchParams(body).get('code'));
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: issuer, aud: 'longshore', sub: 'alice', nonce, iat: now, exp: now + 60 };
    const message = `${encode({ alg: 'EdDSA', kid: '1', typ: 'JWT' })}.${encode(claims)}`;
    json({ id_token: `${message}.${sign(null, Buffer.from(message), privateKey).toString('base64url')}`, access_token: 'x', token_type: 'Bearer' });
  });
});
await new Promise((done) => provider.listen(0, '127.0.0.1', done));

// --- The replicas ---

const folder = mkdtempSync(join(tmpdir(), 'longshore-replicas-'));
const freePort = () =>
  new Promise((done) => {
    const listener = http.createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => done(port));
    });
  });
const replicas = [];
async function start(number) {
  const port = replicas[number]?.port ?? (await freePort());
  const settings = join(folder, `${number}.json`);
  writeFileSync(settings, JSON.stringify({
    toolsets: ['demo'],
    http: { host: '127.0.0.1', port, public_url: PUBLIC },
    seal: { keys: ['a key of these replicas, of thirty-two bytes and more'] },
    ...(redis ? { state: { url: redis, prefix: `interop-${process.pid}` } } : {}),
    auth: { oauth: { scopes: ['mcp'], facade: { provider: `http://127.0.0.1:${provider.address().port}`, client_id: 'longshore', client_secret: 'only here' } } }
  }));
  const child = spawn(server, ['run', '--config', settings], { stdio: 'ignore' });
  replicas[number] = { port, child, isUp: false };
  for (let times = 0; times < 200; times += 1) {
    const ready = await send(number, 'GET', '/readyz').catch(() => undefined);
    if (ready?.status === 200) break;
    await new Promise((done) => setTimeout(done, 50));
  }
  replicas[number].isUp = true;
}

function send(number, method, target, headers = {}, body = '') {
  return new Promise((done, failed) => {
    const request = http.request({ host: '127.0.0.1', port: replicas[number].port, method, path: target,
      headers: { host: 'mcp.example.com', 'content-length': Buffer.byteLength(body), ...headers } }, (response) => {
      let text = '';
      response.on('data', (part) => (text += part)).on('end', () => done({ status: response.statusCode, headers: response.headers, text }));
      response.on('error', failed);
    });
    request.on('error', failed);
    request.setTimeout(10_000, () => request.destroy(new Error('no response')));
    request.end(body);
  });
}

let turn = 0;
let retried = 0;
/** A request to the next replica, as a balancer sends it: one that does not respond is passed over. */
async function ask(method, target, headers, body) {
  for (let times = 0; times < 3 * REPLICAS; times += 1) {
    const number = (turn += 1) % REPLICAS;
    if (!replicas[number].isUp) continue;
    try {
      return await send(number, method, target, headers, body);
    } catch {
      retried += 1;
    }
  }
  throw new Error('no replica responds');
}

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const form = (fields) => new URLSearchParams(fields).toString();
const path = (url) => url.slice(PUBLIC.length);
const counts = { completed: 0, lost: 0, codes: 0, refreshed: 0, killed: 0 };

async function call(token) {
  const meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'interop', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': {} };
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'echo' };
  const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { message: 'hello' }, _meta: meta } };
  const answer = await ask('POST', '/mcp', headers, JSON.stringify(body));
  assert.equal(answer.status, 200, answer.text);
}

async function logIn() {
  const registered = await ask('POST', '/register', { 'content-type': 'application/json' },
    JSON.stringify({ client_name: 'interop', redirect_uris: ['http://127.0.0.1:9/callback'] }));
  const client_id = JSON.parse(registered.text).client_id;
  const code_verifier = randomBytes(32).toString('base64url');
  const asked = { response_type: 'code', client_id, redirect_uri: 'http://127.0.0.1:9/callback', state: 's', code_challenge_method: 'S256',
    code_challenge: createHash('sha256').update(code_verifier).digest('base64url') };
  const page = await ask('GET', `/authorize?${form(asked)}`);
  assert.equal(page.status, 200, page.text);
  const cookie = page.headers['set-cookie'][0].split(';')[0];
  const consent = /name=form value="([^"]+)"/.exec(page.text)[1];
  const agreed = await ask('POST', '/oauth/consent', { ...FORM, cookie }, form({ form: consent, decision: 'allow' }));
  assert.equal(agreed.status, 303, agreed.text);
  const login = new URL(agreed.headers.location).searchParams;
  const code = randomBytes(8).toString('hex');
  nonces.set(code, login.get('nonce'));
  const back = await ask('GET', `/oauth/callback?${form({ code, state: login.get('state') })}`, { cookie });
  nonces.delete(code);
  const granted = new URL(back.headers.location).searchParams.get('code');
  assert.ok(granted, `${back.status} ${back.headers.location}`);
  const redeem = { grant_type: 'authorization_code', client_id, code: granted, code_verifier, redirect_uri: 'http://127.0.0.1:9/callback' };
  const token = async (fields) => {
    const answer = await ask('POST', '/token', FORM, form(fields));
    return { status: answer.status, ...JSON.parse(answer.text) };
  };
  const first = await token(redeem);
  assert.equal(first.status, 200, first.error_description);
  await call(first.access_token);
  const second = await token({ grant_type: 'refresh_token', client_id, refresh_token: first.refresh_token });
  assert.equal(second.status, 200, second.error_description);
  await call(second.access_token);
  counts.completed += 1;
  // A second use of the code ends the login.
  const again = await token(redeem);
  if (again.status === 200) counts.codes += 1;
  else {
    const ended = await token({ grant_type: 'refresh_token', client_id, refresh_token: second.refresh_token });
    if (ended.status === 200) counts.refreshed += 1;
  }
}

await Promise.all(Array.from({ length: REPLICAS }, (_, number) => start(number)));
const began = performance.now();
let next = 0;
let isOver = false;
const killing = (async () => {
  for (let number = 0; !isOver; number = (number + 1) % REPLICAS) {
    await new Promise((done) => setTimeout(done, 3000));
    if (isOver) return;
    replicas[number].isUp = false;
    replicas[number].child.kill('SIGKILL');
    counts.killed += 1;
    await new Promise((done) => setTimeout(done, 500));
    await start(number);
  }
})();
const failures = new Map();
await Promise.all(Array.from({ length: AT_ONCE }, async () => {
  while (next < logins) {
    next += 1;
    try {
      await logIn();
    } catch (error) {
      counts.lost += 1;
      const text = String(error.message).replaceAll(/\s+/g, ' ').slice(0, 120);
      failures.set(text, (failures.get(text) ?? 0) + 1);
    }
  }
}));
isOver = true;
const seconds = (performance.now() - began) / 1000;
await killing;
for (const { child } of replicas) child.kill();
provider.close();
console.log(`${redis ? 'shared state' : 'no shared state'}: ${counts.completed} of ${logins} logins completed in ${seconds.toFixed(1)} s, ${counts.lost} lost; `
  + `${counts.killed} times a replica was killed, ${retried} requests were sent to another one`);
console.log(`used twice and accepted: ${counts.codes} codes, ${counts.refreshed} refresh tokens of a login that a second use had ended`);
for (const [text, times] of failures) console.log(`  ${times} x ${text}`);
// A replica that is killed between recording a code and its response loses that login; 24 logins run concurrently.
process.exit(counts.lost > counts.killed || (redis && counts.codes + counts.refreshed) ? 1 : 0);

// mcp-remote, the proxy with which clients of stdio reach remote servers, logs in, calls a tool, again when its token has ended, and one
// with a scope that it lacked.
//
//   node remote.mjs URL SECONDS
//
// SECONDS is how long access tokens live. Prints a line for each step. The person in front of the browser follows the link that mcp-remote writes.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { signIn } from './person.mjs';

const [url, seconds] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), 'longshore-remote-'));
const program = join(dirname(createRequire(import.meta.url).resolve('mcp-remote/package.json')), 'dist', 'proxy.js');
// No browser of this machine is to be opened.
const child = spawn(process.execPath, [program, url, '--allow-http', '--host', '127.0.0.1'], {
  env: { PATH: process.env.PATH, HOME: home, MCP_REMOTE_CONFIG_DIR: home, BROWSER: '/bin/true', DISPLAY: '' },
  stdio: ['pipe', 'pipe', 'pipe']
});
process.on('exit', () => child.kill());
const answers = new Map();
let out = '';
child.stdout.setEncoding('utf8').on('data', (part) => {
  out += part;
  for (let end = out.indexOf('\n'); end >= 0; end = out.indexOf('\n')) {
    const line = out.slice(0, end);
    out = out.slice(end + 1);
    try {
      const message = JSON.parse(line);
      answers.get(message.id)?.(message);
    } catch { /* not a message */ }
  }
});
let said = '';
let logins = 0;
child.stderr.setEncoding('utf8').on('data', async (part) => {
  said += part;
  const link = [...said.matchAll(/visiting:\s+(http\S+)\s/g)][logins]?.[1];
  if (!link) return;
  logins += 1;
  const redirect = new URL(link).searchParams.get('redirect_uri');
  const back = await signIn(link, redirect, 'MCP CLI Proxy');
  // mcp-remote may write the link before it listens; a person would take longer.
  let page;
  for (let tries = 0; !page; tries += 1) {
    page = await fetch(`${redirect}?${back}`).catch(async (error) => {
      if (tries === 50) throw error;
      await new Promise((done) => setTimeout(done, 100));
    });
  }
  assert.equal(page.status, 200, await page.text());
});
const ask = (id, method, params) =>
  new Promise((done, failed) => {
    answers.set(id, done);
    setTimeout(() => failed(new Error(`no response to ${method}: ${said}`)), 30_000).unref();
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
  });
const about = await ask(1, 'initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'interop', version: '1' } });
assert.ok(about.result, JSON.stringify(about));
assert.equal(logins, 1, 'one login');
console.log('sign-in: mcp-remote registered itself, and the person agreed and logged in');
child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })}\n`);
const answer = await ask(2, 'tools/call', { name: 'echo', arguments: { message: 'hello' } });
assert.equal(answer.result.content[0].text, 'hello');
console.log('call: answered');
await new Promise((done) => setTimeout(done, (Number(seconds) + 3) * 1000));
const later = await ask(3, 'tools/call', { name: 'echo', arguments: { message: 'hello' } });
assert.equal(later.result?.content[0].text, 'hello', JSON.stringify(later));
assert.equal(logins, 1, 'the person did not have to sign in again');
console.log('refresh: answered with another token');
const more = await ask(4, 'tools/call', { name: 'calculate', arguments: { operation: 'add', a: 19, b: 23 } });
assert.match(more.result?.content[0].text ?? JSON.stringify(more), /42/, said);
assert.equal(logins, 2, 'one more login, for the scope');
console.log('step-up: answered after a login with the scope that was lacking');
process.exit(0);

// Inspector's command line registers, has a person sign in, and calls a tool.
//
//   node inspector.mjs URL (legacy | modern)
//
// Prints a line for each step. The person in front of the browser follows the link that Inspector opens.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { signIn } from './person.mjs';

const [url, era] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), 'longshore-inspector-'));
const installed = dirname(createRequire(import.meta.url).resolve('@modelcontextprotocol/inspector/package.json'));
// The browser that Inspector opens does nothing: the person follows the link that Inspector also prints.
const browser = join(home, 'xdg-open');
writeFileSync(browser, '#!/bin/sh\n');
chmodSync(browser, 0o755);
const port = await new Promise((done) => {
  const listener = createServer().listen(0, '127.0.0.1', () => {
    const { port } = listener.address();
    listener.close(() => done(port));
  });
});
const redirect = `http://127.0.0.1:${port}/oauth/callback`;
const child = spawn(
  process.execPath,
  [
    join(installed, 'clients/launcher/build/index.js'), '--cli', '--protocol-era', era, '--server-url', url, '--callback-url', redirect,
    '--method', 'tools/call', '--tool-name', 'echo', '--tool-arg', 'message=hello', '--format', 'json'
  ],
  {
    env: { PATH: `${home}:${process.env.PATH}`, HOME: home, MCP_AUTO_OPEN_ENABLED: 'true', MCP_INSPECTOR_SECRET_STORE: 'memory' },
    stdio: ['ignore', 'pipe', 'pipe']
  }
);
process.on('exit', () => child.kill());
let out = '';
let said = '';
let logins = 0;
child.stdout.setEncoding('utf8').on('data', (part) => (out += part));
child.stderr.setEncoding('utf8').on('data', async (part) => {
  said += part;
  const link = /navigate to:\s+(http\S+)\n/.exec(said)?.[1];
  if (!link || logins) return;
  logins += 1;
  const back = await signIn(link, redirect, 'MCP Inspector');
  const page = await fetch(`${redirect}?${back}`);
  assert.equal(page.status, 200, await page.text());
});
const status = await new Promise((done) => child.on('close', done));
assert.equal(status, 0, said);
assert.equal(logins, 1, 'one login');
console.log('sign-in: Inspector registered itself, and the person agreed and logged in');
assert.equal(JSON.parse(out).result.content[0].text, 'hello', out);
console.log('call: answered');

// `longshore login` and `longshore call`: a login, a call, one when the token has ended, and one with a scope that was lacking.
//
//   node own.mjs PROGRAM URL SECONDS (legacy | modern)
//
// SECONDS is how long access tokens live. Prints a line for each step.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { signIn } from './person.mjs';

const [program, url, seconds, protocol] = process.argv.slice(2);
const tokens = mkdtempSync(join(tmpdir(), 'longshore-own-'));
const env = { PATH: process.env.PATH, HOME: tokens, LONGSHORE_TOKENS: tokens };

/** Runs the program; `heard` gets all that it has written to standard error so far. */
async function run(arguments_, heard = () => {}) {
  const child = spawn(program, arguments_, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, said] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (part) => {
    out += part;
    heard(out + said);
  });
  child.stderr.setEncoding('utf8').on('data', (part) => {
    said += part;
    heard(out + said);
  });
  const status = await new Promise((done) => child.on('close', done));
  return { status, out, said };
}

async function login(...more) {
  let opened;
  const { status, out, said } = await run(['login', url, '--no-browser', '--allow-network', '127.0.0.0/8', ...more], async (text) => {
    const link = /(http\S+response_type=code\S*)\s/.exec(text)?.[1];
    if (!link || opened) return;
    opened = new URL(link).searchParams.get('redirect_uri');
    const back = await signIn(link, opened, 'Longshore');
    const page = await fetch(`${opened}?${back}`);
    assert.equal(page.status, 200, await page.text());
  });
  assert.equal(status, 0, out + said);
}

async function call(...arguments_) {
  return run(['call', '--json', '--protocol', protocol, url, ...arguments_]);
}

const text = ({ out, said }) => {
  assert.ok(out.startsWith('{'), out + said);
  return JSON.parse(out).content[0].text;
};

await login();
console.log('sign-in: the program registered itself, and the person agreed and logged in');
assert.equal(text(await call('echo', 'message=hello')), 'hello');
console.log('call: answered');
await new Promise((done) => setTimeout(done, (Number(seconds) + 3) * 1000));
assert.equal(text(await call('echo', 'message=hello')), 'hello');
console.log('refresh: answered with another token');
const refused = await call('calculate', 'operation=add', 'a=19', 'b=23');
assert.notEqual(refused.status, 0, refused.out);
assert.match(refused.said, /math/);
await login('--scope', 'mcp', '--scope', 'math');
assert.match(text(await call('calculate', 'operation=add', 'a=19', 'b=23')), /42/);
console.log('step-up: the error named the scope that was lacking, and a login with it admits the call');

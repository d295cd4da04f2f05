// What the legs of the server and of the client share: starting the suite, and the lists of known failures.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));

/** Runs the suite's command line; resolves with its output, never rejects. */
export function suite(opt, run, args, timeoutMs, env = process.env) {
  const cli = path.join(opt.install, 'node_modules', run.pkg, 'dist', 'index.js');
  const preload = path.join(HERE, 'node20.mjs');
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['--import', preload, cli, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env
    });
    let out = '';
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill('SIGKILL');
    }, timeoutMs);
    child.stdout.on('data', (chunk) => (out += chunk));
    child.stderr.on('data', (chunk) => (out += chunk));
    const done = (code) => {
      clearTimeout(timer);
      resolve({ code, out, timedOut });
    };
    child.on('error', (error) => {
      out += String(error);
      done(-1);
    });
    child.on('close', done);
  });
}

/** "RUN SCENARIO" -> the checks listed for it; none listed means the whole scenario. */
export function readKnown(file) {
  const known = new Map();
  if (!file) return known;
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    const [run, scenario, check] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (!scenario) continue;
    const key = `${run} ${scenario}`;
    if (!known.has(key)) known.set(key, new Set());
    if (check) known.get(key).add(check);
  }
  return known;
}

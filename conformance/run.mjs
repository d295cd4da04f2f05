// Drives the installed conformance suite and condenses its results; see run.sh.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readKnown, suite } from './suite.mjs';

// One run = one version of the suite at one revision of the specification.
// `extension` holds the scenarios of optional extensions, which belong to no
// revision and have to be asked for by name.
const RUNS = [
  { id: '0.1@2025-11-25', pkg: 'conformance-0-1', spec: '2025-11-25' },
  { id: '0.2@2025-03-26', pkg: 'conformance-0-2', spec: '2025-03-26' },
  { id: '0.2@2025-06-18', pkg: 'conformance-0-2', spec: '2025-06-18' },
  { id: '0.2@2025-11-25', pkg: 'conformance-0-2', spec: '2025-11-25' },
  { id: '0.2@2026-07-28', pkg: 'conformance-0-2', spec: '2026-07-28' },
  { id: '0.2@extension', pkg: 'conformance-0-2', spec: 'extension' }
];
const SCENARIO_MS = 30_000;

function fail(message) {
  console.error(`run.sh: ${message}`);
  process.exit(2);
}

function parseArgs(argv) {
  const opt = { scenarios: [], runs: null, extensions: true };
  const rest = [...argv];
  const value = (name) => rest.shift() ?? fail(`${name} needs a value`);
  while (rest.length) {
    const arg = rest.shift();
    if (arg === '--install') opt.install = value(arg);
    else if (arg === '--no-extensions') opt.extensions = false;
    else if (arg === '--runs') opt.runs = value(arg).split(',');
    else if (arg === '--known') opt.known = value(arg);
    else if (arg === '--json') opt.json = value(arg);
    else if (arg === '--list-runs') {
      for (const run of RUNS) console.log(run.id);
      process.exit(0);
    } else if (arg.startsWith('-')) fail(`unknown option ${arg}`);
    else if (!opt.url) opt.url = arg;
    else opt.scenarios.push(arg);
  }
  if (!opt.url) fail('usage: run.sh [options] URL [SCENARIO...]');
  try {
    opt.url = new URL(opt.url).href;
  } catch {
    fail(`not a URL: ${opt.url}`);
  }
  for (const id of opt.runs ?? []) {
    if (!RUNS.some((run) => run.id === id)) fail(`unknown run ${id}; see --list-runs`);
  }
  return opt;
}

async function scenariosOf(opt, run) {
  const spec = run.spec === 'extension' ? [] : ['--spec-version', run.spec];
  const { out, code } = await suite(opt, run, ['list', '--server', ...spec], SCENARIO_MS);
  if (code !== 0) fail(`the suite does not start:\n${out.slice(-2000)}`);
  const found = [...out.matchAll(/^ {2}- (\S+) \[(.*)\]$/gm)];
  const names = found
    .filter(([, , tag]) => (tag === 'extension') === (run.spec === 'extension'))
    .map(([, name]) => name);
  if (names.length === 0) fail(`the suite lists no scenario for ${run.id}`);
  return names;
}

/** Result folders are named server-SCENARIO-TIME; returns SCENARIO -> checks. */
function readResults(dir) {
  const results = new Map();
  for (const entry of readdirSync(dir)) {
    const match = /^(?:server-)?(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$/.exec(entry);
    if (!match) continue;
    try {
      results.set(match[1], JSON.parse(readFileSync(path.join(dir, entry, 'checks.json'), 'utf8')));
    } catch {
      // No or unreadable checks.json: the scenario did not finish.
    }
  }
  return results;
}

async function execute(opt, run, names) {
  const dir = mkdtempSync(path.join(tmpdir(), 'mcp-conformance-'));
  try {
    const common = ['server', '--url', opt.url, '-o', dir];
    const limit = run.pkg === 'conformance-0-2' ? ['--timeout', String(SCENARIO_MS)] : [];
    let log = '';
    if (run.spec === 'extension' || opt.scenarios.length > 0) {
      // 0.1 has no --spec-version for a single scenario: it only filters lists.
      const spec =
        run.spec === 'extension' || run.pkg === 'conformance-0-1' ? [] : ['--spec-version', run.spec];
      for (const name of names) {
        const args = [...common, ...limit, ...spec, '--scenario', name];
        log += (await suite(opt, run, args, 2 * SCENARIO_MS)).out;
      }
    } else {
      const args = [...common, ...limit, '--suite', 'all', '--spec-version', run.spec];
      log = (await suite(opt, run, args, names.length * SCENARIO_MS)).out;
    }
    return { results: readResults(dir), log };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** `expected` is the set of checks that are known to fail in this scenario. */
function judge(checks, expected) {
  if (!checks) return { verdict: 'FAIL', failures: ['no result: the scenario crashed or hung'], known: [], ok: 0, warnings: [] };
  const of = (status) => checks.filter((c) => c.status === status);
  const say = (c) => `${c.id}: ${c.errorMessage ?? c.description ?? ''}`.replace(/\s+/g, ' ').slice(0, 400);
  const failed = of('FAILURE');
  const known = failed.filter((c) => expected.has(c.id)).map(say);
  const failures = failed.filter((c) => !expected.has(c.id)).map(say);
  for (const id of expected) {
    if (!failed.some((c) => c.id === id)) failures.push(`${id}: passes, but is listed as a known failure`);
  }
  const warnings = of('WARNING').map(say);
  const ok = of('SUCCESS').filter((c) => c.id !== 'wire-schema-valid').length;
  let verdict = 'PASS';
  if (failures.length) verdict = 'FAIL';
  // Nothing asserted: every check was skipped or informational.
  else if (ok === 0 && warnings.length === 0) verdict = 'SKIP';
  return { verdict, failures, known, ok, warnings };
}

const opt = parseArgs(process.argv.slice(2));
const known = readKnown(opt.known);
try {
  await fetch(opt.url, { method: 'OPTIONS', signal: AbortSignal.timeout(5000) });
} catch (error) {
  fail(`no server answers at ${opt.url} (${error.cause?.code ?? error.name})`);
}

const report = [];
const count = { PASS: 0, FAIL: 0, SKIP: 0 };
let matched = 0;
for (const run of RUNS) {
  if (opt.runs && !opt.runs.includes(run.id)) continue;
  if (run.spec === 'extension' && !opt.extensions) continue;
  let names = await scenariosOf(opt, run);
  if (opt.scenarios.length) names = names.filter((name) => opt.scenarios.includes(name));
  if (names.length === 0) continue;
  matched += names.length;
  const { results, log } = await execute(opt, run, names);
  for (const name of names) {
    const listed = known.get(`${run.id} ${name}`);
    const result = judge(results.get(name), listed ?? new Set());
    let label = result.verdict;
    if (listed?.size === 0) {
      if (result.verdict === 'FAIL') label = 'KNOWN';
      else if (result.verdict === 'PASS') {
        label = 'FAIL';
        result.failures.push('passes, but is listed as a known failure');
      }
    }
    count[label === 'KNOWN' ? 'SKIP' : label]++;
    const extra = result.warnings.length ? `, ${result.warnings.length} warnings` : '';
    console.log(`${label.padEnd(5)} ${run.id} ${name} (${result.ok} checks ok${extra})`);
    if (label === 'FAIL') for (const text of result.failures) console.log(`      - ${text}`);
    for (const text of result.known) console.log(`      = ${text}`);
    for (const text of result.warnings) console.log(`      ~ ${text}`);
    report.push({ run: run.id, scenario: name, label, ...result });
  }
  if (results.size === 0) console.error(log.slice(-2000));
}
if (opt.json) writeFileSync(opt.json, JSON.stringify(report, null, 2) + '\n');
if (matched === 0) fail('no scenario of that name');
console.log(`${count.PASS} passed, ${count.FAIL} failed, ${count.SKIP} skipped`);
process.exit(count.FAIL ? 1 : 0);

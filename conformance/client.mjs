// Drives the client leg of the installed conformance suite and condenses its results; see client.sh.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { readKnown, suite } from './suite.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));

// One run = one version of the suite at one revision of the specification. 0.1 has one wire format for all revisions, so
// its scenarios of 2025-06-18 are those of 2025-11-25 and run once.
const RUNS = [
  { id: '0.1@2025-03-26', pkg: 'conformance-0-1', spec: '2025-03-26' },
  { id: '0.1@2025-11-25', pkg: 'conformance-0-1', spec: '2025-11-25' },
  { id: '0.1@draft', pkg: 'conformance-0-1', spec: 'draft' },
  { id: '0.1@extension', pkg: 'conformance-0-1', spec: 'extension' },
  { id: '0.2@2025-03-26', pkg: 'conformance-0-2', spec: '2025-03-26' },
  { id: '0.2@2025-06-18', pkg: 'conformance-0-2', spec: '2025-06-18' },
  { id: '0.2@2025-11-25', pkg: 'conformance-0-2', spec: '2025-11-25' },
  { id: '0.2@2026-07-28', pkg: 'conformance-0-2', spec: '2026-07-28' },
  { id: '0.2@extension', pkg: 'conformance-0-2', spec: 'extension' }
];
const SCENARIO_MS = 60_000;

function fail(message) {
  console.error(`client.sh: ${message}`);
  process.exit(2);
}

function parseArgs(argv) {
  const opt = { scenarios: [], runs: null, jobs: 4 };
  const rest = [...argv];
  const value = (name) => rest.shift() ?? fail(`${name} needs a value`);
  while (rest.length) {
    const arg = rest.shift();
    if (arg === '--install') opt.install = value(arg);
    else if (arg === '--program') opt.program = value(arg);
    else if (arg === '--runs') opt.runs = value(arg).split(',');
    else if (arg === '--known') opt.known = value(arg);
    else if (arg === '--json') opt.json = value(arg);
    else if (arg === '--jobs') opt.jobs = Math.max(1, Number(value(arg)) || 1);
    else if (arg === '--verbose') opt.verbose = true;
    else if (arg === '--list-runs') {
      for (const run of RUNS) console.log(run.id);
      process.exit(0);
    } else if (arg.startsWith('-')) fail(`unknown option ${arg}`);
    else opt.scenarios.push(arg);
  }
  for (const id of opt.runs ?? []) {
    if (!RUNS.some((run) => run.id === id)) fail(`unknown run ${id}; see --list-runs`);
  }
  return opt;
}

async function scenariosOf(opt, run) {
  const spec = run.spec === 'extension' ? [] : ['--spec-version', run.spec];
  const { out, code } = await suite(opt, run, ['list', '--client', ...spec], SCENARIO_MS);
  if (code !== 0) fail(`the suite does not start:\n${out.slice(-2000)}`);
  const found = [...out.matchAll(/^ {2}- (\S+) \[(.*)\]$/gm)];
  return found
    .filter(([, , tag]) => (tag === 'extension') === (run.spec === 'extension'))
    .map(([, name]) => name);
}

/** The checks.json below a folder; `null` if the scenario did not finish. */
function readChecks(dir) {
  const file = readdirSync(dir, { recursive: true }).find((name) => path.basename(name) === 'checks.json');
  if (!file) return null;
  try {
    return JSON.parse(readFileSync(path.join(dir, file), 'utf8'));
  } catch {
    return null;
  }
}

/** Runs one scenario; the verdict is the suite's own, in which a warning counts as a failure. */
async function execute(opt, run, name) {
  const dir = mkdtempSync(path.join(tmpdir(), 'mcp-conformance-client-'));
  try {
    const spec = run.spec === 'extension' || run.pkg === 'conformance-0-1' ? [] : ['--spec-version', run.spec];
    const command = `${process.execPath} ${path.join(HERE, 'client-driver.mjs')}`;
    const args = ['client', '--command', command, '--scenario', name, '-o', dir];
    const env = {
      ...process.env,
      LONGSHORE_CONFORMANCE_PROGRAM: opt.program,
      LONGSHORE_CONFORMANCE_HOME: path.join(dir, 'home')
    };
    const { code, out } = await suite(
      opt,
      run,
      [...args, '--timeout', String(SCENARIO_MS), ...spec],
      SCENARIO_MS + 15_000,
      env
    );
    const checks = readChecks(dir);
    if (!checks) return { verdict: 'FAIL', ok: 0, problems: ['no result: the scenario crashed or hung'], out };
    const of = (...states) => checks.filter((check) => states.includes(check.status));
    const problems = of('FAILURE', 'WARNING').map((check) =>
      `${check.id}: ${check.errorMessage ?? check.description ?? ''}`.replace(/\s+/g, ' ').slice(0, 400)
    );
    const ok = of('SUCCESS').filter((check) => check.id !== 'wire-schema-valid').length;
    if (code !== 0 && problems.length === 0) problems.push('the client ended with an error');
    const verdict = code !== 0 ? 'FAIL' : ok === 0 ? 'SKIP' : 'PASS';
    return { verdict, ok, problems: code !== 0 ? problems : [], out };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const opt = parseArgs(process.argv.slice(2));
const known = readKnown(opt.known);
const queue = [];
for (const run of RUNS) {
  if (opt.runs && !opt.runs.includes(run.id)) continue;
  for (const name of await scenariosOf(opt, run)) {
    if (opt.scenarios.length === 0 || opt.scenarios.includes(name)) queue.push({ run, name });
  }
}
if (queue.length === 0) fail('no scenario of that name');

const count = { PASS: 0, FAIL: 0, SKIP: 0 };
const results = [];
const workers = Array.from({ length: opt.jobs }, async () => {
  for (let task = queue.shift(); task; task = queue.shift()) {
    const { run, name } = task;
    const result = await execute(opt, run, name);
    const isListed = known.has(`${run.id} ${name}`);
    let label = result.verdict;
    if (isListed && label === 'FAIL') label = 'KNOWN';
    else if (isListed && label === 'PASS') {
      label = 'FAIL';
      result.problems.push('passes, but is listed as a known failure');
    }
    count[label === 'KNOWN' ? 'SKIP' : label]++;
    console.log(`${label.padEnd(5)} ${run.id} ${name} (${result.ok} checks ok)`);
    if (label === 'FAIL') for (const text of result.problems) console.log(`      - ${text}`);
    if (opt.verbose && label === 'FAIL') console.log(result.out.replace(/^/gm, '      | '));
    results.push({ run: run.id, scenario: name, label, ok: result.ok, problems: result.problems });
  }
});
await Promise.all(workers);
if (opt.json) writeFileSync(opt.json, JSON.stringify(results, null, 2) + '\n');
console.log(`${count.PASS} passed, ${count.FAIL} failed, ${count.SKIP} skipped`);
process.exit(count.FAIL ? 1 : 0);

// Inspector's command line: one process for each call, as a person types it.
//
//   node inspector.mjs LIFECYCLE http URL
//   node inspector.mjs LIFECYCLE stdio COMMAND...
//
// LIFECYCLE is `default` (no option: sessions), or one of Inspector's
// own words `auto` and `modern`.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { main } from './check.mjs';

const LAUNCHER = path.join(
  import.meta.dirname,
  'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js'
);

await main(async ([lifecycle, kind, target, ...args]) => {
  // Inspector keeps state below the home folder: give it one of its own.
  const home = mkdtempSync(path.join(tmpdir(), 'longshore-inspector-'));
  try {
    const server = ['--server-url', target];
    if (kind === 'stdio') {
      const config = path.join(home, 'mcp.json');
      writeFileSync(config, JSON.stringify({ mcpServers: { longshore: { command: target, args } } }));
      server.splice(0, 2, '--config', config, '--server', 'longshore');
    }
    const told = lifecycle === 'default' ? [] : ['--protocol-era', lifecycle];
    /** Runs one command; Inspector prints the result also when a tool failed. */
    const inspect = (...rest) =>
      new Promise((resolve, reject) => {
        const argv = [LAUNCHER, '--cli', ...server, ...told, '--format', 'json', ...rest];
        const env = { ...process.env, HOME: home };
        execFile(process.execPath, argv, { env }, (error, stdout, stderr) => {
          try {
            resolve({ ...JSON.parse(stdout), status: error?.code ?? 0 });
          } catch {
            reject(new Error(`inspector ${rest.join(' ')}: ${stderr || stdout || error}`));
          }
        });
      });

    const { protocolVersion } = (await inspect('--method', 'initialize')).result;
    assert.equal(protocolVersion, lifecycle === 'default' ? '2025-11-25' : '2026-07-28');

    const { tools } = (await inspect('--method', 'tools/list')).result;
    const names = tools.map((tool) => tool.name);
    for (const name of ['echo', 'test_error_handling']) assert.ok(names.includes(name), `${name} is not among ${names}`);

    const call = ['--method', 'tools/call', '--tool-name'];
    const echo = await inspect(...call, 'echo', '--tool-arg', 'message=hello');
    assert.equal(echo.status, 0);
    assert.equal(echo.result.content[0].text, 'hello');
    const fail = await inspect(...call, 'test_error_handling');
    assert.equal(fail.result.isError, true, 'test_error_handling does not answer isError');
    assert.equal(fail.status, 5, 'the status that Inspector gives to a tool that failed');
    const read = await inspect('--method', 'resources/read', '--uri', 'test://static-text');
    assert.equal(read.result.contents[0].text, 'This is the content of the static text resource.');
    const got = await inspect('--method', 'prompts/get', '--prompt-name', 'test_simple_prompt');
    assert.equal(got.result.messages[0].content.text, 'This is a simple prompt for testing.');
    const { resourceTemplates } = (await inspect('--method', 'resources/templates/list')).result;
    assert.ok(resourceTemplates.some((template) => template.uriTemplate === 'test://template/{id}/data'));
    const { prompts } = (await inspect('--method', 'prompts/list')).result;
    assert.ok(prompts.length >= 5);
    return [protocolVersion, `${names.length} tools`, 'call', 'read', 'templates', 'get'];
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});

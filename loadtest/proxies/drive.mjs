// Calls `echo` of one server over and over, and prints the durations as JSON. Reads JSON and event streams,
// since proxies respond with either.
//
//   node drive.mjs URL CONNECTIONS SECONDS
import http from 'node:http';

const [url, connections, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const agent = new http.Agent({ keepAlive: true, maxSockets: connections });

function post(message, session) {
  const body = JSON.stringify(message);
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'content-length': Buffer.byteLength(body)
  };
  if (session) headers['mcp-session-id'] = session;
  if (session) headers['mcp-protocol-version'] = '2025-06-18';
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method: 'POST', agent, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => { text += chunk; });
      response.on('end', () => resolve({ response, text }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** The message with an id in an answer of either kind. */
function answer({ response, text }, id) {
  const kind = response.headers['content-type'] ?? '';
  const messages = kind.startsWith('text/event-stream')
    ? text.split('\n').filter((line) => line.startsWith('data: ') && line.length > 6).map((line) => JSON.parse(line.slice(6)))
    : [JSON.parse(text)];
  const found = messages.find((message) => message.id === id);
  if (!found?.result) throw new Error(`HTTP ${response.statusCode}: ${text.slice(0, 300)}`);
  return found.result;
}

async function session() {
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'drive', version: '1' } };
  const begun = await post({ jsonrpc: '2.0', id: 1, method: 'initialize', params });
  answer(begun, 1);
  const id = begun.response.headers['mcp-session-id'];
  await post({ jsonrpc: '2.0', method: 'notifications/initialized' }, id);
  return id;
}

async function call(session, id) {
  const params = { name: 'echo', arguments: { message: 'hello' } };
  const result = answer(await post({ jsonrpc: '2.0', id, method: 'tools/call', params }, session), id);
  if (result.isError || !JSON.stringify(result.content).includes('hello')) throw new Error(JSON.stringify(result));
}

const latencies = [];
const begun = process.hrtime.bigint();
const end = begun + BigInt(Math.round(seconds * 1e9));
await Promise.all(
  Array.from({ length: connections }, async () => {
    const mine = await session();
    for (let id = 2; process.hrtime.bigint() < end; id += 1) {
      const before = process.hrtime.bigint();
      await call(mine, id);
      latencies.push(Number(process.hrtime.bigint() - before) / 1e6);
    }
  })
);
const elapsed = Number(process.hrtime.bigint() - begun) / 1e9;
latencies.sort((one, other) => one - other);
const quantile = (part) => latencies[Math.min(latencies.length - 1, Math.floor(part * latencies.length))] ?? 0;
console.log(JSON.stringify({ rate: latencies.length / elapsed, p50: quantile(0.5), p99: quantile(0.99) }));
agent.destroy();
process.exit(0);

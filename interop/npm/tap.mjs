// Listens on a port, passes every connection on to the server and writes down all
// bytes of both directions.
//
//   node tap.mjs PORT URL FILE
import { createWriteStream } from 'node:fs';
import { connect, createServer } from 'node:net';

const [port, url, file] = process.argv.slice(2);
const { hostname, port: serverPort } = new URL(url);
const log = createWriteStream(file);
let connections = 0;

createServer((client) => {
  const id = ++connections;
  const server = connect(Number(serverPort) || 80, hostname);
  const copy = (from, to, arrow) => {
    from.on('data', (bytes) => log.write(`\n--- connection ${id} ${arrow} ${bytes.length} bytes\n${bytes}`));
    from.on('error', () => to.destroy());
    from.on('close', () => to.destroy());
    from.pipe(to);
  };
  copy(client, server, 'to the server');
  copy(server, client, 'from the server');
}).listen(Number(port), '127.0.0.1');

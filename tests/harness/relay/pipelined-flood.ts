/** Floods a relay with pipelined requests and reads nothing: `pipelined-flood.ts PORT CONNECTIONS MEGABYTES`. */
import { connect } from 'node:net';

const [port = 0, connections = 0, megabytes = 0] = process.argv.slice(2).map(Number);
/** The shortest request that keeps its connection open, as often as one read of the relay can hold it. */
const BLOCK = 'GET / HTTP/1.1\r\n\r\n'.repeat(3640);

/** Writes so many bytes, and opens a new connection whenever one was cut. */
async function flood(bytes: number): Promise<void> {
  for (let sent = 0; sent < bytes; ) {
    const socket = connect({ port, host: '127.0.0.1' }).on('error', () => {});
    const closed = new Promise((resolve) => socket.once('close', resolve));
    for (; sent < bytes && !socket.destroyed; sent += BLOCK.length) {
      await Promise.race([closed, new Promise((resolve) => socket.write(BLOCK, resolve))]);
    }
    socket.destroy();
  }
}

await Promise.all(Array.from({ length: connections }, () => flood((megabytes * 2 ** 20) / connections)));

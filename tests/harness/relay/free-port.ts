import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** Below the range from which systems choose ports for connections and for port 0. */
const [LOWEST, COUNT] = [10_000, 20_000];

/**
 * A loopback port on which nothing listens. The system does not give it to others, even while the test does not
 * listen on it.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = LOWEST + Math.floor(Math.random() * COUNT);
    const server = createServer();
    try {
      await once(server.listen(port, '127.0.0.1'), 'listening');
    } catch {
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** Whether something listens on this loopback port. */
export async function listens(port: number): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1' });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

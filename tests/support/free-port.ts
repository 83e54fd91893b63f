import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that systems give to connections and to listeners that ask for any port. */
const [LOWEST, COUNT] = [10_000, 20_000];

/**
 * A loopback port on which nothing listens. Nobody else gets it by chance, also while the test that asked for it
 * has nothing there.
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

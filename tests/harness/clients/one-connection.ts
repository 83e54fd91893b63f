import { setTimeout as sleep } from 'node:timers/promises';
import { rawClient } from './raw-client.ts';

const REQUEST = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\nConnection: close\r\n\r\n';
/** Far longer than an answer takes on a busy machine, in ms. */
const HANGS_MS = 20_000;

/** How a connection ended; `cut` is a reset, or an end without an answer. */
export async function oneConnection(port: number): Promise<'served' | 'cut' | 'refused' | 'hangs'> {
  const client = rawClient(port, REQUEST);
  const closed = await Promise.race([client.closed, sleep(HANGS_MS, undefined, { ref: false })]);
  client.socket.destroy();
  if (!closed) return 'hangs';
  if (closed.error === 'ECONNREFUSED') return 'refused';
  return client.text().startsWith('HTTP/1.1 200 ') ? 'served' : 'cut';
}

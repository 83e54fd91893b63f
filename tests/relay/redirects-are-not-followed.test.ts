import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { expectNoCanary } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';

let other: Server;
let otherPort: number;
let connections = 0;
let pair: RelayAndUpstream;
beforeEach(async () => {
  connections = 0;
  other = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  ({ port: otherPort } = other.address() as { port: number });
});
afterEach(async () => {
  await pair.close();
  await new Promise((resolve) => other.close(resolve));
});

test.each([301, 302, 303, 307, 308])(
  'a redirect with %d is an error, and its target is not called',
  async (status) => {
    const location = `Location: http://127.0.0.1:${otherPort}/leak`;
    pair = await startRelayAndUpstream((socket) =>
      socket.write(plainAnswer(`${status} Elsewhere`, [location])),
    );
    const response = await pair.relay.send(pair.cookie, { redirect: 'manual' });
    const text = await response.text();
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject({ code: 'upstream_bad_response', status: 502 });
    expect(response.headers.get('location')).toBeNull();
    expect(text).not.toMatch(new RegExp(`leak|${otherPort}`));
    expectNoCanary(text);
    expect(connections).toBe(0);
    expect(pair.upstream.requests).toHaveLength(1);
  },
);

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, expect, test } from '@jest/globals';
import express from 'express';
import { readSession } from '../../src/authenticate/sessions/attach-session.ts';
import { MemorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { secret } from '../../src/secret.ts';

const store = new MemorySessionStore();
afterAll(() => store.close());

test('reading a session puts nothing before the methods of the response, and sets no cookie', async () => {
  const read = readSession({
    store,
    secrets: [secret('a secret of thirty-two characters')],
    realm: 'password',
    sameSite: 'strict',
    https: false,
  });
  const seen: unknown[] = [];
  const app = express().use(read, (req, res) => {
    seen.push(Object.hasOwn(res, 'end'), Object.hasOwn(res, 'writeHead'), typeof req.sessionID);
    res.end();
  });
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  server.close();
  expect(response.status).toBe(200);
  expect(seen).toEqual([false, false, 'string']);
  expect(response.headers.getSetCookie()).toEqual([]);
});

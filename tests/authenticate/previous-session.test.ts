import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { previousSession } from '../../src/authenticate/oidc/previous-session.ts';
import { call } from '../harness/clients/call.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const KEY = 'k'.repeat(43);

let stage: TestApp;
let removed: string[];
beforeEach(async () => {
  removed = [];
  const sessions = { remove: async (key: string) => void removed.push(key) };
  const before = previousSession({ sessions, callbackPath: '/', https: true, absoluteMs: 60_000 });
  stage = await startTestApp((app) => {
    app.get('/', async (req, res) => {
      await before.end(req);
      res.end();
    });
  });
});
afterEach(() => stage.close());

const end = (Cookie: string) => call(stage.port, '/', { headers: { Cookie } });

test('the previous session is the one that the cookie names', async () => {
  await end(`a=b; bot_relay_before=${KEY}; c=d`);
  expect(removed).toEqual([KEY]);
});

test.each(['\xa0', '\t', '=', '"', 'x'])(
  'a cookie whose name begins with %j ends no session',
  async (byte) => {
    await end(`a=b;${byte}bot_relay_before=${KEY}`);
    await end(`bot_relay_before${byte}=${KEY}`);
    expect(removed).toEqual([]);
  },
);

test('a cookie whose value is not a key ends no session', async () => {
  await end(`bot_relay_before=${KEY}x`);
  expect(removed).toEqual([]);
});

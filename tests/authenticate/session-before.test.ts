import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sessionBefore } from '../../src/authenticate/oidc/session-before.ts';
import { call } from '../support/call.ts';
import { startStage, type TestStage } from '../support/stage.ts';

const KEY = 'k'.repeat(43);

let stage: TestStage;
let removed: string[];
beforeEach(async () => {
  removed = [];
  const sessions = { remove: async (key: string) => void removed.push(key) };
  const before = sessionBefore({ sessions, callbackPath: '/', https: true, absoluteMs: 60_000 });
  stage = await startStage((app) => {
    app.get('/', async (req, res) => {
      await before.end(req);
      res.end();
    });
  });
});
afterEach(() => stage.close());

const end = (Cookie: string) => call(stage.port, '/', { headers: { Cookie } });

test('the session before is the one that its cookie names', async () => {
  await end(`a=b; bot_relay_before=${KEY}; c=d`);
  expect(removed).toEqual([KEY]);
});

test.each(['\xa0', '\t', '=', '"', 'x'])(
  'no session is ended by a cookie whose name begins with %j',
  async (byte) => {
    await end(`a=b;${byte}bot_relay_before=${KEY}`);
    await end(`bot_relay_before${byte}=${KEY}`);
    expect(removed).toEqual([]);
  },
);

test('no session is ended by a cookie whose value is no key', async () => {
  await end(`bot_relay_before=${KEY}x`);
  expect(removed).toEqual([]);
});

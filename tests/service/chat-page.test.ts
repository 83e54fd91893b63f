import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { inFrontOf, type RelayProcess, startProcess, stopProcesses } from '../harness/relay/process.ts';

const start = (environment: Record<string, string>) =>
  startProcess({ environment: { PORT: '0', ...environment } });

/** The relays of all tests. They start at the same time. */
let plain: RelayProcess;
let guestsBelow: RelayProcess;
let real: RelayProcess;
beforeAll(() => {
  plain = start({ CHAT_PAGE: 'on' });
  guestsBelow = start({ BASE_PATH: '/chat-api', AUTH_MODE: 'guest', BOTS: 'demo/*,acme/it"s<b>' });
  real = start({ ...inFrontOf('http://127.0.0.1:9'), AUTH_MODE: 'guest', CHAT_PAGE: 'on' });
});
afterAll(() => stopProcesses());

const settingsAt = async (relay: RelayProcess, base = '') =>
  JSON.parse((await call(await relay.listening(), `${base}/client/bot-chat.json`)).body);

describe('the page of the demo', () => {
  test('is the chat page at /, and its links lead to files that are there', async () => {
    const port = await plain.listening();
    const [page, chat] = [await call(port, '/'), await call(port, '/chat')];
    expect(page).toMatchObject({ status: 200, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.headers['content-security-policy']).toBe(chat.headers['content-security-policy']);
    expect(page.body).toBe(chat.body);
    const links = [...page.body.matchAll(/\s(?:src|href)="\.([^"]+)"/g)].map(([, path = '']) => path);
    expect(links).toHaveLength(3);
    for (const path of links) expect([path, (await call(port, path)).status]).toEqual([path, 200]);
  });

  test('answers GET and HEAD at exactly its path, which the log names', async () => {
    const port = await plain.listening();
    expect(await call(port, '/', { method: 'HEAD' })).toMatchObject({ status: 200, body: '' });
    const refused = await call(port, '/', { method: 'POST' });
    expectProblem(refused, 405, 'method_not_allowed');
    expect(refused.headers.allow).toBe('GET, HEAD');
    for (const path of ['/index.html', '//', '/chat/', '/client/', '/client/bot-chat.ts', '/__proto__'])
      expect([path, (await call(port, path)).status]).toEqual([path, 404]);
    await plain.waitFor(/"method":"HEAD","route":"\/","status":200,"outcome":"ok"/);
  });

  test('is below BASE_PATH, also without the last slash', async () => {
    const port = await guestsBelow.listening();
    expect((await call(port, '/chat-api/')).body).toContain('src="./client/bot-chat.js"');
    expect(await call(port, '/chat-api')).toMatchObject({ status: 307, headers: { location: '/chat-api/' } });
    expect((await call(port, '/')).status).toBe(404);
    await guestsBelow.waitFor(/Open http:\/\/localhost:\d+\/chat-api\/ in a browser/);
  });

  test('offers the bots of the demo that BOTS allows, and names no user who is not needed', async () => {
    const { bots, user } = await settingsAt(guestsBelow, '/chat-api');
    const own = ['echo', 'guide', 'slow', 'steps', 'resume', 'tools'].map((name) => `demo/${name}`);
    expect({ bots, user }).toEqual({ bots: [...own, 'acme/it"s<b>'], user: undefined });
  });

  test('is there with CHAT_PAGE=on, too, but the user of the demo is in no other relay', async () => {
    const port = await real.listening();
    expect(await call(port, '/')).toMatchObject({ status: 200, body: (await call(port, '/chat')).body });
    expect(await settingsAt(plain)).toMatchObject({ user: { name: 'demo', password: 'demo' } });
    expect(await settingsAt(real)).toEqual({
      ...{ signIn: expect.any(String), operations: expect.any(Array), bots: ['acme/helper'] },
    });
  });
});

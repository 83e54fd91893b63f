import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../../src/service/bot-service.ts';
import { CANARY, OTHER_USER, startRelay, type TestRelay } from '../../harness/relay/relay.ts';

const BASE = '/ns/demo/bot-provider/echo';

let service: BotService;
let relay: TestRelay;
let cookie: string;
beforeAll(async () => {
  service = await startBotService({
    keys: [CANARY.key],
    speed: { wordMs: 0, silenceMs: 60_000 },
    limit: 1000,
  });
  relay = await startRelay(service.url, { BOTS: 'demo/*', OPERATIONS: 'message,chat,sandbox' });
  cookie = await relay.signIn();
});
afterAll(async () => {
  await relay.close();
  await service.close();
});

const say = async (Cookie: string) => {
  const body = JSON.stringify({ customChannelId: 'c1', text: 'hello', action: 'NONE' });
  const answer = await relay.send(Cookie, { path: `${BASE}/message/sse`, body });
  expect(await answer.text()).toContain('asgard.run.done');
};
/** Calls an operation of the sandbox of the conversation, as `METHOD fs/…?query`. */
const use = (line: string, { Cookie = cookie, ...init }: { Cookie?: string; body?: FormData } = {}) => {
  const [method = '', target = ''] = line.split(' ');
  const url = `${relay.url}${BASE}/sandbox/demo/${target}${target.includes('?') ? '&' : '?'}custom_channel_id=c1`;
  return fetch(url, { method, headers: { Cookie }, ...init });
};
const dataOf = async (answer: Response) => ((await answer.json()) as { data: unknown }).data;
const write = (path: string, text: string) => {
  const body = new FormData();
  body.append('file', new Blob([text]));
  return use(`PUT fs/file?path=${path}&mode=420`, { body });
};

test('a page works with the files of the sandbox of its conversation, and watches them', async () => {
  await say(cookie);
  const watch = await use('GET fs/watch?path=/&recursive=true');
  expect(watch.headers.get('content-type')).toBe('text/event-stream');
  const reader = (watch.body as ReadableStream<Uint8Array<ArrayBuffer>>)
    .pipeThrough(new TextDecoderStream())
    .getReader();
  expect(await dataOf(await write('/a/b.txt', 'hello'))).toEqual({ bytesWritten: 5 });
  let seen = '';
  while (!seen.includes('/a/b.txt')) seen += (await reader.read()).value ?? '';
  expect(seen).toMatch(/^event: change\ndata: \{"op":"CREATE","path":"\/a\/b\.txt",.*\}\n\n/m);
  await reader.cancel();
  expect((await use('POST fs/copy?src=/a&dst=/c')).status).toBe(200);
  expect((await use('POST fs/move?src=/c/b.txt&dst=/c/d.txt')).status).toBe(200);
  expect(await dataOf(await use('GET fs/stat?path=/c/d.txt'))).toMatchObject({ exists: true, sizeBytes: 5 });
  const piece = await use('GET fs/file?path=/c/d.txt&offset_bytes=1&limit_bytes=3');
  expect([await piece.text(), piece.headers.get('x-total-bytes'), piece.headers.get('x-truncated')]).toEqual([
    ...['ell', '5', 'true'],
  ]);
  expect((await use('GET fs/file?path=/none')).status).toBe(404);
  expect((await use('DELETE fs/item?path=/c')).status).toBe(409);
  expect((await use('DELETE fs/all?path=/c')).status).toBe(200);
  expect((await use('POST fs/mkdir?path=/e')).status).toBe(200);
  const { entries } = (await dataOf(await use('GET fs/list?path=/'))) as { entries: { name: string }[] };
  expect(entries.map(({ name }) => name)).toEqual(['a', 'e', 'home']);
  expect(await dataOf(await use('POST browser/open-url'))).toEqual({
    openURL: expect.stringMatching(/^https:/),
  });
  expect(await dataOf(await use('POST browser/session'))).toMatchObject({ token: expect.any(String) });
});

test('another user has other files, and none before a conversation', async () => {
  const Cookie = await relay.signIn(OTHER_USER);
  expect((await use('GET fs/list?path=/', { Cookie })).status).toBe(403);
  await say(Cookie);
  const { entries } = (await dataOf(await use('GET fs/list?path=/', { Cookie }))) as { entries: object[] };
  expect(entries).toHaveLength(1);
});

test('a suspend stops the run of the bot, and its stream ends with run.done', async () => {
  const base = '/ns/demo/bot-provider/slow/message';
  const body = JSON.stringify({ customChannelId: 'c1', text: 'hello', action: 'NONE' });
  const stream = await relay.send(cookie, { path: `${base}/sse`, body });
  // The run is open once its headers have arrived.
  const stop = () =>
    fetch(`${relay.url}${base}/suspend?custom_channel_id=c1`, {
      method: 'POST',
      headers: { Cookie: cookie },
    });
  expect((await stop()).status).toBe(200);
  expect(await stream.text()).toMatch(/run\.done[^\n]*\n\n$/);
  expect((await stop()).status).toBe(404);
});

import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { openDatabase } from '../../src/service/settings/database.ts';
import { channelTable } from '../../src/service/store/channel-table.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import {
  type DemoService,
  dataOf,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';

const ID = 'custom_channel_id=c1';
const MB = 1024 * 1024;

let service: DemoService;
beforeEach(async () => {
  service = await startDemoService();
});
afterEach(() => service.close());

interface Uploaded {
  readonly status: number;
  readonly code: string | undefined;
  readonly data: Record<string, unknown>;
}

/** Uploads a form of these parts, as a browser does. */
async function upload(parts: readonly (readonly [name: string, value: string | File])[]): Promise<Uploaded> {
  const form = new FormData();
  for (const [name, value] of parts) form.append(name, value);
  const response = await fetch(`${service.url.origin}${service.pathOf('blob')}`, {
    method: 'POST',
    headers: { 'X-API-KEY': service.key },
    body: form,
  });
  const body = (await response.json()) as { data?: Record<string, unknown>[]; error?: { code: string } };
  return { status: response.status, code: body.error?.code, data: body.data?.[0] ?? {} };
}

const fileOf = (text: string | Uint8Array<ArrayBuffer>, name = 'a.txt', type = 'text/plain') =>
  new File([text], name, { type });
const uploadTo = (customChannelId: string, file: File) =>
  upload([
    ['file', file],
    ['customChannelId', customChannelId],
  ]);
const download = (path: string, headers: Record<string, string> = {}, query = ID) =>
  service.ask(`GET channel-home/download?${query}&relative_path=${encodeURIComponent(path)}`, { headers });

describe('an upload', () => {
  test.each([
    ['text/plain', 'DOCUMENT'],
    ['application/pdf', 'DOCUMENT'],
    ['image/png', 'IMAGE'],
    ['audio/ogg', 'AUDIO'],
    ['', 'BINARY'],
  ])('of %s is answered with its id', async (type, fileType) => {
    const { status, data } = await uploadTo('c1', fileOf('hello', 'ä.txt', type));
    expect(status).toBe(200);
    expect(data).toEqual({
      channelId: 'c1',
      blobId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      fileType,
      fileName: 'ä.txt',
      size: 5,
      mime: type || 'application/octet-stream',
    });
  });

  test('may hold 20 MB, and not a byte more', async () => {
    expect(await uploadTo('c1', fileOf(new Uint8Array(20 * MB)))).toMatchObject({ status: 200 });
    const more = await uploadTo('c1', fileOf(new Uint8Array(20 * MB + 1)));
    expect([more.status, more.code]).toEqual([413, 'TOO_LARGE']);
    const much = await uploadTo('c1', fileOf(new Uint8Array(24 * MB)));
    expect([much.status, much.code]).toEqual([413, 'TOO_LARGE']);
  });

  test('is asked to come later while others are being read that have nearly 128 MB together', async () => {
    const head = [`POST ${service.pathOf('blob')} HTTP/1.1`, 'Host: x', `X-API-KEY: ${service.key}`];
    const begun = Array.from({ length: 7 }, () =>
      rawClient(service.port, [...head, `Content-Length: ${21 * MB}`, '', ''].join('\r\n')),
    );
    for (const { socket } of begun) socket.write(Buffer.alloc(18 * MB));
    const another = () => uploadTo('c1', fileOf(new Uint8Array(3 * MB)));
    // So rarely that no limit by time refuses it.
    await until(async () => (await another()).status !== 200, 250);
    expect(await another()).toMatchObject({ status: 429, code: 'RATE_LIMITED' });
    expect((await service.send({ text: 'x' })).status).toBe(200);
    for (const { socket } of begun) socket.destroy();
    await until(async () => (await another()).status === 200, 250);
  });

  test('must be a form of few parts: very many would take seconds to read', async () => {
    const more = Array.from({ length: 1000 }, (_one, n) => [`f${n}`, ''] as const);
    const parts = [['file', fileOf('a')], ['customChannelId', 'c1'], ...more] as const;
    expect((await upload(parts)).code).toBe('INVALID_FORM');
    expect((await upload(parts.slice(0, 900))).status).toBe(200);
  });

  test('must be a form with one file and one channel', async () => {
    const file = fileOf('a');
    const refused = async (parts: Parameters<typeof upload>[0]) => (await upload(parts)).code;
    expect(await refused([['file', file]])).toBe('INVALID_CHANNEL');
    const id = ['customChannelId', 'c1'] as const;
    expect(await refused([id])).toBe('INVALID_FORM');
    expect(await refused([id, ['file', 'text']])).toBe('INVALID_FORM');
    expect(await refused([id, id, ['file', file]])).toBe('INVALID_FORM');
    expect(await refused([id, ['file', file], ['file', file]])).toBe('INVALID_FORM');
    expect(
      await refused([
        ['customChannelId', file],
        ['file', file],
      ]),
    ).toBe('INVALID_FORM');
    for (const type of ['application/json', 'multipart/form-data', 'multipart/form-data; boundary=x']) {
      const answer = await service.ask('POST blob', { headers: { 'Content-Type': type }, body: '{}' });
      expect([type, answer.status]).toEqual([type, 400]);
    }
    expect((await service.ask(`GET channel/metadata?${ID}`)).status).toBe(404);
  });
});

describe('a message with files', () => {
  test('names files of its own channel only', async () => {
    const { data } = await uploadTo('c1', fileOf('hello', 'list.txt'));
    const message = { customChannelId: 'c1', text: '', blobIds: [data.blobId] };
    expect(wholeMessages(await service.say(message))[0]?.text).toBe('You said nothing. You sent: list.txt');
    const history = demoEvents((await service.ask(`GET message/sse?${ID}`)).body);
    expect(history[0]?.fact.messageUser).toMatchObject({
      ...{ text: '', blobIds: [data.blobId] },
      blobs: [{ blobId: data.blobId, fileName: 'list.txt', mime: 'text/plain' }],
    });
    for (const more of [{ customChannelId: 'c2' }, { customChannelId: null }, { blobIds: ['x'] }]) {
      const { status, body } = await service.send({ ...message, ...more });
      expect([status, JSON.parse(body).error.code]).toEqual([400, 'BLOB_NOT_FOUND']);
    }
  });

  test('cannot name files of before a reset or a clear', async () => {
    for (const forget of [
      () => service.send({ customChannelId: 'c1', action: 'RESET_CHANNEL' }),
      () => service.ask(`POST channel/clear?${ID}`),
      () => service.ask(`DELETE channel?${ID}`),
    ]) {
      const { data } = await uploadTo('c1', fileOf('hello'));
      await forget();
      const message = { customChannelId: 'c1', text: 'a', blobIds: [data.blobId] };
      expect((await service.send(message)).status).toBe(400);
      expect((await download('a.txt')).status).toBe(404);
    }
  });
});

describe('a download', () => {
  test.each(['channel-home', 'cwd'])('from %s is the newest file with the name', async (home) => {
    await uploadTo('c1', fileOf('old', 'ä"b.txt'));
    await uploadTo('c1', fileOf('new', 'ä"b.txt'));
    const query = `${ID}&relative_path=${encodeURIComponent('ä"b.txt')}`;
    const answer = await service.ask(`GET ${home}/download?${query}`);
    expect([answer.status, answer.body]).toEqual([200, 'new']);
    expect(answer.headers).toMatchObject({
      'content-type': 'text/plain',
      'content-length': '3',
      'accept-ranges': 'bytes',
      'content-disposition': `attachment; filename="__b.txt"; filename*=UTF-8''%C3%A4%22b.txt`,
    });
  });

  test('is of one channel only', async () => {
    await uploadTo('c1', fileOf('hello'));
    await uploadTo('c2', fileOf('other', 'b.txt'));
    expect((await download('a.txt')).body).toBe('hello');
    expect((await download('b.txt')).status).toBe(404);
    expect((await download('a.txt', {}, 'custom_channel_id=c3')).status).toBe(404);
    expect((await download('a.txt', {}, '')).status).toBe(400);
  });

  test.each([
    ['bytes=0-1', 206, 'he', 'bytes 0-1/5'],
    ['bytes=3-', 206, 'lo', 'bytes 3-4/5'],
    ['bytes=-2', 206, 'lo', 'bytes 3-4/5'],
    ['bytes=-99', 206, 'hello', 'bytes 0-4/5'],
    ['bytes=2-99', 206, 'llo', 'bytes 2-4/5'],
    ['bytes=5-', 416, undefined, undefined],
    ['bytes=3-2', 416, undefined, undefined],
    ['bytes=-', 200, 'hello', undefined],
    ['bytes=0-1,3-4', 200, 'hello', undefined],
    ['lines=0-1', 200, 'hello', undefined],
  ])('of the range %s is answered with %i', async (range, status, body, contentRange) => {
    await uploadTo('c1', fileOf('hello'));
    const answer = await download('a.txt', { Range: range });
    expect([answer.status, answer.headers['content-range']]).toEqual([status, contentRange]);
    if (body !== undefined) expect(answer.body).toBe(body);
    const conditional = await download('a.txt', { Range: range, 'If-Range': '"x"' });
    expect([conditional.status, conditional.body]).toEqual([200, 'hello']);
  });

  test.each(['../a.txt', 'x/../a.txt', '..', './a.txt', '/a.txt', 'a\\b', 'a\u0000b', ''])(
    'of the path %j is refused',
    async (path) => {
      await uploadTo('c1', fileOf('hello'));
      const { status, body } = await download(path);
      expect([status, JSON.parse(body).error.code]).toEqual([400, 'INVALID_PATH']);
    },
  );
});

describe('the files of all channels', () => {
  test('are bounded by their bytes and their number; the oldest are forgotten', () => {
    const database = openDatabase();
    database.run("INSERT INTO projects (id, name, created_at) VALUES ('p', 'p', 0)");
    const all = channelTable({
      database,
      bounds: { maxChannels: 9, maxFiles: 5, maxFileBytes: 10, maxTurnCharacters: 0, maxTurns: 0 },
    });
    const bot = { projectId: 'p', endpoint: 'demo/echo' };
    const [channel, other] = [all.findOrMake(bot, 'c1'), all.findOrMake(bot, 'c2')];
    const add = (length: number, to = channel) =>
      to.files.add({ name: 'a', type: '', bytes: Buffer.alloc(length) }).id;
    const [first, second, third] = [add(4), add(4, other), add(4)];
    const here = [first, second, third].map((id) => channel.files.find(id)?.id);
    expect(here).toEqual([undefined, undefined, third]);
    expect(other.files.find(second)?.bytes).toHaveLength(4);
    // The bytes of what was forgotten are free again.
    all.delete(bot, 'c2');
    const [one, two] = [add(3), add(3)];
    expect([third, one, two].map((id) => channel.files.find(id)?.id)).toEqual([third, one, two]);
    for (let n = 0; n < 3; n++) add(0);
    expect([third, one].map((id) => channel.files.find(id)?.id)).toEqual([undefined, one]);
    expect(channel.files.find(add(11))).toBeUndefined();
    database.close();
  });
});

describe('the metadata of a bot', () => {
  test('has annotations', async () => {
    expect(dataOf(await service.ask('GET metadata'))).toEqual({
      namespace: 'demo',
      botProviderName: 'echo',
      providerType: 'generic',
      annotations: expect.objectContaining({ 'demo/title': "The demo's bot echo" }),
    });
    expect((await service.ask('GET metadata', { headers: { 'X-API-KEY': 'wrong' } })).status).toBe(401);
  });
});

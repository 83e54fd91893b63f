import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { fileTree } from '../../src/service/sandbox/file-tree.ts';
import { makeFolder, writeFile } from '../../src/service/sandbox/sandbox-files.ts';
import { openDatabase } from '../../src/service/settings/database.ts';
import { boundedMap } from '../../src/service/store/bounded-map.ts';
import { channelTable } from '../../src/service/store/channel-table.ts';
import type { Answer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import {
  codeOf,
  type DemoService,
  dataOf,
  type Part,
  startDemoService,
  textsOf,
} from '../harness/service/demo-service.ts';

const ID = 'custom_channel_id=c1';
const MB = 1024 * 1024;

let service: DemoService;
beforeEach(async () => {
  service = await startDemoService();
});
afterEach(() => {
  jest.restoreAllMocks();
  return service.close();
});

const outcome = (answer: Answer) => (answer.status === 200 ? 200 : `${answer.status} ${codeOf(answer)}`);
const fileOf = (text: string | Uint8Array<ArrayBuffer>, name = 'a.txt', type = 'text/plain') =>
  new File([text], name, { type });
const upload = (parts: readonly Part[]) => service.form('POST blob', parts);
const channelOf = (id: string): Part => ['customChannelId', id];
const uploadTo = (id: string, file: File) => upload([['file', file], channelOf(id)]);
const uploaded = async (id: string, file: File) =>
  (JSON.parse((await uploadTo(id, file)).body) as { data: Record<string, unknown>[] }).data[0] ?? {};
const download = (path: string, headers: Record<string, string> = {}, query = ID) =>
  service.ask(`GET channel-home/download?${query}&relative_path=${encodeURIComponent(path)}`, { headers });

describe('an upload', () => {
  test.each([
    ['text/plain', 'DOCUMENT'],
    ['image/png', 'IMAGE'],
    ['audio/ogg', 'AUDIO'],
    ['', 'BINARY'],
  ])('of %s is answered with its id', async (type, fileType) => {
    expect(await uploaded('c1', fileOf('hello', 'ä.txt', type))).toEqual({
      ...{ channelId: 'c1', blobId: expect.stringMatching(/^[0-9a-f-]{36}$/), fileType },
      ...{ fileName: 'ä.txt', size: 5, mime: type || 'application/octet-stream' },
    });
  });

  test('may hold 20 MB, and not a byte more', async () => {
    const sized = async (bytes: number) => outcome(await uploadTo('c1', fileOf(new Uint8Array(bytes))));
    expect(await sized(20 * MB)).toBe(200);
    expect(await sized(20 * MB + 1)).toBe('413 TOO_LARGE');
    expect(await sized(24 * MB)).toBe('413 TOO_LARGE');
  });

  test('is asked to come later while others are being read that have nearly 128 MB together', async () => {
    const head = [`POST ${service.pathOf('blob')} HTTP/1.1`, 'Host: x', `X-API-KEY: ${service.key}`];
    const sockets: Socket[] = [];
    const onRequest = (message: unknown) =>
      sockets.push((message as { request: { socket: Socket } }).request.socket);
    subscribe('http.server.request.start', onRequest);
    const begun = Array.from({ length: 7 }, () =>
      rawClient(service.port, [...head, `Content-Length: ${21 * MB}`, '', ''].join('\r\n')),
    );
    for (const { socket } of begun) socket.write(Buffer.alloc(18 * MB));
    // All are read. Otherwise one of these could be refused, in place of the next upload.
    await until(() => sockets.filter(({ bytesRead }) => bytesRead > 18 * MB).length === begun.length);
    unsubscribe('http.server.request.start', onRequest);
    const another = async () => outcome(await uploadTo('c1', fileOf(new Uint8Array(3 * MB))));
    expect(await another()).toBe('429 RATE_LIMITED');
    expect((await service.send({ text: 'x' })).status).toBe(200);
    for (const { socket } of begun) socket.destroy();
    await until(async () => (await another()) === 200);
  });

  test('must be a form with one file, one channel and few parts: very many would take seconds to read', async () => {
    const file: Part = ['file', fileOf('a')];
    const id = channelOf('c1');
    const more = Array.from({ length: 1000 }, (_one, n): Part => [`f${n}`, '']);
    for (const [refusal, parts] of [
      ['400 INVALID_CHANNEL', [file]],
      ['400 INVALID_FORM', [id]],
      ['400 INVALID_FORM', [id, ['file', 'text']]],
      ['400 INVALID_FORM', [id, id, file]],
      ['400 INVALID_FORM', [id, file, file]],
      ['400 INVALID_FORM', [['customChannelId', fileOf('a')], file]],
      ['400 INVALID_FORM', [file, id, ...more]],
    ] as const)
      expect(outcome(await upload(parts))).toBe(refusal);
    for (const type of ['application/json', 'multipart/form-data', 'multipart/form-data; boundary=x']) {
      const answer = await service.ask('POST blob', { headers: { 'Content-Type': type }, body: '{}' });
      expect([type, answer.status]).toEqual([type, 400]);
    }
    expect((await service.ask(`GET channel/metadata?${ID}`)).status).toBe(404);
    expect(outcome(await upload([file, id, ...more.slice(0, 900)]))).toBe(200);
  });
});

describe('a message with files', () => {
  test('names files of its own channel only', async () => {
    const { blobId } = await uploaded('c1', fileOf('hello', 'list.txt'));
    const message = { customChannelId: 'c1', text: '', blobIds: [blobId] };
    expect(textsOf(await service.say(message))).toEqual(['You said nothing. You sent: list.txt']);
    const [user] = await service.history();
    expect(user?.fact.messageUser).toMatchObject({
      ...{ text: '', blobIds: [blobId] },
      blobs: [{ blobId, fileName: 'list.txt', mime: 'text/plain' }],
    });
    for (const more of [{ customChannelId: 'c2' }, { customChannelId: null }, { blobIds: ['x'] }])
      expect(outcome(await service.send({ ...message, ...more }))).toBe('400 BLOB_NOT_FOUND');
  });

  test('cannot name files of before a reset or a clear', async () => {
    for (const forget of [
      () => service.send({ customChannelId: 'c1', action: 'RESET_CHANNEL' }),
      () => service.ask(`POST channel/clear?${ID}`),
      () => service.ask(`DELETE channel?${ID}`),
    ]) {
      const { blobId } = await uploaded('c1', fileOf('hello'));
      await forget();
      const message = { customChannelId: 'c1', text: 'a', blobIds: [blobId] };
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

  test('is of one channel only, and of no path out of it', async () => {
    await uploadTo('c1', fileOf('hello'));
    await uploadTo('c2', fileOf('other', 'b.txt'));
    expect((await download('a.txt')).body).toBe('hello');
    expect((await download('b.txt')).status).toBe(404);
    expect((await download('a.txt', {}, 'custom_channel_id=c3')).status).toBe(404);
    expect((await download('a.txt', {}, '')).status).toBe(400);
    for (const path of ['../a.txt', 'x/../a.txt', './a.txt', '/a.txt', 'a\\b', 'a\0b', ''])
      expect([path, outcome(await download(path))]).toEqual([path, '400 INVALID_PATH']);
  });

  test('of a range is that part of the file, or the whole file where the range says nothing', async () => {
    await uploadTo('c1', fileOf('hello'));
    for (const [range, status, body, contentRange] of [
      ['bytes=0-1', 206, 'he', 'bytes 0-1/5'],
      ['bytes=3-', 206, 'lo', 'bytes 3-4/5'],
      ['bytes=-2', 206, 'lo', 'bytes 3-4/5'],
      ['bytes=-99', 206, 'hello', 'bytes 0-4/5'],
      ['bytes=2-99', 206, 'llo', 'bytes 2-4/5'],
      ['bytes=5-', 416, expect.anything(), undefined],
      ['bytes=3-2', 416, expect.anything(), undefined],
      ['bytes=-', 200, 'hello', undefined],
      ['bytes=0-1,3-4', 200, 'hello', undefined],
      ['lines=0-1', 200, 'hello', undefined],
    ] as const) {
      const answer = await download('a.txt', { Range: range });
      const given = [answer.status, answer.body, answer.headers['content-range']];
      expect([range, ...given]).toEqual([range, status, body, contentRange]);
    }
    const conditional = await download('a.txt', { Range: 'bytes=0-1', 'If-Range': '"x"' });
    expect([conditional.status, conditional.body]).toEqual([200, 'hello']);
  });
});

test('the files of all channels are bounded by their bytes and their number; the oldest are forgotten', () => {
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

test('the metadata of a bot have annotations', async () => {
  expect(dataOf(await service.ask('GET metadata'))).toEqual({
    ...{ namespace: 'demo', botProviderName: 'echo', providerType: 'generic' },
    annotations: expect.objectContaining({ 'demo/title': "The demo's bot echo" }),
  });
});

describe('a sandbox', () => {
  type Query = Readonly<Record<string, string>>;
  beforeEach(() => service.say({ customChannelId: 'c1', text: 'hello' }).then(() => {}));
  const pathOf = (path: string, query: Query) =>
    `sandbox/demo/${path}?${new URLSearchParams({ custom_channel_id: 'c1', ...query })}`;
  /** Calls an operation of the sandbox of the channel `c1`, as `METHOD fs/…`. */
  const ask = (operation: string, query: Query = {}, headers: object = {}) => {
    const [method = '', path = ''] = operation.split(' ');
    return service.ask(`${method} ${pathOf(path, query)}`, { headers });
  };
  const done = async (operation: string, query: Query = {}) => outcome(await ask(operation, query));
  const write = (path: string, text: string, query: Query = {}) =>
    service.form(`PUT ${pathOf('fs/file', { path, ...query })}`, [['file', fileOf(text)]]);
  const names = async (path: string) =>
    (dataOf(await ask('GET fs/list', { path })).entries as { name: string }[]).map(({ name }) => name);
  const read = async (path: string) => (await ask('GET fs/file', { path })).body;

  test('has its files from the start, and is named in the metadata of its channel', async () => {
    const { launchedSandboxes } = dataOf(await service.ask(`GET channel/metadata?${ID}`));
    expect(launchedSandboxes).toEqual([
      {
        ...{ sandboxName: 'demo', sandboxBlueprintName: 'demo', workingDirectory: '/home/demo' },
        ...{ editorServerEnabled: false, browserEnabled: true },
      },
    ]);
    expect(await names('/home/demo')).toEqual(['README.md']);
  });

  test('belongs to one channel, and is forgotten with what was said', async () => {
    await write('/a.txt', 'mine');
    await service.say({ customChannelId: 'c2', text: 'hello' });
    expect(await done('GET fs/file', { path: '/a.txt', custom_channel_id: 'c2' })).toBe('404 FILE_NOT_FOUND');
    expect(await done('GET fs/list', { path: '/', custom_channel_id: 'c3' })).toBe('404 CHANNEL_NOT_FOUND');
    expect((await service.ask('GET sandbox/demo/fs/list?path=/')).status).toBe(400);
    for (const name of ['box', 'DEMO', '%2e%2e'])
      expect((await service.ask(`GET sandbox/${name}/fs/list?path=/&${ID}`)).status).toBe(404);
    expect((await service.ask(`GET sandbox/demo/editor/open-url?${ID}`)).status).toBe(404);
    expect(await read('/a.txt')).toBe('mine');
    await service.ask(`POST channel/clear?${ID}`);
    expect(await names('/')).toEqual(['home']);
  });

  test('gives addresses of its browser, each once', async () => {
    const open = async () => dataOf(await ask('POST browser/open-url')).openURL;
    expect(await open()).not.toBe(await open());
    const session = { wsUrl: expect.stringMatching(/^wss:/), token: expect.any(String) };
    expect(dataOf(await ask('POST browser/session'))).toEqual(session);
  });

  test('writes, reads and describes files', async () => {
    const written = await write('/d/e/ü.txt', 'hello');
    expect([written.status, dataOf(written)]).toMatchObject([200, { bytesWritten: 5 }]);
    expect(await read('/d/e/ü.txt')).toBe('hello');
    const stat = async (path: string) => dataOf(await ask('GET fs/stat', { path }));
    const mtimeUnix = expect.any(Number);
    const about = { exists: true, isDir: false, sizeBytes: 5, mtimeUnix, mode: 0o644 };
    expect(await stat('/d/e/ü.txt')).toEqual(about);
    const entries = [{ name: 'e', isDir: true, sizeBytes: 0, mtimeUnix, mode: 0o755 }];
    expect(dataOf(await ask('GET fs/list', { path: '/d/' }))).toEqual({ entries, truncated: false });
    expect(await stat('/none')).toMatchObject({ exists: false, sizeBytes: 0 });
    expect((await write('/d/e/ü.txt', 'bye', { mode: '384' })).status).toBe(200);
    expect(await stat('/d/e/ü.txt')).toMatchObject({ sizeBytes: 3, mode: 384 });
    for (const refused of [
      await write('/d/e/ü.txt', 'no', { create_only: 'true' }),
      await write('/d/e', 'no'),
      await write('/d/e/ü.txt/x', 'no'),
    ])
      expect(codeOf(refused)).toBe('ALREADY_EXISTS');
  });

  test('reads files in pieces, by the query or by a range', async () => {
    await write('/a.txt', 'hello');
    const piece = await ask('GET fs/file', { path: '/a.txt', offset_bytes: '1', limit_bytes: '2' });
    expect([piece.status, piece.body]).toEqual([200, 'el']);
    expect(piece.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'x-total-bytes': '5',
      'x-truncated': 'true',
    });
    const range = await ask('GET fs/file', { path: '/a.txt' }, { Range: 'bytes=3-' });
    expect([range.status, range.body, range.headers['content-range']]).toEqual([206, 'lo', 'bytes 3-4/5']);
    expect(range.headers).toMatchObject({ 'x-total-bytes': '5', 'x-truncated': 'false' });
    expect((await ask('GET fs/file', { path: '/a.txt', offset_bytes: '-1' })).status).toBe(400);
  });

  test('copies and moves files with all below', async () => {
    await write('/a/b/c.txt', 'deep');
    await write('/a/d.txt', 'flat');
    expect(dataOf(await ask('POST fs/copy', { src: '/a', dst: '/x/y' }))).toEqual({ bytesCopied: 8 });
    expect([await read('/x/y/b/c.txt'), await read('/a/b/c.txt')]).toEqual(['deep', 'deep']);
    expect(await done('POST fs/move', { src: '/a', dst: '/moved' })).toBe(200);
    expect(await names('/')).toEqual(['home', 'moved', 'x']);
    expect(await names('/moved')).toEqual(['b', 'd.txt']);
    expect(await done('POST fs/copy', { src: '/moved', dst: '/x' })).toBe('409 ALREADY_EXISTS');
    expect(await done('POST fs/copy', { src: '/moved', dst: '/x', overwrite: 'true' })).toBe(200);
    expect(await names('/x')).toEqual(['b', 'd.txt']);
    for (const dst of ['/moved/inside', '/moved', '/'])
      expect(await done('POST fs/move', { src: '/moved', dst, overwrite: 'true' })).toBe('400 INVALID_PATH');
    expect(await done('POST fs/move', { src: '/none', dst: '/z' })).toBe('404 FILE_NOT_FOUND');
  });

  test('removes files one by one, or with all below', async () => {
    await ask('POST fs/mkdir', { path: '/a/empty' });
    await write('/a/d.txt', 'flat');
    expect(await done('DELETE fs/item', { path: '/a' })).toBe('409 NOT_EMPTY');
    expect(await done('DELETE fs/item', { path: '/a/empty' })).toBe(200);
    expect(await names('/a')).toEqual(['d.txt']);
    expect(await done('DELETE fs/all', { path: '/a' })).toBe(200);
    expect(await done('DELETE fs/all', { path: '/a' })).toBe('404 FILE_NOT_FOUND');
    expect(await done('DELETE fs/all', { path: '/' })).toBe(200);
    expect(await names('/')).toEqual([]);
  });

  test('takes absolute paths of plain names alone, in every operation', async () => {
    const REFUSED = '400 INVALID_PATH';
    for (const path of ['', 'a', '../a', '/a/../b', '/./a', '/a//b', '/a\\b', '/a\0', `/${'x'.repeat(512)}`])
      expect([path, await done('GET fs/file', { path })]).toEqual([path, REFUSED]);
    const path = '/a/../b';
    for (const name of [
      'GET fs/list',
      'GET fs/stat',
      'GET fs/watch',
      'POST fs/mkdir',
      'DELETE fs/item',
      'DELETE fs/all',
    ])
      expect([name, await done(name, { path })]).toEqual([name, REFUSED]);
    for (const name of ['POST fs/copy', 'POST fs/move'])
      for (const query of [
        { src: '/home', dst: path },
        { src: path, dst: '/home/x' },
      ])
        expect([name, query, await done(name, query)]).toEqual([name, query, REFUSED]);
    expect(outcome(await write(path, 'x'))).toBe(REFUSED);
  });

  test('is bounded by the bytes and the number of its files', () => {
    const tree = fileTree(10);
    const put = (path: string, length: number) =>
      writeFile(tree, path, { bytes: Buffer.alloc(length), isNew: false });
    put('/a', 6);
    expect(() => put('/b', 5)).toThrow('STORAGE_FULL');
    put('/a', 5);
    put('/b', 5);
    tree.remove('/a');
    put('/c', 5);
    const many = () => {
      for (let n = 0; n < 500; n++) makeFolder(tree, `/f${n}`);
    };
    expect(many).toThrow('STORAGE_FULL');
    expect(tree.nodes.size).toBe(500);
  });

  /** Opens a stream of changes; `next` resolves with the next one, or with undefined at the end. */
  async function watch(query: Query) {
    const url = `${service.url.origin}${service.pathOf(pathOf('fs/watch', query))}`;
    const response = await fetch(url, { headers: { 'X-API-KEY': service.key } });
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream())
      .getReader();
    const next = async () => {
      const { value } = await reader.read();
      if (value === undefined) return undefined;
      expect([value.event, value.id]).toEqual(['change', undefined]);
      const { op, path } = JSON.parse(value.data) as Record<'op' | 'path', string>;
      return `${op} ${path}`;
    };
    return async (count: number) => {
      const all: (string | undefined)[] = [];
      while (all.length < count) all.push(await next());
      return all;
    };
  }

  test('tells who watches a path of each change of it and right below it, or anywhere below, until it is gone', async () => {
    await write('/w/a.txt', 'one');
    const changes = await watch({ path: '/w' });
    const all = await watch({ path: '/w', recursive: 'true' });
    await write('/w/a.txt', 'two');
    await write('/other.txt', 'x');
    await write('/w/deep/b.txt', 'x');
    await ask('POST fs/move', { src: '/w/a.txt', dst: '/w/c.txt' });
    await ask('DELETE fs/all', { path: '/w' });
    const [changed, made] = ['WRITE /w/a.txt', 'CREATE /w/deep'];
    const moved = ['REMOVE /w/a.txt', 'CREATE /w/c.txt'];
    expect(await changes(4)).toEqual([changed, made, ...moved]);
    expect(await all(5)).toEqual([changed, made, 'CREATE /w/deep/b.txt', ...moved]);
    const last = await watch({ path: '/' });
    await service.ask(`DELETE channel?${ID}`);
    expect(await last(1)).toEqual([undefined]);
  });

  test('is watched at a path that is there, by 16 at most', async () => {
    expect(await done('GET fs/watch', { path: '/none' })).toBe('404 FILE_NOT_FOUND');
    await Promise.all(Array.from({ length: 16 }, () => watch({ path: '/' })));
    expect(await done('GET fs/watch', { path: '/' })).toBe('429 RATE_LIMITED');
  });
});

test('a bounded map forgets what was not used for the longest time or too long, and tells of each value that leaves, once', () => {
  const now = jest.spyOn(performance, 'now').mockReturnValue(0);
  const left: string[] = [];
  const map = boundedMap<string>({
    maxEntries: 2,
    maxAgeMs: 1000,
    onLeave: (value) => void left.push(value),
  });
  for (const value of ['A', 'A', 'A2']) map.set('a', value);
  expect(left.splice(0)).toEqual(['A']);
  map.set('b', 'B');
  expect(map.get('a')).toBe('A2');
  map.set('c', 'C');
  expect([[...map.values()], left.splice(0)]).toEqual([['A2', 'C'], ['B']]);
  expect([map.delete('c'), map.delete('c'), left.splice(0)]).toEqual([true, false, ['C']]);
  map.set('d', 'D');
  now.mockReturnValue(900);
  expect(map.get('a')).toBe('A2');
  now.mockReturnValue(1000);
  expect([map.get('d'), map.get('a'), left]).toEqual([undefined, 'A2', ['D']]);
  now.mockReturnValue(2000);
  expect([map.get('a'), left]).toEqual([undefined, ['D', 'A2']]);
});

import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { fileTree } from '../../src/service/sandbox/file-tree.ts';
import { makeFolder, writeFile } from '../../src/service/sandbox/sandbox-files.ts';
import { type DemoService, dataOf, startDemoService } from '../harness/service/demo-service.ts';

let service: DemoService;
beforeEach(async () => {
  service = await startDemoService();
  await service.say({ customChannelId: 'c1', text: 'hello' });
});
afterEach(() => service.close());

type Query = Readonly<Record<string, string>>;
/** Calls an operation of the sandbox of the channel `c1`, as `METHOD fs/…`. */
const ask = (operation: string, query: Query = {}, headers: object = {}) => {
  const [method = '', path = ''] = operation.split(' ');
  const all = new URLSearchParams({ custom_channel_id: 'c1', ...query });
  return service.ask(`${method} sandbox/demo/${path}?${all}`, { headers });
};
const refusal = async (operation: string, query: Query = {}) => {
  const { status, body } = await ask(operation, query);
  return [status, (JSON.parse(body) as { error?: { code: string } }).error?.code];
};
const write = async (path: string, text: string | Uint8Array<ArrayBuffer>, query: Query = {}) => {
  const form = new FormData();
  form.append('file', new File([text], 'upload'));
  const all = new URLSearchParams({ custom_channel_id: 'c1', path, ...query });
  const response = await fetch(`${service.url.origin}${service.pathOf(`sandbox/demo/fs/file?${all}`)}`, {
    method: 'PUT',
    headers: { 'X-API-KEY': service.key },
    body: form,
  });
  const body = (await response.json()) as { data?: unknown; error?: { code: string } };
  return { status: response.status, data: body.data, code: body.error?.code };
};
const names = async (path: string) =>
  (dataOf(await ask('GET fs/list', { path })).entries as { name: string }[]).map(({ name }) => name);
const read = async (path: string) => (await ask('GET fs/file', { path })).body;

describe('a sandbox', () => {
  test('has its files from the start, and is named in the metadata of its channel', async () => {
    const { launchedSandboxes } = dataOf(await service.ask('GET channel/metadata?custom_channel_id=c1'));
    expect(launchedSandboxes).toEqual([
      {
        sandboxName: 'demo',
        sandboxBlueprintName: 'demo',
        workingDirectory: '/home/demo',
        editorServerEnabled: false,
        browserEnabled: true,
      },
    ]);
    expect(await names('/home/demo')).toEqual(['README.md']);
  });

  test('belongs to one channel, and needs one', async () => {
    await write('/a.txt', 'mine');
    await service.say({ customChannelId: 'c2', text: 'hello' });
    expect(await refusal('GET fs/file', { path: '/a.txt', custom_channel_id: 'c2' })).toEqual([
      404,
      'FILE_NOT_FOUND',
    ]);
    expect(await refusal('GET fs/list', { path: '/', custom_channel_id: 'c3' })).toEqual([
      404,
      'CHANNEL_NOT_FOUND',
    ]);
    expect((await service.ask('GET sandbox/demo/fs/list?path=/')).status).toBe(400);
    for (const name of ['box', 'DEMO', '%2e%2e'])
      expect((await service.ask(`GET sandbox/${name}/fs/list?path=/&custom_channel_id=c1`)).status).toBe(404);
    expect((await service.ask('GET sandbox/demo/editor/open-url?custom_channel_id=c1')).status).toBe(404);
  });

  test('is forgotten with what was said', async () => {
    await write('/a.txt', 'mine');
    await service.ask('POST channel/clear?custom_channel_id=c1');
    expect(await names('/')).toEqual(['home']);
  });

  test('gives addresses of its browser, each once', async () => {
    const urls = [
      dataOf(await ask('POST browser/open-url')).openURL,
      dataOf(await ask('POST browser/open-url')).openURL,
    ];
    expect(new Set(urls).size).toBe(2);
    const session = dataOf(await ask('POST browser/session'));
    expect(session).toEqual({ wsUrl: expect.stringMatching(/^wss:/), token: expect.any(String) });
  });
});

describe('the files of a sandbox', () => {
  test('are written, read, and described', async () => {
    expect(await write('/d/e/ü.txt', 'hello')).toMatchObject({ status: 200, data: { bytesWritten: 5 } });
    expect(await read('/d/e/ü.txt')).toBe('hello');
    expect(dataOf(await ask('GET fs/stat', { path: '/d/e/ü.txt' }))).toEqual({
      exists: true,
      isDir: false,
      sizeBytes: 5,
      mtimeUnix: expect.any(Number),
      mode: 0o644,
    });
    expect(dataOf(await ask('GET fs/list', { path: '/d/' }))).toEqual({
      entries: [{ name: 'e', isDir: true, sizeBytes: 0, mtimeUnix: expect.any(Number), mode: 0o755 }],
      truncated: false,
    });
    expect(dataOf(await ask('GET fs/stat', { path: '/none' }))).toMatchObject({
      exists: false,
      sizeBytes: 0,
    });
    expect(await write('/d/e/ü.txt', 'bye', { mode: '384' })).toMatchObject({ status: 200 });
    expect(dataOf(await ask('GET fs/stat', { path: '/d/e/ü.txt' }))).toMatchObject({
      sizeBytes: 3,
      mode: 384,
    });
    expect(await write('/d/e/ü.txt', 'no', { create_only: 'true' })).toMatchObject({
      code: 'ALREADY_EXISTS',
    });
    expect(await write('/d/e', 'no')).toMatchObject({ code: 'ALREADY_EXISTS' });
    expect(await write('/d/e/ü.txt/x', 'no')).toMatchObject({ code: 'ALREADY_EXISTS' });
  });

  test('are read in pieces, by the query or by a range', async () => {
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

  test('are copied and moved with all below', async () => {
    await write('/a/b/c.txt', 'deep');
    await write('/a/d.txt', 'flat');
    expect(dataOf(await ask('POST fs/copy', { src: '/a', dst: '/x/y' }))).toEqual({ bytesCopied: 8 });
    expect([await read('/x/y/b/c.txt'), await read('/a/b/c.txt')]).toEqual(['deep', 'deep']);
    expect((await ask('POST fs/move', { src: '/a', dst: '/moved' })).status).toBe(200);
    expect(await names('/')).toEqual(['home', 'moved', 'x']);
    expect(await names('/moved')).toEqual(['b', 'd.txt']);
    expect(await refusal('POST fs/copy', { src: '/moved', dst: '/x' })).toEqual([409, 'ALREADY_EXISTS']);
    expect((await ask('POST fs/copy', { src: '/moved', dst: '/x', overwrite: 'true' })).status).toBe(200);
    expect(await names('/x')).toEqual(['b', 'd.txt']);
    for (const dst of ['/moved/inside', '/moved', '/'])
      expect(await refusal('POST fs/move', { src: '/moved', dst, overwrite: 'true' })).toEqual([
        400,
        'INVALID_PATH',
      ]);
    expect(await refusal('POST fs/move', { src: '/none', dst: '/z' })).toEqual([404, 'FILE_NOT_FOUND']);
  });

  test('are removed one by one, or with all below', async () => {
    await ask('POST fs/mkdir', { path: '/a/empty' });
    await write('/a/d.txt', 'flat');
    expect(await refusal('DELETE fs/item', { path: '/a' })).toEqual([409, 'NOT_EMPTY']);
    expect((await ask('DELETE fs/item', { path: '/a/empty' })).status).toBe(200);
    expect(await names('/a')).toEqual(['d.txt']);
    expect((await ask('DELETE fs/all', { path: '/a' })).status).toBe(200);
    expect(await refusal('DELETE fs/all', { path: '/a' })).toEqual([404, 'FILE_NOT_FOUND']);
    expect((await ask('DELETE fs/all', { path: '/' })).status).toBe(200);
    expect(await names('/')).toEqual([]);
  });

  test.each(['', 'a', '../a', '/a/../b', '/./a', '/a//b', '/a\\b', '/a\u0000', `/${'x'.repeat(512)}`])(
    'are not reached by the path %j',
    async (path) => {
      for (const operation of ['GET fs/list', 'GET fs/stat', 'GET fs/file', 'POST fs/mkdir', 'DELETE fs/all'])
        expect([operation, ...(await refusal(operation, { path }))]).toEqual([
          operation,
          400,
          'INVALID_PATH',
        ]);
      expect(await refusal('POST fs/copy', { src: '/home', dst: path })).toEqual([400, 'INVALID_PATH']);
      expect(await write(path, 'x')).toMatchObject({ status: 400, code: 'INVALID_PATH' });
      expect(await refusal('GET fs/watch', { path })).toEqual([400, 'INVALID_PATH']);
    },
  );

  test('are bounded by their bytes and their number', () => {
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
});

describe('a watch of files', () => {
  interface Change {
    readonly op: string;
    readonly path: string;
  }

  /** Opens a stream of changes; `next` resolves with the next one, or with undefined at the end. */
  async function watch(query: Query) {
    const all = new URLSearchParams({ custom_channel_id: 'c1', ...query });
    const response = await fetch(`${service.url.origin}${service.pathOf(`sandbox/demo/fs/watch?${all}`)}`, {
      headers: { 'X-API-KEY': service.key },
    });
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream())
      .getReader();
    return {
      async next() {
        const { value } = await reader.read();
        if (value === undefined) return undefined;
        expect([value.event, value.id]).toEqual(['change', undefined]);
        const { op, path } = JSON.parse(value.data) as Change;
        return `${op} ${path}`;
      },
    };
  }

  test('names each change of a path and right below it', async () => {
    await write('/w/a.txt', 'one');
    const changes = await watch({ path: '/w' });
    await write('/w/a.txt', 'two');
    await write('/other.txt', 'x');
    await write('/w/deep/b.txt', 'x');
    await ask('POST fs/move', { src: '/w/a.txt', dst: '/w/c.txt' });
    expect([await changes.next(), await changes.next(), await changes.next(), await changes.next()]).toEqual([
      'WRITE /w/a.txt',
      'CREATE /w/deep',
      'REMOVE /w/a.txt',
      'CREATE /w/c.txt',
    ]);
  });

  test('names changes anywhere below, if asked to', async () => {
    await write('/w/deep/a.txt', 'one');
    const changes = await watch({ path: '/w', recursive: 'true' });
    await write('/w/deep/a.txt', 'two');
    await ask('DELETE fs/all', { path: '/w' });
    expect([await changes.next(), await changes.next()]).toEqual([
      'WRITE /w/deep/a.txt',
      'REMOVE /w/deep/a.txt',
    ]);
  });

  test('ends when its channel is gone', async () => {
    const changes = await watch({ path: '/' });
    await service.ask('DELETE channel?custom_channel_id=c1');
    expect(await changes.next()).toBeUndefined();
  });

  test('is refused for a path that is not there, and if there are 16', async () => {
    expect(await refusal('GET fs/watch', { path: '/none' })).toEqual([404, 'FILE_NOT_FOUND']);
    await Promise.all(Array.from({ length: 16 }, () => watch({ path: '/' })));
    expect(await refusal('GET fs/watch', { path: '/' })).toEqual([429, 'RATE_LIMITED']);
  });
});

import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { PassThrough } from 'node:stream';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { ProblemCode } from '../../../src/errors.ts';
import { scopedChannelId } from '../../../src/guard/scoped-channels.ts';
import { type UploadBody, uploadBody, uploadBoundary } from '../../../src/relay/operations/upload-body.ts';
import { secret } from '../../../src/secret.ts';
import { call, expectProblem, parseAnswer } from '../../harness/clients/call.ts';
import {
  FORM_TYPE,
  type FormPart,
  filePart,
  formOf,
  partsOf,
  textPart,
} from '../../harness/clients/forms.ts';
import { ask, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { type RawClient, rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { pass, stopClock } from '../../harness/clock/stop-clock.ts';
import { until } from '../../harness/clock/until.ts';
import { faultProxy } from '../../harness/faults/fault-proxy.ts';
import { describeWithRedis, startRedis, stopRedis } from '../../harness/redis/redis.ts';
import { CANARY, OTHER_USER } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { inPieces, splits } from '../../harness/service/event-streams.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { plainAnswer, wholeStream } from '../../harness/service/raw-upstream.ts';

const BLOB = operationAt('POST blob');
const WRITE = operationAt('PUT sandbox/:sandbox/fs/file');
const PATH = '/ns/acme/bot-provider/helper/blob';
const MAX_BYTES = 300_000;
const UPSTREAM_ID = scopedChannelId(secret(CANARY.channelSecret), {
  realm: 'password',
  userId: 'ada',
  id: 'c1',
});
const ID = textPart('c1');
const FILE = filePart('x');
const GOOD = jsonAnswer('200 OK', { blobId: 'b1', customChannelId: UPSTREAM_ID }, ['Connection: close']);

let pair: RelayAndUpstream;
/** What the service answers to the next forms, once it has all of one. */
let answer: string;
beforeAll(async () => {
  pair = await startWithSandboxes((socket) => void socket.write(answer), {
    OPERATIONS: 'message,files,sandbox',
    MAX_UPLOAD_BYTES: String(MAX_BYTES),
    UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
  });
});
afterAll(() => pair.close());
/** Lets the relay handle all that has arrived. */
const turns = async ({ relay }: RelayAndUpstream) => {
  for (let n = 0; n < 3; n += 1) await call(relay.port, '/healthz');
};
const clients: RawClient[] = [];
const own: RelayAndUpstream[] = [];
afterEach(async () => {
  answer = GOOD;
  for (const { socket } of clients.splice(0)) socket.destroy();
  for (const each of own.splice(0)) await each.close();
});
answer = GOOD;

const upload = (parts: readonly FormPart[] | string | Buffer, type = FORM_TYPE, at = pair) =>
  ask(at, BLOB, {
    body: typeof parts === 'string' || Buffer.isBuffer(parts) ? parts : formOf(parts),
    headers: { 'Content-Type': type },
  });
/** The parts of the newest form at the service. */
const sent = () => {
  const request = pair.upstream.requests.at(-1);
  return partsOf(request?.body ?? Buffer.alloc(0), request?.all('content-type')[0]);
};
const cut = ({ upstream } = pair) => until(() => upstream.sockets.every(({ destroyed }) => destroyed));
/** Expects that `run` opens no connection to the service, or one that is cut before a whole request. */
async function sendsNothing(run: () => Promise<unknown>, mayConnect = true): Promise<void> {
  const { requests, sockets } = pair.upstream;
  const [whole, opened] = [requests.length, sockets.length];
  await run();
  await cut();
  expect(requests).toHaveLength(whole);
  if (!mayConnect) expect(sockets).toHaveLength(opened);
}
/** Sends the head of an upload in chunks, and returns how to send each chunk. */
function slowUpload(at = pair, headers: readonly string[] = []) {
  const head = [`POST ${PATH} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${at.cookie}`, ...headers];
  const lines = [...head, `Content-Type: ${FORM_TYPE}`, 'Transfer-Encoding: chunked', '', ''];
  const client = rawClient(at.relay.port, lines.join('\r\n'));
  clients.push(client);
  const send = (bytes: string | Buffer) => {
    const data = Buffer.from(bytes as string);
    client.socket.write(
      Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]),
    );
  };
  return { client, send, end: () => client.socket.write('0\r\n\r\n') };
}

describe('an upload', () => {
  test.each([true, false])(
    'goes upstream as a new form: the file, then the upstream id, whichever came first (%j)',
    async (isFileFirst) => {
      const file = Buffer.concat([randomBytes(100_000), Buffer.from('\r\n--client boundar\r\n--\r\n')]);
      const answered = await upload(isFileFirst ? [filePart(file), ID] : [ID, filePart(file)]);
      expect([answered.status, answered.body]).toEqual([200, '{"blobId":"b1","customChannelId":"c1"}']);
      expect(sent()).toEqual([
        {
          head: 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain',
          body: file.toString('latin1'),
        },
        { head: 'Content-Disposition: form-data; name="customChannelId"', body: UPSTREAM_ID },
      ]);
      const request = pair.upstream.requests.at(-1);
      expect(request?.all('x-api-key')).toEqual([CANARY.key]);
      expect(['cookie', 'content-length'].flatMap((name) => request?.all(name))).toEqual([]);
    },
  );

  test('arrives the same, whatever is in its file and around its parts, and wherever its bytes are split', async () => {
    const contents = fc
      .array(fc.constantFrom('\r', '\n', '\r\n', '-', '--', '--client boundary', 'x', '\0', 'é'))
      .map((parts) => parts.join(''))
      .filter((content) => !`\r\n${content}`.includes('\r\n--client boundary'));
    const arrives = async (content: string, lengths: readonly number[], isBehind: boolean) => {
      const parts = [filePart(Buffer.from(content, 'latin1')), ID];
      const form = formOf(isBehind ? parts : parts.reverse());
      const { client, send, end } = slowUpload(pair, ['Expect: 100-continue']);
      await client.waitFor('100 Continue');
      send('text before it\r\n');
      for (const piece of inPieces(form, lengths)) if (piece.length > 0) send(piece);
      send('text behind it');
      end();
      await client.waitFor('"blobId"');
      client.socket.destroy();
      expect(sent().map(({ body }) => body)).toEqual([content, UPSTREAM_ID]);
    };
    await fc.assert(fc.asyncProperty(contents, splits, fc.boolean(), arrives), {
      numRuns: 100,
      examples: [
        ['', [1], false],
        ['ab\r\n-', [1], true],
      ],
    });
  });

  test.each([
    ['a path in Windows', 'C:\\\\temp\\\\a.txt', 'a.txt'],
    ['a path', '../../etc/passwd', 'passwd'],
    ['quotes', 'a\\"b%22', 'a%22b%22'],
    ['a backslash at its end', 'a\\\\', 'file'],
    ['letters', Buffer.from('Übung.pdf').toString('latin1'), Buffer.from('Übung.pdf').toString('latin1')],
    ['nothing', '', 'file'],
    ['dots', '..', 'file'],
  ])('has a name that is %s, which names no folder upstream', async (_what, name, expected) => {
    const part = filePart('x', `name="file"; filename="${name}"`);
    const form = formOf([{ ...part, head: [] }, ID]);
    const at = form.indexOf('\r\n\r\n');
    const head = Buffer.from(part.head.join('\r\n'), 'latin1');
    const body = Buffer.concat([form.subarray(0, at), head, form.subarray(at)]);
    expect((await upload(body)).status).toBe(200);
    expect(sent()[0]?.head).toContain(`filename="${expected}"\r\n`);
  });
});

const withHead = (...lines: string[]) => ({ ...FILE, head: [...FILE.head, ...lines] });
const [FORM, CONVERSATION] = ['invalid_form', 'invalid_conversation'] as const;

describe('an upload is refused, and its request to the service is cut unfinished, if it', () => {
  test.each<[string, readonly FormPart[], ProblemCode]>([
    ['has no file', [ID], FORM],
    ['has no id', [FILE], FORM],
    ['has two files', [FILE, filePart('y')], FORM],
    ['has a file, an id and a file', [FILE, ID, filePart('y')], FORM],
    ['has two ids', [ID, textPart('c2'), FILE], FORM],
    ['has an id behind the whole', [FILE, ID, textPart('c2')], FORM],
    ['has another text', [FILE, textPart('1', 'admin')], FORM],
    ['has a similar name of the id', [FILE, textPart('c1', 'custom_channel_id')], CONVERSATION],
    ['has an array of ids', [FILE, textPart('c1', 'customChannelId[]')], CONVERSATION],
    ['has an empty id', [FILE, textPart('')], CONVERSATION],
    ['has a long id', [FILE, textPart('x'.repeat(257))], CONVERSATION],
    ['has a very long id', [FILE, textPart('x'.repeat(2000))], FORM],
    ['has an id that is not UTF-8', [FILE, textPart(Buffer.from([0xff]))], FORM],
    ['has a file with another name', [filePart('x', 'name="files"; filename="a"'), ID], FORM],
    ['has a file that is a text', [textPart('x', 'file'), ID], FORM],
    ['has an id that is a file', [filePart('c1', 'name="customChannelId"; filename="a"')], FORM],
    ['has an extended name', [filePart('x', `name="file"; filename*=UTF-8''a`), ID], FORM],
    ['has two types', [withHead('Content-Type: text/html'), ID], FORM],
    ['has two dispositions', [withHead(...FILE.head), ID], FORM],
    ['has an encoded part', [withHead('Content-Transfer-Encoding: base64'), ID], FORM],
    ['has a part without headers', [FILE, { head: [], body: 'x' }], FORM],
  ])('%s', (_what, parts, code) => sendsNothing(async () => expectProblem(await upload(parts), 400, code)));

  test.each([
    ['has no end', formOf([FILE, ID], '')],
    ['ends inside a part', formOf([ID, FILE]).subarray(0, -30)],
    ['ends inside headers', formOf([ID, FILE], '--client boundary\r\nContent-Dispo')],
    ['has no end of headers', formOf([ID, FILE], '--client boundary\r\nContent\r\n--client boundary--\r\n')],
    ['is empty', ''],
    ['has no part', '--client boundary--\r\n'],
    ['is no form', 'x'.repeat(1000)],
  ])('%s', (_what, body) => sendsNothing(async () => expectProblem(await upload(body), 400, FORM)));

  test.each([
    ['application/json', 415, 'unsupported_media_type'],
    ['multipart/mixed; boundary=x', 415, 'unsupported_media_type'],
    ['multipart/form-data', 400, FORM],
    [`multipart/form-data; boundary=${'x'.repeat(71)}`, 400, FORM],
  ] as const)('is %s, before a connection', (type, status, code) =>
    sendsNothing(async () => expectProblem(await upload([FILE, ID], type), status, code), false),
  );

  test('names another conversation in its query', () =>
    sendsNothing(async () => {
      const row = { ...BLOB, path: 'blob?custom_channel_id=c2' };
      expectProblem(await ask(pair, row), 400, CONVERSATION);
    }));

  test('is larger than MAX_UPLOAD_BYTES, by its Content-Length before a connection', async () => {
    expect((await upload([filePart(Buffer.alloc(MAX_BYTES)), ID])).status).toBe(200);
    const large = (more: number) => upload([filePart(Buffer.alloc(MAX_BYTES + more)), ID]);
    await sendsNothing(async () => expectProblem(await large(1), 413, 'body_too_large'));
    await sendsNothing(async () => expectProblem(await large(65_537), 413, 'body_too_large'), false);
    await sendsNothing(async () => {
      const { client, send } = slowUpload();
      for (let bytes = 0; bytes < MAX_BYTES + 80_000; bytes += 8_000) send('x'.repeat(8_000));
      await client.waitFor('body_too_large');
      expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
      await client.closed;
    });
  });

  test('is left by its client', () =>
    sendsNothing(async () => {
      const { length } = pair.upstream.sockets;
      const { client, send } = slowUpload();
      send(formOf([ID, filePart('x'.repeat(1000))], ''));
      await until(() => pair.upstream.sockets.length > length);
      client.socket.destroy();
      await pair.relay.logLine(({ outcome, status }) => outcome === 'client_closed' && status === 499);
    }));
});

describe('a service', () => {
  const start = async (onForm: (socket: Socket) => void, environment: Record<string, string> = {}) => {
    const at = await startRelayAndUpstream(onForm, { OPERATIONS: 'message,files', ...environment });
    own.push(at);
    return at;
  };
  const early = async (text: string) => {
    const at = await start(() => {});
    const slow = slowUpload(at);
    slow.send(formOf([filePart('x'.repeat(1000))], ''));
    await until(() => at.upstream.sockets.length === 1);
    at.upstream.sockets[0]?.write(text);
    return { ...slow, at };
  };

  test('that refuses a key gets the form no second time; the next one has the other key', async () => {
    const at = await start((socket) => void socket.write(plainAnswer('401 No', [])), {
      UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
    });
    const refused = await upload([FILE, ID], FORM_TYPE, at);
    expectProblem(refused, 502, 'upstream_key_rejected', { retryable: 'new message' });
    expect(at.upstream.requests).toHaveLength(1);
    await at.relay.logLine(({ msg }) => msg === 'upstream key rejected');
    await upload([FILE, ID], FORM_TYPE, at);
    expect(at.upstream.requests.map(({ all }) => all('x-api-key')[0])).toEqual([
      CANARY.key,
      CANARY.secondKey,
    ]);
  });

  test('that fails may have stored it, and the problem says so', async () => {
    answer = plainAnswer('500 Oh', ['Connection: close']);
    expectProblem(await upload([FILE, ID]), 502, 'upstream_bad_response', {
      ...{ maybeStarted: true, retryable: false },
    });
  });

  test('can refuse it before it has all of it, and the rest is not sent', async () => {
    const { client, at } = await early(jsonAnswer('413 Large', { error: 'too large' }));
    await client.waitFor('upstream_refused');
    expectProblem(parseAnswer(client.text()), 413, 'upstream_refused', { upstream: { error: 'too large' } });
    await cut(at);
  });

  test('that answers before it has all of it has not taken a form that is refused then', async () => {
    const { client, send, end, at } = await early(jsonAnswer('200 OK', { blobId: 'b1' }));
    // The answer arrives first.
    await turns(at);
    send(formOf([textPart('c1', 'other')]));
    end();
    await client.waitFor(FORM);
    expectProblem(parseAnswer(client.text()), 400, FORM);
    await cut(at);
  });

  test('gets no more of it than it reads', async () => {
    const at = await start(() => {}, { MAX_UPLOAD_BYTES: '20971520' });
    const { client, send } = slowUpload(at);
    send(formOf([filePart('')], '').subarray(0, -2));
    await until(() => at.upstream.sockets.length === 1);
    at.upstream.sockets[0]?.pause();
    // Until nothing is taken any more: all buffers on the way are full.
    let written = 0;
    for (let idle = 0; idle < 10 && written < 20_000_000; ) {
      if (client.socket.writableLength > 0) {
        await turns(at);
        idle += 1;
        continue;
      }
      idle = 0;
      send(Buffer.alloc(65_536));
      written += 65_536;
    }
    expect(written).toBeGreaterThan(500_000);
    expect(written).toBeLessThan(20_000_000);
  });
});

describe('an upload, on a clock that the test moves,', () => {
  const times = { stallMs: 1_000, wholeMs: 2 ** 31 - 1 };
  const PART = formOf([filePart(Buffer.alloc(200_000))], '').subarray(0, -2);
  const open: (() => void)[] = [];
  afterEach(() => {
    for (const close of open.splice(0)) close();
  });

  /** Sends the beginning of a form to a server that reads it with `own`, whose reader takes it or not. */
  async function uploadWith(own: Parameters<typeof uploadBody>[1]['times'], isTaken: boolean) {
    stopClock();
    const arrived = Promise.withResolvers<IncomingMessage>();
    const server = createServer((req) => arrived.resolve(req));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const head = ['POST / HTTP/1.1', 'Host: a', `Content-Type: ${FORM_TYPE}`, 'Content-Length: 10000000'];
    const { port } = server.address() as AddressInfo;
    const { socket } = rawClient(port, `${head.join('\r\n')}\r\n\r\n`);
    open.push(() => {
      socket.destroy();
      server.close();
    });
    socket.write(PART);
    const req = await arrived.promise;
    const boundary = uploadBoundary(req.headers, 20_971_520);
    const body = uploadBody(req, { boundary, times: own, maxBytes: 20_971_520, upstreamId: () => 'u' });
    if (isTaken) body.stream.resume();
    const state: { end?: string } = {};
    body.done.then(
      () => {
        state.end = 'done';
      },
      (reason: { code: string }) => {
        state.end = reason.code;
      },
    );
    /** Sends more, and waits until that has been written for the service. */
    const sendMore = async () => {
      const before = body.fileBytes();
      socket.write(Buffer.alloc(10_000));
      await until(() => body.fileBytes() > before);
    };
    return { body, socket, state, sendMore };
  }
  const all = ({ fileBytes }: UploadBody) => until(() => fileBytes() > 199_000);

  test.each([
    ['client', true, 'request_timeout'],
    ['bot service', false, 'upstream_timeout'],
  ])('is cut when it stalls because of its %s', async (_whose, isTaken, code) => {
    const { body, state } = await uploadWith(times, isTaken);
    await (isTaken ? all(body) : until(() => (body.stream as PassThrough).writableNeedDrain));
    pass(times.stallMs - 1);
    await new Promise(setImmediate);
    expect(state.end).toBeUndefined();
    // Bytes that still move in this process keep the upload going.
    await until(() => {
      pass(times.stallMs);
      return state.end !== undefined;
    });
    expect(state.end).toBe(code);
    expect(body.stream.destroyed).toBe(true);
  });

  test('is cut after the whole time, though bytes come', async () => {
    const { body, state, sendMore } = await uploadWith({ stallMs: 1_000, wholeMs: 2_500 }, true);
    await all(body);
    for (let n = 0; n < 2; n += 1) {
      pass(999);
      await sendMore();
    }
    expect(state.end).toBeUndefined();
    pass(502);
    await until(() => state.end === 'request_timeout');
  });

  test('is not cut while the bot service slowly takes what has arrived', async () => {
    const { body, socket, state } = await uploadWith(times, false);
    for (let taken = 0; taken < 199_000; ) {
      await until(() => body.stream.readableLength > 0);
      pass(600);
      taken += (body.stream.read() as Buffer).length;
      await new Promise(setImmediate);
    }
    socket.write(Buffer.concat([Buffer.from('\r\n'), formOf([ID])]));
    socket.write(Buffer.alloc(10_000_000));
    body.stream.resume();
    await until(() => state.end !== undefined);
    expect(state.end).toBe('done');
  });
});

describe('a file that is written into a sandbox', () => {
  const write = (parts: readonly FormPart[], query: Record<string, string> = {}) => {
    const { path, method, headers } = operationRequest(WRITE);
    const body = formOf(parts);
    return call(pair.relay.port, `${path}&${new URLSearchParams(query)}`, {
      ...{ method, body },
      headers: { ...headers, Cookie: pair.cookie, 'Content-Length': String(body.length) },
    });
  };

  test('goes upstream as the only part of a form, with its conversation in the query', async () => {
    const bytes = 'a"\r\n\0';
    const query = { mode: '384', create_only: 'true' };
    const answered = await write([filePart(bytes, 'name="file"; filename="blob"')], query);
    expect(answered.status).toBe(200);
    const { requestLine } = pair.upstream.requests.at(-1) ?? { requestLine: '' };
    expect(requestLine).toMatch(/^PUT \/ns\/acme\/bot-provider\/helper\/sandbox\/one\/fs\/file\?/);
    const target = new URL(requestLine.split(' ')[1] ?? '', 'http://a');
    expect(Object.fromEntries(target.searchParams)).toEqual({
      ...{ custom_channel_id: UPSTREAM_ID, path: 'a', ...query },
    });
    expect(sent()).toEqual([
      {
        head: 'Content-Disposition: form-data; name="file"; filename="blob"\r\nContent-Type: text/plain',
        body: bytes,
      },
    ]);
  });

  test.each<[string, readonly FormPart[]]>([
    ['a conversation', [FILE, ID]],
    ['another text', [FILE, textPart('/etc', 'path')]],
    ['two files', [FILE, filePart('y')]],
    ['no file', []],
  ])('is refused in a form with %s', (_what, parts) =>
    sendsNothing(async () => expectProblem(await write(parts), 400, FORM)),
  );

  test('has at most MAX_UPLOAD_BYTES', () =>
    sendsNothing(async () =>
      expectProblem(await write([filePart(Buffer.alloc(MAX_BYTES + 1))]), 413, 'body_too_large'),
    ));

  test('may have been written if the service fails, and is no file that a message may name', async () => {
    answer = plainAnswer('500 Oh', ['Connection: close']);
    expectProblem(await write([FILE]), 502, 'upstream_bad_response', {
      ...{ maybeStarted: true, retryable: false },
    });
    answer = jsonAnswer('200 OK', { blobId: 'b7' }, ['Connection: close']);
    expect((await write([FILE])).status).toBe(200);
    expectProblem(await message(pair, 'c1', ['b7']), 403, 'not_your_conversation');
  });
});

/** Sends a message that names these files. */
const message = (at: RelayAndUpstream, channel: string, blobIds: readonly string[], Cookie = at.cookie) =>
  call(at.relay.port, '/ns/acme/bot-provider/helper/message/sse', {
    method: 'POST',
    headers: { Cookie, 'Content-Type': 'application/json' },
    body: JSON.stringify({ customChannelId: channel, blobIds }),
  });

describe('a message', () => {
  test.each(['scoped', 'shared'])(
    'names files of its own user and conversation only, with CHANNELS=%s',
    async (CHANNELS) => {
      const at = await startRelayAndUpstream(
        (socket, { requestLine }) =>
          void socket.write(
            requestLine.includes('/blob ')
              ? jsonAnswer('200 OK', { data: [{ blobId: 'b1' }] })
              : wholeStream('data: {}\n\n'),
          ),
        { OPERATIONS: 'message,files', CHANNELS },
      );
      own.push(at);
      const other = await at.relay.signIn(OTHER_USER);
      expect((await ask(at, BLOB)).status).toBe(200);
      expect((await message(at, 'c1', ['b1'])).status).toBe(200);
      const before = at.upstream.requests.length;
      for (const refused of [
        message(at, 'c2', ['b1']),
        message(at, 'c1', ['b1', 'b2']),
        message(at, 'c1', ['b1'], other),
      ])
        expectProblem(await refused, 403, 'not_your_conversation');
      expect(at.upstream.requests).toHaveLength(before);
    },
  );

  test('names any file where uploads are off', async () => {
    const at = await startRelayAndUpstream((socket) => void socket.write(wholeStream('data: {}\n\n')), {
      OPERATIONS: 'message',
    });
    own.push(at);
    expect((await message(at, 'c1', ['b9'])).status).toBe(200);
  });
});

describeWithRedis('a file that the service has taken', () => {
  test('is not to be sent again if Redis is lost before the answer', async () => {
    const redis = await startRedis();
    const wire = await faultProxy(redis.url);
    const at = await startRelayAndUpstream(
      (socket) => {
        wire.cut();
        socket.write(jsonAnswer('200 OK', { blobId: 'b1' }));
      },
      { OPERATIONS: 'message,files', REDIS_URL: wire.url },
    );
    expectProblem(await ask(at, BLOB), 502, 'answer_lost', { maybeStarted: true, retryable: false });
    expect(await at.relay.logLine(({ outcome }) => outcome === 'answer_lost')).toMatchObject({
      cause: 'session_store_unavailable',
    });
    await at.close();
    wire.close();
    stopRedis();
  });
});

import { randomBytes } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { scopedChannelId } from '../../../src/guard/scoped-channels.ts';
import { secret } from '../../../src/secret.ts';
import { expectProblem, parseAnswer } from '../../harness/clients/call.ts';
import {
  FORM_TYPE,
  type FormPart,
  filePart,
  formOf,
  partsOf,
  textPart,
} from '../../harness/clients/forms.ts';
import { ask, operationAt } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { sleep } from '../../harness/clock/sleep.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { inPieces, splits } from '../../harness/service/event-streams.ts';
import { plainAnswer } from '../../harness/service/raw-upstream.ts';

const BLOB = operationAt('POST blob');
const PATH = '/ns/acme/bot-provider/helper/blob';
const UPSTREAM_ID = scopedChannelId(secret(CANARY.channelSecret), {
  realm: 'password',
  userId: 'ada',
  id: 'c1',
});

let pair: RelayAndUpstream;
afterEach(() => pair.close());

/** The service answers with the id of the conversation that it has got. */
const start = async (environment: Record<string, string> = {}, answer?: string) => {
  pair = await startRelayAndUpstream(
    (socket) =>
      void socket.write(answer ?? jsonAnswer('200 OK', { blobId: 'b1', customChannelId: UPSTREAM_ID })),
    { OPERATIONS: 'message,files', ...environment },
  );
};
const upload = (body: string | Buffer, type = FORM_TYPE) =>
  ask(pair, BLOB, { body, headers: { 'Content-Type': type } });
const sent = (at = 0) => {
  const request = pair.upstream.requests[at];
  return partsOf(request?.body ?? Buffer.alloc(0), request?.all('content-type')[0]);
};
/** Sends the head of an upload in chunks, and returns how to send each chunk. */
const slowUpload = (headers: readonly string[] = []) => {
  const head = [`POST ${PATH} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${pair.cookie}`, ...headers];
  const lines = [...head, `Content-Type: ${FORM_TYPE}`, 'Transfer-Encoding: chunked', '', ''];
  const client = rawClient(pair.relay.port, lines.join('\r\n'));
  const send = (bytes: string | Buffer) => {
    const data = Buffer.from(bytes as string);
    client.socket.write(
      Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]),
    );
  };
  return { client, send, end: () => client.socket.write('0\r\n\r\n') };
};

describe('an upload', () => {
  const file = Buffer.concat([
    randomBytes(100_000),
    Buffer.from('\r\n--client boundar\r\n--\r\n'),
    randomBytes(10),
  ]);

  test.each([
    ['behind', [filePart(file), textPart('c1')]],
    ['before', [textPart('c1'), filePart(file)]],
  ])(
    'with its id %s the file goes upstream as a new form: the file, then the upstream id',
    async (_where, parts) => {
      await start();
      const answer = await upload(formOf(parts));
      expect([answer.status, answer.body]).toEqual([200, '{"blobId":"b1","customChannelId":"c1"}']);
      expect(sent()).toEqual([
        {
          head: 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain',
          body: file.toString('latin1'),
        },
        { head: 'Content-Disposition: form-data; name="customChannelId"', body: UPSTREAM_ID },
      ]);
      const [request] = pair.upstream.requests;
      expect(request?.requestLine).toBe(`POST ${PATH} HTTP/1.1`);
      expect(request?.all('x-api-key')).toEqual([CANARY.key]);
      expect([...(request?.all('cookie') ?? []), ...(request?.all('content-length') ?? [])]).toEqual([]);
    },
  );

  test('arrives the same, whatever is in its file and around its parts, and wherever its bytes are split', async () => {
    await start({ CHANNELS: 'shared' });
    const contents = fc
      .array(fc.constantFrom('\r', '\n', '\r\n', '-', '--', '--client boundary', 'x', '\0', 'é'))
      .map((parts) => parts.join(''))
      .filter((content) => !`\r\n${content}`.includes('\r\n--client boundary'));
    const arrives = async (content: string, lengths: readonly number[], isBehind: boolean) => {
      const parts = [filePart(Buffer.from(content, 'latin1')), textPart('c1')];
      const form = formOf(isBehind ? parts : parts.reverse());
      const { client, send, end } = slowUpload(['Expect: 100-continue']);
      await client.waitFor('100 Continue');
      send('text before it\r\n');
      for (const piece of inPieces(form, lengths)) if (piece.length > 0) send(piece);
      send('text behind it');
      end();
      await client.waitFor('"blobId"');
      client.socket.destroy();
      const bodies = sent(pair.upstream.requests.length - 1).map(({ body }) => body);
      expect(bodies).toEqual([content, 'c1']);
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
    await start();
    const part = filePart('x', `name="file"; filename="${name}"`);
    const form = formOf([{ ...part, head: [] }, textPart('c1')]);
    const head = Buffer.from(part.head.join('\r\n'), 'latin1');
    const at = form.indexOf('\r\n\r\n');
    const body = Buffer.concat([form.subarray(0, at), head, form.subarray(at)]);
    expect((await upload(body)).status).toBe(200);
    expect(sent()[0]?.head).toContain(`filename="${expected}"\r\n`);
  });
});

const ID = textPart('c1');
const FILE = filePart('x');
const refused: readonly (readonly [string, readonly FormPart[], string, number])[] = [
  ['has no file', [ID], 'invalid_form', 400],
  ['has no id', [FILE], 'invalid_form', 400],
  ['has two files', [FILE, filePart('y')], 'invalid_form', 400],
  ['has a file, an id and a file', [FILE, ID, filePart('y')], 'invalid_form', 400],
  ['has two ids', [ID, textPart('c2'), FILE], 'invalid_form', 400],
  ['has an id behind the whole', [FILE, ID, textPart('c2')], 'invalid_form', 400],
  ['has another text', [FILE, textPart('1', 'admin')], 'invalid_form', 400],
  ['has a similar name of the id', [FILE, textPart('c1', 'custom_channel_id')], 'invalid_conversation', 400],
  ['has an array of ids', [FILE, textPart('c1', 'customChannelId[]')], 'invalid_conversation', 400],
  ['has an empty id', [FILE, textPart('')], 'invalid_conversation', 400],
  ['has a long id', [FILE, textPart('x'.repeat(257))], 'invalid_conversation', 400],
  ['has a very long id', [FILE, textPart('x'.repeat(2000))], 'invalid_form', 400],
  ['has an id that is not UTF-8', [FILE, textPart(Buffer.from([0xff]))], 'invalid_form', 400],
  ['has a file with another name', [filePart('x', 'name="files"; filename="a"'), ID], 'invalid_form', 400],
  ['has a file that is a text', [textPart('x', 'file'), ID], 'invalid_form', 400],
  ['has an id that is a file', [filePart('c1', 'name="customChannelId"; filename="a"')], 'invalid_form', 400],
  ['has an extended name', [filePart('x', `name="file"; filename*=UTF-8''a`), ID], 'invalid_form', 400],
  ['has two types', [{ ...FILE, head: [...FILE.head, 'Content-Type: text/html'] }, ID], 'invalid_form', 400],
  ['has two dispositions', [{ ...FILE, head: [...FILE.head, ...FILE.head] }, ID], 'invalid_form', 400],
  [
    'has an encoded part',
    [{ ...FILE, head: [...FILE.head, 'Content-Transfer-Encoding: base64'] }, ID],
    'invalid_form',
    400,
  ],
  ['has a part without headers', [FILE, { head: [], body: 'x' }], 'invalid_form', 400],
];

describe('an upload is refused, and its request to the service is cut unfinished, if it', () => {
  test.each(refused)('%s', async (_what, parts, code, status) => {
    await start();
    expectProblem(await upload(formOf(parts)), status, code as 'invalid_form');
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    expect(pair.upstream.requests).toEqual([]);
  });

  test.each([
    ['has no end', formOf([FILE, ID], '')],
    ['ends inside a part', formOf([ID, FILE]).subarray(0, -30)],
    ['ends inside headers', formOf([ID, FILE], '--client boundary\r\nContent-Dispo')],
    [
      'has headers without an end',
      formOf([ID, FILE], '--client boundary\r\nContent\r\n--client boundary--\r\n'),
    ],
    ['is empty', ''],
    ['has no part', '--client boundary--\r\n'],
    ['is no form', 'x'.repeat(1000)],
  ])('%s', async (_what, body) => {
    await start();
    expectProblem(await upload(body), 400, 'invalid_form');
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    expect(pair.upstream.requests).toEqual([]);
  });

  test.each([
    ['application/json', 415, 'unsupported_media_type'],
    ['multipart/mixed; boundary=x', 415, 'unsupported_media_type'],
    ['multipart/form-data', 400, 'invalid_form'],
    [`multipart/form-data; boundary=${'x'.repeat(71)}`, 400, 'invalid_form'],
  ] as const)('is %s, before a connection', async (type, status, code) => {
    await start();
    expectProblem(await upload(formOf([FILE, ID]), type), status, code);
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('names another conversation in its query', async () => {
    await start();
    const row = { ...BLOB, path: 'blob?custom_channel_id=c2' };
    const answer = await ask(pair, row, { body: formOf([FILE, ID]), headers: { 'Content-Type': FORM_TYPE } });
    expectProblem(answer, 400, 'invalid_conversation');
    expect(pair.upstream.requests).toEqual([]);
  });
});

describe('MAX_UPLOAD_BYTES', () => {
  test('is the largest file', async () => {
    await start({ MAX_UPLOAD_BYTES: '1000' });
    expect((await upload(formOf([filePart(Buffer.alloc(1000)), ID]))).status).toBe(200);
    expectProblem(await upload(formOf([filePart(Buffer.alloc(1001)), ID])), 413, 'body_too_large');
    await until(() => pair.upstream.sockets.slice(1).every(({ destroyed }) => destroyed));
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('refuses a larger Content-Length before a connection', async () => {
    await start({ MAX_UPLOAD_BYTES: '1000' });
    expectProblem(await upload(formOf([filePart(Buffer.alloc(70_000)), ID])), 413, 'body_too_large');
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('ends a form of any length that does not end', async () => {
    await start({ MAX_UPLOAD_BYTES: '1000' });
    const { client, send } = slowUpload();
    for (let sent = 0; sent < 80_000; sent += 8_000) send('x'.repeat(8_000));
    await client.waitFor('body_too_large');
    expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
    await client.closed;
  });
});

describe('an upload whose answer is bad', () => {
  test('with a refused key is 502, is not sent again, and the key is reported', async () => {
    await start(
      { UPSTREAM_API_KEYS: 'first-key-of-this-test,second-key-of-this-test' },
      plainAnswer('401 No', []),
    );
    expectProblem(await upload(formOf([FILE, ID])), 502, 'upstream_key_rejected', {
      retryable: 'new message',
    });
    expect(pair.upstream.requests).toHaveLength(1);
    expect(await pair.relay.logLine(({ msg }) => msg === 'upstream key rejected')).toBeDefined();
    // The ring has learnt it: the next upload begins with the other key.
    await upload(formOf([FILE, ID]));
    expect(pair.upstream.requests.map(({ all }) => all('x-api-key')[0])).toEqual([
      'first-key-of-this-test',
      'second-key-of-this-test',
    ]);
  });

  test('may be stored, and says so', async () => {
    await start({}, plainAnswer('500 Oh', []));
    expectProblem(await upload(formOf([FILE, ID])), 502, 'upstream_bad_response', {
      maybeStarted: true,
      retryable: false,
    });
  });
});

describe('a service that answers before it has the whole form', () => {
  const early = async (answer: string) => {
    pair = await startRelayAndUpstream(() => {}, { OPERATIONS: 'message,files' });
    const upload = slowUpload();
    upload.send(formOf([filePart('x'.repeat(1000))], ''));
    await until(() => pair.upstream.sockets.length === 1);
    pair.upstream.sockets[0]?.write(answer);
    return upload;
  };
  const cut = () => until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));

  test('can refuse it at once, and the rest is not sent', async () => {
    const { client } = await early(jsonAnswer('413 Large', { error: 'too large' }));
    await client.waitFor('upstream_refused');
    expectProblem(parseAnswer(client.text()), 413, 'upstream_refused', { upstream: { error: 'too large' } });
    await cut();
    client.socket.destroy();
  });

  test('has not taken a form that is refused then', async () => {
    const { client, send, end } = await early(jsonAnswer('200 OK', { blobId: 'b1' }));
    // Time for the answer to arrive first.
    await sleep(50);
    send(formOf([textPart('c1', 'other')]));
    end();
    await client.waitFor('invalid_form');
    expectProblem(parseAnswer(client.text()), 400, 'invalid_form');
    await cut();
    client.socket.destroy();
  });
});

test('a client that leaves cuts the request to the service', async () => {
  await start();
  const { client, send } = slowUpload();
  send(formOf([ID, filePart('x'.repeat(1000))], ''));
  await until(() => pair.upstream.sockets.length === 1);
  client.socket.destroy();
  await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  expect(await pair.relay.logLine(({ outcome }) => outcome === 'client_closed')).toMatchObject({
    status: 499,
  });
  expect(pair.upstream.requests).toEqual([]);
});

import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync, unlinkSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { scopedChannelId } from '../../../src/guard/scoped-channels.ts';
import { type SpoolUpload, uploadSpool } from '../../../src/relay/operations/spool-upload.ts';
import { type UploadBody, uploadBody, uploadBoundary } from '../../../src/relay/operations/upload-body.ts';
import { secret } from '../../../src/secret.ts';
import { call, expectProblem } from '../../support/call.ts';
import { FORM_TYPE, filePart, formOf, partsOf, textPart } from '../../support/forms.ts';
import { ask, operationAt, operationRequest } from '../../support/operation-requests.ts';
import { freshFolder } from '../../support/process.ts';
import { rawClient } from '../../support/raw-client.ts';
import type { RawRequest } from '../../support/raw-upstream.ts';
import { CANARY } from '../../support/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../../support/relay-and-upstream.ts';
import { jsonAnswer } from '../../support/suspend.ts';

const BLOB = operationAt('POST blob');
const UPSTREAM_ID = scopedChannelId(secret(CANARY.channelSecret), {
  realm: 'password',
  userId: 'ada',
  id: 'c1',
});
const ID = textPart('c1');
const GOOD = jsonAnswer('200 OK', { blobId: 'b1', customChannelId: UPSTREAM_ID });

const closings: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closings.splice(0)) await close();
  // Whatever has happened, nothing of a form is left.
  await until(() => spooled().length === 0);
});

/** What this process has open of spooled forms. */
function spooled(): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return target.includes('bot-relay-upload-') ? [target] : [];
    } catch {
      return [];
    }
  });
}

let pair: RelayAndUpstream;
const start = async (answerTo: (request: RawRequest) => string, environment: Record<string, string> = {}) => {
  pair = await startRelayAndUpstream((socket, request) => void socket.write(answerTo(request)), {
    OPERATIONS: 'message,files',
    UPLOADS: 'spool',
    ...environment,
  });
  closings.push(pair.close);
};
const upload = (body: Buffer) => ask(pair, BLOB, { body, headers: { 'Content-Type': FORM_TYPE } });
const partsAt = (at: number) => {
  const request = pair.upstream.requests[at];
  return partsOf(request?.body ?? Buffer.alloc(0), request?.all('content-type')[0]);
};
/** Sends an upload of which `rest` is missing. */
const unfinished = (sent: Buffer, rest = 100_000) => {
  const head = [`POST ${operationRequest(BLOB).path} HTTP/1.1`, 'Host: a', `Cookie: ${pair.cookie}`];
  const length = ['Content-Length: ', sent.length + rest].join('');
  const lines = [...head, `Content-Type: ${FORM_TYPE}`, length, '', ''];
  const client = rawClient(pair.relay.port, lines.join('\r\n'));
  client.socket.write(sent);
  return client;
};

describe('with UPLOADS=spool, an upload', () => {
  const file = Buffer.concat([randomBytes(300_000), Buffer.from('\r\n--client boundar\r\n--\r\n')]);

  test.each([
    ['behind', [filePart(file), ID]],
    ['before', [ID, filePart(file)]],
    ['behind an empty', [filePart(''), ID]],
  ])(
    'with its id %s the file goes upstream with its id first, and with its length',
    async (_where, parts) => {
      await start(() => GOOD);
      const answer = await upload(formOf(parts));
      expect([answer.status, answer.body]).toEqual([200, '{"blobId":"b1","customChannelId":"c1"}']);
      const sent = parts.find(({ body }) => body !== 'c1')?.body ?? '';
      expect(partsAt(0)).toEqual([
        { head: 'Content-Disposition: form-data; name="customChannelId"', body: UPSTREAM_ID },
        {
          head: 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain',
          body: Buffer.from(sent as string).toString('latin1'),
        },
      ]);
      const [request] = pair.upstream.requests;
      expect(request?.all('content-length')).toEqual([String(request?.body.length)]);
      expect(request?.all('transfer-encoding')).toEqual([]);
    },
  );

  test('is on disk without a name until it is whole, and reaches the service only then', async () => {
    await start(() => GOOD);
    const form = formOf([filePart(file), ID]);
    const client = unfinished(form.subarray(0, -1), 1);
    await until(() => spooled()[0]?.endsWith(' (deleted)') === true);
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith('bot-relay-upload-'))).toEqual([]);
    expect(pair.upstream.sockets).toEqual([]);
    client.socket.write(form.subarray(-1));
    await client.waitFor('"blobId"');
    client.socket.destroy();
  });

  test.each(['401', '403'])('whose key is refused with %s is sent with the next one', async (status) => {
    await start(({ all }) => (all('x-api-key')[0] === CANARY.key ? plainAnswer(`${status} No`, []) : GOOD), {
      UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
    });
    expect((await upload(formOf([filePart(file), ID]))).status).toBe(200);
    const keys = pair.upstream.requests.map(({ all }) => all('x-api-key')[0]);
    expect(keys).toEqual([CANARY.key, CANARY.secondKey]);
    expect(partsAt(1)).toEqual(partsAt(0));
  });

  test('is 502 if every key is refused', async () => {
    await start(() => plainAnswer('401 No', []), {
      UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
    });
    const answer = await upload(formOf([filePart(file), ID]));
    expectProblem(answer, 502, 'upstream_key_rejected', { retryable: 'new message' });
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('is answered with what the service refuses, and says if it may be stored', async () => {
    await start(({ body }) => (body.length > 1000 ? jsonAnswer('413 No', {}) : plainAnswer('500 Oh', [])));
    expectProblem(await upload(formOf([filePart(file), ID])), 413, 'upstream_refused', { upstream: {} });
    expectProblem(await upload(formOf([filePart('x'), ID])), 502, 'upstream_bad_response', {
      ...{ maybeStarted: true, retryable: false },
    });
  });

  test.each([
    ['without an id', [filePart(file)], 400, 'invalid_form'],
    ['with two files', [filePart(file), ID, filePart('y')], 400, 'invalid_form'],
    ['with a bad id', [filePart(file), textPart('')], 400, 'invalid_conversation'],
    ['that is too large', [filePart(Buffer.alloc(400_001)), ID], 413, 'body_too_large'],
  ] as const)('%s never reaches the service', async (_what, parts, status, code) => {
    await start(() => GOOD, { MAX_UPLOAD_BYTES: '400000' });
    expectProblem(await upload(formOf(parts)), status, code);
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('ends with its client or its session while it arrives', async () => {
    await start(() => GOOD);
    const form = formOf([filePart(file)], '');
    const leaving = unfinished(form);
    await until(() => spooled().length === 1);
    leaving.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await until(() => spooled().length === 0);
    const signedOut = unfinished(form);
    await until(() => spooled().length === 1);
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
    await signedOut.waitFor('"session_ended"');
    signedOut.socket.destroy();
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('ends with its session while the service does not answer', async () => {
    await start(() => '');
    const answer = upload(formOf([filePart(file), ID]));
    await until(() => pair.upstream.requests.length === 1);
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
    expectProblem(await answer, 502, 'answer_lost', { maybeStarted: true, retryable: false });
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });
});

describe('a spool', () => {
  const PART = formOf([filePart(Buffer.alloc(300_000)), ID]);
  const times = { stallMs: 5_000, wholeMs: 60_000 };
  let arrivals: { req: IncomingMessage; url: string }[];
  let port: number;
  beforeEach(async () => {
    arrivals = [];
    const server = createServer((req, res) => {
      arrivals.push({ req, url: req.url ?? '' });
      req.once('close', () => res.end());
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
    closings.push(() => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    });
  });

  /** Reads one more form with `spool`. */
  async function read(spool: SpoolUpload, signal = new AbortController().signal, holders = ['ada']) {
    const headers = { 'Content-Type': FORM_TYPE, 'Content-Length': String(PART.length) };
    const at = arrivals.length;
    call(port, '/', { method: 'POST', headers, body: PART }).catch(() => {});
    await until(() => arrivals.length > at);
    const { req } = arrivals[at] as { req: IncomingMessage };
    const boundary = uploadBoundary(req.headers, 1e6);
    const openUpload = () => uploadBody(req, { boundary, times, maxBytes: 1e6, upstreamId: () => 'u' });
    return spool({ openUpload, declared: req.headers['content-length'], holders, id: () => 'u', signal });
  }
  const endOf = ({ done }: UploadBody) =>
    done.then(
      () => 'done',
      (reason: { code: string }) => reason.code,
    );

  test('has room for a bounded number of bytes, which a closed form gives back', async () => {
    const spool = uploadSpool({ maxBytes: 1e6, roomBytes: 2 * PART.length, folder: tmpdir(), times });
    const of = (holder: string) => read(spool, undefined, [holder]);
    const [first, second] = [await of('ada'), await of('bob')];
    await expect(of('carol')).rejects.toMatchObject({ code: 'too_many_streams' });
    first.close();
    (await of('carol')).close();
    second.close();
    const small = uploadSpool({ maxBytes: 1e6, roomBytes: 1, folder: tmpdir(), times });
    (await read(small)).close();
  });

  test('has a quarter of its room for one holder, such as a user or an address', async () => {
    const spool = uploadSpool({ maxBytes: 1e6, roomBytes: 8 * PART.length, folder: tmpdir(), times });
    const of = (...holders: string[]) => read(spool, undefined, holders);
    const forms = [await of('ada'), await of('guest 1', 'address'), await of('guest 2', 'address')];
    await of('ada').then((form) => forms.push(form));
    await expect(of('ada')).rejects.toMatchObject({ code: 'too_many_streams' });
    await expect(of('guest 3', 'address')).rejects.toMatchObject({ code: 'too_many_streams' });
    forms.push(await of('bob'));
    forms.shift()?.close();
    forms.push(await of('ada'));
    for (const form of forms) form.close();
  });

  test('gives its room back if the form is refused or the folder cannot be used', async () => {
    const folder = `${freshFolder()}/none`;
    const unusable = uploadSpool({ maxBytes: 1e6, roomBytes: 1, folder, times });
    for (let tries = 0; tries < 2; tries += 1)
      await expect(read(unusable)).rejects.toMatchObject({ code: 'ENOENT' });
    const spool = uploadSpool({ maxBytes: 1e6, roomBytes: 1, folder: tmpdir(), times });
    await expect(read(spool, AbortSignal.abort('over'))).rejects.toBe('over');
    (await read(spool)).close();
  });

  test('closes its file if that cannot be removed', async () => {
    const folder = freshFolder();
    const spool = uploadSpool({ maxBytes: 1e6, roomBytes: 1, folder, times });
    const openUpload = () => {
      throw new Error('the form is read');
    };
    const { signal } = new AbortController();
    const reading = spool({ openUpload, declared: '1', id: () => 'u', holders: [], signal });
    // It is opened in a thread of its own, and somebody else removes it before this one goes on.
    let names: readonly string[] = [];
    while (names.length === 0) names = readdirSync(folder);
    for (const name of names) unlinkSync(join(folder, name));
    await expect(reading).rejects.toMatchObject({ code: 'ENOENT', syscall: 'unlink' });
    expect(spooled()).toEqual([]);
  });

  test('sends the same bytes again, whatever their sender has done with the chunks', async () => {
    const form = await read(uploadSpool({ maxBytes: 1e6, roomBytes: 1e9, folder: tmpdir(), times }));
    const sent: string[] = [];
    for (let times = 0; times < 2; times += 1) {
      const pieces: Buffer[] = [];
      for await (const piece of form.open().stream) {
        pieces.push(Buffer.from(piece as Buffer));
        (piece as Buffer).fill('x');
      }
      sent.push(Buffer.concat(pieces).toString('latin1'));
    }
    expect(sent[1]).toBe(sent[0]);
    form.close();
  });

  test('sends a form no longer than the service takes it, and again', async () => {
    const stalling = { ...times, stallMs: 100 };
    const form = await read(
      uploadSpool({ maxBytes: 1e6, roomBytes: 1e9, folder: tmpdir(), times: stalling }),
    );
    const unread = form.open();
    expect(await endOf(unread)).toBe('upstream_timeout');
    expect(unread.stream.destroyed).toBe(true);
    const half = form.open();
    half.stream.once('readable', () => half.stream.read(1));
    const whole = form.open();
    await expect(half.done).rejects.toThrow('closed');
    let length = 0;
    for await (const piece of whole.stream) length += (piece as Buffer).length;
    expect([await endOf(whole), length]).toEqual(['done', whole.length]);
    form.close();
  });

  test('sends a form no longer than the whole time', async () => {
    const short = { stallMs: 60_000, wholeMs: 100 };
    const form = await read(uploadSpool({ maxBytes: 1e6, roomBytes: 1e9, folder: tmpdir(), times: short }));
    expect(await endOf(form.open())).toBe('upstream_timeout');
    form.close();
  });

  test('sends a form to a service that takes it slowly, but never stalls', async () => {
    const slow = { stallMs: 600, wholeMs: 60_000 };
    const form = await read(uploadSpool({ maxBytes: 1e6, roomBytes: 1e9, folder: tmpdir(), times: slow }));
    const upload = form.open();
    const begunAt = performance.now();
    upload.stream.on('data', () => {
      upload.stream.pause();
      setTimeout(() => upload.stream.resume(), 150);
    });
    expect(await endOf(upload)).toBe('done');
    expect(performance.now() - begunAt).toBeGreaterThan(slow.stallMs);
    form.close();
  });
});

import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { get, request } from 'node:https';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { FORM_TYPE } from '../harness/clients/forms.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import {
  CADDY,
  type Deployed,
  deploy,
  HAPROXY,
  MANY,
  NGINX,
  PROGRAMS,
  type Program,
} from '../harness/relay/deployed.ts';
import { describeWithLoadBalancers, describeWithNginx } from '../harness/relay/deployed-load-balancers.ts';
import { type FakeRelay, type Reply, reply } from '../harness/relay/fake-relay.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';

const REQUEST_ID = '0b5c0f6e-0d7f-4b7e-9a44-3a5fd3a1c001';

const BOT = '/ns/acme/bot-provider/helper';
const BLOB = `${BOT}/blob`;
const SANDBOX_FILE = `${BOT}/sandbox/one/fs/file?custom_channel_id=c1&path=a`;
const MIB = 2 ** 20;
const PIECE = Buffer.alloc(65_536, 'x');

const ok: Reply = (res) => res.end('ok');
const cut: Reply = (res) => res.destroy();
/** Names its answer as a relay does, and has what must be in no log. */
const named: Reply = (res) => {
  res
    .writeHead(302, {
      'X-Request-Id': REQUEST_ID,
      Location: 'https://idp.example.com/?state=private',
      'Set-Cookie': 'sid=private',
      'Content-Disposition': 'attachment; filename=private',
    })
    .end('private');
};

const refuse: Reply = (res) => {
  res
    .writeHead(503, { 'Content-Type': 'application/problem+json', 'Retry-After': '1' })
    .end('{"code":"draining"}');
};

/** Resolves when the relay was asked for `/readyz` so many times more. */
async function checked({ asked }: FakeRelay, times: number): Promise<void> {
  const before = asked();
  await until(() => asked() >= before + times);
}

async function expectNoneWithoutReadiness({ relays, postMany, counts }: Deployed): Promise<void> {
  await postMany();
  expect(Math.min(...counts())).toBeGreaterThan(0);
  relays[0].ready = false;
  // Two checks must fail before the third.
  await checked(relays[0], 3);
  const [before] = counts();
  await postMany();
  expect(counts()).toEqual([before, 2 * MANY - Number(before)]);
  relays[0].ready = true;
  await checked(relays[0], 2);
  await postMany();
  expect(counts()[0]).toBeGreaterThan(Number(before));
}

async function expectOtherUsed(deployed: Deployed, retriesRefused: boolean): Promise<void> {
  const { relays, post, postMany, counts } = deployed;
  await postMany();
  const before = counts()[1] as number;
  // Both were ready a moment ago.
  await relays[0].close();
  const answers = await postMany();
  const refused = answers.filter((answer) => !('status' in answer) || answer.status !== 200);
  // Only Caddy refuses such a message, with an error.
  const lost = retriesRefused ? [] : refused.map(() => expect.objectContaining({ status: 502 }));
  expect(refused).toEqual(lost);
  expect(relays[1].seen.length).toBe(before + MANY - refused.length);
  // All of them go to the other relay as soon as a check has failed twice.
  await until(
    async () => (await postMany()).every((answer) => 'status' in answer && answer.status === 200),
    100,
  );
  const large = Buffer.alloc(500_000, 'x');
  for (let i = 0; i < 4; i++) expect((await post(large)).status).toBe(200);
  for (const { body } of relays[1].seen.slice(-4)) expect(body.equals(large)).toBe(true);
}

/** Runs `use` with a load balancer and relays of its own. */
async function withOwn(program: Program, use: (deployed: Deployed) => Promise<void>) {
  const deployed = await deploy(program, ok);
  try {
    await use(deployed);
  } finally {
    await deployed.close();
  }
}

afterAll(stopPrograms);

describeWithLoadBalancers('in front of two relays', () => {
  // They wait for the next checks.
  testSideBySide(
    [HAPROXY, CADDY].flatMap((program) => [
      [
        `${program.file} shares the messages among the relays, and sends none to a relay that is not ready`,
        () => withOwn(program, expectNoneWithoutReadiness),
      ],
      [
        `${program.file} soon sends all messages to the other relay when the port of one is closed, and none twice`,
        () => withOwn(program, (deployed) => expectOtherUsed(deployed, program === HAPROXY)),
      ],
    ]),
  );
});

describe.each(PROGRAMS)('$file', (program) => {
  const isNginx = program === NGINX;
  program.describeWith('in front of two relays', () => {
    let deployed: Deployed;
    let { front, relays, send, post, postMany, total } = {} as Deployed;
    let session: ClientHttp2Session;
    beforeAll(async () => {
      deployed = await deploy(program, ok);
      ({ front, relays, send, post, postMany, total } = deployed);
      session = connect(front.origin, { ca: front.certificate });
    });
    afterAll(async () => {
      session?.destroy();
      await deployed?.close();
    });
    afterEach(() => {
      for (const relay of relays) relay.take = undefined;
    });

    // nginx sends a message that a relay has refused with 503 to the other one.
    test.each([429, 500, 502, ...(isNginx ? [] : [503]), 504])(
      "passes a relay's %d on, and does not ask the other",
      async (status) => {
        const asItIs: Reply = (res) => void res.writeHead(status, { 'X-Says': 'relay' }).end('as it is');
        reply(relays, asItIs, asItIs);
        expect(await post()).toMatchObject({ status, body: 'as it is', headers: { 'x-says': 'relay' } });
        expect(total()).toBe(1);
      },
    );

    test('never sends a message again that a relay may have run', async () => {
      reply(relays, cut, cut);
      const answers = await postMany();
      expect(answers).toEqual(Array(MANY).fill(expect.objectContaining({ status: 502 })));
      expect(total()).toBe(MANY);
    });

    test('forwards each piece of a stream before the next one exists', async () => {
      let write: ((text: string) => void) | undefined;
      const stream: Reply = (res) => {
        res.writeHead(200, { 'Content-Type': 'text/event-stream' });
        write = (text) => (text ? res.write(text) : res.end());
        write('data: 1\n\n');
      };
      reply(relays, stream, stream);
      const came: string[] = [];
      const answer = await send(BOT_PATH, {
        body: MESSAGE,
        headers: { 'accept-encoding': 'gzip' },
        onData(text) {
          came.push(text);
          // The next piece is written only after this one has arrived.
          write?.(came.length < 4 ? `data: ${came.length + 1}\n\n` : '');
        },
      });
      expect(came).toEqual(['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n', 'data: 4\n\n']);
      expect(answer.headers['content-encoding']).toBeUndefined();
    });

    test('reads no more of a stream than its client does', async () => {
      const MIB = 2 ** 20;
      let written = 0;
      const pour: Reply = async (res) => {
        res.writeHead(200, { 'Content-Type': 'text/event-stream' });
        for (; written < 256 * MIB && !res.destroyed; written += MIB) {
          if (!res.write(Buffer.alloc(MIB, ':'))) await once(res, 'drain').catch(() => {});
        }
      };
      reply(relays, pour, pour);
      const client = get(front.origin, { ca: front.certificate, agent: false });
      const [response] = (await once(client, 'response')) as [IncomingMessage];
      let before = -1;
      while (before < written) {
        before = written;
        await sleep(500);
      }
      // The buffers of sockets hold this much; a proxy would hold more.
      expect(written).toBeLessThan(64 * MIB);
      response.destroy();
    });

    test.each([
      ['in mid-stream', true],
      ['before its answer', false],
    ])('closes its connection to the relay at once when a client leaves %s', async (_when, begins) => {
      let left = 0;
      const wait: Reply = (res) => {
        res.once('close', () => left++);
        if (begins) res.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: 1\n\n');
      };
      reply(relays, wait, wait);
      const client = request(`${front.origin}${BOT_PATH}`, {
        method: 'POST',
        ca: front.certificate,
        agent: false,
        headers: { 'Content-Type': 'application/json' },
      });
      client.on('error', () => {});
      client.end(MESSAGE);
      if (begins) await once(client, 'response');
      else await until(() => total() === 1);
      client.destroy();
      await until(() => left === 1);
    });

    test('sets the address of the client itself, and ignores one that the client claims', async () => {
      reply(relays, ok, ok);
      const claims = {
        'x-forwarded-for': '203.0.113.7',
        'x-forwarded-proto': 'http',
        'x-forwarded-host': 'evil.example',
        forwarded: 'for=203.0.113.7',
      };
      await send('/a%2Fb//c/?q=%20', { body: MESSAGE, headers: claims });
      const { url, headers, body } = relays.flatMap(({ seen }) => seen)[0] as FakeRelay['seen'][0];
      expect(url).toBe('/a%2Fb//c/?q=%20');
      expect(headers).toMatchObject({
        host: isNginx ? 'localhost' : new URL(front.origin).host,
        'x-forwarded-for': '127.0.0.1',
        'x-forwarded-proto': 'https',
        connection: 'close',
      });
      expect(headers['x-forwarded-host']).toBeUndefined();
      expect(headers.forwarded).toBeUndefined();
      expect(body.toString()).toBe(MESSAGE);
    });

    test('redirects http to https for its own name only, whatever the Host', async () => {
      reply(relays, ok, ok);
      const name = isNginx ? 'localhost' : 'chat.example.com';
      // Caddy refuses what is no name.
      const hosts = program === CADDY ? [] : ['localhost@evil.example'];
      for (const Host of ['localhost', 'evil.example', 'evil.example:80', ...hosts]) {
        const answer = await call(front.httpPort, '//evil.example/?x=1', { headers: { Host } });
        expect(answer).toMatchObject({ status: 308 });
        expect(answer.headers.location).toBe(`https://${name}//evil.example/?x=1`);
      }
    });

    test('logs the address of the client and the request id in one line, and nothing private', async () => {
      const headers = { cookie: 'sid=private', referer: 'https://example.com/?private' };
      /** The lines about a request to a bot of this name, when there are some. */
      async function linesOf(bot: string, answer: Reply, status: number): Promise<string[]> {
        reply(relays, answer, answer);
        const path = BOT_PATH.replace('helper', bot);
        expect(await send(`${path}?x=private`, { body: MESSAGE, headers })).toMatchObject({ status });
        const lines = () =>
          front
            .log()
            .split('\n')
            .filter((line) => line.includes(path));
        await until(() => lines().length > 0);
        return lines();
      }
      const lines = await linesOf('answered', named, 302);
      expect(lines).toHaveLength(1);
      for (const part of ['127.0.0.1', REQUEST_ID]) expect(lines[0]).toContain(part);
      expect((await linesOf('unanswered', cut, 502)).join()).toContain('127.0.0.1');
      expect(front.log()).not.toMatch(/private|x=1/);
    });

    /** Begins a request that one of the relays takes. */
    function begin(method: string, path: string, take: FakeRelay['take'], length = 0): ClientHttp2Stream {
      for (const relay of relays) relay.take = take;
      const headers = length > 0 ? { 'content-type': FORM_TYPE, 'content-length': String(length) } : {};
      return session.request({ ':method': method, ':path': path, ...headers }, { endStream: length === 0 });
    }
    async function statusOf(stream: ClientHttp2Stream): Promise<number> {
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
      stream.resume();
      return Number(headers[':status']);
    }

    test.each([
      ['POST', `${BOT}/channel/clear?custom_channel_id=c1`, undefined],
      ['POST', `${BOT}/message/feedback`, '{}'],
      ['POST', BLOB, PIECE],
      ['PUT', SANDBOX_FILE, PIECE],
      ['PUT', `${BOT}/some/other`, PIECE],
      ['DELETE', `${BOT}/channel?custom_channel_id=c1`, undefined],
      ['DELETE', `${BOT}/sandbox/one/fs/all?custom_channel_id=c1&path=a`, undefined],
    ])('never sends a %s %s again that a relay may have passed on', async (method, path, body) => {
      reply(relays, cut, cut);
      const headers = { ':method': method, ...(body instanceof Buffer && { 'content-type': FORM_TYPE }) };
      const request = { headers, ...(body !== undefined && { body }) };
      const answers = await Promise.all(Array.from({ length: 4 }, () => send(path, request)));
      expect(answers.map(({ status }) => status)).toEqual([502, 502, 502, 502]);
      expect(relays.flatMap(({ seen }) => seen.map((one) => [one.method, one.url]))).toEqual(
        Array(4).fill([method, path]),
      );
    });

    test.each([
      ['POST', BLOB],
      ['PUT', SANDBOX_FILE],
    ])('passes a %s %s of 20 MiB on as it arrives', async (method, path) => {
      let arrived = 0;
      const upload = begin(
        method,
        path,
        (req, res) => {
          req.on('data', ({ length }: Buffer) => {
            arrived += length;
          });
          req.on('end', () => res.end('ok'));
        },
        20 * MIB + PIECE.length,
      );
      upload.write(PIECE);
      // The rest is sent only after this has arrived.
      await until(() => arrived === PIECE.length);
      upload.end(Buffer.alloc(20 * MIB, 'y'));
      expect(await statusOf(upload)).toBe(200);
      expect(arrived).toBe(20 * MIB + PIECE.length);
    });

    test.each([
      ['a download', `${BOT}/channel-home/download?custom_channel_id=c1`, 'application/octet-stream'],
      ['a file of a sandbox', SANDBOX_FILE, 'application/octet-stream'],
      ['a live stream', `${BOT}/message/sse?custom_channel_id=c1`, 'text/event-stream'],
    ])('passes %s on as it comes', async (_what, path, type) => {
      let write: (() => void) | undefined;
      const download = begin('GET', path, (_req, res) => {
        const isFile = type !== 'text/event-stream';
        res.writeHead(200, {
          'Content-Type': type,
          ...(isFile && { 'Content-Length': 3 * PIECE.length }),
        });
        let left = 3;
        write = () => {
          left -= 1;
          if (left > 0) res.write(PIECE);
          else res.end(PIECE);
        };
        write();
      });
      let came = 0;
      let written = 1;
      for await (const piece of download) {
        came += (piece as Buffer).length;
        // The next piece is written only after this one has come.
        if (came === written * PIECE.length && written < 3) {
          written += 1;
          write?.();
        }
      }
      expect(came).toBe(3 * PIECE.length);
    });
  });
});

describeWithNginx('deploy/nginx.conf', () => {
  let deployed: Deployed;
  let { relays, send, post, postMany, counts, total } = {} as Deployed;
  // All cases share it and leave both relays ready. The last case closes a port.
  beforeAll(async () => {
    deployed = await deploy(NGINX, ok);
    ({ relays, send, post, postMany, counts, total } = deployed);
  });
  afterAll(async () => {
    await deployed?.close();
  });

  // The first case, since nginx has not asked the relays yet.
  test('sends nothing to a relay that is not ready, and uses it again when it is', async () => {
    reply(relays, ok, ok);
    relays[0].ready = false;
    await postMany();
    expect(counts()).toEqual([0, MANY]);
    relays[0].ready = true;
    await until(async () => {
      await postMany();
      return Number(counts()[0]) > 0;
    }, 100);
  });

  test('shares the messages among the relays', async () => {
    reply(relays, ok, ok);
    for (let i = 0; i < 4; i++) await postMany();
    expect(Math.min(...counts())).toBeGreaterThan(0);
    expect(total()).toBe(4 * MANY);
  });

  test('does not ask before each message whether a relay is ready', async () => {
    reply(relays, ok, ok);
    const asked = relays.map((relay) => relay.asked());
    // One after the other: what comes together while an answer gets too old may ask together.
    for (let i = 0; i < 40; i++) await post();
    for (const [index, relay] of relays.entries())
      expect(relay.asked() - Number(asked[index])).toBeLessThan(relay.seen.length);
  });

  test('sends a message that a relay has refused with 503 to the other relay, whole and once', async () => {
    reply(relays, refuse, ok);
    const answers = await postMany();
    expect(answers).toEqual(Array(MANY).fill(expect.objectContaining({ status: 200, body: 'ok' })));
    expect(counts()[0]).toBeGreaterThan(0);
    expect(counts()[1]).toBe(MANY);
    // Longer than the buffer in memory, and with bytes that are not text.
    const large = Buffer.alloc(
      1_000_000,
      Uint8Array.from({ length: 251 }, (_, i) => i),
    );
    for (let i = 0; i < 8; i++) expect((await post(large)).status).toBe(200);
    for (const { body } of relays[1].seen.slice(MANY)) expect(body.equals(large)).toBe(true);
  });

  test('passes on the second 503 if both relays refuse', async () => {
    reply(relays, refuse, refuse);
    const answer = await post();
    expect(answer).toMatchObject({ status: 503, body: '{"code":"draining"}' });
    expect(answer.headers).toMatchObject({ 'retry-after': '1', 'content-type': 'application/problem+json' });
    expect(counts()).toEqual([1, 1]);
  });

  test('does not serve its own probes to clients', async () => {
    expect((await send('/-/readiness')).status).toBe(404);
  });

  test('uses the other relay when the port of one is closed', async () => {
    reply(relays, ok, ok);
    await postMany();
    // Both were ready a moment ago.
    await relays[0].close();
    const answers = await postMany();
    expect(answers).toEqual(Array(MANY).fill(expect.objectContaining({ status: 200 })));
  });
});

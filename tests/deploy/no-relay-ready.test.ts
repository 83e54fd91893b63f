import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { problemType } from '../../src/errors.ts';
import { FORM_TYPE } from '../harness/clients/forms.ts';
import { until } from '../harness/clock/until.ts';
import { type Deployed, deploy, PROGRAMS } from '../harness/relay/deployed.ts';
import { type FakeRelay, type Reply, reply } from '../harness/relay/fake-relay.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';

const BOT = '/ns/acme/bot-provider/helper';
const PROBLEM = JSON.stringify({
  type: problemType('session_store_unavailable'),
  code: 'session_store_unavailable',
});

/** As a relay answers while Redis is away. */
const away: Reply = (res) =>
  void res.writeHead(503, { 'Content-Type': 'application/problem+json', 'Retry-After': '1' }).end(PROBLEM);
const ok: Reply = (res) => res.end('ok');

describe.each(PROGRAMS)('$file', (program) => {
  program.describeWith('in front of two relays of which none is ready', () => {
    let deployed: Deployed;
    let { front, relays } = {} as Deployed;
    beforeAll(async () => {
      deployed = await deploy(program, ok);
      ({ front, relays } = deployed);
      for (const relay of relays) relay.ready = false;
      const before = relays.map((relay) => relay.asked());
      // Two checks must fail before the third. nginx asks only where there are requests.
      await until(async () => {
        await send('GET', '/auth/session');
        return relays.every((relay, at) => relay.asked() >= (before[at] ?? 0) + 3);
      }, 100);
    });
    afterAll(async () => {
      await deployed?.close();
      await stopPrograms();
    });

    const send = (method: string, path: string, body?: string | Buffer) =>
      deployed.send(path, {
        headers: { ':method': method, ...(body instanceof Buffer && { 'content-type': FORM_TYPE }) },
        ...(body !== undefined && { body }),
      });
    test.each([
      ['GET', '/auth/session', undefined],
      ['POST', BOT_PATH, MESSAGE],
      ['POST', `${BOT}/blob`, Buffer.alloc(200_000, 'x')],
      ['DELETE', `${BOT}/channel?custom_channel_id=c1`, undefined],
    ])('passes the answer of a relay to a %s %s on', async (method, path, body) => {
      reply(relays, away, away);
      expect(await send(method, path, body)).toMatchObject({
        status: 503,
        body: PROBLEM,
        headers: { 'content-type': 'application/problem+json', 'retry-after': '1' },
      });
      const [first] = relays.flatMap(({ seen }) => seen);
      expect(first).toMatchObject({ method, url: path });
      expect(first?.body.toString()).toBe(String(body ?? ''));
    });

    test('tells it the address of the client, and ignores one that the client claims', async () => {
      reply(relays, away, away);
      const client = get(front.origin, {
        ...{ ca: front.certificate, agent: false, localAddress: '127.0.0.2' },
        headers: {
          'X-Forwarded-For': '203.0.113.7',
          'X-Forwarded-Host': 'evil.example',
          Forwarded: 'for=203.0.113.7',
        },
      });
      const [response] = (await once(client, 'response')) as [IncomingMessage];
      expect(response.resume().statusCode).toBe(503);
      const { headers } = relays.flatMap(({ seen }) => seen)[0] as FakeRelay['seen'][0];
      expect(headers).toMatchObject({
        host: expect.stringMatching(/^localhost(:\d+)?$/),
        'x-forwarded-for': '127.0.0.2',
        'x-forwarded-proto': 'https',
      });
      expect(headers['x-forwarded-host'] ?? '').toBe('');
      expect(headers.forwarded ?? '').toBe('');
    });

    test('never sends a message again that a relay may have run', async () => {
      const cut: Reply = (res) => res.destroy();
      reply(relays, cut, cut);
      expect((await send('POST', BOT_PATH, MESSAGE)).status).toBe(502);
      expect(relays.flatMap(({ seen }) => seen)).toHaveLength(1);
    });

    test('passes it on where the port of the other relay is closed', async () => {
      reply(relays, away, away);
      await relays[1].close();
      expect(await send('GET', '/auth/session')).toMatchObject({ status: 503, body: PROBLEM });
    });

    test('sends messages to a relay that is ready again', async () => {
      reply(relays, ok, ok);
      relays[0].ready = true;
      await until(async () => (await send('POST', BOT_PATH, MESSAGE)).status === 200, 100);
    });
  });
});

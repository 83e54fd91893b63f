import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { until } from '../harness/clock/until.ts';
import { type Deployed, deploy, MANY, NGINX } from '../harness/relay/deployed.ts';
import { describeWithNginx } from '../harness/relay/deployed-load-balancers.ts';
import { type Reply, reply } from '../harness/relay/fake-relay.ts';
import { stopPrograms } from '../harness/relay/programs.ts';

const ok: Reply = (res) => res.end('ok');
const refuse: Reply = (res) => {
  res
    .writeHead(503, { 'Content-Type': 'application/problem+json', 'Retry-After': '1' })
    .end('{"code":"draining"}');
};

// What it has in common with the others is in load-balancers.test.ts.
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
    await stopPrograms();
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

import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, jest, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { freshFolder, inFrontOf, startProcess, stopProcesses, untilReady } from '../harness/relay/process.ts';
import { describeWithPromtool } from '../harness/relay/promtool.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

jest.setTimeout(180_000);

/** A minute of the rules is so long here, in seconds. The day before is not rewritten: there is none. */
const MINUTE_S = 2;
const HEADERS = { 'Content-Type': 'application/json' };

let prometheus: ChildProcess | undefined;
let upstream: RawUpstream;
let sending = true;
afterEach(async () => {
  sending = false;
  prometheus?.kill('SIGKILL');
  await stopProcesses();
  stopRedis();
  await upstream.close();
});

/** Starts a Prometheus with the alerts of `deploy/`, for one relay. Returns the names of the alerts that fire. */
async function startPrometheus(metricsPort: number): Promise<() => Promise<string[]>> {
  const rules = readFileSync(new URL('../../deploy/alerts.yml', import.meta.url), 'utf8')
    .replaceAll(/\b(\d+)m\b/g, (_, minutes) => `${minutes * MINUTE_S}s`)
    .replaceAll('[1h]', `[${60 * MINUTE_S}s]`);
  const config = {
    global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
    rule_files: ['rules.yml'],
    scrape_configs: [{ job_name: 'bot-relay', static_configs: [{ targets: [`127.0.0.1:${metricsPort}`] }] }],
  };
  const folder = freshFolder({ 'rules.yml': rules, 'prometheus.yml': JSON.stringify(config) });
  const port = await freePort();
  const address = `--web.listen-address=127.0.0.1:${port}`;
  prometheus = spawn(
    'prometheus',
    ['--config.file=prometheus.yml', `--storage.tsdb.path=${folder}`, address],
    {
      cwd: folder,
      stdio: 'ignore',
    },
  );
  await until(async () => (await call(port, '/-/ready').catch(() => undefined))?.status === 200, 50);
  return async () => {
    const { data } = JSON.parse((await call(port, '/api/v1/alerts')).body) as {
      data: { alerts: { state: string; labels: { alertname: string } }[] };
    };
    return data.alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels.alertname);
  };
}

describeWithPromtool('a real Prometheus', () => {
  describeWithRedis('with a relay and its Redis', () => {
    test('tells of files that are wrong, an emptied Redis, a bot service that is away, and a dead instance', async () => {
      const redis = await startRedis();
      upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
      const metricsPort = await freePort();
      const folder = freshFolder({ 'bots.json': '{"acme/helper": {"rateLimit": 1000}}' });
      const relay = startProcess({
        folder,
        environment: {
          ...inFrontOf(upstream.url),
          ...{ REDIS_URL: redis.url, METRICS_PORT: String(metricsPort), BOTS_FILE: 'bots.json' },
          ...{ AUTH_MODE: 'guest', END_EVENTS: 'off', GUESTS_PER_ADDRESS: '1000' },
          ...{ CLIENT_LIMIT_PER_ADDRESS: '1000000', CLIENT_LIMIT_PER_SESSION: '1000000' },
        },
      });
      const port = await relay.listening();
      await untilReady(port);
      const newGuest = async () => {
        const { headers } = await call(port, '/auth/guest', { method: 'POST' });
        return String(headers['set-cookie']).split(';', 1)[0] ?? '';
      };
      const newGuests = () => Promise.all(Array.from({ length: 10 }, newGuest));
      let guests = await newGuests();
      const send = (Cookie: string) =>
        call(port, BOT_PATH, { method: 'POST', headers: { ...HEADERS, Cookie }, body: MESSAGE });
      const firing = await startPrometheus(metricsPort);
      const users = (async () => {
        for (let n = 0; sending; n++) {
          await send(guests[n % guests.length] ?? '').catch(() => {});
          await sleep(50);
        }
      })();
      const untilFiring = (...names: string[]) =>
        until(async () => {
          const now = await firing();
          return names.every((name) => now.includes(name));
        }, 100);
      const untilQuiet = () => until(async () => (await firing()).length === 0, 100);

      await sleep(10 * MINUTE_S * 1_000);
      expect((await send(guests[0] ?? '')).status).toBe(200);
      expect(await firing()).toEqual([]);

      writeFileSync(join(folder, 'bots.json'), '{"acme/helpr": {"rateLimit": 1000}}');
      await untilFiring('BotRelayConfigurationInvalid');
      writeFileSync(join(folder, 'bots.json'), '{"acme/helper": {"rateLimit": 1000}}');
      await untilQuiet();

      await redis.command('FLUSHALL');
      await untilFiring('BotRelaySessionsLost', 'BotRelayManyNotSignedIn');
      guests = await newGuests();
      await untilQuiet();

      await upstream.close();
      await untilFiring('BotRelayManyMessagesFail');
      relay.signal('SIGKILL');
      await untilFiring('BotRelayInstanceDown');
      sending = false;
      await users;
    });
  });
});

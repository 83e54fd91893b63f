import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { samplesOf, total } from '../harness/relay/metric-samples.ts';
import { startOidc } from '../harness/relay/oidc-relay.ts';
import { describeWithPromtool, differences } from '../harness/relay/promtool.ts';
import { startRelay, USER } from '../harness/relay/relay.ts';

const { panels } = JSON.parse(
  readFileSync(new URL('../../deploy/grafana-dashboard.json', import.meta.url), 'utf8'),
) as { panels: { title: string; targets?: { expr: string; legendFormat: string }[] }[] };
const titles = ['Sign-ins with a password', 'Sign-ins at the identity provider', 'Guests'];
const charts = titles.map((title) => ({
  title,
  targets: panels.find((panel) => panel.title === title)?.targets ?? [],
}));

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

const BASE_PATH = '/chat';
const NOTHING_THERE = 'http://127.0.0.1:9';

/** The request samples once there are `count` requests. */
async function scrape(relay: { metricsText(): Promise<string> }, count: number) {
  const name = 'bot_relay_requests_total';
  await until(async () => total(await relay.metricsText(), name) >= count);
  return samplesOf(await relay.metricsText()).filter((sample) => sample.name === name);
}

/** Makes a successful and a failed sign-in in each mode; returns the request samples. */
const MODES = {
  async password() {
    const relay = await startRelay(NOTHING_THERE, { METRICS_PORT: '9464', BASE_PATH });
    closing.push(relay.close);
    await relay.signIn();
    await expect(relay.signIn({ ...USER, password: 'wrong' })).rejects.toThrow('401');
    return scrape(relay, 2);
  },
  async oidc() {
    const oidc = await startOidc({ environment: { BASE_PATH } });
    closing.push(oidc.close);
    expect(await oidc.browser().signIn()).toMatchObject({ status: 302 });
    const late = new URL(`${NOTHING_THERE}${BASE_PATH}/auth/callback?state=none&code=none`);
    expect(await oidc.browser().comeBack(late)).toMatchObject({ status: 400 });
    return scrape(oidc.relay, 3);
  },
  async guest() {
    const environment = { AUTH_MODE: 'guest', GUESTS_PER_ADDRESS: '1', METRICS_PORT: '9464', BASE_PATH };
    const relay = await startRelay(NOTHING_THERE, environment);
    closing.push(relay.close);
    const arrive = () => call(relay.port, `${BASE_PATH}/auth/guest`, { method: 'POST' });
    expect([(await arrive()).status, (await arrive()).status]).toEqual([200, 429]);
    return scrape(relay, 2);
  },
};

describeWithPromtool("the dashboard's panel with data", () => {
  test.each([
    ['password', titles[0], [['ok', 'invalid_credentials']]],
    ['oidc', titles[1], [['ok', 'sign_in_failed'], ['ok']]],
    ['guest', titles[2], [['ok', 'too_many_attempts']]],
  ] as const)('in %s mode is only "%s"', async (mode, own, codes) => {
    const requests = await MODES[mode]();
    const input_series = requests.map(({ name, labels, value }) => {
      const text = Object.entries({ ...labels, instance: 'one' }).map(([label, of]) => `${label}="${of}"`);
      return { series: `${name}{${text.join(',')}}`, values: `0 0 ${value} ${value} ${value}` };
    });
    const promql_expr_test = charts.flatMap(({ title, targets }) => {
      expect([title, targets.length > 0]).toEqual([title, true]);
      return targets.map(({ expr }, index) => ({
        expr: `count by (code) (${expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*')} > 0)`,
        eval_time: '4m',
        exp_samples: (title === own ? (codes[index] ?? []) : []).map((code) => ({
          labels: `{code="${code}"}`,
          value: 1,
        })),
      }));
    });
    expect(differences([{ interval: '1m', input_series, promql_expr_test }])).toBe('');
  });
});

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from '@jest/globals';
import { parser } from '@prometheus-io/lezer-promql';
import { parse } from 'yaml';
import { addProcessMetrics, createMetrics } from '../../src/watch/metrics.ts';
import { call } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { anchorsOf, sectionOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { samplesOf, total } from '../harness/relay/metric-samples.ts';
import { startOidc } from '../harness/relay/oidc-relay.ts';
import { describeWithPromtool, differences } from '../harness/relay/promtool.ts';
import { startRelay, USER } from '../harness/relay/relay.ts';

/** A selection of samples in a query. */
interface Selection {
  readonly metric: string;
  /** The labels that it is filtered by. */
  readonly labels: readonly string[];
}

interface Query {
  readonly selections: readonly Selection[];
  /** The labels by which results are grouped, joined or computed. */
  readonly grouping: readonly string[];
}

/**
 * Reads a query with Prometheus's own grammar.
 * @throws Error if it is not PromQL
 */
function readQuery(text: string): Query {
  const selections: { metric: string; labels: string[] }[] = [];
  const grouping: string[] = [];
  const cursor = parser.parse(text).cursor();
  do {
    const { name, from, to } = cursor;
    if (cursor.type.isError) throw new Error(`not PromQL at ${from}: ${text}`);
    const inMatcher = cursor.node.parent?.name === 'UnquotedLabelMatcher';
    if (name === 'VectorSelector') selections.push({ metric: '', labels: [] });
    if (name === 'Identifier') last(selections, text).metric = text.slice(from, to);
    if (name === 'LabelName' && inMatcher) last(selections, text).labels.push(text.slice(from, to));
    if (name === 'LabelName' && !inMatcher) grouping.push(text.slice(from, to));
  } while (cursor.next());
  return { selections, grouping };
}

function last<T>(list: readonly T[], text: string): T {
  const item = list.at(-1);
  if (item === undefined) throw new Error(`a label or name that belongs to nothing: ${text}`);
  return item;
}

const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
}

interface Panel {
  readonly title: string;
  readonly type: string;
  readonly description?: string;
  readonly datasource?: unknown;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string; datasource: unknown }[];
}

const rules = (parse(read('deploy/alerts.yml')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  (group) => group.rules,
);
const dashboard = JSON.parse(read('deploy/grafana-dashboard.json')) as {
  panels: Panel[];
  templating: { list: { name: string; type: string; definition?: string }[] };
};
const charts = dashboard.panels.filter(({ type }) => type !== 'row');

/** Replaces the variables that Grafana replaces before it sends the query. */
const filledIn = (expr: string) =>
  expr.replaceAll('$__rate_interval', '5m').replaceAll('"$instance"', '".*"');

/** The labels that Prometheus adds to every series. */
const TARGET_LABELS = ['instance', 'job'];

interface Labelled {
  readonly name: string;
  readonly type: string;
  readonly labelNames: readonly string[];
}

/** The labels of every series that a scrape can contain, by its name. */
function seriesOfRegistry(): Map<string, Set<string>> {
  const { registry, readAtScrape } = createMetrics(['0123abcd']);
  addProcessMetrics(registry);
  readAtScrape({ checks: {}, openMessages: () => 0, runBytes: () => 0 });
  const series = new Map<string, Set<string>>();
  for (const { name, type, labelNames } of registry.getMetricsAsArray() as unknown as Labelled[]) {
    const labels = [...labelNames, ...TARGET_LABELS];
    if (type !== 'histogram') series.set(name, new Set(labels));
    else {
      series.set(`${name}_bucket`, new Set([...labels, 'le']));
      for (const suffix of ['_sum', '_count']) series.set(name + suffix, new Set(labels));
    }
  }
  return series;
}

const series = seriesOfRegistry().set('up', new Set(TARGET_LABELS));

/** The unknown parts of a query: metric names, labels of a metric, and labels to group by. */
function unknownIn({ selections, grouping }: Query): string[] {
  const labelsOf = (metric: string) => series.get(metric) ?? new Set<string>();
  return [
    ...selections.filter(({ metric }) => !series.has(metric)).map(({ metric }) => metric),
    ...selections.flatMap(({ metric, labels }) =>
      labels.filter((label) => !labelsOf(metric).has(label)).map((label) => `${metric}{${label}}`),
    ),
    ...grouping.filter((label) => !selections.every(({ metric }) => labelsOf(metric).has(label))),
  ];
}

describe('readQuery', () => {
  test.each([
    ['sum(rate(bot_relay_request_total[5m]))', ['bot_relay_request_total']],
    ['bot_relay_requests_total{bot="a"}', ['bot_relay_requests_total{bot}']],
    ['sum by (bot) (bot_relay_requests_total)', ['bot']],
    ['sum(bot_relay_ready) without (host)', ['host']],
    ['bot_relay_requests_total > 0 or nobody', ['nobody']],
    ['bot_relay_slot_wait_seconds', ['bot_relay_slot_wait_seconds']],
    ['sum by (le, instance) (rate(bot_relay_slot_wait_seconds_bucket{outcome="granted"}[5m]))', []],
  ])('finds what is wrong in %s', (text, unknown) => {
    expect(unknownIn(readQuery(text))).toEqual(unknown);
  });

  test('throws for a text that is not PromQL', () => {
    expect(() => readQuery('sum(rate(bot_relay_requests_total[5m])')).toThrow('not PromQL');
  });
});

describe('deploy/grafana-dashboard.json', () => {
  const targets = charts.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => [title, expr, legendFormat] as const),
  );

  test('shows charts', () => {
    expect(charts.length).toBeGreaterThan(0);
    for (const { title, targets = [] } of charts) expect([title, targets.length > 0]).toEqual([title, true]);
    expect(new Set(charts.map(({ title }) => title)).size).toBe(charts.length);
  });

  test.each(targets)('the chart %s uses existing metrics and labels: %s', (_title, expr, legend) => {
    const query = readQuery(filledIn(expr));
    expect(query.selections.length).toBeGreaterThan(0);
    expect(unknownIn(query)).toEqual([]);
    // The labels in the legend must exist, by grouping or on the series itself.
    const inLegend = [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
    const shown = new Set([
      ...query.grouping,
      ...(/\b(sum|min|max|quantile)\b/.test(expr) ? [] : TARGET_LABELS),
    ]);
    expect(inLegend.filter((label) => !shown.has(label))).toEqual([]);
  });

  test.each(targets)('the chart %s adds up the series of an instance: %s', (_title, expr) => {
    expect(expr.replace(/^histogram_quantile\([\d.]+, /, '')).toMatch(/^(sum|min|max)\b/);
  });

  test('takes its data source and instances from variables', () => {
    const variables = dashboard.templating.list;
    expect(variables.map(({ name, type }) => `${name}: ${type}`)).toEqual([
      'datasource: datasource',
      'instance: query',
    ]);
    const [, metric = '', label = ''] =
      /^label_values\((\w+), (\w+)\)$/.exec(variables[1]?.definition ?? '') ?? [];
    expect(unknownIn(readQuery(`${metric}{${label}=""}`))).toEqual([]);
    const sources = charts.flatMap(({ datasource, targets = [] }) => [
      datasource,
      ...targets.map((t) => t.datasource),
    ]);
    for (const source of sources)
      expect(source).toEqual({ type: 'prometheus', uid: expect.stringMatching(/^\$\{datasource\}$/) });
    for (const [, expr] of targets) expect(expr).toContain('instance=~"$instance"');
  });

  test('shows every metric of the relay itself', () => {
    const asked = new Set(
      targets.flatMap(([, expr]) => readQuery(filledIn(expr)).selections.map(({ metric }) => metric)),
    );
    const base = (name: string) => name.replace(/_(bucket|sum|count)$/, '');
    const shown = new Set([...asked].map(base));
    const own = [...series.keys()].filter((name) => name.startsWith('bot_relay_')).map(base);
    expect(own.filter((name) => !shown.has(name))).toEqual([]);
  });
});

describe('deploy/alerts.yml', () => {
  test('has alerts with different names', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    for (const { alert } of rules) expect(alert).toMatch(/^BotRelay[A-Z]\w+$/);
  });

  test.each(rules.map((rule) => [rule.alert, rule] as const))(
    '%s uses existing metrics and labels',
    (_name, rule) => {
      for (const part of rule.expr.split(' or ')) expect(unknownIn(readQuery(part))).toEqual([]);
      expect(rule.labels.severity).toMatch(/^(critical|warning)$/);
      const named = [...(rule.annotations.summary ?? '').matchAll(/\$labels\.(\w+)/g)].map(
        ([, label]) => label,
      );
      const { grouping } = readQuery(rule.expr);
      expect(named.filter((label) => !grouping.includes(label ?? ''))).toEqual([]);
    },
  );

  test.each(rules.map(({ alert, expr }) => [alert, expr]))(
    '%s is one alert for an instance',
    (_name, expr = '') => {
      for (const part of expr.split(' or '))
        expect(part.trim().replace(/^histogram_quantile\([\d.]+, /, '')).toMatch(/^(sum|min|max|up)\b/);
    },
  );

  const runbook = sectionOf(read('docs/operate.md'), '## When an alert fires');
  const headings = [...runbook.matchAll(/^### (.+)$/gm)].map(([, heading = '']) => heading);

  test.each(rules.map(({ alert, annotations }) => [alert, annotations.runbook_url]))(
    '%s has the address of the heading of docs/operate.md that says what to do',
    (alert, address) => {
      const heading = headings.find((one) => `docs/operate.md#${anchorsOf(`## ${one}`)}` === address);
      const text = sectionOf(runbook, `### ${heading}`);
      expect(text).toContain(`\`${alert}\``);
      for (const part of ['What it means', 'Look at', 'Do']) expect(text).toContain(`**${part}`);
    },
  );

  test('gets the whole address of each runbook by the command of docs/operate.md', () => {
    const [command = ''] = /^sed .* deploy\/alerts\.yml/m.exec(read('docs/operate.md')) ?? [];
    const made = execFileSync('sh', ['-c', command], { cwd: ROOT, encoding: 'utf8' });
    const addresses = made.match(/runbook_url: https:\/\/[a-z.]+\.example\.com\/\S*docs\/operate\.md#/g);
    expect(addresses).toHaveLength(rules.length);
  });

  test('has as many alerts as docs/operate.md has headings for them', () => {
    expect(headings).toHaveLength(rules.length);
  });
});

describe('the names of the metrics', () => {
  test("follow Prometheus's rules: base units, _total for counters and nothing else", () => {
    const own = (createMetrics([]).registry.getMetricsAsArray() as unknown as Labelled[]).filter(({ name }) =>
      name.startsWith('bot_relay_'),
    );
    expect(own.length).toBeGreaterThan(8);
    for (const { name, type, labelNames } of own) {
      expect([name, type === 'counter']).toEqual([name, name.endsWith('_total')]);
      expect([name, type === 'histogram']).toEqual([name, name.endsWith('_seconds')]);
      expect(name).not.toMatch(/_ms|millis|minutes|kib|mib/);
      for (const label of labelNames) expect(label).toMatch(/^[a-z]+$/);
    }
  });

  test('of the registry and of the table in docs/operate.md are the same, with their labels', () => {
    const metrics = createMetrics([]).registry.getMetricsAsArray() as unknown as Labelled[];
    const own = metrics.filter(({ name }) => name.startsWith('bot_relay_'));
    const listed = sectionOf(read('docs/operate.md'), '## Metrics')
      .split('\n')
      .filter((line) => line.startsWith('| `bot_relay_'))
      .map((line) =>
        line
          .split('|')
          .slice(1, 4)
          .map((cell) => cell.trim()),
      );
    expect(listed).toEqual(
      own.map(({ name, type, labelNames }) => [
        `\`${name}\``,
        type,
        labelNames.map((label) => `\`${label}\``).join(', '),
      ]),
    );
  });
});

const titles = ['Sign-ins with a password', 'Sign-ins at the identity provider', 'Guests'];
const panels = titles.map((title) => ({
  title,
  targets: dashboard.panels.find((panel) => panel.title === title)?.targets ?? [],
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
    const relay = await startRelay(NOTHING_THERE, { BASE_PATH });
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
    const environment = { AUTH_MODE: 'guest', GUESTS_PER_ADDRESS: '1', BASE_PATH };
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
    const promql_expr_test = panels.flatMap(({ title, targets }) => {
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

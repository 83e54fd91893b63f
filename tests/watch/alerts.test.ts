import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { describeWithPromtool, differences, type RuleTest } from '../harness/relay/promtool.ts';
import { DAY, END, SCENARIOS, type Scenario } from './alert-scenarios.ts';

const FILE = fileURLToPath(new URL('../../deploy/alerts.yml', import.meta.url));
const { groups } = parse(readFileSync(FILE, 'utf8')) as {
  groups: {
    rules: { alert: string; labels: Record<string, string>; annotations: Record<string, string> }[];
  }[];
};
const rules = groups.flatMap((group) => group.rules);

const folder = mkdtempSync(join(tmpdir(), 'bot-relay-alerts-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** How often Prometheus scrapes and evaluates the rules, in seconds: a usual setting, and the default. */
const INTERVALS = [15, 60] as const;

/** The samples of a scenario, with a scrape every `every` seconds. */
function inputSeries(
  { counters = {}, gauges = {}, before = 0 }: Omit<Scenario, 'alert' | 'what'>,
  every: number,
) {
  const length = ((before + END) * 60) / every + 1;
  const scrapes = Array.from({ length }, (_, index) => index * every - before * 60);
  const counted = Object.entries(counters).map(([series, perMinute]) => {
    const values: number[] = [];
    let count = 0;
    for (let second = -before * 60; second <= END * 60; second++) {
      if (second % every === 0) values.push(count);
      count += perMinute(second / 60) / 60;
    }
    // Counters are whole numbers; the sum of many fractions is a little less.
    return { series, values: values.map((value) => Math.floor(value + 1e-6)) };
  });
  const shown = Object.entries(gauges).map(([series, at]) => ({
    series,
    values: scrapes.map((second) => at(second / 60)),
  }));
  return [...counted, ...shown].map(({ series, values }) => ({ series, values: values.join(' ') }));
}

function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value}"`)
    .join(',');
}

/** The expected state of the alert at every moment at which it is certain. */
function moments({ alert, labels = {}, fires, before = 0 }: Scenario) {
  const { labels: ownLabels } = rules.find((rule) => rule.alert === alert) ?? { labels: {} };
  const all = { alertname: alert, alertstate: 'firing', ...ownLabels, ...labels };
  const firing = [{ labels: `ALERTS{${labelText(all)}}`, value: 1 }];
  return Array.from({ length: END * 4 + 1 }, (_, index) => index / 4).flatMap((minute) => {
    const certainly = fires !== undefined && minute >= fires.by && minute <= fires.until;
    const never = fires === undefined || minute < fires.from || minute >= fires.gone;
    if (!certainly && !never) return [];
    return {
      expr: `ALERTS{alertname="${alert}",alertstate="firing"}`,
      eval_time: `${(before + minute) * 60}s`,
      exp_samples: certainly ? firing : [],
    };
  });
}

/** A day of scrapes takes promtool long: there, only the longer interval. */
const intervalsOf = ({ before }: Pick<Scenario, 'before'>) => (before === DAY ? [60] : INTERVALS);

/** The tests of a scenario, one for each interval. */
function testsOf(scenario: Scenario): RuleTest[] {
  return intervalsOf(scenario).map((every) => ({
    name: `a scrape every ${every} s`,
    interval: `${every}s`,
    input_series: inputSeries(scenario, every),
    promql_expr_test: moments(scenario),
  }));
}

/** A file with the rule of one alert alone: promtool evaluates every rule of a file at every moment of every test. */
function fileOf(alert: string): string {
  const only = groups.map((group) => ({
    ...group,
    rules: group.rules.filter((rule) => rule.alert === alert),
  }));
  const file = join(folder, `${alert}.yml`);
  // Every JSON text is also YAML.
  writeFileSync(file, JSON.stringify({ groups: only.filter(({ rules }) => rules.length > 0) }));
  return file;
}

/** What promtool finds wrong with an alert, with its rule evaluated as often as there is a scrape. */
function differencesIn(alert: string, tests: RuleTest[]): string {
  return INTERVALS.map((every) => {
    const own = tests.filter(({ interval }) => interval === `${every}s`);
    return own.length === 0 ? '' : differences(own, fileOf(alert), `${every}s`);
  }).join('');
}

function annotationsOf({ alert, labels = {}, summary, fires, ...scraped }: Scenario): RuleTest {
  const rule = rules.find((one) => one.alert === alert);
  const exp_annotations = { summary, runbook_url: rule?.annotations.runbook_url };
  const exp_alerts = [{ exp_labels: { ...rule?.labels, ...labels }, exp_annotations }];
  const eval_time = `${((scraped.before ?? 0) + (fires?.by ?? 0)) * 60}s`;
  const alert_rule_test = [{ alertname: alert, eval_time, exp_alerts }];
  const [every = 60] = intervalsOf(scraped);
  return { interval: `${every}s`, input_series: inputSeries(scraped, every), alert_rule_test };
}

describeWithPromtool('the alerts', () => {
  const explained = SCENARIOS.filter(({ summary, fires }) => summary && fires);
  let allCorrect: boolean;
  beforeAll(() => {
    allCorrect = rules.every(({ alert }) => {
      const isOwn = (one: Scenario) => one.alert === alert;
      const tests = [
        ...SCENARIOS.filter(isOwn).flatMap(testsOf),
        ...explained.filter(isOwn).map(annotationsOf),
      ];
      return differencesIn(alert, tests) === '';
    });
  });
  /** All tests of an alert run at once; a case runs its own tests again only if such a run found a difference. */
  const expectNoDifference = (alert: string, tests: RuleTest[]) =>
    expect(allCorrect ? '' : differencesIn(alert, tests)).toBe('');

  test.each(
    SCENARIOS.map(
      (one) => [one.fires ? 'fires for' : 'does not fire for', one.what, one.alert, one] as const,
    ),
  )('%s %s: %s', (_does, _what, alert, scenario) => {
    // The state must be certain at most moments.
    expect(moments(scenario).length).toBeGreaterThan(END * 2);
    expectNoDifference(alert, testsOf(scenario));
  });

  test.each(explained.map((one) => [one.what, one] as const))(
    'have a summary and the address of what to do, for %s',
    (_what, scenario) => expectNoDifference(scenario.alert, [annotationsOf(scenario)]),
  );

  test('are right in their file, too', () => {
    const short = explained.filter(({ before }) => before !== DAY);
    expect(differences(short.map(annotationsOf), FILE)).toBe('');
  });

  test('each have a scenario in which they fire and one in which they do not', () => {
    for (const { alert } of rules) {
      const own = SCENARIOS.filter((one) => one.alert === alert);
      expect([alert, own.some(({ fires }) => fires), own.some(({ fires }) => !fires)]).toEqual([
        alert,
        true,
        true,
      ]);
    }
  });
});

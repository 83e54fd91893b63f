import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeWith } from './programs.ts';

/** A `describe` for tests that need the `promtool` program, which evaluates rules and queries as Prometheus does. */
export const describeWithPromtool = describeWith(['promtool --version'], 'prometheus');

/** The expected result of a query at one time. */
export interface QueryTest {
  readonly expr: string;
  /** Such as `90s`. */
  readonly eval_time: string;
  readonly exp_samples: readonly { readonly labels: string; readonly value: number }[];
}

/** One test of `promtool test rules`: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules */
export interface RuleTest {
  /** The name under which differences are reported. */
  readonly name?: string;
  readonly interval: string;
  readonly input_series: readonly { readonly series: string; readonly values: string }[];
  readonly promql_expr_test?: readonly QueryTest[];
  readonly alert_rule_test?: readonly object[];
}

/** Runs tests with promtool, with the rules in the file `rules` each `interval`. Returns the differences, or an empty text. */
export function differences(tests: readonly RuleTest[], rules?: string, interval = '15s'): string {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-promtool-'));
  try {
    const file = join(folder, 'test.yml');
    // Every JSON text is also YAML.
    const text = {
      evaluation_interval: interval,
      rule_files: rules === undefined ? [] : [rules],
      tests,
    };
    writeFileSync(file, JSON.stringify(text));
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], {
      encoding: 'utf8',
      // Otherwise its garbage collection would take all cores from tests that measure times.
      env: { ...process.env, GOMAXPROCS: '1', GOGC: '400' },
    });
    return status === 0 ? '' : stdout + stderr;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

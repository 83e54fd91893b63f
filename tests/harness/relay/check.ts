import { PassThrough, Writable } from 'node:stream';
import { expect } from '@jest/globals';
import { checkCommand } from '../../../src/check/check-command.ts';
import { freshFolder, usersFile } from './process.ts';
import { CANARY, expectNoCanary } from './relay.ts';

/** A row of the check's JSON. */
export interface Row {
  readonly state: 'ok' | 'problem' | 'note';
  readonly check: string;
  readonly about: string | null;
  readonly says: string;
  readonly advice: string | null;
  readonly measured: Record<string, number> | null;
}

export interface Checked {
  readonly code: number;
  readonly rows: readonly Row[];
  readonly messages: number;
  readonly ok: boolean;
  /** What was printed as progress. */
  readonly progress: string;
  /** The rows of one kind as `state says`. */
  of(check: string): string[];
}

/** The environment of a relay in front of `upstream`, with one user. */
export function checkEnvironment(upstream: string | URL, more: Record<string, string> = {}) {
  const folder = freshFolder({ 'users.json': usersFile() });
  return {
    HOST: '127.0.0.1',
    PUBLIC_URL: 'http://127.0.0.1:3000',
    UPSTREAM_BASE_URL: String(upstream),
    UPSTREAM_API_KEYS: CANARY.key,
    BOTS: 'acme/helper',
    SESSION_SECRETS: CANARY.sessionSecret,
    CHANNEL_SECRET: CANARY.channelSecret,
    RATE_WINDOW_MS: '100',
    USERS_FILE: `${folder}/users.json`,
    ...more,
  };
}

function output() {
  const printed: string[] = [];
  const stream = new Writable({
    write(text, _encoding, done) {
      printed.push(String(text));
      done();
    },
  });
  return { stream, text: () => printed.join('') };
}

/** Runs the check without a terminal; throws if it prints a canary. */
export async function printCheck(args: readonly string[], environment: Record<string, string>) {
  const [result, progress] = [output(), output()];
  const terminal = { input: new PassThrough().end(), output: result.stream, progress: progress.stream };
  const code = await checkCommand(args, { environment }, terminal);
  expectNoCanary(result.text() + progress.text());
  return { code, text: result.text(), progress: progress.text() };
}

/** Runs the check with `--json`. */
export async function runCheck(
  args: readonly string[],
  environment: Record<string, string>,
): Promise<Checked> {
  const { code, text, progress } = await printCheck(['--json', ...args], environment);
  const { findings, messages, ok } = JSON.parse(text) as { findings: Row[]; messages: number; ok: boolean };
  return {
    code,
    rows: findings,
    messages,
    ok,
    progress,
    of: (check) => findings.filter((row) => row.check === check).map(({ state, says }) => `${state} ${says}`),
  };
}

/** Rows by what was checked: each whole as `state says`, or a pattern of it. */
export type ExpectedRows = Readonly<Record<string, readonly (string | RegExp)[]>>;

/** Expects all rows of each of these checks. */
export function expectRows(checked: Checked, expected: ExpectedRows): void {
  for (const [check, rows] of Object.entries(expected))
    expect(checked.of(check)).toEqual(
      rows.map((row) => (typeof row === 'string' ? row : expect.stringMatching(row))),
    );
}

/** What was checked in all rows that are problems. */
export const problemsOf = ({ rows }: Checked) =>
  rows.filter(({ state }) => state === 'problem').map(({ check }) => check);

/** The advice of the first row of a check that is not ok. */
export const adviceOn = ({ rows }: Checked, check: string) =>
  rows.find((row) => row.check === check && row.state !== 'ok')?.advice;

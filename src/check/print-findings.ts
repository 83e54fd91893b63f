import type { Finding } from './findings.ts';

export interface CheckResult {
  readonly findings: readonly Finding[];
  /** How many messages were sent; each was a run of a bot. */
  readonly messages: number;
}

/** The findings as JSON; a missing value is null. */
export function findingsAsJson({ findings, messages }: CheckResult): string {
  const rows = findings.map(({ state, check, about, says, advice, measured }) => ({
    state,
    check,
    about: about ?? null,
    says,
    advice: advice ?? null,
    measured: measured ?? null,
  }));
  return `${JSON.stringify({ ok: problemsIn(findings) === 0, messages, findings: rows }, null, 2)}\n`;
}

/** The findings as a table: a row for each, with its advice on the line below. */
export function findingsAsTable({ findings, messages }: CheckResult): string {
  const widthOf = (cell: (finding: Finding) => string) =>
    Math.max(0, ...findings.map((finding) => cell(finding).length));
  const checkWidth = widthOf(({ check }) => check);
  const aboutWidth = widthOf(({ about = '' }) => about);
  const indent = ' '.repeat(STATE_WIDTH + checkWidth + 4);
  const lines = findings.flatMap(({ state, check, about = '', says, advice }) => {
    const cells = [state.padEnd(STATE_WIDTH), check.padEnd(checkWidth), about.padEnd(aboutWidth), says];
    return [cells.join('  ').trimEnd(), ...(advice ? [`${indent}-> ${advice}`] : [])];
  });
  return `${lines.join('\n')}\n\n${summary(findings, messages)}\n`;
}

const STATE_WIDTH = 'problem'.length;

function summary(findings: readonly Finding[], messages: number): string {
  const problems = problemsIn(findings);
  const found = problems === 0 ? 'No problem found.' : `${count(problems, 'problem')} found.`;
  if (messages === 0) return problems === 0 ? `${found} No message was sent, so no key was tried.` : found;
  const each = messages === 1 ? 'it' : 'each';
  return `${found} ${count(messages, 'message')} sent; ${each} was a run of a bot.`;
}

/** How many of the findings are problems. */
export function problemsIn(findings: readonly Finding[]): number {
  return findings.filter(({ state }) => state === 'problem').length;
}

/** A number and what it counts. */
export function count(number: number, what: string, several = `${what}s`): string {
  return `${number} ${number === 1 ? what : several}`;
}

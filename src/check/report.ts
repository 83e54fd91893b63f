import { maskKeys } from '../relay/upstream/upstream-request.ts';
import type { Secret } from '../secret.ts';

/** What a check has found about one thing. */
export interface Verdict {
  /** Only a `problem` fails the check. A `note` is worth knowing, or says that something could not be checked. */
  readonly state: 'ok' | 'problem' | 'note';
  readonly says: string;
  /** What the operator can do. */
  readonly advice?: string | undefined;
  /** What was measured: counts, and times in ms. */
  readonly measured?: Readonly<Record<string, number>>;
}

/** A row of the report. */
export interface Finding extends Verdict {
  /** What was checked. */
  readonly check: string;
  /** Which one, if there are several: a bot and the fingerprint of a key, or a host. */
  readonly about: string | undefined;
}

/** Verdicts, each with its state as its name. */
export const ok = (says: string): Verdict => ({ state: 'ok', says });
export const note = (says: string, advice?: string): Verdict => ({ state: 'note', says, advice });
export const problem = (says: string, advice?: string): Verdict => ({ state: 'problem', says, advice });

/** Adds findings about one thing. */
export interface About {
  add(verdict: Verdict): void;
  ok(says: string): void;
  note(says: string, advice?: string): void;
  problem(says: string, advice?: string): void;
}

/** The longest quote of a server's text in a finding, in characters. */
const MAX_QUOTE = 160;

/** Control characters, and those that are invisible or change the order of what is read. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** What a check finds and has sent. All its texts are printable, and the secrets that it hides are masked in them. */
export class CheckReport {
  readonly findings: Finding[] = [];
  /** How many messages were sent; each was a run of a bot. */
  messages = 0;
  /** Masks the hidden secrets in a text. */
  mask = (text: string): string => text;
  readonly #hidden: Secret[] = [];

  /** Masks these in everything that is added from now on. */
  hide(...secrets: readonly Secret[]): void {
    this.#hidden.push(...secrets);
    this.mask = maskKeys(this.#hidden);
  }

  /** What a server said: printable, without secrets, and not too long. */
  quote(text: string): string {
    const whole = this.#clean(text);
    // Shortened last: a mask does not find half a secret.
    return whole.length > MAX_QUOTE ? `${whole.slice(0, MAX_QUOTE)}…` : whole;
  }

  /** Findings about `check`; `about` says which one, if there are several. */
  about(check: string, about?: string): About {
    const add = ({ state, says, advice, measured }: Verdict) =>
      void this.findings.push({
        ...{ state, check, about: about && this.#clean(about) },
        ...{ says: this.#clean(says), advice: advice && this.#clean(advice) },
        ...(measured && { measured: rounded(measured) }),
      });
    return {
      add,
      ok: (says) => add(ok(says)),
      note: (says, advice) => add(note(says, advice)),
      problem: (says, advice) => add(problem(says, advice)),
    };
  }

  get problems(): number {
    return this.findings.filter(({ state }) => state === 'problem').length;
  }

  /** Replaces and does not remove what could control the terminal: removing it could join two parts of a secret. */
  #clean(text: string): string {
    return this.mask(text.replace(UNPRINTABLE, '?'));
  }
}

/** The report as JSON; a missing value is null. */
export function reportAsJson({ findings, messages, problems }: CheckReport): string {
  const rows = findings.map(({ state, check, about, says, advice, measured }) => ({
    ...{ state, check, about: about ?? null, says },
    ...{ advice: advice ?? null, measured: measured ?? null },
  }));
  return `${JSON.stringify({ ok: problems === 0, messages, findings: rows }, null, 2)}\n`;
}

/** The report as a table: a row for each finding, with its advice on the line below, and a summary. */
export function reportAsTable({ findings, messages, problems }: CheckReport): string {
  const widthOf = (cell: (finding: Finding) => string) =>
    Math.max(0, ...findings.map((finding) => cell(finding).length));
  const stateWidth = 'problem'.length;
  const checkWidth = widthOf(({ check }) => check);
  const aboutWidth = widthOf(({ about = '' }) => about);
  const indent = ' '.repeat(stateWidth + checkWidth + 4);
  const lines = findings.flatMap(({ state, check, about = '', says, advice }) => {
    const cells = [state.padEnd(stateWidth), check.padEnd(checkWidth), about.padEnd(aboutWidth), says];
    return [cells.join('  ').trimEnd(), ...(advice ? [`${indent}-> ${advice}`] : [])];
  });
  const found = problems === 0 ? 'No problem found.' : `${count(problems, 'problem')} found.`;
  const sent =
    messages > 0
      ? ` ${count(messages, 'message')} sent; ${messages === 1 ? 'it' : 'each'} was a run of a bot.`
      : problems === 0
        ? ' No message was sent, so no key was tried.'
        : '';
  return `${lines.join('\n')}\n\n${found}${sent}\n`;
}

/** A number and what it counts. */
export function count(number: number, what: string, several = `${what}s`): string {
  return `${number} ${number === 1 ? what : several}`;
}

/** A time in ms as a text to read. */
export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function rounded(measured: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(measured).map(([name, value]) => [name, Math.round(value * 10) / 10]),
  );
}

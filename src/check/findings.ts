/** Only a `problem` fails the check. A `note` is worth knowing, or says that something could not be checked. */
export type FindingState = 'ok' | 'problem' | 'note';

/** The result of checking one thing. */
export interface Finding {
  readonly state: FindingState;
  /** What was checked. */
  readonly check: string;
  /** Which one, if there are several: a bot and the fingerprint of a key, or a host. */
  readonly about?: string;
  readonly says: string;
  /** What to do. */
  readonly advice?: string;
  /** What was measured: counts, and times in ms. */
  readonly measured?: Readonly<Record<string, number>>;
}

/** Adds a finding to the report. */
export type Report = (finding: Finding) => void;

/** The longest quote of a server's text in a finding, in characters. */
const MAX_QUOTE = 160;

/** Control characters, and those that are invisible or change the order of what is read. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

/**
 * Makes a text safe to print: every character that could control the terminal becomes a `?`. It is replaced and not
 * removed, since removing it could put the two parts of a secret together.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, '?');
}

/** Makes the function that quotes what a server said: printable, without secrets, and not too long. */
export function quoter(mask: (text: string) => string): (text: string) => string {
  return function quote(text) {
    // Shortened last: a mask does not find half a secret.
    const whole = mask(printable(text));
    return whole.length > MAX_QUOTE ? `${whole.slice(0, MAX_QUOTE)}…` : whole;
  };
}

/** Collects findings. Their texts are made printable, secrets are masked, and measured values are rounded. */
export function collectFindings(mask: () => (text: string) => string) {
  const findings: Finding[] = [];
  const report: Report = ({ state, check, about, says, advice, measured }) => {
    const clean = (text: string) => mask()(printable(text));
    findings.push({
      state,
      check,
      ...(about !== undefined && { about: clean(about) }),
      says: clean(says),
      ...(advice !== undefined && { advice: clean(advice) }),
      ...(measured && { measured: rounded(measured) }),
    });
  };
  return { findings, report };
}

function rounded(measured: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(measured).map(([name, value]) => [name, Math.round(value * 10) / 10]),
  );
}

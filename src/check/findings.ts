/** `note`: it could not be proven, or is worth knowing; only a `problem` fails the check. */
export type State = 'ok' | 'problem' | 'note';

/** What came of one thing that was looked at. */
export interface Finding {
  readonly state: State;
  /** What was looked at. */
  readonly check: string;
  /** Which of several: a bot and the fingerprint of a key, a host. */
  readonly about?: string;
  readonly says: string;
  /** What to do. */
  readonly advice?: string;
  /** What was measured: counts, and times in ms. */
  readonly measured?: Readonly<Record<string, number>>;
}

/** Takes a finding into the report. */
export type Report = (finding: Finding) => void;

/** The longest piece of somebody else's text in a finding, in characters. */
const MAX_QUOTE = 160;

/** Control characters, and those that are invisible or change the order of what is read. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

/**
 * A text that a terminal shows as it is: whatever could steer the terminal is a `?`. They are replaced and not
 * dropped, so that the pieces of a secret between them are not put together.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, '?');
}

/** Makes the function that quotes what a server said: printable, without secrets, and not too long. */
export function quoter(mask: (text: string) => string): (text: string) => string {
  return function quote(text) {
    // Cut last: half a secret would not be found.
    const whole = mask(printable(text));
    return whole.length > MAX_QUOTE ? `${whole.slice(0, MAX_QUOTE)}…` : whole;
  };
}

/** Collects findings; whatever they hold is printable and without secrets, and rounded where it was measured. */
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

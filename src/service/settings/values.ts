import { SettingsError } from './settings-error.ts';

/** What namespaces and bots can be called: it stands in paths, where dots alone mean another folder. */
const NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/;
const VISIBLE = /^[\x21-\x7e]*$/;

/** @throws SettingsError */
export function checkName(what: string, name: string, field = 'name'): void {
  if (!NAME.test(name)) throw new SettingsError(`${what} has 1 to 64 letters, digits or . _ -`, field);
}

interface Rule {
  /** What the setting is called in code. */
  readonly field: string;
  readonly min?: number;
  readonly max: number;
}

/** Checks a text of one line. @throws SettingsError */
export function checkLine(what: string, text: string, { field, min = 1, max }: Rule): void {
  checkLength(what, text, { field, min, max });
  if (/\p{Cc}/u.test(text))
    throw new SettingsError(`${what} must be one line, without control characters.`, field);
}

/** Checks a text that may have several lines. @throws SettingsError */
export function checkText(what: string, text: string, { field, min = 1, max }: Rule): void {
  checkLength(what, text, { field, min, max });
  if (/[^\P{Cc}\n\r\t]/u.test(text))
    throw new SettingsError(`${what} must hold no control characters.`, field);
}

/** Checks a text that stands in a header or a path: visible ASCII. @throws SettingsError that does not show it */
export function checkVisible(what: string, text: string, { field, min = 1, max }: Rule): void {
  checkLength(what, text, { field, min, max });
  if (!VISIBLE.test(text))
    throw new SettingsError(`${what} must hold no white space, and only characters of ASCII.`, field);
}

function checkLength(what: string, text: string, { field, min = 1, max }: Rule): void {
  const least = min > 0 ? `${min} to` : 'at most';
  if (text.length < min || text.length > max)
    throw new SettingsError(`${what} must have ${least} ${max.toLocaleString('en')} characters.`, field);
  if (!text.isWellFormed()) throw new SettingsError(`${what} must be Unicode text.`, field);
}

/** Checks a whole number. @throws SettingsError */
export function checkWhole(what: string, number: number, { field, min = 1, max }: Rule): void {
  if (Number.isInteger(number) && number >= min && number <= max) return;
  const [from, to] = [min, max].map((bound) => bound.toLocaleString('en'));
  throw new SettingsError(`${what} must be a whole number from ${from} to ${to}.`, field);
}

/**
 * Checks the address of a provider. Which addresses may be reached is decided when it is called, after DNS.
 * @throws SettingsError
 */
export function checkEndpoint(text: string): void {
  checkVisible('An endpoint', text, { field: 'endpoint', max: 2000 });
  const url = URL.parse(text);
  // A parser reads `\` as `/`, and leaves an empty user, query or fragment out.
  const isPlain = url && /^https?:$/.test(url.protocol) && !/[\\@?#]/.test(text);
  if (!isPlain)
    throw new SettingsError(
      'An endpoint must be an http or https address, without user, password, query or fragment.',
      'endpoint',
    );
}

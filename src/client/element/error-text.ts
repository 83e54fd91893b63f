import type { RelayError } from '../transport/relay-error.ts';
import { newElement } from './dom.ts';
import { fill, type Language, type Words } from './words/words.ts';

/** The words for the codes that a user can meet: of the relay, and of the client. */
const CODES = {
  errorAway: /unreachable|unavailable|draining|rejected/,
  errorCookie: /^cookie_blocked/,
  errorBusy: /busy|too_many|rate_limited/,
  errorForbidden: /^not_(allowed|your)|unknown_bot|not_enabled/,
  errorLarge: /too_large/,
  errorLost: /lost|silent|broken|too_slow/,
  errorMissing: /missing|not_found|^run_/,
  errorPassword: /credentials/,
  errorSignedOut: /unauthenticated|session_ended/,
  errorSlow: /exceeded|timeout/,
} as const satisfies Partial<Record<keyof Words, RegExp>>;

/** The name of the words for a code; undefined if there are none. */
export function errorWords(code: string): keyof Words | undefined {
  const names = Object.keys(CODES) as (keyof typeof CODES)[];
  return names.find((name) => CODES[name].test(code));
}

type Failure = Pick<Error, 'message'> & Partial<Pick<RelayError, 'code' | 'status' | 'requestId'>>;
type Pieces = readonly (Node | string)[];

/** The texts before and after `{error}` in a sentence. One text if the sentence has no `{error}`. */
export const aroundError = (sentence: string, values: Parameters<typeof fill>[1] = {}): readonly string[] =>
  sentence.split('{error}').map((piece) => fill(piece, values));

/**
 * An error in its sentence: the words for its code or, if there are none, its own message. A message of the relay or the
 * client is English, one of a bot can be in any language.
 */
export function errorPieces(
  { words }: Language,
  error: Failure,
  around: readonly string[] = ['', ''],
): Pieces {
  const { code = '', status, message } = error;
  const [before = '', after] = around;
  if (after === undefined) return [before];
  // An answer that the client has not understood has this status, too.
  const isOfBot = status === 200 && code !== 'unexpected_response';
  const name = isOfBot ? undefined : errorWords(code);
  const text = name && words[name];
  if (text || !(code || isOfBot)) return [before + (text || message) + after];
  const own = newElement('span', isOfBot ? { dir: 'auto' } : { lang: 'en', dir: 'ltr' }, message);
  return [before, own, after];
}

/** Shows an error in `element`, and has it read out. Without an error, `element` is emptied. */
export function showError(element: Element, language: Language, error?: Failure): void {
  const alert = newElement('span', { role: 'alert' }, error ? errorPieces(language, error) : []);
  const next = newElement('p', {}, error ? [alert, ...requestPieces(language, error)] : []);
  // The same text is not read out again.
  if (next.textContent !== element.textContent) element.replaceChildren(...next.childNodes);
}

/** The request id of an error, for the operator. It is not read out: that would take half a minute. */
export const requestPieces = ({ words }: Language, { requestId }: Failure): Pieces =>
  requestId ? [newElement('span', {}, ` ${words.requestId} `, requestCode(requestId))] : [];

/** A request id, which is read from left to right in each language. */
export const requestCode = (id = ''): HTMLElement => newElement('code', { dir: 'ltr' }, id);

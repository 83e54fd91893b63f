import type { RelayError } from '../transport/relay-error.ts';
import { type CopyTools, copyFrom } from './chat-tools.ts';
import { iconButton, newElement } from './dom.ts';
import { fill, type Language, type Words } from './words/words.ts';

/** The words for the codes that a user can meet: of the relay, and of the client. */
const CODES = {
  errorAway: /unreachable|unavailable|draining|rejected/,
  errorBusy: /busy|too_many_streams|rate_limited/,
  errorCookie: /^cookie_blocked/,
  errorForbidden: /^not_(allowed|your)|unknown_bot|not_enabled/,
  errorLarge: /too_large/,
  errorLost: /lost|silent|broken|too_slow/,
  errorMissing: /missing|not_found|^run_/,
  errorPassword: /credentials/,
  errorRefused: /upstream_refused/,
  errorSignedOut: /unauthenticated|session_ended/,
  errorSlow: /exceeded|timeout/,
  errorTooMany: /too_many_attempts/,
} as const satisfies Partial<Record<keyof Words, RegExp>>;

/** The name of the words for a code. Those of `errorOther` say that it is no fault of the user. */
export function errorWords(code: string): keyof Words {
  const names = Object.keys(CODES) as (keyof typeof CODES)[];
  return names.find((name) => CODES[name].test(code)) ?? 'errorOther';
}

type Failure = Pick<Error, 'message'> & Partial<Pick<RelayError, 'code' | 'status' | 'requestId'>>;
type Pieces = readonly (Node | string)[];

/** The statuses after which the same message can get an answer, among those that refuse it. */
const PASSING = [401, 408, 409, 410, 429];

/** Whether the same message may get an answer if it is sent again. What was refused for good is refused again. */
export function mayHelp({ retryable, maybeStarted, status }: RelayError): boolean {
  const isRefused = status === 501 || (status >= 400 && status < 500 && !PASSING.includes(status));
  return !isRefused || maybeStarted === true || Boolean(retryable);
}

/** The texts before and after `{error}` in a sentence. One text if the sentence has no `{error}`. */
export const aroundError = (sentence: string, values: Parameters<typeof fill>[1] = {}): readonly string[] =>
  sentence.split('{error}').map((piece) => fill(piece, values));

/** An error of a bot itself, in the bot's own words. An answer that the client has not understood has this status, too. */
const isOfBot = ({ code, status }: Failure) => status === 200 && code !== 'unexpected_response';

/**
 * An error in its sentence: the words for its code. An error without a code, or of a bot, has its own message; one of a bot
 * can be in any language.
 */
export function errorPieces(
  { words }: Language,
  error: Failure,
  around: readonly string[] = ['', ''],
): Pieces {
  const [before = '', after] = around;
  if (after === undefined) return [before];
  if (isOfBot(error)) return [before, newElement('span', { dir: 'auto' }, error.message), after];
  return [before + (error.code ? words[errorWords(error.code)] : error.message) + after];
}

/** Shows an error in `element`, and has it read out. Without an error, `element` is emptied. */
export function showError(element: Element, tools: Language & CopyTools, error?: Failure): void {
  const alert = newElement('span', { role: 'alert' }, error ? errorPieces(tools, error) : []);
  const next = newElement('p', {}, error ? [alert, ...errorDetails(tools, error)] : []);
  // The same text is not read out again.
  if (next.textContent !== element.textContent) element.replaceChildren(...next.childNodes);
}

/** What an operator asks for: folded, since users need none of it. Nothing for an error without a code. */
export function errorDetails(tools: Language & CopyTools, error: Failure): Pieces {
  const { words } = tools;
  const { code, status, requestId, message } = error;
  if (!code && !requestId) return [];
  const rows: [string, Pieces][] = [];
  if (requestId) rows.push([words.requestId, [requestCode(requestId), ' ', copyButton(requestId, tools)]]);
  if (code) rows.push([words.errorCode, [newElement('code', { dir: 'ltr' }, code)]]);
  if (status) rows.push([words.status, [`${status}`]]);
  if (code && !isOfBot(error))
    rows.push([words.message, [newElement('span', { lang: 'en', dir: 'ltr' }, message)]]);
  const list = newElement(
    'dl',
    {},
    rows.flatMap(([name, value]) => [newElement('dt', {}, name), newElement('dd', {}, value)]),
  );
  const summary = newElement('summary', { class: 'more' }, words.details);
  return [newElement('details', { class: 'details', part: 'details' }, summary, list)];
}

function copyButton(requestId: string, tools: CopyTools): HTMLElement {
  const copy = iconButton('copy', tools.words.copyId, {
    part: 'copy-id',
    onClick: () => void copyFrom(copy, requestId, tools),
  });
  return copy;
}

/** A request id, which is read from left to right in each language. */
const requestCode = (id: string): HTMLElement => newElement('code', { dir: 'ltr' }, id);

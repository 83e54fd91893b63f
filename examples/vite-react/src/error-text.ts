import type { RelayError } from 'bot-relay-client/react';

/** The words for groups of codes. The first that fits counts. */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/lost|silent|broken|too_slow|draining/, 'The connection was lost before the answer was complete.'],
  [/too_many_attempts/, 'Too many tries. Wait a moment, and try again.'],
  [/^busy$|rate_limited|too_many/, 'There is a lot going on right now. Try again in a moment.'],
  [/too_large/, 'This message is too long. Send less at once.'],
  [/timeout|exceeded/, 'This took too long. Try again.'],
  [/unauthenticated|session_ended/, 'You are signed out. Sign in again.'],
  [/upstream_refused/, 'This was not accepted. Change it, and send it again.'],
  [/^(upstream|internal|unexpected)_/, 'Something went wrong on our side. Try again.'],
];

/** What has failed, for users. What the bot itself says of its failure, and all else, stays as it is. */
export function errorText({ code, status, message }: RelayError): string {
  if (status === 200 && code !== 'unexpected_response') return message;
  return WORDS.find(([pattern]) => pattern.test(code))?.[1] ?? message;
}

/** Whether the same message may get an answer if it is sent again. */
export function mayHelp({ status, retryable, maybeStarted }: RelayError): boolean {
  const isRefused = status >= 400 && status < 500 && ![408, 409, 410, 429].includes(status);
  return !isRefused || maybeStarted === true || Boolean(retryable);
}

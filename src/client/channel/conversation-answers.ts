import { isObject } from '../transport/is-object.ts';
import { RelayError } from '../transport/relay-error.ts';

/** Returns undefined for a 404 of the bot service. @throws all other errors */
export function ifMissing(error: unknown): undefined {
  if (!(error instanceof RelayError) || error.code !== 'missing') throw error;
}

/** False if the bot service answers 404. */
export async function wasThere(asked: Promise<unknown>): Promise<boolean> {
  return asked.then(() => true).catch((error) => ifMissing(error) ?? false);
}

/** The content of an answer: the bot service puts it into `data`. */
export function dataOf(answer: unknown): unknown {
  return (isObject(answer) && answer.data) || answer;
}

/** The answer is none that the bot service gives. */
export function unexpected(): RelayError {
  return new RelayError('The answer is not valid.', { code: 'unexpected_response', status: 200 });
}

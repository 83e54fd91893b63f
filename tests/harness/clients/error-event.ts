import { expect } from '@jest/globals';
import { type ProblemCode, type ProblemDocument, problemType } from '../../../src/errors.ts';
import type { Answer } from './call.ts';

/** The error event of the relay. */
export interface ErrorEvent extends ProblemDocument {
  readonly retryAfter?: number;
}

/** The error event that is the only event of a stream. */
export function errorEventIn(body: string): ErrorEvent {
  const [, data] = /^event: error\ndata: (.*)\n\n$/.exec(body) ?? [];
  if (data === undefined) throw new Error(`not one error event: ${body}`);
  return JSON.parse(data) as ErrorEvent;
}

/** Expects the answer to a message that has failed after it had left: a stream with one error event. Returns that. */
export async function failureOf(response: Response): Promise<ErrorEvent> {
  expect(response.status).toBe(200);
  expect(response.headers.get('Content-Type')).toBe('text/event-stream');
  const event = errorEventIn(await response.text());
  expect(response.headers.get('X-Request-Id')).toBe(event.requestId);
  return event;
}

/** Expects the same, with exactly the members of a problem that the documents name, and those of `more`. */
export function expectErrorEvent(
  answer: Answer,
  status: number,
  code: ProblemCode,
  more: Partial<ErrorEvent> = {},
): ErrorEvent {
  expect(answer.status).toBe(200);
  expect(answer.headers).toMatchObject({
    'content-type': 'text/event-stream',
    'cache-control': 'no-cache, no-transform',
  });
  const event = errorEventIn(answer.body);
  expect(event).toEqual({
    ...{ type: problemType(code), title: expect.stringMatching(/./), status, code },
    detail: expect.stringMatching(/./),
    requestId: answer.headers['x-request-id'],
    retryable: expect.anything(),
    ...more,
    ...{ message: event.detail, eventType: 'asgard.run.error', customChannelId: null },
    ...{ namespace: expect.any(String), botProviderName: expect.any(String) },
    fact: { runError: { error: expect.objectContaining({ code, message: event.detail }) } },
  });
  return event;
}

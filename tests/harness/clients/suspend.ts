import type { RelayAndUpstream } from '../relay/relay-and-upstream.ts';
import { plainAnswer } from '../service/raw-upstream.ts';
import { type Answer, call } from './call.ts';

export const SUSPEND_PATH = '/generic/ns/acme/bot-provider/helper/message/suspend';
export const SHORT_SUSPEND_PATH = '/ns/acme/bot-provider/helper/message/suspend';
export const CHANNEL = '?custom_channel_id=c1';

export interface SuspendCall {
  readonly path?: string;
  readonly query?: string;
  readonly method?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string;
}

/** Asks the relay to suspend a run, as its signed-in user. */
export function suspend(pair: RelayAndUpstream, options: SuspendCall = {}): Promise<Answer> {
  const { path = SUSPEND_PATH, query = CHANNEL, method = 'POST', headers = {}, body } = options;
  return call(pair.relay.port, path + query, {
    method,
    headers: { Cookie: pair.cookie, ...headers },
    ...(body !== undefined && { body }),
  });
}

/** The same request as bytes for a raw connection. */
export function rawSuspend(
  pair: RelayAndUpstream,
  headers: readonly string[] = [],
  target = SUSPEND_PATH + CHANNEL,
) {
  const head = [`POST ${target} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${pair.cookie}`, ...headers];
  return `${head.join('\r\n')}\r\n\r\n`;
}

/** An answer of the service in JSON. */
export function jsonAnswer(statusLine: string, body: unknown, headers: readonly string[] = []): string {
  return plainAnswer(statusLine, ['Content-Type: application/json', ...headers], JSON.stringify(body));
}

import { randomUUID } from 'node:crypto';
import { SANDBOX_REQUEST } from '../service/launched-sandboxes.ts';
import { chunk, STREAM_HEAD } from '../service/raw-upstream.ts';
import { type Answer, call } from './call.ts';
import { dechunk, type RawClient, rawClient } from './raw-client.ts';

export const LIVE_PATH = '/ns/acme/bot-provider/helper/message/sse';
export const LIVE = `${LIVE_PATH}?custom_channel_id=c1`;

/** What is asked for to get a live stream: a conversation, or the files of its sandbox. */
export interface LiveKind {
  readonly name: string;
  readonly target: string;
  /** With this, the id of its requests begins. */
  readonly id: string;
}

const CONVERSATION: LiveKind = { name: 'a live stream', target: LIVE, id: 'live-' };
export const WATCH: LiveKind = {
  name: 'a watch of files',
  target: '/ns/acme/bot-provider/helper/sandbox/one/fs/watch?custom_channel_id=c1&path=%2F',
  id: SANDBOX_REQUEST,
};
export const LIVE_KINDS = [CONVERSATION, WATCH] as const;

/** Asks for a live stream of this kind over a new connection; its request has the id `id` behind that of the kind. */
export const openKind = (
  at: SignedIn,
  kind: LiveKind,
  id: string = randomUUID(),
  headers: readonly string[] = [],
) => openLive(at, { target: kind.target, headers: [`X-Request-Id: ${kind.id}${id}`, ...headers] });

/** A relay and the cookie of a user who is signed in there. */
export interface SignedIn {
  readonly relay: { readonly port: number };
  readonly cookie: string;
}

export interface LiveCall {
  readonly target?: string;
  readonly headers?: readonly string[];
}

/** Asks for a live stream over a new connection. */
export function openLive(
  { relay, cookie }: SignedIn,
  { target = LIVE, headers = [] }: LiveCall = {},
): RawClient {
  const head = [`GET ${target} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${cookie}`, ...headers];
  return rawClient(relay.port, `${head.join('\r\n')}\r\n\r\n`);
}

/** Asks for a live stream, and resolves with its whole answer. */
export function askLive({ relay, cookie }: SignedIn, target = LIVE, headers = {}): Promise<Answer> {
  return call(relay.port, target, { headers: { Cookie: cookie, ...headers } });
}

/** What has come of a stream: its body, and whether it has ended in good order. */
export function bodyOf(client: RawClient): { body: string; complete: boolean } {
  const { body, complete } = dechunk(client.text());
  return { body, complete };
}

/** What a service writes for a stream that stays open after `text`. */
export const openStream = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);

import { randomUUID } from 'node:crypto';
import type { PathShape } from '../../../src/bots/bot.ts';
import { OPERATIONS, type Operation } from '../../../src/relay/operations/operation-table.ts';
import type { RelayAndUpstream } from '../relay/relay-and-upstream.ts';
import { SANDBOX_REQUEST } from '../service/launched-sandboxes.ts';
import { type RawRequest, wholeStream } from '../service/raw-upstream.ts';
import { type Answer, call } from './call.ts';
import { FORM_TYPE, filePart, formOf, partsOf, textPart } from './forms.ts';
import { jsonAnswer } from './suspend.ts';

/** What tests change of a good request to an operation. */
export interface OperationRequestChanges {
  readonly shape?: PathShape;
  readonly bot?: string;
  /** The client's id of the conversation. */
  readonly channel?: string;
  readonly headers?: Record<string, string>;
  /** Replaces the body. */
  readonly body?: string | Buffer;
}

/** The operations that go to the bot service. */
export const CARRIED = OPERATIONS.filter(({ carriedBy }) => carriedBy !== 'run');

/** The operation at `path`. */
export function operationAt(line: string): Operation {
  const found = OPERATIONS.find(({ method, path }) => `${method} ${path}` === line);
  if (!found) throw new Error(`there is no operation ${line}`);
  return found;
}

/** The parts of a good request to `operation`, made from its row. */
export function operationRequest(operation: Operation, changes: OperationRequestChanges = {}) {
  const { shape = '/ns', bot = 'helper', channel = 'c1', headers = {} } = changes;
  const { method, channel: place } = operation;
  const path = `${shape}/acme/bot-provider/${bot}/${operation.path.replace(':sandbox', 'one')}`;
  const query = new URLSearchParams(place === 'query' ? { custom_channel_id: channel } : {});
  for (const [name, { required }] of Object.entries(operation.query ?? {}))
    if (required) query.set(name, 'a');
  const json = place === 'json' ? JSON.stringify({ customChannelId: channel, text: 'Hi' }) : undefined;
  const id = place === 'form' ? [textPart(channel)] : [];
  const form = operation.takesFile ? formOf([filePart('x'), ...id]) : undefined;
  const body = changes.body ?? form ?? json;
  return {
    method,
    path: query.size > 0 ? `${path}?${query}` : path,
    headers: {
      ...(operation.group === 'sandbox' && { 'X-Request-Id': `${SANDBOX_REQUEST}${randomUUID()}` }),
      ...(json !== undefined && { 'Content-Type': 'application/json' }),
      ...(form !== undefined && { 'Content-Type': FORM_TYPE }),
      ...(body !== undefined && { 'Content-Length': String(Buffer.byteLength(body)) }),
      ...headers,
    },
    body,
  };
}

/** Sends a good request to `operation`, as the signed-in user unless `changes` has another `Cookie`. */
export function ask(
  pair: RelayAndUpstream,
  operation: Operation,
  changes: OperationRequestChanges = {},
): Promise<Answer> {
  const { path, headers, method, body } = operationRequest(operation, changes);
  return call(pair.relay.port, path, {
    method,
    headers: { Cookie: pair.cookie, ...headers },
    ...(body !== undefined && { body }),
  });
}

/** The id of the conversation in a request that the bot service has got; `none` if it has none. */
export function channelIn({ requestLine, body, all }: RawRequest): string {
  const query = new URL(requestLine.split(' ')[1] ?? '', 'http://service').searchParams;
  const inQuery = query.get('custom_channel_id');
  if (inQuery !== null || body.length === 0) return inQuery ?? 'none';
  const [type = ''] = all('content-type');
  if (type !== 'application/json') return partsOf(body, type).at(-1)?.body ?? 'none';
  return (JSON.parse(String(body)) as { customChannelId: string }).customChannelId;
}

/** Headers of an answer that could make a browser or a cache keep it, or change a session. */
const NOT_PASSED = ['ETag: "evil"', 'Set-Cookie: evil=1', 'Cache-Control: public, max-age=9999'].concat(
  'Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT',
);

/** A good answer of the bot service to `operation`, which names the conversation `channel`. */
export function goodAnswer({ carriedBy }: Operation, channel: string): string | Buffer {
  const data = { customChannelId: channel };
  return carriedBy === 'proxy'
    ? jsonAnswer('200 OK', data, NOT_PASSED)
    : withHeaders(wholeStream(`data: ${JSON.stringify(data)}\n\n`));
}

/** The stream with these headers after its status line. */
function withHeaders(stream: Buffer): Buffer {
  const end = stream.indexOf('\r\n');
  return Buffer.concat([
    stream.subarray(0, end),
    Buffer.from(NOT_PASSED.map((line) => `\r\n${line}`).join('')),
    stream.subarray(end),
  ]);
}

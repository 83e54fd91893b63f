import type { OperationGroup } from '../../bots/bot.ts';
import { isPlainPath, isPlainRelativePath } from '../../http/plain-path.ts';
import type { QueryParameter } from '../../http/read-query.ts';
import { MESSAGE_PATH } from '../upstream/upstream-target.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** One operation of the bot service, at one path below a bot's path. */
export interface Operation {
  readonly group: OperationGroup;
  readonly method: Method;
  /** An Express pattern, whose only parameter is `:sandbox`. It also names the budget of this path. */
  readonly path: string;
  /**
   * Where the id of the conversation stands. `none`: the operation names no conversation. Otherwise the id is required,
   * except in a message.
   */
  readonly channel: 'json' | 'query' | 'form' | 'none';
  /** The parameters of its query besides the conversation's id; no other parameter goes upstream. */
  readonly query?: Readonly<Record<string, QueryParameter>>;
  /** Its body is a form with one file. `MAX_UPLOAD_BYTES` bounds the file. */
  readonly takesFile?: true;
  /** A good answer is a file, which is passed on as it arrives. */
  readonly givesFile?: true;
  /** The largest body of JSON, in bytes, if `channel` is `json`. A message has a bound of its own. */
  readonly maxBodyBytes?: number;
  /** The largest answer that the proxy passes on, in bytes; 64 KiB if not given. */
  readonly maxAnswerBytes?: number;
  /** How long the answer may take at least, in ms, also if `UPSTREAM_RESPONSE_TIMEOUT_MS` is shorter. */
  readonly leastTimeoutMs?: number;
  /** It removes what was said in the conversation. */
  readonly forgets?: true;
  /**
   * What carries it: the route of messages; that of runs, which only the relay has; that of live streams; or the proxy of
   * ordinary operations.
   */
  readonly carriedBy: 'message' | 'run' | 'live' | 'proxy';
}

/** An id that the client has chosen: not empty, without control characters, and valid UTF-8. */
const ID = /^[^\p{Cc}\u{fffd}]{1,256}$/u;
const PATH = { pattern: { test: isPlainPath }, required: true };
const RELATIVE_PATH = { pattern: { test: isPlainRelativePath }, required: true };
const FLAG = /^(?:true|false)$/;
const BYTES = /^\d{1,15}$/;
/** The permissions of a file as a decimal number, at most 0o7777. */
const FILE_MODE = { test: (text: string) => /^\d{1,4}$/.test(text) && Number(text) <= 0o7777 };
/** The bot service answers within 60 s when it removes a conversation or its messages. */
const REMOVAL_TIMEOUT_MS = 65_000;

const FROM_TO = { src: PATH, dst: PATH, overwrite: { pattern: FLAG } };
const PIECE = { path: PATH, offset_bytes: { pattern: BYTES }, limit_bytes: { pattern: BYTES } };
const WRITTEN = { path: PATH, mode: { pattern: FILE_MODE }, create_only: { pattern: FLAG } };

/** An operation on a sandbox of the conversation that its query names. */
function sandbox(method: Method, path: string, query: Operation['query'] = {}) {
  return { group: 'sandbox', method, path: `sandbox/:sandbox/${path}`, channel: 'query', query } as const;
}

/** Stops the run of a conversation, and its messages that have not left yet. */
export const SUSPEND: Operation = {
  ...{ group: 'chat', method: 'POST', path: 'message/suspend', channel: 'query' },
  query: { request_id: { pattern: ID }, force: { pattern: FLAG } },
  carriedBy: 'proxy',
};

/** What the service knows of a conversation. */
export const CHANNEL_METADATA: Operation = {
  ...{ group: 'chat', method: 'GET', path: 'channel/metadata', channel: 'query', carriedBy: 'proxy' },
  maxAnswerBytes: 1 << 20,
};

/** Every operation that a browser may use. The routes, the methods of CORS and the budgets follow from it. */
export const OPERATIONS: readonly Operation[] = [
  { group: 'message', method: 'POST', path: MESSAGE_PATH, channel: 'json', carriedBy: 'message' },
  {
    ...{ group: 'message', method: 'GET', path: 'message/run', channel: 'query', carriedBy: 'run' },
    query: { custom_message_id: { pattern: ID, required: true } },
  },
  SUSPEND,
  {
    ...{ group: 'chat', method: 'GET', path: MESSAGE_PATH, channel: 'query' },
    query: { is_debug: { pattern: FLAG } },
    carriedBy: 'live',
  },
  CHANNEL_METADATA,
  {
    ...{ group: 'chat', method: 'DELETE', path: 'channel', channel: 'query', carriedBy: 'proxy' },
    ...{ leastTimeoutMs: REMOVAL_TIMEOUT_MS, forgets: true },
  },
  {
    ...{ group: 'chat', method: 'POST', path: 'channel/clear', channel: 'query', carriedBy: 'proxy' },
    ...{ leastTimeoutMs: REMOVAL_TIMEOUT_MS, forgets: true },
  },
  {
    ...{ group: 'chat', method: 'POST', path: 'message/feedback', channel: 'json', carriedBy: 'proxy' },
    maxBodyBytes: 65_536,
  },
  { group: 'files', method: 'POST', path: 'blob', channel: 'form', takesFile: true, carriedBy: 'proxy' },
  {
    ...{ group: 'files', method: 'GET', path: 'channel-home/download', channel: 'query', carriedBy: 'proxy' },
    ...{ query: { relative_path: RELATIVE_PATH }, givesFile: true },
  },
  {
    ...{ group: 'files', method: 'GET', path: 'cwd/download', channel: 'query', carriedBy: 'proxy' },
    ...{ query: { relative_path: RELATIVE_PATH }, givesFile: true },
  },
  {
    ...{ group: 'metadata', method: 'GET', path: 'metadata', channel: 'none', carriedBy: 'proxy' },
    maxAnswerBytes: 1 << 20,
  },
  { ...sandbox('POST', 'browser/open-url'), carriedBy: 'proxy' },
  { ...sandbox('POST', 'browser/session'), carriedBy: 'proxy' },
  { ...sandbox('POST', 'fs/mkdir', { path: PATH }), carriedBy: 'proxy' },
  { ...sandbox('POST', 'fs/copy', FROM_TO), carriedBy: 'proxy' },
  { ...sandbox('POST', 'fs/move', FROM_TO), carriedBy: 'proxy' },
  { ...sandbox('GET', 'fs/list', { path: PATH }), maxAnswerBytes: 1 << 20, carriedBy: 'proxy' },
  { ...sandbox('GET', 'fs/stat', { path: PATH }), carriedBy: 'proxy' },
  { ...sandbox('GET', 'fs/file', PIECE), givesFile: true, carriedBy: 'proxy' },
  { ...sandbox('PUT', 'fs/file', WRITTEN), takesFile: true, carriedBy: 'proxy' },
  { ...sandbox('DELETE', 'fs/item', { path: PATH }), carriedBy: 'proxy' },
  { ...sandbox('DELETE', 'fs/all', { path: PATH }), carriedBy: 'proxy' },
  { ...sandbox('GET', 'fs/watch', { path: PATH, recursive: { pattern: FLAG } }), carriedBy: 'live' },
];

/** The methods of all operations. */
export const METHODS: readonly Method[] = [...new Set(OPERATIONS.map(({ method }) => method))];

/** The largest answer that is passed on, in bytes. */
export function maxAnswerBytesOf({ maxAnswerBytes = 65_536 }: Pick<Operation, 'maxAnswerBytes'>): number {
  return maxAnswerBytes;
}

/**
 * The name of the operation's budget at `bot`, which is `namespace/bot`. All methods of a path share it, and so do all
 * sandboxes: more budgets could send more than the service takes, and a page could name any number of them.
 */
export function endpointOf({ path }: Pick<Operation, 'path'>, bot: string): string {
  return path === MESSAGE_PATH ? bot : `${bot}/${path}`;
}

import { hash } from 'node:crypto';
import { type Bot, botPath, type PathShape } from '../../bots/bot.ts';

/** Where a request goes at the bot service; all parts have been checked. */
export interface UpstreamTarget {
  readonly bot: Bot;
  /** The shape of the client's path, in which it goes upstream. */
  readonly shape: PathShape;
  /** The operation's path below that of the bot, as its row has it. */
  readonly path: string;
  /** What stands in the path in the place of `:sandbox`, not encoded. */
  readonly sandbox?: string | undefined;
  readonly query?: URLSearchParams | undefined;
}

/** The path of messages, and of the live streams of conversations. */
export const MESSAGE_PATH = 'message/sse';
/** The place of a sandbox's name in the path of a row. */
export const SANDBOX = ':sandbox';

/** The path of the service's address, which stands before every target. It has no slash at its end. */
export function targetPrefix({ pathname }: Readonly<URL>): string {
  return pathname.replace(/\/+$/, '');
}

/** The target of a request for any operation, with its query, after `prefix`. */
export function upstreamTarget(prefix: string, target: UpstreamTarget): string {
  const { bot, shape, path, sandbox, query } = target;
  if (path.includes(SANDBOX) !== (sandbox !== undefined))
    throw new Error(`the path ${path} lacks its sandbox`);
  const named = path.replace(SANDBOX, () => encodeURIComponent(sandbox ?? ''));
  return `${botPath(prefix, shape, bot)}/${named}${query && query.size > 0 ? `?${query}` : ''}`;
}

/** What the bot service takes, and a header can carry: up to 128 characters of visible ASCII (RFC 9110 §5.5). */
const FITS = /^[\x21-\x7e]{1,128}$/;

/**
 * The header `name`, in lower case, with which the bot service learns the user; none if `name` is undefined. Its value
 * is the user id as it is, or the SHA-256 of the id in hex if the id does not fit.
 */
export function userHintHeader(name: string | undefined, userId: string): Record<string, string> {
  if (name === undefined) return {};
  return { [name.toLowerCase()]: FITS.test(userId) ? userId : hash('sha256', userId, 'hex') };
}

import type { QueryParameter } from '../../http/read-query.ts';

/** An ordinary operation of the bot service: one request, one short answer. */
export interface Operation {
  /** Its path below that of the bot; it also names the operation's own budget. */
  readonly path: string;
  /** The parameters of its query; no other goes upstream. */
  readonly query: Readonly<Record<string, QueryParameter>>;
}

/** An id that its client has chosen: not empty, no control character, and UTF-8. */
const ID = /^[^\p{Cc}\u{fffd}]{1,256}$/u;

/** Stops the run of a channel. The run's end arrives on its stream. */
export const SUSPEND: Operation = {
  path: 'message/suspend',
  query: {
    custom_channel_id: { pattern: ID, required: true },
    request_id: { pattern: ID },
    force: { pattern: /^(?:true|false)$/ },
  },
};

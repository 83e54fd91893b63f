/** Why the bot service's stream broke off, where no error code of the system or the HTTP parser says it. */
export const BREAK_CAUSES = [
  /** It ended in order, but in the middle of a run: the run's end event is missing. */
  'no_end_event',
  /** The connection, whose end is the end of the body, was reset or closed inside an event. */
  'closed',
  /** The resumed stream ended after a part of the events that it had to repeat. */
  'partial_tail',
  /** The resumed stream repeats events, but there is no room to hold and compare them. */
  'no_room',
  /** The bot service has begun another run where the stream was resumed. */
  'new_run',
] as const;

/** One of the list, or an error code of the system or the HTTP parser, such as `ECONNRESET`. */
export type BreakCause = (typeof BREAK_CAUSES)[number] | (string & {});

/** Why a stream that broke off was not resumed, or not once more. */
export const NOT_RESUMED = [
  /** `RESUME_UPSTREAM=off`. */
  'off',
  /** The message was too large to be kept. */
  'large_body',
  /** There was no room to keep the message, or the hashes of the events after the last id. */
  'no_room',
  /** The bot service has run a message of this bot again where it was resumed. */
  'new_run',
  /** The stream had no id, or the last one was empty. */
  'no_id',
  /** No header can carry the last id. */
  'bad_id',
  /** A part of an event was sent, and no id has followed: the event can't be compared. */
  'unheld_event',
  /** More events followed the last id than are remembered. */
  'too_many_events',
  /** No attempt is left, or the service's answer was final. */
  'attempts_failed',
] as const;

export type NotResumed = (typeof NOT_RESUMED)[number];

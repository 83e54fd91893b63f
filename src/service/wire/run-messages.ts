import { randomUUID } from 'node:crypto';
import type { Turn } from '../brains/steps.ts';
import { type EventSource, type EventType, eventText } from '../store/bot-event.ts';
import type { Channel } from '../store/channel.ts';
import type { Run } from '../store/run.ts';

/** Sends an event that is not kept. */
export type Send = (eventType: EventType, fact: object) => void;

interface MessageRun {
  readonly run: Run;
  readonly channel: Channel | undefined;
  readonly source: EventSource;
}

/** The messages that a run sends, one after the other. Whole ones are kept in the channel. */
export function runMessages({ run, channel, source }: MessageRun, send: Send) {
  const eventType = 'asgard.message.complete';
  const turn: unknown[] = [];
  let messageId: string | undefined;
  let text = '';
  const remember = (messages: Turn) => {
    if (messages.length === 0) return;
    turn.push(...messages);
    channel?.writeTurn(run.id, turn);
  };
  /** Writes all that belongs together before anything of it is sent. */
  const complete = (messages: Turn, state: { readonly isStopped?: true }) => {
    const fact = { messageComplete: { message: { messageId, text, ...state } } };
    const event = messageId === undefined ? undefined : ({ eventType, source, fact, messageId } as const);
    const kept = channel?.transaction(() => {
      remember(messages);
      return event && channel.keep(event);
    });
    if (event) run.send(kept?.text ?? eventText(eventType, event), kept !== undefined);
    messageId = undefined;
  };
  return {
    start() {
      messageId = randomUUID();
      text = '';
      send('asgard.message.start', { messageStart: { message: { messageId } } });
    },
    say(piece: string) {
      text += piece;
      send('asgard.message.delta', { messageDelta: { message: { messageId, text: piece } } });
    },
    /** Completes the message that is open, if one is, and adds to what the bot remembers of this run. */
    complete: (messages: Turn = []) => complete(messages, {}),
    /**
     * Completes the message that is open, if one is, as one that the user has stopped. `remembered` says what the bot
     * remembers of what was said of it.
     */
    stop: (remembered: (said: string) => Turn = () => []) =>
      complete(remembered(messageId === undefined ? '' : text), { isStopped: true }),
    /** Adds to what the bot remembers of this run. */
    remember: (messages: Turn) => channel?.transaction(() => remember(messages)),
  };
}

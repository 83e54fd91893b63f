import type { Socket } from 'node:net';
import { until } from '../clock/until.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from './raw-upstream.ts';

/** One message at the bot service; the test answers it. */
export interface Run {
  readonly text: string;
  readonly body: { readonly customChannelId: string };
  /** Sends the head of the stream; the other methods do not. */
  begin(): void;
  /** Sends deltas, all in one piece. */
  say(...texts: string[]): void;
  /** Sends a piece of the stream. */
  write(piece: string): void;
  /** Sends one event of the bot. */
  send(fact: object): void;
  /** Ends the stream cleanly. */
  finish(): void;
  /** Sends a whole answer with these deltas. */
  answer(...texts: string[]): void;
  /** Breaks the connection. */
  breakOff(): void;
  /** Resolves when the relay has closed the connection. */
  readonly gone: Promise<void>;
}

export interface BotRuns {
  readonly upstream: RawUpstream;
  /** All messages so far, in order. */
  readonly runs: readonly Run[];
  /** Resolves with the message that has this text, as soon as it arrives. */
  run(text: string): Promise<Run>;
  /** Forgets all messages so far. */
  forget(): void;
}

/** The answer to all other operations. */
const NOTHING = plainAnswer('404 Not Found', ['Content-Type: application/json'], '{}');

/** Starts a bot service on a free port; the test answers its messages. */
export async function startBotRuns(): Promise<BotRuns> {
  const runs: Run[] = [];
  const upstream = await startRawUpstream((socket, request) => {
    if (!/^POST \S+\/message\/sse /.test(request.requestLine)) return void socket.write(NOTHING);
    runs.push(
      runOf(socket, JSON.parse(request.body.toString()) as { text: string; customChannelId: string }),
    );
  });
  const find = (text: string) => runs.find((run) => run.text === text);
  return {
    upstream,
    runs,
    async run(text) {
      await until(() => find(text) !== undefined);
      return find(text) as Run;
    },
    forget() {
      runs.length = 0;
    },
  };
}

/** The type of an event with this fact: `asgard.message.delta` for `{ messageDelta: … }`. */
export function typeOf(fact: object): string {
  const [, of = '', what = ''] = /^(message|run|toolCall)(\w+)$/.exec(Object.keys(fact)[0] ?? '') ?? [];
  return `asgard.${of === 'toolCall' ? 'tool_call' : of}.${what.toLowerCase()}`;
}

/** An event in the form that is seen in the field. */
export function eventOf(fact: object): string {
  const eventType = typeOf(fact);
  return `event: ${eventType}\ndata: ${JSON.stringify({ eventType, fact })}\n\n`;
}

export const deltaOf = (text: string, messageId = 'm1') => ({
  messageDelta: { message: { messageId, text } },
});

function runOf(socket: Socket, body: { text: string; customChannelId: string }): Run {
  const run: Run = {
    text: body.text,
    body,
    begin: () => void socket.write(STREAM_HEAD),
    write: (piece) => void socket.write(chunk(piece)),
    say: (...texts) => run.write(texts.map((text) => eventOf(deltaOf(text))).join('')),
    send: (fact) => run.write(eventOf(fact)),
    finish: () => void socket.write(LAST_CHUNK),
    answer(...texts) {
      run.begin();
      run.say(...texts);
      run.finish();
    },
    breakOff: () => void socket.destroy(),
    get gone() {
      return new Promise<void>((resolve) => (socket.destroyed ? resolve() : socket.once('close', resolve)));
    },
  };
  return run;
}

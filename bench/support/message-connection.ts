import { connect } from 'node:net';
import { answerReader } from './answer-reader.ts';
import { messageText } from './message.ts';
import { type EventReader, eventReader } from './timed-event.ts';

/** As the bots `three-N` of `../peers/upstream.ts` answer. */
const EVENT_BYTES = 100;
const EVENTS = 3;
/** A bot takes 5 messages a second, so the messages are sent to many bots. */
const BOTS = 500;
let sent = 0;

/** A kept connection for one message after the other. */
export interface MessageConnection {
  /**
   * Sends a message to the next bot. Resolves when its answer is over, with the time from sending to the first event,
   * in ms. Rejects if the answer is not three events, or breaks off.
   */
  send(): Promise<number>;
  close(): void;
}

/** Connects to `port` of this machine; `headers` go with every message, as whole lines. */
export function messageConnection(port: number, headers: readonly string[] = []): MessageConnection {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  let settle: { resolve: (ms: number) => void; reject: (error: unknown) => void } | undefined;
  let broken: unknown;
  let sentAt = 0;
  let firstEventAt = 0;
  let events: EventReader;
  let seen = 0;
  const onEvent = () => {
    if (seen++ === 0) firstEventAt = performance.now();
  };
  const read = answerReader({
    onBody: (body) => events.push(body),
    onEnd() {
      events.end();
      if (seen !== EVENTS) throw new Error(`${seen} events came`);
      settle?.resolve(firstEventAt - sentAt);
    },
  });
  const fail = (error: unknown) => {
    broken ??= error;
    settle?.reject(error);
  };
  socket.on('data', (data) => {
    try {
      read(data);
    } catch (error) {
      fail(error);
    }
  });
  socket.on('error', fail);
  socket.on('close', () => fail(new Error('the connection was closed')));
  return {
    send: () =>
      new Promise((resolve, reject) => {
        // The other side closes a connection that is unused for long.
        if (broken !== undefined) return reject(broken);
        settle = { resolve, reject };
        events = eventReader(EVENT_BYTES, onEvent);
        seen = 0;
        const message = messageText(`three-${sent++ % BOTS}`, headers);
        sentAt = performance.now();
        socket.write(message);
      }),
    close: () => socket.destroy(),
  };
}

/** Sends `count` messages over `connections`. Each sends its next message when the last one is answered. */
export async function sendMessages(connections: readonly MessageConnection[], count: number): Promise<void> {
  let left = count;
  const work = async ({ send }: MessageConnection) => {
    while (left-- > 0) await send();
  };
  await Promise.all(connections.map(work));
}

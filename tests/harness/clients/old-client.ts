import { createServer, type Server, type Socket } from 'node:net';
import { expect } from '@jest/globals';
import { until } from '../clock/until.ts';
import type { TestRelay } from '../relay/relay.ts';
import { chunk, LAST_CHUNK } from '../service/raw-upstream.ts';
import { fieldClient } from './field-client.ts';
import { DONE, EVENTS } from './joining.ts';

/** As often as an old client sends again. */
export const CUTS = 3;

const NUMBERS = EVENTS.map((event) => JSON.parse(event.slice(event.indexOf('{'))).n as number);

export interface CutClient {
  /** So many events come before each cut. */
  readonly events: number;
  /** Opens a connection to a relay, or to what stands before it; the first has the number 0. */
  readonly open: (connection: number) => Socket;
  readonly cookie: string;
  readonly relays: readonly TestRelay[];
  /** The bot service's end of the stream. It has sent the first event. */
  readonly socketOf: () => Socket | undefined;
}

/** Lets an old client lose its connection again and again, and expects the whole answer of one run. */
export async function expectWholeAnswer({
  events,
  open,
  cookie,
  relays,
  socketOf,
}: CutClient): Promise<void> {
  const { front, url } = await startCuttingFront(events, open);
  try {
    const joins = () => relays.flatMap(({ logs }) => logs.filter(({ msg }) => msg === 'run joined')).length;
    const before = joins();
    const received = fieldClient({ url, cookie, retries: 'always' });
    await until(() => socketOf() !== undefined);
    for (const event of EVENTS.slice(1, -1)) {
      await new Promise((resolve) => setTimeout(resolve, 30));
      socketOf()?.write(chunk(event));
    }
    await until(() => joins() - before === CUTS);
    socketOf()?.write(Buffer.concat([chunk(DONE), Buffer.from(LAST_CHUNK)]));
    const { data, error } = await received;
    expect(error).toBeUndefined();
    const seen = [1, 2, 3].flatMap(() => NUMBERS.slice(0, events));
    expect(data.map(({ n }) => n)).toEqual([...seen, ...NUMBERS]);
  } finally {
    front.close();
  }
}

/** Passes connections on, and cuts the first `CUTS` behind `events` events of the answer. */
async function startCuttingFront(
  events: number,
  open: CutClient['open'],
): Promise<{ readonly front: Server; readonly url: string }> {
  let connections = 0;
  const front = createServer((client) => {
    const relay = open(connections);
    const isCut = ++connections <= CUTS;
    let seen = '';
    client.pipe(relay);
    relay.on('data', (data) => {
      const before = seen.length;
      seen += data.toString('latin1');
      const end = isCut ? endOf(seen, events) : -1;
      client.write(end < 0 ? data : data.subarray(0, Math.max(0, end - before)));
      if (end >= 0) client.destroySoon();
    });
    relay.on('close', () => client.destroy());
    client.on('close', () => relay.destroy());
    for (const socket of [client, relay]) socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  return { front, url: `http://127.0.0.1:${(front.address() as { port: number }).port}` };
}

/** Where the head and `events` events of an answer end; -1 if they have not come. */
function endOf(answer: string, events: number): number {
  let at = answer.indexOf('\r\n\r\n') < 0 ? -1 : answer.indexOf('\r\n\r\n') + 4;
  for (let n = 0; n < events && at >= 0; n++) {
    const blankLine = answer.indexOf('\n\n', at);
    at = blankLine < 0 ? -1 : blankLine + 2;
  }
  return at;
}

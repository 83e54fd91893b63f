import type { Socket } from 'node:net';
import { afterAll, describe, expect } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { call } from '../harness/clients/call.ts';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const json = (eventType: string, requestId = 'r') => `data: ${JSON.stringify({ eventType, requestId })}\n\n`;
const INIT = json('asgard.run.init');
const DONE = json('asgard.run.done');
const KEPT = `id: 7\n${json('kept')}`;
const DELTA = json('delta');
/** Pauses of healing are short, and two events after the id are remembered. */
const BEGUN = `retry: 1\n\n${INIT}${KEPT}${DELTA}${DELTA}`;
const HALF = 'data: half';
const BODY = JSON.stringify({ text: 'the message' });
const OTHER_BODY = JSON.stringify({ text: 'another message' });
/** A buffer of held bytes has this capacity at least. */
const LEAST = 512;
/** The message, its remembered events, and half an event. */
const HELD = BODY.length + 2 * LEAST;

const pairs: RelayAndUpstream[] = [];
afterAll(async () => {
  for (const pair of pairs) await pair.close();
});

interface Started extends RelayAndUpstream {
  readonly client: RawClient;
  /** The bot service's ends of the stream: the first one, and those of its resumptions. */
  readonly sockets: Socket[];
}

interface End {
  /** What the service answers to a resumption. */
  readonly resumption?: string | Buffer;
  readonly environment?: Record<string, string>;
  /** What the service sends first. */
  readonly begun?: string;
  /** How many bytes are held before the end. */
  readonly held?: number;
  /** Ends the stream. */
  readonly end: (started: Started) => unknown;
  /** What the client gets after the events; undefined if it leaves. */
  readonly ending: string | undefined;
}

/** Carries a stream that holds as much as it can, ends it, and looks whether everything was given back. */
async function givesAllBack(how: End): Promise<void> {
  const { resumption, environment, begun = BEGUN + HALF, held = HELD, end, ending } = how;
  const sockets: Socket[] = [];
  const pair = await startRelayAndUpstream(
    (socket, { all, body }) => {
      if (String(body) === OTHER_BODY) return void socket.write(wholeStream(INIT, DONE));
      sockets.push(socket);
      const again = all('last-event-id').length > 0 && resumption;
      socket.write(again || Buffer.concat([Buffer.from(STREAM_HEAD), chunk(begun)]));
    },
    { MAX_STREAMS_PER_USER: '1', METRICS_PORT: '9090', JOIN_GRACE_MS: '0', ...environment },
  );
  pairs.push(pair);
  const { relay } = pair;
  const client = pair.ask({ body: BODY, headers: ['Connection: close'] });
  await until(() => relay.held.bytes() === held);
  await end({ ...pair, client, sockets });
  await client.closed;
  if (ending !== undefined) expect(dechunk(client.text()).body.slice(0, 10_000)).toContain(ending);
  await until(() => relay.held.bytes() === 0 && relay.runs.bytes() === 0);
  await until(() => relay.open.count() === 0);
  expect(await relay.metricsText()).toMatch(/^bot_relay_open_streams 0$/m);
  // The user has one place only.
  const next = await relay.send(await relay.signIn(), { body: OTHER_BODY });
  expect([next.status, await next.text()]).toEqual([200, INIT + DONE]);
}

const breaks = ({ sockets }: Started) => sockets[0]?.resetAndDestroy();
const logOut = ({ relay, cookie }: Started) =>
  call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
const code = (name: string) => `"code":"${name}"`;
/** What a resumption has dropped and holds: the message, the remembered events, one of them again, and half an event. */
const HELD_IN_HEAD = BODY.length + 3 * LEAST;
const begins = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);
const breaksAndHolds = async (started: Started) => {
  breaks(started);
  await until(() => started.relay.held.bytes() === HELD_IN_HEAD);
};

const ENDS: Record<string, End> = {
  'ends well': {
    end: ({ sockets }) => sockets[0]?.write(Buffer.concat([chunk(`\n\n${DONE}`), Buffer.from(LAST_CHUNK)])),
    ending: `${HALF}\n\n${DONE}`,
  },
  'ends cleanly inside an event, which goes down as it came': {
    environment: { END_EVENTS: 'off' },
    end: ({ sockets }) => sockets[0]?.write(LAST_CHUNK),
    ending: HALF,
  },
  'breaks and is not resumed': {
    environment: { RESUME_UPSTREAM: 'off' },
    held: LEAST,
    end: breaks,
    ending: code('upstream_stream_broken'),
  },
  'breaks inside an event that is too large to hold': {
    begun: `${BEGUN}data: ${'x'.repeat(70_000)}`,
    held: BODY.length,
    end: async (started) => {
      await started.client.waitFor('x'.repeat(60_000));
      breaks(started);
    },
    ending: 'xxx',
  },
  'breaks and is healed': {
    resumption: wholeStream(DONE),
    end: breaks,
    ending: DELTA + DONE,
  },
  'breaks and has nothing to resume': {
    resumption: plainAnswer('204 No Content', []),
    end: breaks,
    ending: code('upstream_stream_broken'),
  },
  'breaks and can be resumed by no attempt': {
    resumption: plainAnswer('503 No', []),
    end: breaks,
    ending: code('upstream_stream_broken'),
  },
  'breaks and meets a new run': {
    resumption: begins(json('asgard.run.init', 'another') + HALF),
    end: breaks,
    ending: code('upstream_stream_broken'),
  },
  'is aborted by its client': {
    end: ({ client }) => client.socket.destroy(),
    ending: undefined,
  },
  'is aborted by its client in a pause of its healing': {
    begun: `retry: 10000\n\n${BEGUN.slice('retry: 1\n\n'.length)}${HALF}`,
    end: async (started) => {
      breaks(started);
      await until(() => started.relay.held.bytes() === HELD - LEAST);
      started.client.socket.destroy();
    },
    ending: undefined,
  },
  'is aborted by its client while its resumption repeats what went down': {
    resumption: begins(KEPT + DELTA + HALF),
    end: async (started) => {
      await breaksAndHolds(started);
      started.client.socket.destroy();
    },
    ending: undefined,
  },
  'has reached its deadline': {
    end: ({ relay }) => relay.open.endAll(TOO_LONG),
    ending: code('deadline_exceeded'),
  },
  'has reached its deadline while its resumption repeats what went down': {
    resumption: begins(KEPT + DELTA + HALF),
    end: async (started) => {
      await breaksAndHolds(started);
      started.relay.open.endAll(TOO_LONG);
    },
    ending: code('deadline_exceeded'),
  },
  'ends with its session': { end: logOut, ending: code('session_ended') },
  'ends with its session while its resumption repeats what went down': {
    resumption: begins(KEPT + DELTA + HALF),
    end: async (started) => {
      await breaksAndHolds(started);
      await logOut(started);
    },
    ending: code('session_ended'),
  },
  'is ended by a shutdown': {
    end: ({ relay }) => relay.open.endAll(new Problem('draining', 'Shutting down.')),
    ending: code('answer_lost'),
  },
  'is ended by a shutdown while its resumption repeats what went down': {
    resumption: begins(KEPT + DELTA + HALF),
    end: async (started) => {
      await breaksAndHolds(started);
      started.relay.open.endAll(new Problem('draining', 'Shutting down.'));
    },
    ending: code('answer_lost'),
  },
};

describe('all that was taken for a message is given back when its stream', () => {
  testSideBySide(Object.entries(ENDS).map(([title, end]) => [title, () => givesAllBack(end)]));
});

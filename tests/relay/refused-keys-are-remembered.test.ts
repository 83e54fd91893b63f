import { afterAll, expect } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const BOTH_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
const STREAM = wholeStream('data: a\n\n');
const REFUSAL = plainAnswer('401 No', []);

/** A relay in front of a service that accepts only some keys. */
interface Keyed extends RelayAndUpstream {
  /** Sends a message; resolves with the status of its answer, or with that in the error event. */
  send(): Promise<number>;
  /** The keys of all requests. */
  receivedKeys(): (string | undefined)[];
  /** The arrival times of the requests, in ms. */
  readonly arrivals: number[];
}

const opened: RelayAndUpstream[] = [];
afterAll(() => Promise.all(opened.map((pair) => pair.close())));

/** Starts a service that answers a key of `answers` so, and any other with a stream. */
async function start(
  answers: ReadonlyMap<string, string>,
  environment: Record<string, string>,
): Promise<Keyed> {
  const arrivals: number[] = [];
  const pair = await startRelayAndUpstream((socket, { all }) => {
    arrivals.push(performance.now());
    socket.write(answers.get(all('x-api-key')[0] ?? '') ?? STREAM);
  }, environment);
  opened.push(pair);
  return {
    ...pair,
    arrivals,
    async send() {
      const response = await pair.relay.send(pair.cookie);
      const text = await response.text();
      return text.startsWith('event: error\n') ? errorEventIn(text).status : response.status;
    },
    receivedKeys: () => pair.upstream.requests.map(({ all }) => all('x-api-key')[0]),
  };
}

const firstRefused = () => new Map([[CANARY.key, REFUSAL]]);
const bothRefused = () => new Map([CANARY.key, CANARY.secondKey].map((key) => [key, REFUSAL]));

const WINDOW = 1500;
const BUDGET = { ...BOTH_KEYS, RATE_LIMIT: '2', RATE_WINDOW_MS: String(WINDOW), RATE_MAX_WAIT_MS: '15000' };

testSideBySide([
  [
    'a key that was refused costs one message a second request, and not every message',
    async () => {
      const { send, receivedKeys } = await start(firstRefused(), BOTH_KEYS);
      expect([await send(), await send(), await send()]).toEqual([200, 200, 200]);
      expect(receivedKeys()).toEqual([CANARY.key, ...Array(3).fill(CANARY.secondKey)]);
    },
  ],
  [
    'a key that was refused is tried again when all other keys are refused too',
    async () => {
      const answers = bothRefused();
      const { send, receivedKeys, upstream } = await start(answers, BOTH_KEYS);
      expect([await send(), await send()]).toEqual([502, 502]);
      answers.delete(CANARY.key);
      expect(await send()).toBe(200);
      // It is the first key again.
      const before = upstream.requests.length;
      expect(await send()).toBe(200);
      expect(receivedKeys().slice(before)).toEqual([CANARY.key]);
    },
  ],
  [
    'a key that was refused is logged once, and so is the key that works',
    async () => {
      const { send, relay } = await start(firstRefused(), BOTH_KEYS);
      await send();
      await send();
      const told = relay.logs.filter(({ msg }) => String(msg).startsWith('upstream key '));
      const [first, second] = relay.bots.keyRings.keys();
      expect(told).toMatchObject([
        {
          level: 'warn',
          msg: 'upstream key rejected',
          keyRing: 'acme/helper',
          keyFingerprint: first?.fingerprint,
        },
        {
          level: 'info',
          msg: 'upstream key accepted',
          keyRing: 'acme/helper',
          keyFingerprint: second?.fingerprint,
        },
      ]);
      expect(told).toHaveLength(2);
    },
  ],
  [
    'the request with a refused key takes a slot of the budget, since it reaches the service',
    async () => {
      const { send, arrivals } = await start(firstRefused(), {
        ...BOTH_KEYS,
        ...{ RATE_LIMIT: '4', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' },
      });
      // The first message needs two slots; each of the others needs one.
      for (const status of [200, 200, 200, 429]) expect(await send()).toBe(status);
      expect(arrivals).toHaveLength(4);
    },
  ],
  [
    'the request with a refused key does not lose its message even if RATE_MAX_WAIT_MS is 0',
    async () => {
      const { send, receivedKeys, relay } = await start(firstRefused(), {
        ...BUDGET,
        RATE_LIMIT: '1',
        RATE_MAX_WAIT_MS: '0',
      });
      expect(await send()).toBe(200);
      expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
      const line = await relay.logLine(({ bot }) => bot === 'acme/helper');
      expect(line.slotWaitMs).toBeGreaterThan(WINDOW / 2);
    },
  ],
  [
    'the request with a refused key is not followed by another if the client leaves during the wait',
    async () => {
      const { send, receivedKeys, arrivals, ask, relay } = await start(firstRefused(), {
        ...BUDGET,
        RATE_LIMIT: '1',
      });
      const client = ask();
      await until(() => arrivals.length === 1);
      client.socket.destroy();
      expect(await relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({ status: 499 });
      // The next message gets the slot that was given back.
      expect(await send()).toBe(200);
      expect(receivedKeys()).toEqual([CANARY.key, CANARY.secondKey]);
    },
  ],
  [
    'a message whose first key was refused does not try that key again when the next key gets 429, and gives up in time',
    async () => {
      const answers = bothRefused();
      const { send, receivedKeys, upstream } = await start(answers, BOTH_KEYS);
      // From now on all keys are refused ones.
      expect(await send()).toBe(502);
      answers.set(CANARY.secondKey, plainAnswer('429 Busy', ['Retry-After: 1']));
      const before = upstream.requests.length;
      expect(await send()).toBe(429);
      const [first, ...others] = receivedKeys().slice(before);
      expect(first).toBe(CANARY.key);
      expect(new Set(others)).toEqual(new Set([CANARY.secondKey]));
    },
  ],
]);

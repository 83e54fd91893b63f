import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { describeWithPromtool, differences, type RuleTest } from '../harness/relay/promtool.ts';

const FILE = fileURLToPath(new URL('../../deploy/alerts.yml', import.meta.url));
const { groups } = parse(readFileSync(FILE, 'utf8')) as {
  groups: {
    rules: { alert: string; labels: Record<string, string>; annotations: Record<string, string> }[];
  }[];
};
const rules = groups.flatMap((group) => group.rules);

const folder = mkdtempSync(join(tmpdir(), 'bot-relay-alerts-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** How long each scenario lasts, in minutes. */
const END = 30;

/** How often Prometheus scrapes and evaluates the rules, in seconds: a usual setting, and the default. */
const INTERVALS = [15, 60] as const;

/** The value at a time in minutes; negative before the scenario begins. */
type At = (minute: number) => number;

/** What Prometheus scrapes: the events per minute of a counter, or the value of a gauge. */
interface Scraped {
  readonly counters?: Readonly<Record<string, At>>;
  readonly gauges?: Readonly<Record<string, At>>;
}

interface Scenario extends Scraped {
  readonly alert: string;
  readonly what: string;
  /** How long before it began Prometheus has scraped, in minutes. */
  readonly before?: number;
  /** In minutes: not before `from`, certainly from `by` to `until`, and not after `gone`. Undefined: never. */
  readonly fires?: {
    readonly from: number;
    readonly by: number;
    readonly until: number;
    readonly gone: number;
  };
  /** The labels of the alert, except its severity. */
  readonly labels?: Readonly<Record<string, string>>;
  readonly summary?: string;
}

const always: At = () => 1;
/** `inside` from `from` to `to`, else `outside`. */
const within =
  (from: number, to: number, inside: number, outside = 0): At =>
  (minute) =>
    minute >= from && minute < to ? inside : outside;
/** One event every `minutes`, from `from` to `to`. */
const rare =
  (minutes: number, from = 0, to = END): At =>
  (minute) =>
    minute >= from && minute < to && Math.round(minute * 60) % (minutes * 60) === 0 ? 60 : 0;

const response = (outcome: string, key = 'a1') =>
  `bot_relay_upstream_responses_total{instance="one",job="bot-relay",key="${key}",outcome="${outcome}"}`;
const message = (status: string, code: string, method = 'POST', path = 'message/sse') =>
  `bot_relay_requests_total{instance="one",job="bot-relay",route="/x/${path}",method="${method}",status="${status}",code="${code}"}`;
const operation = (name: string, outcome: string) =>
  `bot_relay_session_operations_total{instance="one",job="bot-relay",operation="${name}",outcome="${outcome}"}`;
const redisRun = (outcome: string) =>
  `bot_relay_redis_run_duration_seconds_count{instance="one",job="bot-relay",outcome="${outcome}"}`;
const ready = (check: string) => `bot_relay_ready{instance="one",job="bot-relay",check="${check}"}`;
const up = 'up{instance="one",job="bot-relay"}';
const lag = 'nodejs_eventloop_lag_p99_seconds{instance="one",job="bot-relay"}';

const lost = 'bot_relay_sessions_lost_total{instance="one",job="bot-relay"}';
const dropped = (worker: string) =>
  `bot_relay_log_lines_dropped_total{instance="one",job="bot-relay",worker="${worker}"}`;
const descriptors = (what: 'open' | 'max', worker = '1') =>
  `process_${what}_fds{instance="one",job="bot-relay",worker="${worker}"}`;
const firstByte = (le: string) =>
  `bot_relay_time_to_first_byte_seconds_bucket{instance="one",job="bot-relay",le="${le}"}`;

/** So many minutes before a scenario reach an hour back on the day before. */
const DAY = 1_500;
const SECONDS = 1 / 60;
/** Redis is away for `minutes` from the fifth minute on, while messages arrive. */
const redisAway = (minutes: number): Scraped => ({
  counters: {
    [operation('get', 'ok')]: within(5, 5 + minutes, 0, 60),
    [operation('get', 'unavailable')]: within(5, 5 + minutes, 60),
    [operation('destroy', 'ok')]: rare(10),
    // One user signs out, and no other for a long time.
    [operation('destroy', 'unavailable')]: within(5, 5 + minutes, 12),
    [redisRun('ok')]: within(5, 5 + minutes, 0, 120),
    [redisRun('unavailable')]: within(5, 5 + minutes, 120),
  },
  gauges: { [ready('redis')]: within(5, 5 + minutes, 0, 1), [ready('accepting')]: always },
});
/** The bot service fails `share` of 40 messages a minute from the fifth minute on. */
const serviceFails = (minutes: number, share = 1): Scraped => ({
  counters: {
    [message('200', 'ok')]: within(5, 5 + minutes, 40 * (1 - share), 40),
    [message('200', 'upstream_bad_response')]: within(5, 5 + minutes, (40 * share) / 2),
    [message('502', 'upstream_unreachable')]: within(5, 5 + minutes, (40 * share) / 2),
    [message('429', 'rate_limited')]: () => 10,
  },
});
/** From the fifth minute on, more messages arrive than the bot service takes. */
const refused = (minutes: number, code = 'rate_limited', status = '429'): Scraped => ({
  counters: {
    [message('200', 'ok')]: () => 100,
    [message(status, code)]: within(5, 5 + minutes, 100),
  },
});
/** Most messages are refused or stopped in their stream; of the others, one in six fails there from the fifth minute on. */
const refusedInStream = (): Scraped => ({
  counters: {
    [message('200', 'ok')]: within(5, END, 10, 12),
    [message('200', 'upstream_timeout')]: within(5, END, 2),
    [message('200', 'upstream_refused')]: () => 50,
    [message('200', 'stopped')]: () => 50,
  },
});
/** From the fifth minute on, one key is rejected for `minutes`; another key is always accepted. */
const keyRejected = (minutes: number): Scraped => ({
  counters: {
    [response('2xx')]: within(5, 5 + minutes, 0, 30),
    [response('key_rejected')]: within(5, 5 + minutes, 2),
    [response('2xx', 'b2')]: () => 30,
    [response('key_rejected', 'b2')]: () => 0,
  },
});
/** From the fifth minute on, `share` of `perMinute` requests are of users who are not signed in; else `usual`. */
const notSignedIn = (share: number, usual = 0.05, perMinute = 100): Scraped => ({
  counters: {
    [message('200', 'ok')]: within(5, END, perMinute * (1 - share), perMinute * (1 - usual)),
    [message('401', 'unauthenticated')]: within(5, END, perMinute * share, perMinute * usual),
    // Each visitor of a public page asks for a session that there is not.
    'bot_relay_requests_total{instance="one",job="bot-relay",route="/auth/session",method="GET",status="401",code="unauthenticated"}':
      () => 300,
  },
});
/** Of `perMinute` answers, all begin within `usual` seconds, and for `minutes` from the fifth on within `late`. */
const begins = (usual: number, late: number, minutes: number, perMinute = 40): Scraped => ({
  counters: Object.fromEntries(
    [0.5, 1, 2.5, 5, 10, Number.POSITIVE_INFINITY].map((le) => {
      const count = (seconds: number) => (seconds <= le ? perMinute : 0);
      const name = firstByte(Number.isFinite(le) ? String(le) : '+Inf');
      return [name, within(5, 5 + minutes, count(late), count(usual))];
    }),
  ),
});
const unwell = (gauges: Readonly<Record<string, At>>): Scraped => ({
  gauges: {
    [up]: always,
    [ready('accepting')]: always,
    [lag]: () => 0.02,
    ...gauges,
  },
});

const KEY = {
  alert: 'BotRelayKeyRejected',
  labels: { key: 'a1' },
  summary: 'The bot service rejects the key with the fingerprint a1',
};
const FAILS = { alert: 'BotRelayBotServiceFails' };
const STORE = {
  alert: 'BotRelaySessionStoreUnavailable',
  labels: { instance: 'one' },
  summary: 'Sessions or budgets cannot be had on one',
};
const REFUSED = { alert: 'BotRelayMessagesRefused' };
const UNWELL = {
  alert: 'BotRelayInstanceUnwell',
  labels: { instance: 'one' },
  summary: 'one is not ready or too busy',
};
const DOWN = { alert: 'BotRelayInstanceDown', labels: { instance: 'one' }, summary: 'one is away' };
const MANY_FAIL = { alert: 'BotRelayManyMessagesFail' };
const LATE = { alert: 'BotRelayAnswersBeginLate', before: DAY };
const SIGNED_OUT = { alert: 'BotRelayManyNotSignedIn', before: DAY };
const LOST = { alert: 'BotRelaySessionsLost' };
const STREAMS = { alert: 'BotRelayTooManyStreams' };
const DROPPED = {
  alert: 'BotRelayLogLinesDropped',
  labels: { instance: 'one' },
  summary: 'one drops lines of its log',
};
const DESCRIPTORS = { alert: 'BotRelayFewDescriptors', labels: { instance: 'one' } };

const INVALID = {
  alert: 'BotRelayConfigurationInvalid',
  labels: { instance: 'one' },
  summary: 'one cannot use its files of keys and bots, and would not start again',
};
const configuration = (valid: At): Scraped => ({
  gauges: { 'bot_relay_configuration_valid{instance="one",job="bot-relay"}': valid },
});

const SCENARIOS: Scenario[] = [
  {
    ...INVALID,
    what: 'files that cannot be used for ten minutes',
    ...configuration(within(5, 15, 0, 1)),
    fires: { from: 7, by: 8.5, until: 14.75, gone: 16.5 },
  },
  { ...INVALID, what: 'files that cannot be used for a minute', ...configuration(within(5, 6, 0, 1)) },
  { ...INVALID, what: 'files that can be used', ...configuration(always) },

  {
    ...KEY,
    what: 'a key that is rejected for ten minutes, then accepted',
    ...keyRejected(10),
    fires: { from: 8, by: 11.5, until: 14.5, gone: 17 },
  },
  {
    ...KEY,
    what: 'a key that is rejected, then removed',
    counters: { [response('2xx')]: () => 0, [response('key_rejected')]: within(5, 15, 2) },
    fires: { from: 8, by: 11.5, until: 14.5, gone: 18.5 },
  },
  {
    ...KEY,
    what: 'a key that is rejected where messages are rare',
    counters: { [response('2xx')]: () => 0, [response('key_rejected')]: rare(2, 6) },
    fires: { from: 8, by: 13, until: END, gone: END + 1 },
  },
  {
    ...KEY,
    what: 'a key that one bot accepts and another rejects',
    counters: { [response('2xx')]: () => 30, [response('key_rejected')]: within(5, 15, 2) },
    fires: { from: 8, by: 11.5, until: 14.5, gone: 17 },
  },
  { ...KEY, what: 'rejections of a key for five seconds', ...keyRejected(5 * SECONDS) },
  { ...KEY, what: 'rejections of a key for a minute', ...keyRejected(1) },
  {
    ...KEY,
    what: 'one rejection of a key that is not used again',
    counters: { [response('2xx')]: () => 0, [response('key_rejected')]: within(5, 5 + SECONDS, 60) },
  },
  {
    ...KEY,
    what: 'rejections for a minute of a key that is not used again',
    counters: { [response('2xx')]: () => 0, [response('key_rejected')]: within(5, 6, 20) },
  },
  { ...KEY, what: 'keys that are all accepted', ...keyRejected(0) },
  {
    ...KEY,
    what: 'the only key, which the service answers with 403',
    counters: { [response('2xx')]: within(0, 5, 30), [response('forbidden')]: within(5, 20, 2) },
    fires: { from: 10, by: 14, until: 19.5, gone: 23.5 },
  },
  {
    ...KEY,
    what: 'texts that the service forbids for two keys, while it takes others',
    counters: {
      [response('2xx')]: () => 30,
      [response('forbidden')]: within(5, END, 10),
      [response('2xx', 'b2')]: () => 0,
      [response('forbidden', 'b2')]: within(5, END, 10),
    },
  },

  {
    ...FAILS,
    what: 'a bot service that is away for ten minutes',
    ...serviceFails(10),
    fires: { from: 12, by: 14, until: 15, gone: 17.5 },
    summary: '100% of the messages fail at the bot service',
  },
  {
    ...FAILS,
    what: 'a bot service that fails one message in ten',
    ...serviceFails(END, 0.1),
    fires: { from: 12, by: 16, until: END, gone: END + 1 },
  },
  {
    ...FAILS,
    what: 'a bot service that is away where messages are rare',
    counters: { [message('200', 'ok')]: rare(3, 0, 5), [message('200', 'upstream_timeout')]: rare(3, 5) },
    fires: { from: 12, by: 17, until: END, gone: END + 1 },
  },
  {
    ...FAILS,
    what: 'a bot service that fails one message in six of those that it does not refuse',
    ...refusedInStream(),
    fires: { from: 12, by: 16, until: END, gone: END + 1 },
  },
  {
    ...FAILS,
    what: 'a bot service that refuses every second message in its stream',
    ...refused(END, 'upstream_refused', '200'),
  },
  { ...FAILS, what: 'a bot service that is away for five seconds', ...serviceFails(5 * SECONDS) },
  { ...FAILS, what: 'a bot service that is away for a minute', ...serviceFails(1) },
  { ...FAILS, what: 'a bot service that is away for four minutes', ...serviceFails(4) },
  { ...FAILS, what: 'a bot service that fails one message in forty', ...serviceFails(END, 0.025) },
  { ...FAILS, what: 'messages that are refused for the rate', ...refused(END) },
  {
    ...FAILS,
    what: 'live streams that break while messages are answered',
    counters: {
      [message('200', 'ok')]: () => 40,
      [message('200', 'upstream_stream_broken', 'GET')]: within(5, END, 40),
    },
  },

  {
    ...FAILS,
    what: 'uploads that fail while messages are answered',
    counters: {
      [message('200', 'ok')]: () => 40,
      [message('502', 'upstream_bad_response', 'POST', 'blob')]: within(5, END, 40),
    },
  },

  {
    ...STORE,
    what: 'a Redis that is away for ten minutes',
    ...redisAway(10),
    fires: { from: 7, by: 8.5, until: 14.75, gone: 17.5 },
  },
  {
    ...STORE,
    what: 'a Redis that is away while there are no requests',
    gauges: redisAway(10).gauges ?? {},
    fires: { from: 7, by: 8.5, until: 14.75, gone: 16.5 },
  },
  {
    ...STORE,
    what: 'a Redis that answers but fails some operations',
    counters: {
      [operation('touch', 'ok')]: () => 60,
      [operation('touch', 'unavailable')]: within(5, 15, 20),
      [redisRun('ok')]: () => 60,
    },
    gauges: { [ready('redis')]: always },
    fires: { from: 7, by: 9, until: 14.75, gone: 16.5 },
  },
  {
    ...STORE,
    what: 'a Redis that is full, where sign-ins are rare',
    counters: {
      [operation('get', 'ok')]: () => 60,
      [operation('set', 'ok')]: within(0, 5, 1),
      [operation('set', 'unavailable')]: within(5, 25, 1),
    },
    gauges: { [ready('redis')]: always },
    fires: { from: 7, by: 13, until: 24, gone: 27.5 },
  },
  {
    ...STORE,
    what: 'failing runs on Redis that are not for sessions',
    counters: { [redisRun('ok')]: () => 60, [redisRun('unavailable')]: within(5, 15, 20) },
    gauges: { [ready('redis')]: always },
    fires: { from: 7, by: 9, until: 14.75, gone: 16.5 },
  },
  { ...STORE, what: 'a Redis that is away for five seconds', ...redisAway(5 * SECONDS) },
  { ...STORE, what: 'a Redis that is away for half a minute', ...redisAway(0.5) },
  { ...STORE, what: 'a Redis that is away for a minute', ...redisAway(1) },
  { ...STORE, what: 'a Redis that works', ...redisAway(0) },
  {
    ...STORE,
    what: 'one failure where nothing else happens',
    counters: {
      [operation('get', 'ok')]: () => 0,
      [operation('get', 'unavailable')]: within(5, 5 + SECONDS, 60),
    },
  },
  { ...STORE, what: 'an instance that shuts down', gauges: { [ready('accepting')]: within(5, 15, 0, 1) } },

  {
    ...REFUSED,
    what: 'too many messages for fifteen minutes',
    ...refused(15),
    fires: { from: 17, by: 19, until: 20, gone: 22.5 },
    summary: '50% of the messages are refused for the rate',
  },
  {
    ...REFUSED,
    what: "the bot service's refusals, in streams",
    ...refused(END, 'upstream_rate_limited', '200'),
    fires: { from: 17, by: 19, until: END, gone: END + 1 },
  },
  { ...REFUSED, what: 'too many messages for five seconds', ...refused(5 * SECONDS) },
  { ...REFUSED, what: 'too many messages for a minute', ...refused(1) },
  { ...REFUSED, what: 'too many messages for nine minutes', ...refused(9) },
  {
    ...REFUSED,
    what: 'too many messages for nine minutes, and then none',
    counters: {
      [message('200', 'ok')]: within(0, 14, 100),
      [message('429', 'rate_limited')]: within(5, 14, 100),
    },
  },
  { ...REFUSED, what: 'too many sign-ins and open streams', ...refused(END, 'too_many_streams') },

  {
    ...REFUSED,
    what: 'live streams that find no slot while messages do',
    counters: {
      [message('200', 'ok')]: () => 40,
      [message('429', 'rate_limited', 'GET')]: within(5, END, 40),
    },
  },
  {
    ...REFUSED,
    what: 'uploads that find no slot while messages do',
    counters: {
      [message('200', 'ok')]: () => 40,
      [message('429', 'rate_limited', 'POST', 'blob')]: within(5, END, 40),
    },
  },

  {
    ...DOWN,
    what: 'an instance that is away',
    ...unwell({ [up]: within(5, 20, 0, 1) }),
    fires: { from: 7, by: 8.5, until: 19.75, gone: 21.5 },
  },
  { ...DOWN, what: 'a restart of half a minute', ...unwell({ [up]: within(5, 5.5, 0, 1) }) },
  { ...DOWN, what: 'an instance that is not ready', ...unwell({ [ready('accepting')]: () => 0 }) },

  {
    ...MANY_FAIL,
    what: 'a bot service that is away for ten minutes',
    before: 60,
    ...serviceFails(10),
    fires: { from: 7, by: 9, until: 15, gone: 21 },
    summary: '80% of the messages fail',
  },
  {
    ...MANY_FAIL,
    what: 'a bot service that is away for ten minutes, and then fails one message in forty',
    before: 60,
    counters: {
      [message('200', 'ok')]: within(5, 15, 0, 39),
      [message('200', 'upstream_timeout')]: within(5, 15, 40, 1),
    },
    fires: { from: 5.5, by: 9, until: 15, gone: 21 },
  },
  {
    ...MANY_FAIL,
    what: 'a relay that fails half of the messages, by faults of its own',
    before: 60,
    counters: {
      [message('200', 'ok')]: within(5, END, 20, 40),
      [message('500', 'internal_error')]: within(5, END, 20),
    },
    fires: { from: 9, by: 11.5, until: END, gone: END + 1 },
  },
  {
    ...MANY_FAIL,
    what: 'a bot service that is away from the first message on',
    ...serviceFails(END),
    fires: { from: 5, by: 9, until: END, gone: END + 1 },
  },
  {
    ...MANY_FAIL,
    what: 'a bot service that fails one message in six of those that it does not refuse',
    before: 60,
    ...refusedInStream(),
    fires: { from: 15, by: 21, until: END, gone: END + 1 },
  },
  { ...MANY_FAIL, what: 'a bot service that is away for a minute', before: 60, ...serviceFails(1) },
  {
    ...MANY_FAIL,
    what: 'a bot service that fails one message in forty',
    before: 60,
    ...serviceFails(END, 0.025),
  },
  { ...MANY_FAIL, what: 'messages that are refused for the rate', ...refused(END) },
  {
    ...MANY_FAIL,
    what: 'a few messages in the night that fail',
    before: 60,
    counters: { [message('200', 'ok')]: rare(10, -60), [message('200', 'upstream_timeout')]: rare(3, 5, 12) },
  },

  {
    ...LATE,
    what: 'answers that begin after five seconds, not after one',
    ...begins(0.8, 4, 15),
    fires: { from: 15, by: 17.5, until: 20, gone: 26 },
    summary: 'One answer in ten begins after more than 4.75s, much later than a day ago',
  },
  { ...LATE, what: 'answers that begin late for three minutes', ...begins(0.8, 4, 3) },
  { ...LATE, what: 'answers that always begin late', ...begins(4, 4, END) },
  { ...LATE, what: 'answers that begin a little later', ...begins(0.8, 2, END) },
  { ...LATE, what: 'answers that begin late where they are rare', ...begins(0.8, 4, END, 1) },
  { ...LATE, before: 60, what: 'late answers on the first day', ...begins(0.8, 4, END) },

  {
    ...SIGNED_OUT,
    what: 'users who are suddenly not signed in',
    ...notSignedIn(0.9),
    fires: { from: 7, by: 11, until: END, gone: END + 1 },
  },
  {
    ...SIGNED_OUT,
    before: 60,
    what: 'users who are not signed in on the first day',
    ...notSignedIn(0.9),
    fires: { from: 7, by: 11, until: END, gone: END + 1 },
  },
  { ...SIGNED_OUT, what: 'users who are seldom signed in', ...notSignedIn(0.6, 0.5) },
  { ...SIGNED_OUT, what: 'a few users who are not signed in', ...notSignedIn(0.2) },
  { ...SIGNED_OUT, what: 'three users in the night who are not signed in', ...notSignedIn(1, 0.05, 0.2) },

  {
    ...LOST,
    what: 'sessions that are lost',
    counters: { [lost]: within(5, 10, 4) },
    fires: { from: 5, by: 7.5, until: 10, gone: 21 },
  },
  { ...LOST, what: 'a session that is lost now and then', counters: { [lost]: rare(4) } },
  { ...LOST, what: 'no session that is lost', counters: { [lost]: () => 0 } },

  {
    ...STREAMS,
    what: 'messages that find too many streams for fifteen minutes',
    ...refused(15, 'too_many_streams'),
    fires: { from: 17, by: 19, until: 20, gone: 22.5 },
    summary: '50% of the messages and live streams find no place',
  },
  {
    ...STREAMS,
    what: 'messages that find too many streams for nine minutes',
    ...refused(9, 'too_many_streams'),
  },
  { ...STREAMS, what: 'messages that are refused for the rate', ...refused(END) },

  {
    ...DROPPED,
    what: 'a worker that drops lines for a minute',
    counters: { [dropped('1')]: () => 0, [dropped('2')]: within(5, 6, 60) },
    fires: { from: 5, by: 7.25, until: 14, gone: 17 },
  },
  { ...DROPPED, what: 'a log that is read', counters: { [dropped('1')]: () => 0 } },

  {
    ...DESCRIPTORS,
    what: 'a worker that has opened nine in ten descriptors',
    gauges: {
      ...{ [descriptors('open')]: () => 100, [descriptors('max')]: () => 1_000 },
      ...{ [descriptors('open', '2')]: within(5, 15, 900, 100), [descriptors('max', '2')]: () => 1_000 },
    },
    fires: { from: 7, by: 8.5, until: 14.75, gone: 16.5 },
    summary: 'one has opened 90% of the files and connections that it may open',
  },
  {
    ...DESCRIPTORS,
    what: 'a worker that has opened half of its descriptors',
    gauges: { [descriptors('open')]: () => 500, [descriptors('max')]: () => 1_000 },
  },

  {
    ...UNWELL,
    what: 'an instance that is not ready',
    ...unwell({ [ready('accepting')]: within(5, 20, 0, 1) }),
    fires: { from: 15, by: 16.5, until: 19.75, gone: 21.5 },
  },
  {
    ...UNWELL,
    what: 'an instance that is too busy',
    ...unwell({ [lag]: within(5, 20, 0.5, 0.02) }),
    fires: { from: 15, by: 16.5, until: 19.75, gone: 21.5 },
  },
  { ...UNWELL, what: 'a shutdown of four minutes', ...unwell({ [ready('accepting')]: within(5, 9, 0, 1) }) },
  { ...UNWELL, what: 'five busy minutes', ...unwell({ [lag]: within(5, 10, 0.5, 0.02) }) },
];

/** The samples of a scenario, with a scrape every `every` seconds. */
function inputSeries(
  { counters = {}, gauges = {}, before = 0 }: Omit<Scenario, 'alert' | 'what'>,
  every: number,
) {
  const length = ((before + END) * 60) / every + 1;
  const scrapes = Array.from({ length }, (_, index) => index * every - before * 60);
  const counted = Object.entries(counters).map(([series, perMinute]) => {
    const values: number[] = [];
    let count = 0;
    for (let second = -before * 60; second <= END * 60; second++) {
      if (second % every === 0) values.push(count);
      count += perMinute(second / 60) / 60;
    }
    // Counters are whole numbers; the sum of many fractions is a little less.
    return { series, values: values.map((value) => Math.floor(value + 1e-6)) };
  });
  const shown = Object.entries(gauges).map(([series, at]) => ({
    series,
    values: scrapes.map((second) => at(second / 60)),
  }));
  return [...counted, ...shown].map(({ series, values }) => ({ series, values: values.join(' ') }));
}

function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value}"`)
    .join(',');
}

/** The expected state of the alert at every moment at which it is certain. */
function moments({ alert, labels = {}, fires, before = 0 }: Scenario) {
  const { labels: ownLabels } = rules.find((rule) => rule.alert === alert) ?? { labels: {} };
  const all = { alertname: alert, alertstate: 'firing', ...ownLabels, ...labels };
  const firing = [{ labels: `ALERTS{${labelText(all)}}`, value: 1 }];
  return Array.from({ length: END * 4 + 1 }, (_, index) => index / 4).flatMap((minute) => {
    const certainly = fires !== undefined && minute >= fires.by && minute <= fires.until;
    const never = fires === undefined || minute < fires.from || minute >= fires.gone;
    if (!certainly && !never) return [];
    return {
      expr: `ALERTS{alertname="${alert}",alertstate="firing"}`,
      eval_time: `${(before + minute) * 60}s`,
      exp_samples: certainly ? firing : [],
    };
  });
}

/** A day of scrapes takes promtool long: there, only the longer interval. */
const intervalsOf = ({ before }: Pick<Scenario, 'before'>) => (before === DAY ? [60] : INTERVALS);

/** The tests of a scenario, one for each interval. */
function testsOf(scenario: Scenario): RuleTest[] {
  return intervalsOf(scenario).map((every) => ({
    name: `a scrape every ${every} s`,
    interval: `${every}s`,
    input_series: inputSeries(scenario, every),
    promql_expr_test: moments(scenario),
  }));
}

/** A file with the rule of one alert alone: promtool evaluates every rule of a file at every moment of every test. */
function fileOf(alert: string): string {
  const only = groups.map((group) => ({
    ...group,
    rules: group.rules.filter((rule) => rule.alert === alert),
  }));
  const file = join(folder, `${alert}.yml`);
  // Every JSON text is also YAML.
  writeFileSync(file, JSON.stringify({ groups: only.filter(({ rules }) => rules.length > 0) }));
  return file;
}

/** What promtool finds wrong with an alert, with its rule evaluated as often as there is a scrape. */
function differencesIn(alert: string, tests: RuleTest[]): string {
  return INTERVALS.map((every) => {
    const own = tests.filter(({ interval }) => interval === `${every}s`);
    return own.length === 0 ? '' : differences(own, fileOf(alert), `${every}s`);
  }).join('');
}

function annotationsOf({ alert, labels = {}, summary, fires, ...scraped }: Scenario): RuleTest {
  const rule = rules.find((one) => one.alert === alert);
  const exp_annotations = { summary, runbook: rule?.annotations.runbook };
  const exp_alerts = [{ exp_labels: { ...rule?.labels, ...labels }, exp_annotations }];
  const eval_time = `${((scraped.before ?? 0) + (fires?.by ?? 0)) * 60}s`;
  const alert_rule_test = [{ alertname: alert, eval_time, exp_alerts }];
  const [every = 60] = intervalsOf(scraped);
  return { interval: `${every}s`, input_series: inputSeries(scraped, every), alert_rule_test };
}

describeWithPromtool('the alerts', () => {
  const explained = SCENARIOS.filter(({ summary, fires }) => summary && fires);
  let allCorrect: boolean;
  beforeAll(() => {
    allCorrect = rules.every(({ alert }) => {
      const isOwn = (one: Scenario) => one.alert === alert;
      const tests = [
        ...SCENARIOS.filter(isOwn).flatMap(testsOf),
        ...explained.filter(isOwn).map(annotationsOf),
      ];
      return differencesIn(alert, tests) === '';
    });
  });
  /** All tests of an alert run at once; a case runs its own tests again only if such a run found a difference. */
  const expectNoDifference = (alert: string, tests: RuleTest[]) =>
    expect(allCorrect ? '' : differencesIn(alert, tests)).toBe('');

  test.each(
    SCENARIOS.map(
      (one) => [one.fires ? 'fires for' : 'does not fire for', one.what, one.alert, one] as const,
    ),
  )('%s %s: %s', (_does, _what, alert, scenario) => {
    // The state must be certain at most moments.
    expect(moments(scenario).length).toBeGreaterThan(END * 2);
    expectNoDifference(alert, testsOf(scenario));
  });

  test.each(explained.map((one) => [one.what, one] as const))(
    'have a summary and a runbook, for %s',
    (_what, scenario) => expectNoDifference(scenario.alert, [annotationsOf(scenario)]),
  );

  test('are right in their file, too', () => {
    const short = explained.filter(({ before }) => before !== DAY);
    expect(differences(short.map(annotationsOf), FILE)).toBe('');
  });

  test('each have a scenario in which they fire and one in which they do not', () => {
    for (const { alert } of rules) {
      const own = SCENARIOS.filter((one) => one.alert === alert);
      expect([alert, own.some(({ fires }) => fires), own.some(({ fires }) => !fires)]).toEqual([
        alert,
        true,
        true,
      ]);
    }
  });
});

/** How long each scenario lasts, in minutes. */
export const END = 30;

/** The value at a time in minutes; negative before the scenario begins. */
export type At = (minute: number) => number;

/** What Prometheus scrapes: the events per minute of a counter, or the value of a gauge. */
export interface Scraped {
  readonly counters?: Readonly<Record<string, At>>;
  readonly gauges?: Readonly<Record<string, At>>;
}

export interface Scenario extends Scraped {
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

type Values = Readonly<Record<string, At | number>>;
const counters = (values: Values, nameOf = (key: string) => key): Scraped => ({
  counters: Object.fromEntries(
    Object.entries(values).map(([key, at]) => [nameOf(key), typeof at === 'number' ? () => at : at]),
  ),
});
const wordsOf = (key: string) => key.split(' ') as [string, string];
const responses = (values: Values) => counters(values, (key) => response(...wordsOf(key)));
const messages = (values: Values) => counters(values, (key) => message(...wordsOf(key)));
const operations = (values: Values) => counters(values, (key) => operation(...wordsOf(key)));

const lost = 'bot_relay_sessions_lost_total{instance="one",job="bot-relay"}';
const dropped = (worker: string) =>
  `bot_relay_log_lines_dropped_total{instance="one",job="bot-relay",worker="${worker}"}`;
const descriptors = (what: 'open' | 'max', worker = '1') =>
  `process_${what}_fds{instance="one",job="bot-relay",worker="${worker}"}`;
const firstByte = (le: string) =>
  `bot_relay_time_to_first_byte_seconds_bucket{instance="one",job="bot-relay",le="${le}"}`;

/** So many minutes before a scenario reach an hour back on the day before. */
export const DAY = 1_500;
const SECONDS = 1 / 60;
/** `inside` for `minutes` from the fifth minute on, as in all of the following. */
const fromFive = (minutes: number, inside: number, outside = 0) => within(5, 5 + minutes, inside, outside);
/** Redis is away for `minutes`, while messages arrive. */
const redisAway = (minutes: number): Scraped => ({
  ...counters({
    [operation('get', 'ok')]: fromFive(minutes, 0, 60),
    [operation('get', 'unavailable')]: fromFive(minutes, 60),
    [operation('destroy', 'ok')]: rare(10),
    // One user signs out, and no other for a long time.
    [operation('destroy', 'unavailable')]: fromFive(minutes, 12),
    [redisRun('ok')]: fromFive(minutes, 0, 120),
    [redisRun('unavailable')]: fromFive(minutes, 120),
  }),
  gauges: { [ready('redis')]: fromFive(minutes, 0, 1), [ready('accepting')]: always },
});
/** The bot service fails `share` of 40 messages a minute. */
const serviceFails = (minutes: number, share = 1) =>
  messages({
    '200 ok': fromFive(minutes, 40 * (1 - share), 40),
    '200 upstream_bad_response': fromFive(minutes, (40 * share) / 2),
    '502 upstream_unreachable': fromFive(minutes, (40 * share) / 2),
    '429 rate_limited': 10,
  });
/** More messages arrive than the bot service takes. */
const refused = (minutes: number, code = 'rate_limited', status = '429') =>
  messages({ '200 ok': 100, [`${status} ${code}`]: fromFive(minutes, 100) });
/** Most messages are refused or stopped in their stream; of the others, one in six fails there. */
const refusedInStream = () =>
  messages({
    ...{ '200 ok': fromFive(END, 10, 12), '200 upstream_timeout': fromFive(END, 2) },
    ...{ '200 upstream_refused': 50, '200 stopped': 50 },
  });
/** One key is rejected; another key is always accepted. */
const keyRejected = (minutes: number) =>
  responses({
    ...{ '2xx': fromFive(minutes, 0, 30), key_rejected: fromFive(minutes, 2) },
    ...{ '2xx b2': 30, 'key_rejected b2': 0 },
  });
/** `share` of `perMinute` requests are of users who are not signed in; else `usual`. */
const notSignedIn = (share: number, usual = 0.05, perMinute = 100) =>
  counters({
    [message('200', 'ok')]: fromFive(END, perMinute * (1 - share), perMinute * (1 - usual)),
    [message('401', 'unauthenticated')]: fromFive(END, perMinute * share, perMinute * usual),
    // Each visitor of a public page asks who is signed in.
    [message('200', 'ok', 'GET').replace('/x/message/sse', '/auth/session')]: 300,
  });
/** Of `perMinute` answers, all begin within `usual` seconds, and for `minutes` within `late`. */
const begins = (usual: number, late: number, minutes: number, perMinute = 40): Scraped => ({
  counters: Object.fromEntries(
    [0.5, 1, 2.5, 5, 10, Number.POSITIVE_INFINITY].map((le) => {
      const count = (seconds: number) => (seconds <= le ? perMinute : 0);
      const name = firstByte(Number.isFinite(le) ? String(le) : '+Inf');
      return [name, fromFive(minutes, count(late), count(usual))];
    }),
  ),
});
const unwell = (gauges: Readonly<Record<string, At>>): Scraped => ({
  gauges: { [up]: always, [ready('accepting')]: always, [lag]: () => 0.02, ...gauges },
});

const ONE = { labels: { instance: 'one' } };
const KEY = {
  ...{ alert: 'BotRelayKeyRejected', labels: { key: 'a1' } },
  summary: 'The bot service rejects the key with the fingerprint a1',
};
const FAILS = { alert: 'BotRelayBotServiceFails' };
const STORE = {
  ...{ ...ONE, alert: 'BotRelaySessionStoreUnavailable' },
  summary: 'Sessions or budgets cannot be had on one',
};
const REFUSED = { alert: 'BotRelayMessagesRefused' };
const UNWELL = { ...ONE, alert: 'BotRelayInstanceUnwell', summary: 'one is not ready or too busy' };
const DOWN = { ...ONE, alert: 'BotRelayInstanceDown', summary: 'one is away' };
const MANY_FAIL = { alert: 'BotRelayManyMessagesFail' };
const LATE = { alert: 'BotRelayAnswersBeginLate', before: DAY };
const SIGNED_OUT = { alert: 'BotRelayManyNotSignedIn', before: DAY };
const LOST = { alert: 'BotRelaySessionsLost' };
const STREAMS = { alert: 'BotRelayTooManyStreams' };
const DROPPED = { ...ONE, alert: 'BotRelayLogLinesDropped', summary: 'one drops lines of its log' };
const DESCRIPTORS = { ...ONE, alert: 'BotRelayFewDescriptors' };
const INVALID = {
  ...{ ...ONE, alert: 'BotRelayConfigurationInvalid' },
  summary: 'one cannot use its files of keys and bots, and would not start again',
};
const answering: Scraped = { gauges: { [ready('redis')]: always } };
const configuration = (valid: At): Scraped => ({
  gauges: { 'bot_relay_configuration_valid{instance="one",job="bot-relay"}': valid },
});

/** What is scraped, and when the alert fires: not before, certainly from, certainly until (or to the end), not after. */
type Firing = [from: number, by: number, until?: number, gone?: number];
function of(alert: Omit<Scenario, 'what' | 'fires'>, rows: [string, Scraped, Firing?][]): Scenario[] {
  return rows.map(([what, scraped, firing]) => {
    const [from = 0, by = 0, until = END, gone = END + 1] = firing ?? [];
    return { ...alert, what, ...scraped, ...(firing && { fires: { from, by, until, gone } }) };
  });
}

export const SCENARIOS: Scenario[] = [
  ...of(INVALID, [
    ['files that cannot be used for ten minutes', configuration(within(5, 15, 0, 1)), [7, 8.5, 14.75, 16.5]],
    ['files that cannot be used for a minute', configuration(within(5, 6, 0, 1))],
    ['files that can be used', configuration(always)],
  ]),
  ...of(KEY, [
    ['a key that is rejected for ten minutes, then accepted', keyRejected(10), [8, 11.5, 14.5, 17]],
    [
      'a key that is rejected, then removed',
      responses({ '2xx': 0, key_rejected: within(5, 15, 2) }),
      [8, 11.5, 14.5, 18.5],
    ],
    [
      'a key that is rejected where messages are rare',
      responses({ '2xx': 0, key_rejected: rare(2, 6) }),
      [8, 13],
    ],
    [
      'a key that one bot accepts and another rejects',
      responses({ '2xx': 30, key_rejected: within(5, 15, 2) }),
      [8, 11.5, 14.5, 17],
    ],
    ['rejections of a key for five seconds', keyRejected(5 * SECONDS)],
    ['rejections of a key for a minute', keyRejected(1)],
    [
      'one rejection of a key that is not used again',
      responses({ '2xx': 0, key_rejected: within(5, 5 + SECONDS, 60) }),
    ],
    [
      'rejections for a minute of a key that is not used again',
      responses({ '2xx': 0, key_rejected: within(5, 6, 20) }),
    ],
    ['keys that are all accepted', keyRejected(0)],
    [
      'the only key, which the service answers with 403',
      responses({ '2xx': within(0, 5, 30), forbidden: within(5, 20, 2) }),
      [10, 14, 19.5, 23.5],
    ],
    [
      'texts that the service forbids for two keys, while it takes others',
      responses({
        '2xx': 30,
        forbidden: within(5, END, 10),
        '2xx b2': 0,
        'forbidden b2': within(5, END, 10),
      }),
    ],
  ]),
  ...of({ ...FAILS, summary: '100% of the messages fail at the bot service' }, [
    ['a bot service that is away for ten minutes', serviceFails(10), [12, 14, 15, 17.5]],
  ]),
  ...of(FAILS, [
    ['a bot service that fails one message in ten', serviceFails(END, 0.1), [12, 16]],
    [
      'a bot service that is away where messages are rare',
      messages({ '200 ok': rare(3, 0, 5), '200 upstream_timeout': rare(3, 5) }),
      [12, 17],
    ],
    [
      'a bot service that fails one message in six of those that it does not refuse',
      refusedInStream(),
      [12, 16],
    ],
    [
      'a bot service that refuses every second message in its stream',
      refused(END, 'upstream_refused', '200'),
    ],
    ['a bot service that is away for five seconds', serviceFails(5 * SECONDS)],
    ['a bot service that is away for a minute', serviceFails(1)],
    ['a bot service that is away for four minutes', serviceFails(4)],
    ['a bot service that fails one message in forty', serviceFails(END, 0.025)],
    ['messages that are refused for the rate', refused(END)],
    [
      'live streams that break while messages are answered',
      messages({ '200 ok': 40, '200 upstream_stream_broken GET': within(5, END, 40) }),
    ],
    [
      'uploads that fail while messages are answered',
      messages({ '200 ok': 40, '502 upstream_bad_response POST blob': within(5, END, 40) }),
    ],
  ]),
  ...of(STORE, [
    ['a Redis that is away for ten minutes', redisAway(10), [7, 8.5, 14.75, 17.5]],
    [
      'a Redis that is away while there are no requests',
      { gauges: redisAway(10).gauges ?? {} },
      [7, 8.5, 14.75, 16.5],
    ],
    [
      'a Redis that answers but fails some operations',
      {
        ...counters({
          [operation('touch', 'ok')]: 60,
          [operation('touch', 'unavailable')]: within(5, 15, 20),
          [redisRun('ok')]: 60,
        }),
        ...answering,
      },
      [7, 9, 14.75, 16.5],
    ],
    [
      'a Redis that is full, where sign-ins are rare',
      {
        ...counters({
          [operation('get', 'ok')]: 60,
          [operation('set', 'ok')]: within(0, 5, 1),
          [operation('set', 'unavailable')]: within(5, 25, 1),
        }),
        ...answering,
      },
      [7, 13, 24, 27.5],
    ],
    [
      'failing runs on Redis that are not for sessions',
      { ...counters({ [redisRun('ok')]: 60, [redisRun('unavailable')]: within(5, 15, 20) }), ...answering },
      [7, 9, 14.75, 16.5],
    ],
    ['a Redis that is away for five seconds', redisAway(5 * SECONDS)],
    ['a Redis that is away for half a minute', redisAway(0.5)],
    ['a Redis that is away for a minute', redisAway(1)],
    ['a Redis that works', redisAway(0)],
    [
      'one failure where nothing else happens',
      operations({ 'get ok': 0, 'get unavailable': within(5, 5 + SECONDS, 60) }),
    ],
    ['an instance that shuts down', { gauges: { [ready('accepting')]: within(5, 15, 0, 1) } }],
  ]),
  ...of({ ...REFUSED, summary: '50% of the messages are refused for the rate' }, [
    ['too many messages for fifteen minutes', refused(15), [17, 19, 20, 22.5]],
  ]),
  ...of(REFUSED, [
    ["the bot service's refusals, in streams", refused(END, 'upstream_rate_limited', '200'), [17, 19]],
    ['too many messages for five seconds', refused(5 * SECONDS)],
    ['too many messages for a minute', refused(1)],
    ['too many messages for nine minutes', refused(9)],
    [
      'too many messages for nine minutes, and then none',
      messages({ '200 ok': within(0, 14, 100), '429 rate_limited': within(5, 14, 100) }),
    ],
    ['too many sign-ins and open streams', refused(END, 'too_many_streams')],
    [
      'live streams that find no slot while messages do',
      messages({ '200 ok': 40, '429 rate_limited GET': within(5, END, 40) }),
    ],
    [
      'uploads that find no slot while messages do',
      messages({ '200 ok': 40, '429 rate_limited POST blob': within(5, END, 40) }),
    ],
  ]),
  ...of(DOWN, [
    ['an instance that is away', unwell({ [up]: within(5, 20, 0, 1) }), [7, 8.5, 19.75, 21.5]],
    ['a restart of half a minute', unwell({ [up]: within(5, 5.5, 0, 1) })],
    ['an instance that is not ready', unwell({ [ready('accepting')]: () => 0 })],
  ]),
  ...of({ ...MANY_FAIL, before: 60, summary: '80% of the messages fail' }, [
    ['a bot service that is away for ten minutes', serviceFails(10), [7, 9, 15, 21]],
  ]),
  ...of({ ...MANY_FAIL, before: 60 }, [
    [
      'a bot service that is away for ten minutes, and then fails one message in forty',
      messages({ '200 ok': within(5, 15, 0, 39), '200 upstream_timeout': within(5, 15, 40, 1) }),
      [5.5, 9, 15, 21],
    ],
    [
      'a relay that fails half of the messages, by faults of its own',
      messages({ '200 ok': within(5, END, 20, 40), '500 internal_error': within(5, END, 20) }),
      [9, 11.5],
    ],
  ]),
  ...of(MANY_FAIL, [['a bot service that is away from the first message on', serviceFails(END), [5, 9]]]),
  ...of({ ...MANY_FAIL, before: 60 }, [
    [
      'a bot service that fails one message in six of those that it does not refuse',
      refusedInStream(),
      [15, 21],
    ],
    ['a bot service that is away for a minute', serviceFails(1)],
    ['a bot service that fails one message in forty', serviceFails(END, 0.025)],
  ]),
  ...of(MANY_FAIL, [['messages that are refused for the rate', refused(END)]]),
  ...of({ ...MANY_FAIL, before: 60 }, [
    [
      'a few messages in the night that fail',
      messages({ '200 ok': rare(10, -60), '200 upstream_timeout': rare(3, 5, 12) }),
    ],
  ]),
  ...of({ ...LATE, summary: 'One answer in ten begins after more than 4.75s, much later than a day ago' }, [
    ['answers that begin after five seconds, not after one', begins(0.8, 4, 15), [15, 17.5, 20, 26]],
  ]),
  ...of(LATE, [
    ['answers that begin late for three minutes', begins(0.8, 4, 3)],
    ['answers that always begin late', begins(4, 4, END)],
    ['answers that begin a little later', begins(0.8, 2, END)],
    ['answers that begin late where they are rare', begins(0.8, 4, END, 1)],
  ]),
  ...of({ ...LATE, before: 60 }, [['late answers on the first day', begins(0.8, 4, END)]]),
  ...of(SIGNED_OUT, [['users who are suddenly not signed in', notSignedIn(0.9), [7, 11]]]),
  ...of({ ...SIGNED_OUT, before: 60 }, [
    ['users who are not signed in on the first day', notSignedIn(0.9), [7, 11]],
  ]),
  ...of(SIGNED_OUT, [
    ['users who are seldom signed in', notSignedIn(0.6, 0.5)],
    ['a few users who are not signed in', notSignedIn(0.2)],
    ['three users in the night who are not signed in', notSignedIn(1, 0.05, 0.2)],
  ]),
  ...of(LOST, [
    ['sessions that are lost', counters({ [lost]: within(5, 10, 4) }), [5, 7.5, 10, 21]],
    ['a session that is lost now and then', counters({ [lost]: rare(4) })],
    ['no session that is lost', counters({ [lost]: 0 })],
  ]),
  ...of({ ...STREAMS, summary: '50% of the messages and live streams find no place' }, [
    [
      'messages that find too many streams for fifteen minutes',
      refused(15, 'too_many_streams'),
      [17, 19, 20, 22.5],
    ],
  ]),
  ...of(STREAMS, [
    ['messages that find too many streams for nine minutes', refused(9, 'too_many_streams')],
    ['messages that are refused for the rate', refused(END)],
  ]),
  ...of(DROPPED, [
    [
      'a worker that drops lines for a minute',
      counters({ [dropped('1')]: 0, [dropped('2')]: within(5, 6, 60) }),
      [5, 7.25, 14, 17],
    ],
    ['a log that is read', counters({ [dropped('1')]: 0 })],
  ]),
  ...of({ ...DESCRIPTORS, summary: 'one has opened 90% of the files and connections that it may open' }, [
    [
      'a worker that has opened nine in ten descriptors',
      {
        gauges: {
          ...{ [descriptors('open')]: () => 100, [descriptors('max')]: () => 1_000 },
          ...{ [descriptors('open', '2')]: within(5, 15, 900, 100), [descriptors('max', '2')]: () => 1_000 },
        },
      },
      [7, 8.5, 14.75, 16.5],
    ],
  ]),
  ...of(DESCRIPTORS, [
    [
      'a worker that has opened half of its descriptors',
      { gauges: { [descriptors('open')]: () => 500, [descriptors('max')]: () => 1_000 } },
    ],
  ]),
  ...of(UNWELL, [
    [
      'an instance that is not ready',
      unwell({ [ready('accepting')]: within(5, 20, 0, 1) }),
      [15, 16.5, 19.75, 21.5],
    ],
    ['an instance that is too busy', unwell({ [lag]: within(5, 20, 0.5, 0.02) }), [15, 16.5, 19.75, 21.5]],
    ['a shutdown of four minutes', unwell({ [ready('accepting')]: within(5, 9, 0, 1) })],
    ['five busy minutes', unwell({ [lag]: within(5, 10, 0.5, 0.02) })],
  ]),
];

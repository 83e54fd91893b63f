import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { call } from '../harness/clients/call.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { BOT_PATH, CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
} from '../harness/service/raw-upstream.ts';

const event = (eventType: string, requestId?: string) =>
  `data: ${JSON.stringify({ eventType: `asgard.${eventType}`, ...(requestId && { requestId }), fact: {} })}\n\n`;
const INIT = event('run.init', 'run 1/ä');
const DELTA = event('message.delta', 'run 1/ä');
const BODY = '{"customChannelId":"c1","text":"hi"}';
const SUSPENDED = jsonAnswer('200 OK', { suspended: true });
const LEFT = 'suspend of a run that its client has left';

const isSuspend = ({ requestLine }: RawRequest) => requestLine.includes('/message/suspend?');

let pair: RelayAndUpstream;
afterEach(() => pair.close());

interface Service {
  /** What it sends of each stream, which then stays open. */
  readonly events?: readonly string[];
  readonly onSuspend?: (socket: Socket, request: RawRequest) => void;
}

async function start(service: Service = {}, environment: Record<string, string> = {}) {
  const { events = [INIT, DELTA], onSuspend = (socket) => socket.write(SUSPENDED) } = service;
  pair = await startRelayAndUpstream(
    (socket, request) => {
      if (isSuspend(request)) return void onSuspend(socket, request);
      socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk)]));
    },
    { SUSPEND_ON_LEAVE: 'on', RESUME_UPSTREAM: 'off', METRICS_PORT: '9090', JOIN: 'off', ...environment },
  );
}

/** Sends a message; resolves when its events have come. */
async function stream(message: Parameters<RelayAndUpstream['ask']>[0] = {}): Promise<RawClient> {
  const client = pair.ask({ headers: ['Connection: close'], body: BODY, ...message });
  await client.waitFor('\n\n');
  return client;
}

const suspends = () => pair.upstream.requests.filter(isSuspend);
const outcomes = () => pair.relay.logs.filter(({ msg }) => msg === LEFT).map(({ outcome }) => outcome);
const counted = async (outcome: string) =>
  new RegExp(`^bot_relay_suspends_on_leave_total\\{outcome="${outcome}"\\} (\\d+)$`, 'm').exec(
    await pair.relay.metricsText(),
  )?.[1];

describe('a client that leaves during a run', () => {
  test.each([BOT_PATH, BOT_PATH.replace('/generic', '')])(
    'has it suspended at the path of its message, %s',
    async (path) => {
      await start();
      const client = await stream({ path });
      expect(suspends()).toEqual([]);
      client.socket.destroy();
      await pair.relay.logLine(({ msg }) => msg === LEFT);
      const [message, suspended, ...more] = pair.upstream.requests as [RawRequest, RawRequest];
      expect(more).toEqual([]);
      const target = suspended.requestLine.split(' ')[1] ?? '';
      const { pathname, searchParams } = new URL(target, pair.upstream.url);
      expect(suspended.requestLine).toMatch(/^POST /);
      expect(pathname).toBe(path.replace('/sse', '/suspend'));
      expect([...searchParams]).toEqual([
        ['custom_channel_id', JSON.parse(String(message.body)).customChannelId],
        ['request_id', 'run 1/ä'],
      ]);
      expect(searchParams.get('custom_channel_id')).toMatch(/^[0-9a-f]{64}$/);
      expect(suspended.all('content-length')).toEqual(['0']);
      expect(suspended.all('x-api-key')).toEqual([CANARY.key]);
      expect(suspended.all('x-request-id')).toEqual(message.all('x-request-id'));
      expect(pair.relay.logs.find(({ msg }) => msg === LEFT)).toMatchObject({
        ...{ level: 'info', outcome: 'suspended', bot: 'acme/helper' },
        requestId: message.all('x-request-id')[0],
      });
      expect(await counted('suspended')).toBe('1');
      expect(JSON.stringify(pair.relay.logs)).not.toContain(searchParams.get('custom_channel_id'));
    },
  );

  test.each<[string, string, string, unknown]>([
    ['404', jsonAnswer('404 Not Found', {}), 'over', undefined],
    ['429', plainAnswer('429 No', ['Retry-After: 9']), 'rate_limited', undefined],
    ['500', plainAnswer('500 No', []), 'failed', 'status 500'],
    ['no HTTP', 'nonsense\r\n\r\n', 'failed', 'HTTPParserError'],
  ])('is asked once to be suspended where the service answers %s', async (_what, answer, outcome, cause) => {
    await start({ onSuspend: (socket) => socket.write(answer) });
    (await stream()).socket.destroy();
    const line = await pair.relay.logLine(({ msg }) => msg === LEFT);
    expect([line.outcome, line.cause, line.level]).toEqual([
      outcome,
      cause,
      cause || outcome !== 'over' ? 'warn' : 'info',
    ]);
    expect(await counted(outcome)).toBe('1');
    expect(suspends()).toHaveLength(1);
  });

  test('has it suspended with the next key where the service refuses one', async () => {
    await start(
      {
        onSuspend: (socket, { all }) =>
          socket.write(all('x-api-key')[0] === CANARY.key ? plainAnswer('401 No', []) : SUSPENDED),
      },
      { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` },
    );
    (await stream()).socket.destroy();
    await until(() => outcomes().length > 0);
    expect(outcomes()).toEqual(['suspended']);
    expect(suspends().map(({ all }) => all('x-api-key')[0])).toEqual([CANARY.key, CANARY.secondKey]);
  });

  test('does not wait for ever for a service that does not answer', async () => {
    const timeouts = jest.spyOn(AbortSignal, 'timeout');
    const late = new AbortController();
    await start({ onSuspend: () => late.abort(new DOMException('Late.', 'TimeoutError')) });
    const client = await stream();
    timeouts.mockReturnValueOnce(late.signal);
    client.socket.destroy();
    const line = await pair.relay.logLine(({ msg }) => msg === LEFT);
    expect(line).toMatchObject({ outcome: 'failed', cause: 'TimeoutError' });
    expect(timeouts).toHaveBeenCalled();
    timeouts.mockRestore();
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });

  test('shares the budget of suspends, not that of messages', async () => {
    await start({}, { RATE_LIMIT: '2', RATE_WINDOW_MS: '120000', RATE_MAX_WAIT_MS: '0' });
    const clients = [await stream(), await stream()];
    expect((await suspend(pair)).status).toBe(200);
    for (const { socket } of clients) socket.destroy();
    await until(() => outcomes().length === 2);
    expect(outcomes().sort()).toEqual(['rate_limited', 'suspended']);
    expect(suspends()).toHaveLength(2);
    expect(await counted('rate_limited')).toBe('1');
  });
});

/** What a client sees last of a message after which nothing is suspended, and how it ends. */
interface Ending {
  readonly events?: readonly string[];
  readonly body?: string;
  readonly headers?: readonly string[];
  readonly end?: (client: RawClient) => unknown;
}

const leave = ({ socket }: RawClient) => void socket.destroy();
const ENDINGS: [string, Ending][] = [
  ['whose events have no requestId', { events: [event('run.init'), event('message.delta')] }],
  ['whose stream did not begin with a run', { events: [DELTA] }],
  ['whose run is over', { events: [INIT, DELTA, event('run.done', 'run 1/ä')] }],
  ['whose run has failed', { events: [INIT, event('run.error', 'run 1/ä')] }],
  ['whose requestId no client could send', { events: [event('run.init', 'run\n')] }],
  ['without a conversation', { body: '{"text":"hi"}' }],
  [
    'whose session ends',
    {
      end: () => call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } }),
    },
  ],
  ['whose deadline is over', { end: () => pair.relay.open.endAll(TOO_LONG) }],
  ['in a shutdown', { end: () => pair.relay.open.endAll(new Problem('draining', 'Over.')) }],
  ['whose stream the service breaks', { end: () => pair.upstream.sockets[0]?.destroy() }],
  ['whose stream ends early', { end: () => pair.upstream.sockets[0]?.write(LAST_CHUNK) }],
];

describe('nothing is suspended after a message', () => {
  test.each(ENDINGS)('%s', async (_which, { events, body = BODY, end = leave }) => {
    await start(events && { events });
    const client = await stream({ body });
    // The client reads bytes as latin1.
    await client.waitFor(Buffer.from(events?.at(-1) ?? DELTA).toString('latin1'));
    await end(client);
    await client.closed;
    await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
    // By now, a request of the relay's own would have been sent before this one.
    const cookie = await pair.relay.signIn();
    expect((await suspend({ ...pair, cookie })).status).toBe(200);
    expect(suspends()).toHaveLength(1);
    expect(outcomes()).toEqual([]);
  });

  test('if SUSPEND_ON_LEAVE is not set', async () => {
    await start({}, { SUSPEND_ON_LEAVE: '' });
    leave(await stream());
    await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');
    expect((await suspend(pair)).status).toBe(200);
    expect(suspends()).toHaveLength(1);
    expect(outcomes()).toEqual([]);
  });
});

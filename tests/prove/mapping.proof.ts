import { createServer, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect } from '@jest/globals';
import { cpuUs } from '../../bench/support/process-usage.ts';
import { type RelayProcess, startRelay } from '../../bench/support/relay-process.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { testWithProc } from '../harness/relay/resident-memory.ts';

/** As long as the id that the bot service gets with `scoped`, so that both relays carry the same bytes. */
const CLIENT_ID = 'c'.repeat(64);
const PATH = '/ns/bench/bot-provider/helper/message/sse';
const STREAMS = 20;
/** The streams last as long as the proof, and only events come down. */
const ENDLESS = { MAX_EXECUTION_MS: '3600000', HEARTBEAT_MS: '0' };
const ROUNDS = Number(process.env.MAPPING_ROUNDS ?? 21);
/** What an event costs differs by some percent from one start of a relay to the next, so that several are compared. */
const PAIRS = Number(process.env.MAPPING_PAIRS ?? 7);
/** The largest share of the CPU per event that mapping may cost. On a busy machine, it cannot be measured as exactly. */
const MOST = Number(process.env.MAPPING_MOST ?? 0.03);

/** The open streams of the bot service, each with the id of its conversation. */
const streams = new Map<ServerResponse, string>();
let service: Server;
let relays: { readonly scoped: RelayProcess; readonly shared: RelayProcess };
const received = { scoped: 0, shared: 0 };
let onReceived = () => {};

beforeAll(async () => {
  service = createServer((req, res) => {
    const body: Buffer[] = [];
    req.on('data', (bytes: Buffer) => void body.push(bytes));
    req.on('end', () => {
      const { customChannelId } = JSON.parse(String(Buffer.concat(body))) as { customChannelId: string };
      res.writeHead(200, { 'Content-Type': 'text/event-stream' }).flushHeaders();
      streams.set(res, customChannelId);
      res.once('close', () => streams.delete(res));
    });
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
});
afterAll(() => void service.close());

/** Starts both relays, with their streams. */
async function startBoth(): Promise<void> {
  const { port } = service.address() as AddressInfo;
  const [scoped, shared] = await Promise.all([
    startRelay(port, { ...ENDLESS, CHANNELS: 'scoped' }),
    startRelay(port, { ...ENDLESS, CHANNELS: 'shared' }),
  ]);
  relays = { scoped, shared };
  for (let n = 0; n < 2 * STREAMS; n += 1) openStream(n < STREAMS ? 'scoped' : 'shared', n);
  while (streams.size < 2 * STREAMS) await sleep(10);
}

async function stopBoth(): Promise<void> {
  for (const res of streams.keys()) res.destroy();
  await Promise.all([relays.scoped.close(), relays.shared.close()]);
  while (streams.size > 0) await sleep(10);
}

/** Opens the stream of message `n` through a relay; what comes must have the client's id, and is counted. */
function openStream(name: keyof typeof received, n: number): void {
  const { port, cookie } = relays[name];
  const headers = { Cookie: cookie, 'Content-Type': 'application/json' };
  const outgoing = request({ port, host: '127.0.0.1', path: PATH, method: 'POST', headers, agent: false });
  outgoing.on('error', () => {});
  outgoing.on('response', (answer) => {
    answer.on('error', () => {});
    answer.on('data', (bytes: Buffer) => {
      received[name] += bytes.length;
      onReceived();
    });
  });
  outgoing.end(JSON.stringify({ customChannelId: CLIENT_ID, text: `Hi ${n}`, action: 'NONE' }));
}

/** An event as in the field, with `extra` bytes of text. */
function event(id: string, extra: number): Buffer {
  const data = {
    ...{ eventType: 'asgard.message.delta', requestId: 'r'.repeat(36), namespace: 'bench' },
    ...{ botProviderName: 'helper', customChannelId: id },
    fact: { messageDelta: { message: { messageId: 'm'.repeat(36), text: 'x'.repeat(extra) } } },
  };
  return Buffer.from(`event: message\ndata: ${JSON.stringify(data)}\n\n`);
}

/** Sends `times` events on every stream, each for itself; returns the CPU of each relay, in µs per event. */
async function round(extra: number, times: number) {
  const events = new Map([...new Set(streams.values())].map((id) => [id, event(id, extra)]));
  const bytes = event(CLIENT_ID, extra).length * STREAMS;
  const before = { scoped: cpuUs(relays.scoped.pid), shared: cpuUs(relays.shared.pid) };
  for (let n = 0; n < times; n += 1) {
    const goal = { scoped: received.scoped + bytes, shared: received.shared + bytes };
    const all = new Promise<void>((resolve) => {
      onReceived = () => {
        if (received.scoped >= goal.scoped && received.shared >= goal.shared) resolve();
      };
    });
    // Neither relay is always the first to get its events.
    const turn = n % 2 === 0 ? [...streams] : [...streams].reverse();
    for (const [res, id] of turn) res.write(events.get(id) ?? '');
    await all;
    expect(received).toEqual(goal);
  }
  const perEvent = (name: keyof typeof received) =>
    (cpuUs(relays[name].pid) - before[name]) / (times * STREAMS);
  return { scoped: perEvent('scoped'), shared: perEvent('shared') };
}

const median = (values: readonly number[]) => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0;

const SIZES = [
  { name: 'of 330 bytes', extra: 0, times: 200 },
  { name: 'of 60 KB', extra: 60_000, times: 20 },
  { name: 'of 1 MB, which are not held', extra: 1_000_000, times: 2 },
];

testWithProc(
  `to put the client's id into events costs ${MOST * 100} % of the CPU per event or less`,
  async () => {
    const ratios: number[][] = SIZES.map(() => []);
    for (let pair = 0; pair < PAIRS; pair += 1) {
      await startBoth();
      for (const [index, { name, extra, times }] of SIZES.entries()) {
        await round(extra, times * 3);
        const rounds = [];
        // Both relays carry the same events at the same time, since the machine does other things meanwhile.
        for (let n = 0; n < ROUNDS; n += 1) rounds.push(await round(extra, times));
        const [scoped, shared] = [median(rounds.map((r) => r.scoped)), median(rounds.map((r) => r.shared))];
        ratios[index]?.push(median(rounds.map((r) => r.scoped / r.shared)));
        const figures = `scoped ${scoped.toFixed(1)}, shared ${shared.toFixed(1)}`;
        process.stderr.write(`pair ${pair + 1}, events ${name}: µs of CPU per event, ${figures}\n`);
      }
      await stopBoth();
    }
    const medians = ratios.map(median);
    process.stderr.write(
      `ratios ${ratios.map((of) => of.map((one) => one.toFixed(3)).join(' ')).join(' | ')}\n`,
    );
    process.stderr.write(`medians ${medians.map((one) => one.toFixed(3)).join(' | ')}\n`);
    for (const one of medians) expect(one).toBeLessThanOrEqual(1 + MOST);
  },
  3_600_000,
);

/**
 * What the relay adds to the time in which a message gets its first event, on loopback, one message at a
 * time over kept connections. Every message through the relay has a twin that goes straight to the bot
 * service, in alternating order, so that what else the machine does hits both.
 */
import { messageText } from './support/message.ts';
import { messageConnection } from './support/message-connection.ts';
import { cpuMs } from './support/process-usage.ts';
import { startRelay } from './support/relay-process.ts';
import { overRounds, quantile } from './support/statistics.ts';
import { startUpstream } from './support/upstream-process.ts';

const WARM_UP_PAIRS = 3_000;
const ROUNDS = 7;
const PAIRS_PER_ROUND = 2_000;

interface Pairs {
  readonly direct: number[];
  readonly relayed: number[];
  /** Per pair, what the relay added. */
  readonly added: number[];
}

type Send = () => Promise<number>;

const upstream = await startUpstream();
const relay = await startRelay(upstream.port);
const toUpstream = messageConnection(upstream.port);
const toRelay = messageConnection(relay.port);
const direct = () => toUpstream.send(messageText('three'));
const relayed = () => toRelay.send(messageText('three', relay.cookie));

await sendPairs(direct, relayed, WARM_UP_PAIRS);
const rounds: Pairs[] = [];
const cpuPerMessage: number[] = [];
for (let round = 0; round < ROUNDS; round++) {
  const before = cpuMs(relay.pid);
  rounds.push(await sendPairs(direct, relayed, PAIRS_PER_ROUND));
  cpuPerMessage.push((cpuMs(relay.pid) - before) / PAIRS_PER_ROUND);
}

console.log(
  `Time to the first event in ms: median (min–max) of ${ROUNDS} rounds of ${PAIRS_PER_ROUND} pairs`,
);
for (const name of ['direct', 'relayed', 'added'] as const) {
  const figure = (q: number) =>
    overRounds(
      rounds.map((round) => quantile(round[name], q)),
      3,
    );
  console.log(`${name.padEnd(8)} p50 ${figure(0.5)}   p99 ${figure(0.99)}`);
}
console.log(`CPU of the relay per message in ms: ${overRounds(cpuPerMessage, 3)}`);

toUpstream.close();
toRelay.close();
await relay.close();
await upstream.close();

async function sendPairs(direct: Send, relayed: Send, count: number): Promise<Pairs> {
  const pairs: Pairs = { direct: [], relayed: [], added: [] };
  for (let pair = 0; pair < count; pair++) {
    let [directMs, relayedMs] = [0, 0];
    if (pair % 2 === 0) directMs = await direct();
    relayedMs = await relayed();
    if (pair % 2 === 1) directMs = await direct();
    pairs.direct.push(directMs);
    pairs.relayed.push(relayedMs);
    pairs.added.push(relayedMs - directMs);
  }
  return pairs;
}

/**
 * What many open streams cost one relay: 900 that all receive (5 messages a second, 180 s each, is what one
 * bot can have), then 5,000 that are silent. Memory is the resident set as an operator sees it, once it has
 * settled; nobody asks the relay to collect garbage. Linux only.
 */
import { messageText } from './support/message.ts';
import { messageConnection } from './support/message-connection.ts';
import { cpuMs, openFilesLimit, rssBytes, settledRssBytes } from './support/process-usage.ts';
import { type RelayProcess, startRelay } from './support/relay-process.ts';
import { quantile } from './support/statistics.ts';
import { openStreams, type StreamClients } from './support/stream-clients.ts';
import { startUpstream, type UpstreamProcess } from './support/upstream-process.ts';
import { sleep, waitUntil } from './support/wait.ts';

const DRIPPING = 900;
const SILENT = 5_000;
/** Each of the receiving streams gets an event of 100 bytes a second, for longer than anybody looks. */
const DRIP = 'drip-1000-100-1000';
const WATCH_MS = 10_000;
const WARM_UP_MESSAGES = 500;
const CLOSE_TIMEOUT_MS = 30_000;
/** A stream takes two: one to the client, one to the bot service. The rest is the relay's own. */
const FILES_NEEDED = 2 * SILENT + 100;

const upstream = await startUpstream();
await measureDirect();
await onFreshRelay(async (relay) => {
  await measureStreams(relay, { count: DRIPPING, bot: DRIP });
});
await onFreshRelay(async (relay) => {
  const limit = openFilesLimit(relay.pid);
  if (limit >= FILES_NEEDED) await measureStreams(relay, { count: SILENT, bot: 'silent' });
  else {
    console.log(
      `\n${SILENT} streams: NOT MEASURED, a process may open ${limit} files here, not ${FILES_NEEDED}.`,
    );
    console.log(`Raise the limit (ulimit -Hn ${FILES_NEEDED}) and run this again.`);
    process.exitCode = 1;
  }
});
await upstream.close();

async function onFreshRelay(use: (relay: RelayProcess) => Promise<void>): Promise<void> {
  const relay = await startRelay(upstream.port);
  try {
    await warmUp(relay);
    await use(relay);
  } finally {
    await relay.close();
  }
}

/** So that memory which any running relay has is not counted as the streams'. */
async function warmUp({ port, cookie }: RelayProcess): Promise<void> {
  const connection = messageConnection(port);
  for (let n = 0; n < WARM_UP_MESSAGES; n++) await connection.send(messageText('three', cookie));
  connection.close();
}

/** The same events without the relay: what of their delay is the machine's and the client's own. */
async function measureDirect(): Promise<void> {
  const clients = await openStreams(upstream.port, DRIPPING, { bot: DRIP });
  console.log(`\n${DRIPPING} streams straight from the bot service`);
  await watchDelays(clients);
  await printClosing(clients, upstream);
}

async function measureStreams(
  { port, pid, cookie }: RelayProcess,
  { count, bot }: { count: number; bot: string },
): Promise<void> {
  const before = await settledRssBytes(pid);
  const startedAt = performance.now();
  const cpuBefore = cpuMs(pid);
  const clients = await openStreams(port, count, { bot, cookie });
  const opened = `${(performance.now() - startedAt).toFixed(0)} ms, CPU ${cpuMs(pid) - cpuBefore} ms`;
  console.log(`\n${count} streams of ${bot} through the relay, opened in ${opened}`);
  console.log(`first event: ${clients.started} of ${count} ${[...clients.failures].join('; ')}`);
  console.log(`open at the bot service: ${(await upstream.open()).count}`);
  const atOnce = rssBytes(pid);
  if (bot === DRIP) {
    const cpu = cpuMs(pid);
    const events = await watchDelays(clients);
    const used = cpuMs(pid) - cpu;
    console.log(
      `CPU: ${((100 * used) / WATCH_MS).toFixed(1)} % of a core, ${(used / events).toFixed(3)} ms an event`,
    );
  }
  const settled = await settledRssBytes(pid);
  const perStream = (rss: number) => `${((rss - before) / count / 1024).toFixed(1)} KiB per stream`;
  console.log(`memory before: ${mebibytes(before)}`);
  console.log(`when all were open: ${mebibytes(atOnce)}, ${perStream(atOnce)}`);
  console.log(`settled: ${mebibytes(settled)}, ${perStream(settled)}`);
  console.log(`lost meanwhile: ${clients.lost()}`);
  await printClosing(clients, upstream);
  console.log(`memory after: ${mebibytes(await settledRssBytes(pid))}`);
}

/** Watches the events for a while and prints their delays; returns how many came. */
async function watchDelays({ delaysMs }: StreamClients): Promise<number> {
  // What came while the streams opened is not what is asked for.
  await sleep(1_000);
  delaysMs.length = 0;
  await sleep(WATCH_MS);
  const seen = [...delaysMs];
  const [p50, p99] = [quantile(seen, 0.5), quantile(seen, 0.99)];
  console.log(
    `events: ${seen.length} in ${WATCH_MS} ms, delay p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`,
  );
  return seen.length;
}

/** Lets all clients leave, and prints how long it took until the bot service had seen all of them go. */
async function printClosing(clients: StreamClients, { open }: UpstreamProcess): Promise<void> {
  const leftAt = clients.leave();
  let last = await open();
  await waitUntil(async () => {
    last = await open();
    return last.count === 0;
  }, CLOSE_TIMEOUT_MS);
  const ms = Number(last.lastClosedAt - leftAt) / 1e6;
  console.log(`all closed at the bot service ${ms.toFixed(0)} ms after the first left`);
}

function mebibytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(0)} MiB`;
}

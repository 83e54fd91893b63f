import { Agent, request } from 'node:http';

/**
 * A program: each session of `argv[3]` (cookies, as JSON) sends the relay at the port `argv[2]` one costly body each
 * second for `argv[4]` seconds, on a connection of its own. Then it prints how many answers had which status.
 */
const [port, sessions, seconds] = process.argv.slice(2).map((text) => JSON.parse(text)) as [
  number,
  string[],
  number,
];

const many = (count: number, one: (n: number) => string) =>
  Array.from({ length: count }, (_, n) => one(n)).join();

const BODIES = [
  // Of 900 KB.
  `{"payload":{${many(90_000, (n) => `"k${n}":1`)}}}`,
  // As large as it may be by default.
  '['.repeat(131_072) + ']'.repeat(131_072),
  `{"payload":{${many(20_000, (n) => `"${n}":1`)}}}`,
  // Within all bounds, and refused after all of it was read.
  `{"payload":{${many(9_990, (n) => `"k${String(n).padEnd(18, 'x')}":1`)}}`,
  `{${many(990, (n) => `"${String(n).padEnd(125, '-')}":"${'\\"'.repeat(60)}"`)},"customChannelID":1}`,
  // Names that are not ASCII.
  `{${many(990, (n) => `"${'\u0301'.repeat(120)}${n}":1`)}}`,
];

const counts: Record<string, number> = {};

function send(cookie: string, agent: Agent, body: string): Promise<void> {
  const path = '/generic/ns/acme/bot-provider/helper/message/sse';
  const headers = {
    Cookie: cookie,
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  };
  return new Promise((resolve) => {
    const end = (status: number | undefined) => {
      counts[status ?? 'none'] = (counts[status ?? 'none'] ?? 0) + 1;
      resolve();
    };
    const outgoing = request(
      { host: '127.0.0.1', port, path, method: 'POST', headers, agent },
      (response) => {
        response.resume().once('close', () => end(response.statusCode));
      },
    );
    outgoing.once('error', () => end(undefined));
    outgoing.end(body);
  });
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function attack(cookie: string, number: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const startedAt = performance.now() + (number / sessions.length) * 1000;
  for (let n = 0; n < seconds; n += 1) {
    await pause(Math.max(0, startedAt + n * 1000 - performance.now()));
    await send(cookie, agent, BODIES[(number + n) % BODIES.length] as string);
  }
  agent.destroy();
}

await Promise.all(sessions.map(attack));
process.stdout.write(JSON.stringify(counts));

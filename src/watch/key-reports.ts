import type { Redis } from '../storage/redis.ts';

/** How long Redis remembers an unused key, in ms. */
const REMEMBER_MS = 90 * 24 * 60 * 60 * 1000;
const REPORT_EVERY_MS = 1_000;
const PREFIX = 'bot-relay:key-use:';

/** Whether the bot service has accepted or refused a key of a ring. */
export interface KeyUse {
  /** The ring's name. */
  readonly ring: string;
  readonly fingerprint: string;
  readonly outcome: 'worked' | 'refused';
}

/** When a key of a ring last worked and was last refused, over all instances. */
export interface KeyReport {
  readonly ring: string;
  readonly fingerprint: string;
  readonly worked?: Date;
  readonly refused?: Date;
}

/** Uses Redis's own clock, since the clocks of the instances may differ. */
const SCRIPT = `
local clock = redis.call('TIME')
local at = clock[1] * 1000 + math.floor(clock[2] / 1000) - tonumber(ARGV[2])
if at > tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0') then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', at))
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
`;

/**
 * Makes the function that reports every use of a key to Redis, at most once a second for each key and outcome; if Redis
 * cannot be reached, it tries again later. Never throws.
 */
export function keyReporter(redis: Redis): (use: KeyUse) => void {
  const run = redis.script(SCRIPT);
  const pending = new Map<string, { use: KeyUse; at: number }>();
  let timer: NodeJS.Timeout | undefined;

  async function send(id: string, { use, at }: { use: KeyUse; at: number }): Promise<void> {
    const ageMs = Math.round(performance.now() - at);
    const key = `${PREFIX}${use.fingerprint}:${use.ring}`;
    try {
      await run([key], [use.outcome, String(ageMs), String(REMEMBER_MS)]);
    } catch {
      // The Redis client logs the failure itself. Keep this use only if no newer one is pending.
      if (!pending.has(id)) pending.set(id, { use, at });
      timer ??= setTimeout(flush, REPORT_EVERY_MS).unref();
    }
  }
  function flush(): void {
    timer = pending.size > 0 ? setTimeout(flush, REPORT_EVERY_MS).unref() : undefined;
    const due = [...pending];
    pending.clear();
    for (const [id, entry] of due) void send(id, entry);
  }
  return function report(use) {
    pending.set(`${use.fingerprint} ${use.outcome} ${use.ring}`, { use, at: performance.now() });
    if (!timer) flush();
  };
}

/**
 * Reads all reports about keys from Redis.
 * @throws Problem `session_store_unavailable` if Redis cannot be reached
 */
export async function readKeyReports(redis: Redis): Promise<KeyReport[]> {
  const reports: KeyReport[] = [];
  let cursor = '0';
  do {
    const page = await redis.run((client) => client.scan(cursor, { MATCH: `${PREFIX}*`, COUNT: 1000 }));
    cursor = String(page.cursor);
    for (const key of page.keys) {
      const { worked, refused } = await redis.run((client) => client.hGetAll(key));
      const [, fingerprint = '', ring = ''] = /^([^:]*):(.*)$/s.exec(key.slice(PREFIX.length)) ?? [];
      reports.push({
        ring,
        fingerprint,
        ...(worked !== undefined && { worked: new Date(Number(worked)) }),
        ...(refused !== undefined && { refused: new Date(Number(refused)) }),
      });
    }
  } while (cursor !== '0');
  return reports;
}

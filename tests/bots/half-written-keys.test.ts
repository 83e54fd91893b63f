import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { ALL_BUT_INTERVALS } from '../harness/clock/intervals.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
} from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

/** How often a relay of the tests looks at its files. */
const POLL_MS = 50;

let folder: string;
let pair: RelayAndUpstream;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-half-'));
  // The test says when the relay looks at its files, so that no pause can come between a part and the next look.
  jest.useFakeTimers({ doNotFake: [...ALL_BUT_INTERVALS] });
});
afterEach(async () => {
  jest.useRealTimers();
  await pair.close();
  rmSync(folder, { recursive: true });
});

/** Sends a message; returns the key of its last request, or the status of its error event if it failed. */
async function keyOf(): Promise<string | number> {
  const response = await pair.relay.send(pair.cookie);
  const text = await response.text();
  return text.startsWith('event: error\n')
    ? errorEventIn(text).status
    : (pair.upstream.requests.at(-1)?.all('x-api-key')[0] ?? '');
}

const look = () => void jest.advanceTimersByTime(POLL_MS);

test('a file of keys that changes is not used while it is half written', async () => {
  const path = join(folder, 'keys');
  writeFileSync(path, CANARY.key);
  const valid = new Set<string>([CANARY.key, CANARY.secondKey]);
  pair = await startRelayAndUpstream(
    (socket, { all }) =>
      void socket.write(
        valid.has(all('x-api-key')[0] ?? '') ? wholeStream('data: a\n\n') : plainAnswer('401 No', []),
      ),
    { UPSTREAM_API_KEYS: '', UPSTREAM_API_KEYS_FILE: path },
  );
  const logged = (msg: string) => pair.relay.logs.filter((line) => String(line.msg).startsWith(msg));
  // The relay has read the file once more after its start.
  look();
  look();
  writeFileSync(path, '');
  for (const part of `${CANARY.secondKey}\n${CANARY.key}`.match(/.{1,6}|\n/g) ?? []) {
    look();
    expect(await keyOf()).toBe(CANARY.key);
    appendFileSync(path, part);
  }
  look();
  expect(await keyOf()).toBe(CANARY.key);
  look();
  expect(logged('reloaded')).toHaveLength(1);
  expect(await keyOf()).toBe(CANARY.secondKey);
  expect(logged('upstream key rejected')).toEqual([]);
  expect(logged('reload failed')).toEqual([]);
});

import { afterEach, expect, test } from '@jest/globals';
import { dechunk } from '../harness/clients/raw-client.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

/** Six minutes: longer than the time limits that HTTP clients have of their own. */
const SILENT_MS = Number(process.env.SILENT_MS ?? 360_000);

let pair: RelayAndUpstream;
afterEach(() => pair.close());

test(
  'a stream that is silent for minutes goes on',
  async () => {
    pair = await startRelayAndUpstream(
      (socket) => {
        socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
        setTimeout(
          () => socket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)])),
          SILENT_MS,
        );
      },
      { MAX_EXECUTION_MS: String(2 * SILENT_MS), HEARTBEAT_MS: '0' },
    );
    const client = pair.ask();
    await client.waitFor('data: 2');
    await client.waitFor(LAST_CHUNK);
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
  },
  SILENT_MS + 30_000,
);

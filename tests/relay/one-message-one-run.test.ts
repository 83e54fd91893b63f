import { expect } from '@jest/globals';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { fieldClient, type Received } from '../harness/clients/field-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import type { RelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  type BreakingService,
  ROWS,
  type Row,
  startBreakingService,
} from '../harness/service/breaking-service.ts';

const RESUMES = 3;

/**
 * Sends a message once and reads its answer with `eventsource-parser`. With `resumes`, it asks for the rest of a stream
 * that broke after an id, as the newest clients do; a status other than 200 is final.
 */
async function parserClient(
  { relay, cookie }: Pick<RelayAndUpstream, 'relay' | 'cookie'>,
  resumes: boolean,
): Promise<Pick<Received, 'data' | 'error'>> {
  const data: Received['data'] = [];
  let lastId = '';
  for (let left = resumes ? RESUMES : 0; ; left--) {
    const response = await relay.send(cookie, lastId ? { headers: { 'Last-Event-ID': lastId } } : {});
    if (response.status !== 200) return { data, error: response.status };
    const events = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream());
    try {
      for await (const event of events) {
        data.push(JSON.parse(event.data) as Received['data'][number]);
        lastId = event.id || lastId;
      }
      return { data, error: undefined };
    } catch (error) {
      if (lastId === '' || left === 0) return { data, error };
      await sleep(10);
    }
  }
}

type Client = (service: BreakingService) => Promise<Pick<Received, 'data' | 'error'>>;
const field =
  (retries: 'always' | 'unless-4xx' | 'after-an-id'): Client =>
  ({ relay: { url }, cookie }) =>
    fieldClient({ url, cookie, retries });

const CLIENTS: [string, Client][] = [
  ['an old client, which sends again after every error', field('always')],
  ['a client that sends again after every error but a 4xx', field('unless-4xx')],
  ['a client that sends again to resume', field('after-an-id')],
  ['a reader that never sends again', (service) => parserClient(service, false)],
  ['a reader that resumes', (service) => parserClient(service, true)],
];

async function expectOneRun(client: Client, row: Row): Promise<void> {
  const service = await startBreakingService(row);
  try {
    const { data, error } = await client(service);
    expect(service.runs()).toBe(1);
    expect(error).toBeUndefined();
    const types = data.map(({ eventType }) => eventType);
    expect(types.at(-1)).toBe(row.isWhole ? 'asgard.run.done' : 'asgard.run.error');
    const numbers = data.flatMap(({ n }) => n ?? []);
    if (row.isWhole) expect(numbers).toEqual([1, 2]);
    expect(new Set(numbers).size).toBe(numbers.length);
  } finally {
    await service.close();
  }
}

const cases = ROWS.flatMap((row) =>
  CLIENTS.map(([name, client]): [string, () => Promise<void>] => [
    `${name}, has one run, which looks complete only if it is, when the service ${row.what}`,
    () => expectOneRun(client, row),
  ]),
);

testSideBySide(cases, 6);

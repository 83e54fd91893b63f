import { expect } from '@jest/globals';
import { type BreakingService, ROWS, type Row, startBreakingService } from '../support/breaking-service.ts';
import { fieldClient, type Received } from '../support/field-client.ts';
import { parserClient } from '../support/parser-client.ts';
import { testSideBySide } from '../support/side-by-side.ts';

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

import { expect, jest, test } from '@jest/globals';
import { freshFolder, inFrontOf, startProcess } from './process.ts';
import { startRedis } from './redis-server.ts';

jest.setTimeout(60_000);

// `child-processes.test.ts` runs this file: a test that fails before it has ended what it has started.
test('fails', async () => {
  const redis = await startRedis();
  const info = String(await redis.command('INFO', 'server'));
  const folder = freshFolder({ 'users.json': '{"users":[]}' });
  const relay = startProcess({ folder, environment: inFrontOf('http://127.0.0.1:9') });
  await relay.listening();
  process.stdout.write(`started ${/process_id:(\d+)/.exec(info)?.[1]} ${relay.pid}\n`);
  expect('as meant').toBe('');
});

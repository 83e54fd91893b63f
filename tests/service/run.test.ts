import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { Brain } from '../../src/service/brains/steps.ts';
import { openRun } from '../../src/service/store/run.ts';
import { type DemoService, demoEvents, startDemoService } from '../harness/service/demo-service.ts';

let service: DemoService | undefined;
afterEach(() => service?.close());

/** An answer that nobody reads. */
const unread = () => new ServerResponse(new IncomingMessage(new Socket()));
const MB = 1_048_576;

describe('a run', () => {
  test('remembers for a later reader at most 1 MB after its last kept message', () => {
    const run = openRun('r', unread());
    for (let n = 0; n < 8; n++) run.send('x'.repeat(MB / 4), false);
    const late = unread();
    run.follow(late, () => {});
    expect(late.writableLength).toBeGreaterThan(MB / 2);
    expect(late.writableLength).toBeLessThan(1.1 * MB);
    run.send('kept', true);
    const later = unread();
    run.follow(later, () => {});
    expect(later.writableLength).toBe(0);
  });

  test('cuts a reader that does not read', () => {
    const [sender, reader] = [unread(), unread()];
    const run = openRun('r', sender);
    run.follow(reader, () => {});
    for (let n = 0; n < 31; n++) run.send('x'.repeat(MB), true);
    expect(reader.destroyed).toBe(false);
    for (let n = 0; n < 2; n++) run.send('x'.repeat(MB), true);
    expect(reader.destroyed).toBe(true);
  });

  test('that has failed ends a resumption with its error', async () => {
    const fails: Brain = {
      isResumable: false,
      hasSandbox: false,
      metadata: {},
      async *answer() {
        yield { startMessage: true };
        yield { say: 'one' };
        yield { completeMessage: true };
        yield { startMessage: true };
        yield { error: { code: 'FAILED', message: 'It failed.' } };
      },
    };
    service = await startDemoService({ brains: { 'demo/fails': fails } });
    const message = { customChannelId: 'c1', text: 'hello' };
    await service.say(message, 'fails');
    await service.say(message, 'fails');
    const { body } = await service.send(message, { bot: 'fails', lastEventId: '2' });
    expect(demoEvents(body).map(({ eventType }) => eventType)).toEqual([
      'asgard.message.start',
      'asgard.run.error',
    ]);
  });
});

import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import {
  type DemoService,
  dataOf,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';

const ID = 'custom_channel_id=c1';
const HELLO = { customChannelId: 'c1', customMessageId: 'm1', text: 'hello', action: 'NONE' };

let service: DemoService;
beforeEach(async () => {
  service = await startDemoService();
});
afterEach(() => service.close());

const code = (body: string) => (JSON.parse(body) as { error: { code: string } }).error.code;
const history = async (more: { id?: string; lastEventId?: string; bot?: string } = {}) => {
  const headers = more.lastEventId === undefined ? {} : { 'Last-Event-ID': more.lastEventId };
  const query = `custom_channel_id=${more.id ?? 'c1'}`;
  const answer = await service.ask(`GET message/sse?${query}`, { headers, bot: more.bot ?? 'echo' });
  expect([answer.status, answer.headers['content-type']]).toEqual([200, 'text/event-stream']);
  return demoEvents(answer.body);
};
/** What was said, oldest first. */
const texts = (events: Awaited<ReturnType<typeof history>>) =>
  events.flatMap((event) => event.fact.messageUser?.text ?? wholeMessages([event]).map(({ text }) => text));
const idsOf = (events: readonly { id: string | undefined }[]) =>
  events.flatMap(({ id }) => (id === undefined ? [] : [id]));

describe('the history of a channel', () => {
  test('has what both said, with a number each, and ends when no run is open', async () => {
    await service.say(HELLO);
    await service.say({ ...HELLO, text: 'again', customMessageId: 'm2' });
    const events = await history();
    expect(events.map(({ eventType }) => eventType)).toEqual([
      'asgard.message.user',
      'asgard.message.complete',
      'asgard.message.user',
      'asgard.message.complete',
      'asgard.run.done',
    ]);
    expect(texts(events)).toEqual(['hello', 'You said: hello', 'again', 'You said: again']);
    expect(idsOf(events)).toEqual(['1', '2', '3', '4']);
    expect(events[0]?.fact.messageUser).toEqual({
      messageId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      text: 'hello',
      customMessageId: 'm1',
      blobIds: [],
      blobs: [],
    });
    expect(events.every(({ customChannelId }) => customChannelId === 'c1')).toBe(true);
    // What is kept has its time.
    for (const { id, createdAt } of events)
      expect(createdAt).toEqual(id && new Date(createdAt as string).toISOString());
  });

  test('has after Last-Event-ID only what came later', async () => {
    await service.say(HELLO);
    await service.say({ ...HELLO, text: 'again' });
    expect(idsOf(await history({ lastEventId: '2' }))).toEqual(['3', '4']);
    expect(idsOf(await history({ lastEventId: '4' }))).toEqual([]);
    // An id that is none of its own means: from the beginning.
    expect(idsOf(await history({ lastEventId: 'x' }))).toEqual(['1', '2', '3', '4']);
  });

  test('is live while a run is open, and ends with it', async () => {
    await service.close();
    service = await startDemoService({ speed: { wordMs: 0, silenceMs: 60_000 } });
    const sender = service.watch(HELLO, 'slow');
    await sender.waitFor('" that."');
    const live = history({ bot: 'slow' });
    const { runState } = dataOf(await service.ask(`GET channel/metadata?${ID}`, { bot: 'slow' }));
    expect(runState).toBe('RUNNING');
    expect((await service.ask(`POST message/suspend?${ID}`, { bot: 'slow' })).status).toBe(200);
    const events = await live;
    expect(texts(events)).toEqual(['hello', 'Let me think about that.']);
    const types = events.map(({ eventType }) => eventType);
    expect(types.slice(0, 3)).toEqual(['asgard.message.user', 'asgard.run.init', 'asgard.message.start']);
    expect(types.slice(-2)).toEqual(['asgard.message.complete', 'asgard.run.done']);
    expect(dataOf(await service.ask(`GET channel/metadata?${ID}`, { bot: 'slow' })).runState).toBe('IDLE');
  });

  test('has also what a run said after the reader of its message had left', async () => {
    await service.close();
    service = await startDemoService({ speed: { wordMs: 0, silenceMs: 300 } });
    const sender = service.watch(HELLO, 'slow');
    await sender.waitFor('" that."');
    sender.socket.destroy();
    expect(texts(await history({ bot: 'slow' }))).toEqual([
      'hello',
      'Let me think about that. Here is what came of it.',
    ]);
  });

  test('is of one bot and of one channel only', async () => {
    await service.say(HELLO);
    await service.say({ ...HELLO, customChannelId: 'c2', text: 'other' });
    await service.say({ ...HELLO, text: 'guide me' }, 'guide');
    expect(texts(await history())).toEqual(['hello', 'You said: hello']);
    expect(texts(await history({ id: 'c2' }))).toEqual(['other', 'You said: other']);
    expect(texts(await history({ bot: 'guide' }))[0]).toBe('guide me');
  });

  test('forgets the oldest of too much', async () => {
    for (let n = 0; n < 120; n++) await service.say({ ...HELLO, text: `n${n}` });
    const events = await history();
    expect(idsOf(events)).toHaveLength(200);
    expect(texts(events).at(-1)).toBe('You said: n119');
    const long = 'x'.repeat(200_000);
    await service.say({ ...HELLO, text: long });
    expect(texts(await history())).toEqual([`You said: ${long}`]);
  });

  test('of a message has ids on whole messages only', async () => {
    const events = await service.say(HELLO);
    const kept = events.filter(({ id }) => id !== undefined);
    expect(kept.map(({ id, eventType }) => [id, eventType])).toEqual([['2', 'asgard.message.complete']]);
    expect(idsOf(await service.say({ text: 'no channel' }))).toEqual([]);
  });
});

describe('a channel', () => {
  test('has a title after the first message, and is not found before', async () => {
    const before = await service.ask(`GET channel/metadata?${ID}`);
    expect([before.status, before.headers['content-type'], code(before.body)]).toEqual([
      404,
      'application/json',
      'CHANNEL_NOT_FOUND',
    ]);
    await service.say({ ...HELLO, text: 'a'.repeat(100) });
    await service.say({ ...HELLO, text: 'second' });
    const answer = await service.ask(`GET channel/metadata?${ID}`);
    expect(JSON.parse(answer.body)).toEqual({
      isSuccess: true,
      error: null,
      errorCode: null,
      data: {
        customChannelId: 'c1',
        title: 'a'.repeat(60),
        runState: 'IDLE',
        lastActivityAt: expect.stringMatching(/^\d{4}-.*Z$/),
        launchedSandboxes: [expect.objectContaining({ sandboxName: 'demo' })],
      },
    });
  });

  test.each(['/generic/ns', '/ns'])('is the same at both shapes of the path (%s)', async (shape) => {
    await service.say(HELLO);
    const path = `/demo/bot-provider/echo/channel/metadata?${ID}`;
    const answer = await fetch(`http://127.0.0.1:${service.port}${shape}${path}`, {
      headers: { 'X-API-KEY': service.key },
    });
    expect(answer.status).toBe(200);
  });

  test.each(['GET message/sse', 'GET channel/metadata', 'DELETE channel', 'POST channel/clear'])(
    'must exist and be named for %s',
    async (operation) => {
      for (const query of ['', '?custom_channel_id=', `?custom_channel_id=${'x'.repeat(257)}`])
        expect((await service.ask(`${operation}${query}`)).status).toBe(400);
      expect((await service.ask(`${operation}?custom_channel_id=none`)).status).toBe(404);
      const headers = { 'X-API-KEY': 'wrong' };
      expect((await service.ask(`${operation}?${ID}`, { headers })).status).toBe(401);
    },
  );

  test('is gone after it was deleted, and its open run has ended', async () => {
    await service.close();
    service = await startDemoService({ speed: { wordMs: 0, silenceMs: 60_000 } });
    const sender = service.watch(HELLO, 'slow');
    await sender.waitFor('" that."');
    const answer = await service.ask(`DELETE channel?${ID}`, { bot: 'slow' });
    expect([answer.status, answer.body]).toEqual([204, '']);
    await sender.closed;
    expect(sender.text()).toContain('run.done');
    expect((await service.ask(`GET channel/metadata?${ID}`, { bot: 'slow' })).status).toBe(404);
    expect((await service.ask(`GET message/sse?${ID}`, { bot: 'slow' })).status).toBe(404);
  });

  test('is empty after it was cleared, and its numbers go on', async () => {
    await service.say(HELLO);
    expect((await service.ask(`POST channel/clear?${ID}`)).status).toBe(204);
    expect(texts(await history())).toEqual([]);
    expect(dataOf(await service.ask(`GET channel/metadata?${ID}`)).title).toBeNull();
    await service.say(HELLO);
    expect(idsOf(await history())).toEqual(['3', '4']);
  });

  test('is emptied by a reset, and then answers its message', async () => {
    await service.say(HELLO);
    const events = await service.say({ ...HELLO, action: 'RESET_CHANNEL', text: 'anew' });
    expect(texts(events)).toEqual(['You said: anew']);
    expect(texts(await history())).toEqual(['anew', 'You said: anew']);
    const withFiles = await service.send({ ...HELLO, action: 'RESET_CHANNEL', blobIds: ['b'] });
    expect([withFiles.status, code(withFiles.body)]).toEqual([400, 'INVALID_MESSAGE']);
    expect(texts(await history())).toHaveLength(2);
  });

  test('keeps nothing of the user for a nudge', async () => {
    await service.say({ customChannelId: 'c1', action: 'NONE', text: '' });
    expect(texts(await history())).toEqual(['You said nothing.']);
    expect(dataOf(await service.ask(`GET channel/metadata?${ID}`)).title).toBeNull();
  });

  test('takes no unknown action and no id that is not a text', async () => {
    for (const wrong of [
      { action: 'BREAK' },
      { customChannelId: 7 },
      { customChannelId: '' },
      { blobIds: 'b' },
    ])
      expect((await service.send({ ...HELLO, ...wrong })).status).toBe(400);
    expect((await service.ask(`GET channel/metadata?${ID}`)).status).toBe(404);
  });

  test('is forgotten if 200 others came later', async () => {
    await service.say(HELLO);
    await service.say({ ...HELLO, customChannelId: 'c2' });
    const meta = (id: string) => service.ask(`GET channel/metadata?custom_channel_id=${id}`);
    for (let n = 0; n < 198; n++) await service.say({ ...HELLO, customChannelId: `n${n}` });
    // To be asked for makes a channel the newest.
    expect((await meta('c1')).status).toBe(200);
    await service.say({ ...HELLO, customChannelId: 'last' });
    expect([(await meta('c1')).status, (await meta('c2')).status]).toEqual([200, 404]);
  });
});

describe('the budget', () => {
  test('of messages and histories is one, and every other path has its own', async () => {
    await service.close();
    service = await startDemoService({ limit: 2 });
    const now = jest.spyOn(performance, 'now').mockReturnValue(performance.now());
    try {
      const send = async () => (await service.send(HELLO)).status;
      const ask = async (operation: string) => (await service.ask(`${operation}?${ID}`)).status;
      expect([await send(), await ask('GET message/sse')]).toEqual([200, 200]);
      expect([await send(), await ask('GET message/sse')]).toEqual([429, 429]);
      const meta = 'GET channel/metadata';
      expect([await ask(meta), await ask(meta), await ask(meta)]).toEqual([200, 200, 429]);
      expect(await ask('POST channel/clear')).toBe(204);
    } finally {
      now.mockRestore();
    }
  });
});

describe('a suspend', () => {
  test('stops only the run with the id, if one is given', async () => {
    await service.close();
    service = await startDemoService({ speed: { wordMs: 0, silenceMs: 60_000 } });
    const [one, other] = [service.watch(HELLO, 'slow'), service.watch(HELLO, 'slow')];
    await Promise.all([one.waitFor('" that."'), other.waitFor('" that."')]);
    const [, id] = /"requestId":"([^"]+)"/.exec(one.text()) ?? [];
    const suspend = (query: string) => service.ask(`POST message/suspend?${ID}${query}`, { bot: 'slow' });
    expect((await suspend(`&request_id=${id}`)).status).toBe(200);
    await one.closed;
    expect(other.text()).not.toContain('run.done');
    expect((await suspend(`&request_id=${id}`)).status).toBe(404);
    expect((await suspend('')).status).toBe(200);
    await other.closed;
    expect(other.text()).toContain('run.done');
  });
});

describe('feedback', () => {
  const give = (feedback: object) =>
    service.ask('POST message/feedback', {
      body: JSON.stringify({ customChannelId: 'c1', verdict: 'GOOD', comment: '', ...feedback }),
    });
  const idOf = async () => {
    const events = await service.say(HELLO);
    return wholeMessages(events)[0]?.messageId as string;
  };

  test('is kept in the history of its channel', async () => {
    const messageId = await idOf();
    const answer = await give({ messageId, verdict: 'BAD', comment: 'ü'.repeat(4096) });
    expect([answer.status, dataOf(answer)]).toEqual([200, { messageId: expect.any(String), seq: 3 }]);
    const event = (await history()).find(({ eventType }) => eventType === 'asgard.message.feedback');
    expect([event?.id, event?.fact.messageFeedback]).toEqual([
      '3',
      {
        messageId: dataOf(answer).messageId,
        targetMessageId: messageId,
        verdict: 'BAD',
        comment: 'ü'.repeat(4096),
      },
    ]);
  });

  test('must name a message of the bot in this channel, and a verdict', async () => {
    const messageId = await idOf();
    await service.say({ ...HELLO, customChannelId: 'c2' });
    const [user] = await history();
    const refused = async (feedback: object) => {
      const { status, body } = await give(feedback);
      return [status, code(body)];
    };
    expect(await refused({ messageId: 'x' })).toEqual([404, 'MESSAGE_NOT_FOUND']);
    expect(await refused({})).toEqual([404, 'MESSAGE_NOT_FOUND']);
    expect(await refused({ messageId: user?.fact.messageUser?.messageId })).toEqual([
      404,
      'MESSAGE_NOT_FOUND',
    ]);
    expect(await refused({ messageId, customChannelId: 'c2' })).toEqual([404, 'MESSAGE_NOT_FOUND']);
    expect(await refused({ messageId, customChannelId: 'c3' })).toEqual([404, 'CHANNEL_NOT_FOUND']);
    expect(await refused({ messageId, customChannelId: null })).toEqual([400, 'INVALID_CHANNEL']);
    for (const wrong of [
      { verdict: 'good' },
      { verdict: ['GOOD'] },
      { comment: 'ü'.repeat(4097) },
      { comment: 7 },
    ])
      expect(await refused({ messageId, ...wrong })).toEqual([400, 'INVALID_FEEDBACK']);
    expect((await service.ask('POST message/feedback', { body: 'no JSON' })).status).toBe(400);
  });
});

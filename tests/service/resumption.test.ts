import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import {
  type DemoEvent,
  type DemoService,
  demoEvents,
  startDemoService,
  wholeMessages,
} from '../harness/service/demo-service.ts';

const ASK = { customChannelId: 'c1', customMessageId: 'm1', text: 'hello', action: 'NONE' };

/** The parts of a browser that `fetch-event-source` needs. */
Object.assign(globalThis, {
  window: globalThis,
  document: { hidden: false, addEventListener: () => {}, removeEventListener: () => {} },
});

let service: DemoService;
beforeEach(async () => {
  service = await startDemoService();
});
afterEach(() => service.close());

const textOf = (events: readonly DemoEvent[]) =>
  events.map(({ fact }) => (fact.messageDelta?.message as { text: string } | undefined)?.text ?? '').join('');

describe('a resumption', () => {
  test('of a message in a channel runs nothing, and sends the rest of its run', async () => {
    const client = service.watch(ASK, 'resume');
    await client.closed;
    const [, id = ''] = /^id: (.+)$/m.exec(client.text()) ?? [];
    expect(id).toBe('2');
    const [, runId] = /"requestId":"([^"]+)"/.exec(client.text()) ?? [];
    const answer = await service.send(ASK, { bot: 'resume', lastEventId: id });
    const events = demoEvents(answer.body);
    expect(textOf(events)).toBe('The second breaks off and goes on where it did.');
    expect(new Set(events.map(({ requestId }) => requestId))).toEqual(new Set([runId]));
    expect(answer.headers['x-trace-id']).toBe(runId);
    // Also when the run is over, and by the last id, after which only the end is left.
    const again = await service.send(ASK, { bot: 'resume', lastEventId: id });
    expect(demoEvents(again.body).map(({ eventType }) => eventType)).toEqual([
      'asgard.message.complete',
      'asgard.run.done',
    ]);
    const last = await service.send(ASK, { bot: 'resume', lastEventId: '3' });
    expect(demoEvents(last.body).map(({ eventType }) => eventType)).toEqual(['asgard.run.done']);
    const history = await service.ask('GET message/sse?custom_channel_id=c1', { bot: 'resume' });
    expect(demoEvents(history.body).filter(({ id }) => id)).toHaveLength(3);
  });

  test('sends the end also of a run that was long ago', async () => {
    for (let n = 0; n < 8; n++) await service.say(ASK);
    const { body } = await service.send(ASK, { lastEventId: '1' });
    const events = demoEvents(body);
    expect(events.map(({ id, eventType }) => [id, eventType])).toEqual([
      ['2', 'asgard.message.complete'],
      [undefined, 'asgard.run.done'],
    ]);
    expect(events[1]?.requestId).toBe(events[0]?.requestId);
  });

  test('of nothing that is kept is refused, and nothing is run', async () => {
    await service.say(ASK);
    const uuid = '00000000-0000-4000-8000-000000000000';
    for (const lastEventId of ['3', '0', 'x', `${uuid}.1`, '1 2', '99999999999'])
      expect((await service.send(ASK, { lastEventId })).status).toBe(404);
    expect((await service.send({ ...ASK, customChannelId: 'c2' }, { lastEventId: '1' })).status).toBe(404);
    expect((await service.send({ text: 'a' }, { lastEventId: `${uuid}.1`, bot: 'resume' })).status).toBe(404);
    const history = await service.ask('GET message/sse?custom_channel_id=c1');
    expect(demoEvents(history.body).filter(({ id }) => id)).toHaveLength(2);
    // The id of a message without a channel, in a message with one.
    const client = service.watch({ text: 'a' }, 'resume');
    await client.closed;
    const [, nameless = ''] = /^id: (.+)$/m.exec(client.text()) ?? [];
    expect(nameless).toMatch(/^[0-9a-f-]{36}\.2$/);
    expect((await service.send({ text: 'a' }, { lastEventId: nameless, bot: 'resume' })).status).toBe(200);
    expect((await service.send(ASK, { lastEventId: nameless, bot: 'resume' })).status).toBe(404);
  });

  test('by fetch-event-source completes an answer that broke off', async () => {
    const data: DemoEvent[] = [];
    const asked: (string | null)[] = [];
    await fetchEventSource(`${service.url.origin}${service.pathOf('message/sse', 'resume')}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-API-KEY': service.key },
      body: JSON.stringify(ASK),
      openWhenHidden: true,
      fetch(input, init) {
        asked.push(new Headers(init?.headers).get('last-event-id'));
        return fetch(input, init);
      },
      onmessage: (message) => void data.push(JSON.parse(message.data) as DemoEvent),
      onerror: () => 1,
    });
    expect(asked).toEqual([null, '2']);
    expect(data.at(-1)?.eventType).toBe('asgard.run.done');
    // How much of the second message came before the break is left to the connection.
    expect(textOf(data)).toMatch(
      /^This answer has two messages\.(The second.*)?The second breaks off and goes on/,
    );
    expect(wholeMessages(data).map(({ text }) => text)).toEqual([
      'This answer has two messages.',
      'The second breaks off and goes on where it did.',
    ]);
  });
});

describe('the history', () => {
  const read = async (headers: Record<string, string> = {}) => {
    const url = `${service.url.origin}${service.pathOf('message/sse')}?custom_channel_id=c1`;
    const response = await fetch(url, {
      headers: { 'Content-Type': 'application/json', 'X-API-KEY': service.key, ...headers },
    });
    const events: { id: string | undefined; type: string }[] = [];
    const stream = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream());
    for await (const { id, event = '', data } of stream) {
      expect((JSON.parse(data) as DemoEvent).eventType).toBe(event);
      events.push({ id, type: event });
    }
    return events;
  };

  test('is read by eventsource-parser, and again from its last id', async () => {
    await service.say(ASK);
    const first = await read();
    expect(first.map(({ type }) => type)).toEqual([
      'asgard.message.user',
      'asgard.message.complete',
      'asgard.run.done',
    ]);
    await service.say({ ...ASK, text: 'again' });
    const lastId = first.findLast(({ id }) => id !== undefined)?.id as string;
    expect((await read({ 'Last-Event-ID': lastId })).map(({ id }) => id)).toEqual(['3', '4', undefined]);
  });
});

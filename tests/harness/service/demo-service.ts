import { type BotServiceOptions, startBotService } from '../../../src/service/bot-service.ts';
import type { Brain } from '../../../src/service/brains/steps.ts';
import { type Answer, call } from '../clients/call.ts';
import { rawClient, rawMessage } from '../clients/raw-client.ts';

const KEY = 'key-1';

export interface DemoEvent {
  readonly eventType: string;
  readonly requestId: string;
  readonly customChannelId: string | null;
  readonly createdAt?: string;
  readonly fact: Record<string, Record<string, unknown>>;
}

/** The events of a whole stream, each with the line of its `id`, if it has one. */
export function demoEvents(body: string): (DemoEvent & { readonly id: string | undefined })[] {
  return body
    .split('\n\n')
    .filter((part) => part !== '')
    .map((part) => {
      const [, id, type, data] = /^(?:id: (.+)\n)?event: ([a-z_.]+)\ndata: (\{.*\})$/.exec(part) ?? [];
      const event = JSON.parse(data ?? '') as DemoEvent;
      if (event.eventType !== type) throw new Error(`the name of the event is ${type}`);
      return { ...event, id };
    });
}

/** A bot that answers with these steps. */
export const played = (answer: Brain['answer'], more: Partial<Brain> = {}): Brain => ({
  ...{ isResumable: false, hasSandbox: false, metadata: {}, answer },
  ...more,
});

interface More {
  readonly bot?: string;
  readonly headers?: object;
  readonly body?: string | Buffer;
}
export type Part = readonly [name: string, value: string | File];

/** Starts the demo's bot service, without a limit on requests, and calls it as a client does. */
export async function startDemoService(options: BotServiceOptions = {}) {
  const service = await startBotService({ keys: [KEY], speed: { wordMs: 0 }, limit: 10_000, ...options });
  const port = Number(service.url.port);
  const pathOf = (path: string, bot = 'echo') => `/ns/demo/bot-provider/${bot}/${path}`;
  const headers = { 'Content-Type': 'application/json', 'X-API-KEY': KEY };
  /** Calls an operation, as `METHOD path`. */
  function ask(operation: string, more: More = {}) {
    const [method = '', path = ''] = operation.split(' ');
    const body = more.body === undefined ? {} : { body: more.body };
    return call(port, pathOf(path, more.bot), { method, headers: { ...headers, ...more.headers }, ...body });
  }
  const resumed = (id: string | undefined) => (id === undefined ? {} : { headers: { 'Last-Event-ID': id } });
  const send = (message: object, more: { bot?: string; lastEventId?: string; query?: string } = {}) =>
    ask(`POST message/sse${more.query ?? ''}`, {
      ...{ bot: more.bot ?? 'echo', body: JSON.stringify(message) },
      ...resumed(more.lastEventId),
    });
  return {
    ...service,
    ...{ port, key: KEY, pathOf, ask, send },
    /** The events that answer a message. */
    say: async (message: object, bot = 'echo') => demoEvents((await send(message, { bot })).body),
    /** What is kept of a channel. */
    async history({
      bot = 'echo',
      id = 'c1',
      lastEventId,
    }: {
      bot?: string;
      id?: string;
      lastEventId?: string;
    } = {}) {
      const { body } = await ask(`GET message/sse?custom_channel_id=${id}`, { bot, ...resumed(lastEventId) });
      return demoEvents(body);
    },
    suspend: (bot: string, query = '') => ask(`POST message/suspend?custom_channel_id=c1${query}`, { bot }),
    /** Sends a form, as a browser does. */
    async form(operation: string, parts: readonly Part[], bot = 'echo') {
      const form = new FormData();
      for (const [name, value] of parts) form.append(name, value);
      const encoded = new Response(form);
      const headers = { 'Content-Type': encoded.headers.get('content-type') ?? '' };
      return ask(operation, { bot, headers, body: Buffer.from(await encoded.arrayBuffer()) });
    },
    /** Sends a message over a raw connection, to see its bytes as they come, and to leave. */
    watch: (message: object, bot = 'echo') =>
      rawClient(
        port,
        rawMessage({
          path: pathOf('message/sse', bot),
          body: JSON.stringify(message),
          headers: [`X-API-KEY: ${KEY}`, 'Connection: close'],
        }),
      ),
  };
}

export type DemoService = Awaited<ReturnType<typeof startDemoService>>;

/** The data of an answer in the envelope of the service. */
export const dataOf = ({ body }: Answer): Record<string, unknown> =>
  (JSON.parse(body) as { data: Record<string, unknown> }).data;

/** The bot's whole messages. */
export const wholeMessages = (events: readonly DemoEvent[]): { messageId: string; text: string }[] =>
  events.flatMap(({ fact }) => {
    const message = fact.messageComplete?.message;
    return message === undefined ? [] : [message as { messageId: string; text: string }];
  });

/** The types of events, without what they all begin with. */
export const typesOf = (events: readonly { eventType: string }[]) =>
  events.map(({ eventType }) => eventType.replace('asgard.', ''));

/** The texts of the bot's whole messages. */
export const textsOf = (events: readonly DemoEvent[]) => wholeMessages(events).map(({ text }) => text);

/** The ids of those events that have one. */
export const idsOf = (events: readonly { id: string | undefined }[]) =>
  events.flatMap(({ id }) => (id === undefined ? [] : [id]));

/** The error with which the last of these events ends a run. */
export const errorOf = (events: readonly DemoEvent[]) =>
  events.at(-1)?.fact.runError?.error as { code: string; message: string } | undefined;

/** The code of an answer that refuses, or of the error in its stream. */
export const codeOf = ({ body }: Pick<Answer, 'body'>) => /"code":"([A-Z_]+)"/.exec(body)?.[1];

import { type BotServiceOptions, startBotService } from '../../../src/service/bot-service.ts';
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

/** Starts the demo's bot service, without a limit on requests, and calls it as a client does. */
export async function startDemoService(options: Partial<BotServiceOptions> = {}) {
  const service = await startBotService({ keys: [KEY], speed: { wordMs: 0 }, limit: 10_000, ...options });
  const port = Number(service.url.port);
  const pathOf = (path: string, bot = 'echo') => `/ns/demo/bot-provider/${bot}/${path}`;
  const headers = { 'Content-Type': 'application/json', 'X-API-KEY': KEY };
  const send = (message: object, more: { bot?: string; lastEventId?: string; query?: string } = {}) =>
    call(port, pathOf(`message/sse${more.query ?? ''}`, more.bot), {
      method: 'POST',
      headers: { ...headers, ...(more.lastEventId !== undefined && { 'Last-Event-ID': more.lastEventId }) },
      body: JSON.stringify(message),
    });
  return {
    ...service,
    port,
    key: KEY,
    pathOf,
    send,
    /** The events that answer a message. */
    say: async (message: object, bot?: string) => demoEvents((await send(message, bot ? { bot } : {})).body),
    /** Calls an operation, as `METHOD path`. */
    ask(operation: string, more: { bot?: string; headers?: object; body?: string | Buffer } = {}) {
      const [method = '', path = ''] = operation.split(' ');
      const own = { ...headers, ...more.headers };
      const body = more.body === undefined ? {} : { body: more.body };
      return call(port, pathOf(path, more.bot), { method, headers: own, ...body });
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

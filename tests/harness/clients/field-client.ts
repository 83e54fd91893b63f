import { type EventSourceMessage, fetchEventSource } from '@microsoft/fetch-event-source';
import { BOT_PATH } from '../relay/relay.ts';

/** The parts of a browser that the library needs. */
Object.assign(globalThis, {
  window: globalThis,
  document: { hidden: false, addEventListener: () => {}, removeEventListener: () => {} },
});

export interface FieldClient {
  readonly url: string;
  readonly cookie: string;
  readonly path?: string;
  readonly body?: string;
  /**
   * When it sends again after an error: always (old clients), always but after a 4xx (middle ones), or only after an
   * event with an `id` (new ones).
   */
  readonly retries: 'always' | 'unless-4xx' | 'after-an-id';
  /** Called with the headers of every request. */
  readonly onSend?: (headers: Headers) => void;
}

export interface Received {
  /** The data of all events, parsed. */
  readonly data: { eventType?: string; n?: number }[];
  readonly messages: EventSourceMessage[];
  /** The last error, if it gave up. */
  readonly error: unknown;
}

const BODY = JSON.stringify({ customChannelId: 'c', customMessageId: 'm-1', text: 'hi', action: 'NONE' });
const RETRIES = 3;

/**
 * Sends a message as the clients in the field do: every event's data goes through `JSON.parse`, and on any
 * error the same message is sent again at once, up to three times. Resolves when it is done or gives up.
 */
export async function fieldClient(client: FieldClient): Promise<Received> {
  const messages: EventSourceMessage[] = [];
  const data = () => messages.map((message) => JSON.parse(message.data) as Received['data'][number]);
  for (let left = client.retries === 'after-an-id' ? 0 : RETRIES; ; left--) {
    try {
      await oneTry(client, messages);
      return { data: data(), messages, error: undefined };
    } catch (error) {
      const { status = 0 } = error as { status?: number };
      const isSpared = client.retries === 'unless-4xx' && status >= 400 && status < 500;
      if (left === 0 || isSpared) return { data: data(), messages, error };
    }
  }
}

async function oneTry(client: FieldClient, messages: EventSourceMessage[]): Promise<void> {
  const { url, cookie, path = BOT_PATH, body = BODY, retries, onSend } = client;
  let left = RETRIES;
  let sawId = false;
  await fetchEventSource(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: cookie },
    body,
    openWhenHidden: true,
    fetch(input, init) {
      onSend?.(new Headers(init?.headers));
      return fetch(url + String(input), init);
    },
    async onopen({ status }) {
      if (status !== 200) throw Object.assign(new Error(`status ${status}`), { status });
    },
    onmessage(message) {
      JSON.parse(message.data);
      if (message.id) sawId = true;
      messages.push(message);
    },
    onerror(error) {
      // The library sends `Last-Event-ID` by itself.
      if (retries === 'after-an-id' && sawId && left-- > 0) return 1;
      throw error;
    },
  });
}

import { type EventSourceMessage, fetchEventSource } from '@microsoft/fetch-event-source';
import { Observable, retry } from 'rxjs';
import { BOT_PATH } from './relay.ts';

/** What the library needs of a browser. */
Object.assign(globalThis, {
  window: globalThis,
  document: { hidden: false, addEventListener: () => {}, removeEventListener: () => {} },
});

export interface FieldClient {
  readonly url: string;
  readonly cookie: string;
  readonly path?: string;
  /** What it does on an error: the old one sends the message again, the new one only behind an `id`. */
  readonly retries: 'always' | 'behind-an-id';
  /** Called with the headers of every request. */
  readonly onSend?: (headers: Headers) => void;
}

export interface Received {
  /** The data of all events, parsed. */
  readonly data: { eventType?: string; n?: number }[];
  readonly messages: EventSourceMessage[];
  /** The error that it gave up with. */
  readonly error: unknown;
}

const BODY = JSON.stringify({ customChannelId: 'c', customMessageId: 'm-1', text: 'hi', action: 'NONE' });
const RETRIES = 3;

/**
 * Sends a message as the clients in the field do: every event's data goes through `JSON.parse`, and on any
 * error the same message is sent again at once, up to three times. Resolves when it is done or gives up.
 */
export function fieldClient(client: FieldClient): Promise<Received> {
  const data: Received['data'] = [];
  const messages: EventSourceMessage[] = [];
  const run = client.retries === 'always' ? events(client).pipe(retry({ count: RETRIES })) : events(client);
  return new Promise((resolve) => {
    run.subscribe({
      next(message) {
        messages.push(message);
        data.push(JSON.parse(message.data) as { eventType?: string });
      },
      error: (error: unknown) => resolve({ data, messages, error }),
      complete: () => resolve({ data, messages, error: undefined }),
    });
  });
}

function events({
  url,
  cookie,
  path = BOT_PATH,
  retries,
  onSend,
}: FieldClient): Observable<EventSourceMessage> {
  return new Observable((subscriber) => {
    const stop = new AbortController();
    let left = RETRIES;
    let sawId = false;
    fetchEventSource(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Cookie: cookie },
      body: BODY,
      signal: stop.signal,
      openWhenHidden: true,
      fetch(input, init) {
        onSend?.(new Headers(init?.headers));
        return fetch(url + String(input), init);
      },
      onmessage(message) {
        JSON.parse(message.data);
        if (message.id) sawId = true;
        subscriber.next(message);
      },
      onerror(error) {
        // The library itself sends `Last-Event-ID` when it goes on.
        if (retries === 'behind-an-id' && sawId && left-- > 0) return 1;
        throw error;
      },
    }).then(
      () => subscriber.complete(),
      (error: unknown) => subscriber.error(error),
    );
    return () => stop.abort();
  });
}

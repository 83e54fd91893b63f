import { type EventSourceMessage, fetchEventSource } from '@microsoft/fetch-event-source';
import { Observable, retry, throwError, timer } from 'rxjs';
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
export function fieldClient(client: FieldClient): Promise<Received> {
  const data: Received['data'] = [];
  const messages: EventSourceMessage[] = [];
  const again = (error: unknown) => {
    const status = Number((error as { status?: number } | undefined)?.status);
    const isSpared = client.retries === 'unless-4xx' && status >= 400 && status < 500;
    return isSpared ? throwError(() => error) : timer(0);
  };
  const resumes = client.retries === 'after-an-id';
  const run = resumes ? events(client) : events(client).pipe(retry({ count: RETRIES, delay: again }));
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
  body = BODY,
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
      body,
      signal: stop.signal,
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
        subscriber.next(message);
      },
      onerror(error) {
        // The library sends `Last-Event-ID` by itself.
        if (retries === 'after-an-id' && sawId && left-- > 0) return 1;
        throw error;
      },
    }).then(
      () => subscriber.complete(),
      (error: unknown) => subscriber.error(error),
    );
    return () => stop.abort();
  });
}

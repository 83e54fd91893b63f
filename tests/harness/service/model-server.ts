import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as it came to the server of a model. */
export interface ModelRequest {
  readonly method: string;
  /** Its path with the query. */
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Record<string, unknown>;
}

/** What a server of models answers: status, media type and the bytes as they are. */
export interface RawAnswer {
  readonly status?: number;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string;
}

export const jsonAnswer = (body: unknown, status = 200): RawAnswer => ({
  status,
  type: 'application/json',
  body: JSON.stringify(body),
});

/** A stream of events without names, as most providers send them. */
export const dataStream = (...events: readonly unknown[]): RawAnswer => ({
  type: 'text/event-stream',
  body: events
    .map((event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`)
    .join(''),
});

interface NamedEvent {
  readonly type: string;
  readonly [member: string]: unknown;
}

/** A stream of events that are named by their `type`, as OpenAI's responses and Anthropic send them. */
export const namedStream = (...events: readonly NamedEvent[]): RawAnswer => ({
  type: 'text/event-stream',
  body: events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''),
});

export interface ModelServer {
  readonly url: string;
  readonly requests: ModelRequest[];
  /** Answers from now on. */
  answer: (request: ModelRequest, res: ServerResponse) => RawAnswer | undefined;
  close(): Promise<void>;
}

/** Starts a server on 127.0.0.1 that answers as the test says; it does nothing by itself if `answer` gives nothing. */
export async function startModelServer(): Promise<ModelServer> {
  const http = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
    const request = { method: req.method ?? '', path: req.url ?? '', headers: req.headers, body };
    server.requests.push(request);
    const answer = server.answer(request, res);
    if (!answer) return;
    const { status = 200, type = 'text/html', headers = {} } = answer;
    res.writeHead(status, { 'Content-Type': type, ...headers }).end(answer.body);
  });
  await once(http.listen(0, '127.0.0.1'), 'listening');
  const server: ModelServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    requests: [],
    answer: () => ({ status: 404, body: '' }),
    async close() {
      http.closeAllConnections();
      http.close();
      await once(http, 'close');
    },
  };
  return server;
}

import http, { type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** A request to the bot service, whole. */
export interface ServiceRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  /** One character for each byte. */
  readonly body: string;
}

/** A JSON answer in the place of the service's. */
export interface OwnAnswer {
  readonly status: number;
  readonly json?: unknown;
}

export type Alter = (request: ServiceRequest) => ServiceRequest | OwnAnswer;

/** Whether the request is one for `line`, which is `METHOD path` below the path of a bot. */
export const isOf = ({ method, url }: Pick<ServiceRequest, 'method' | 'url'>, line: string) =>
  `${method} ${/\/bot-provider\/[^/]+\/([^?]*)/.exec(url)?.[1]}` === line;

/** Answers `line` in the place of the service. */
export const answering =
  (line: string, answer: OwnAnswer): Alter =>
  (request) =>
    isOf(request, line) ? answer : request;

/** Changes each id of a conversation, wherever it stands in a request. */
export const withIds =
  (change: (id: string) => string): Alter =>
  ({ url, body, ...request }) => ({
    ...request,
    url: url.replace(/(?<=custom_channel_id=)[^&]*/, change),
    body: body.replace(/(?<="customChannelId"(?::"|\r\n\r\n))[^"\r]*/, change),
  });

/** Starts a bot service that is the one at `target`, but for what `alter` changes or answers. It records all requests. */
export async function startAlteringService(target: URL, alter: Alter = (request) => request) {
  const requests: ServiceRequest[] = [];
  const server = http.createServer(async (req, res) => {
    const { method = '', url = '', headers } = req;
    const body = (await buffer(req)).toString('latin1');
    const altered = alter({ method, url, headers, body });
    requests.push({ method, url, headers, body });
    if ('status' in altered) return sendOwn(res, altered);
    forward(target, altered, (answer) => {
      res.writeHead(answer.statusCode ?? 0, answer.headers).flushHeaders();
      answer.pipe(res);
      res.once('close', () => answer.destroy());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function sendOwn(res: ServerResponse, { status, json }: OwnAnswer): void {
  res.writeHead(status, json === undefined ? {} : { 'Content-Type': 'application/json' });
  res.end(json === undefined ? undefined : JSON.stringify(json));
}

function forward(target: URL, request: ServiceRequest, onAnswer: (answer: IncomingMessage) => void): void {
  const { method, url, headers, body } = request;
  const bytes = Buffer.from(body, 'latin1');
  const { 'transfer-encoding': _, ...others } = headers;
  const onward = http.request(new URL(url, target), {
    method,
    headers: { ...others, 'content-length': bytes.length },
  });
  onward.on('response', onAnswer).on('error', () => {});
  onward.end(bytes);
}

import { type ClientHttp2Session, connect, type IncomingHttpHeaders } from 'node:http2';

/** A whole answer over HTTP/2. */
export interface BrowserAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface BrowserRequest {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** Called with each piece of the answer's body as it comes. */
  readonly onData?: (text: string) => void;
}

/** Acts like a page in a browser: one HTTP/2 connection to its origin, and cookies. */
export interface Browser {
  /** POSTs JSON, or GETs if there is no body. Rejects if the answer is cut. */
  send(path: string, request?: BrowserRequest): Promise<BrowserAnswer>;
  close(): void;
}

/** Opens a connection to `origin`, which must show `certificate`. */
export function openBrowser(origin: string, certificate: string): Browser {
  const open = () => {
    const opened = connect(origin, { ca: certificate });
    // A request that waits gets the error; without one, it is no failure.
    return opened.on('error', () => {});
  };
  let session = open();
  const cookies = new Map<string, string>();
  return {
    async send(path, request = {}) {
      const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
      // A server may close a connection after a number of requests.
      if (session.closed || session.destroyed) session = open();
      const answer = await exchange(session, path, {
        ...request,
        headers: { origin, ...(cookie ? { cookie } : {}), ...request.headers },
      });
      for (const set of answer.headers['set-cookie'] ?? []) {
        const [name = '', value = ''] = (set.split(';', 1)[0] as string).split(/=(.*)/s);
        cookies.set(name, value);
      }
      return answer;
    },
    close: () => session.close(),
  };
}

function exchange(session: ClientHttp2Session, path: string, { headers, body, onData }: BrowserRequest) {
  return new Promise<BrowserAnswer>((resolve, reject) => {
    const stream = session.request({
      ':method': body === undefined ? 'GET' : 'POST',
      ':path': path,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    });
    let answered: IncomingHttpHeaders = {};
    let text = '';
    stream.setEncoding('utf8');
    stream.on('response', (received) => {
      answered = received;
    });
    stream.on('data', (piece: string) => {
      text += piece;
      onData?.(piece);
    });
    stream.on('error', reject);
    stream.on('aborted', () => reject(new Error('the answer was cut')));
    stream.on('end', () => resolve({ status: Number(answered[':status']), headers: answered, body: text }));
    stream.end(body);
  });
}

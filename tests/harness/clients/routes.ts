import { PATH_SHAPES } from '../../../src/bots/bot.ts';
import { OPERATIONS, type Operation } from '../../../src/relay/operations/operation-table.ts';
import { CANARY, USER } from '../relay/relay.ts';
import { type Answer, parseAnswer } from './call.ts';
import { operationRequest } from './operation-requests.ts';
import { rawClient } from './raw-client.ts';

/** A route of the relay, and a good request for it. */
export interface Route {
  readonly name: string;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: string;
  readonly type?: string | undefined;
  readonly body: string;
  readonly requestId?: string | undefined;
  /** `probe`: for load balancers; `open`: needs no session; `session`: of a session; `bot`: of a bot. */
  readonly kind: 'probe' | 'open' | 'session' | 'bot';
  readonly operation?: Operation;
  /** Whether pages of other sites are refused. */
  readonly checksOrigin: boolean;
  /** The largest body of JSON, if it takes one. */
  readonly maxJsonBytes?: number | undefined;
}

const plain = { query: '', body: '', checksOrigin: false };
const credentials = JSON.stringify({ username: USER.name, password: CANARY.password });

/** Every route of a relay with passwords whose messages have at most `maxBodyBytes`. */
export function routesOf(maxBodyBytes: number): Route[] {
  const own: Omit<Route, 'name'>[] = [
    { ...plain, method: 'GET', path: '/healthz', kind: 'probe' },
    { ...plain, method: 'GET', path: '/readyz', kind: 'probe' },
    { ...plain, method: 'GET', path: '/auth/session', kind: 'session' },
    { ...plain, method: 'POST', path: '/auth/logout', kind: 'session', checksOrigin: true },
    { ...plain, method: 'POST', path: '/auth/logout-all', kind: 'session', checksOrigin: true },
    {
      ...{ method: 'POST', path: '/auth/login', query: '', kind: 'open', checksOrigin: true },
      ...{ type: 'application/json', body: credentials, maxJsonBytes: 4096 },
    },
  ];
  const bots = OPERATIONS.flatMap((operation) =>
    PATH_SHAPES.map((shape): Omit<Route, 'name'> => {
      const { path: target, headers, body = '' } = operationRequest(operation, { shape });
      const [path = '', query] = target.split('?');
      const largest = operation.carriedBy === 'message' ? maxBodyBytes : operation.maxBodyBytes;
      return {
        ...{ method: operation.method, path, query: query === undefined ? '' : `?${query}` },
        ...{
          type: headers['Content-Type'],
          requestId: headers['X-Request-Id'],
          body: String(body),
          operation,
          kind: 'bot',
          checksOrigin: true,
        },
        maxJsonBytes: operation.channel === 'json' ? largest : undefined,
      };
    }),
  );
  return [...own, ...bots].map((route) => ({ ...route, name: `${route.method} ${route.path}` }));
}

/** What is other than in a good request. Header lines replace those of the same name; undefined leaves one out. */
export interface Change {
  readonly method?: string;
  readonly path?: string;
  readonly query?: string;
  readonly version?: string;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Whole header lines, which are added as they are. */
  readonly lines?: readonly string[];
  readonly body?: string | Buffer;
}

/** The bytes of a request to `route` with this change, which ends its connection. */
export function bytesOf(route: Route, cookie: string, change: Change = {}): Buffer {
  const { method = route.method, path = route.path, query = route.query, version = 'HTTP/1.1' } = change;
  const body = Buffer.from((change.body ?? route.body) as string);
  const headers: Record<string, string | undefined> = {
    Host: 'app.example.com',
    Cookie: cookie,
    'Content-Type': route.type,
    'X-Request-Id': route.requestId,
    'Content-Length': body.length > 0 || method !== 'GET' ? String(body.length) : undefined,
    ...change.headers,
  };
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}: ${value}`],
  );
  const head = [
    `${method} ${path}${query} ${version}`,
    ...lines,
    'Connection: close',
    ...(change.lines ?? []),
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`, 'latin1'), body]);
}

/** The first answer to these bytes on a connection of their own, once that is closed, and all that has come. */
export async function answerTo(port: number, bytes: Buffer): Promise<Answer & { readonly text: string }> {
  const client = rawClient(port, bytes);
  await client.closed;
  return { ...parseAnswer(client.text()), text: client.text() };
}

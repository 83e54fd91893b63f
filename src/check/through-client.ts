import { type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import type { Method } from '../relay/operations/operation-table.ts';
import type { Secret } from '../secret.ts';
import { hostOf } from './connect-to.ts';
import { codeOf } from './failure-advice.ts';

/** A whole answer from the public address. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface ThroughCall {
  readonly method: Method;
  /** The path with the query. */
  readonly path: string;
  readonly cookie?: string | undefined;
  readonly json?: Buffer;
  /** A body of another media type. */
  readonly body?: { readonly type: string; readonly bytes: Buffer } | undefined;
  /** Additional headers; they replace the usual ones. */
  readonly headers?: Readonly<Record<string, string>>;
  /** How long the headers of the response may take, in ms. */
  readonly timeoutMs?: number;
}

/** An answer that has begun. */
export interface Opened {
  readonly response: IncomingMessage;
  /** When the request was sent, by `performance.now()`. */
  readonly sentAt: number;
}

/** Calls the relay at its public address as a page does. Each call has a connection of its own. */
export interface ThroughClient {
  /** Resolves with the whole answer. @throws Error with a code as its message, if there is no answer */
  call(call: ThroughCall): Promise<Answer>;
  /** Resolves when the answer begins. @throws like `call` */
  open(call: ThroughCall): Promise<Opened>;
}

const TIMEOUT_MS = 10_000;
/** More than the relay passes on of an operation's JSON. */
const MAX_ANSWER_BYTES = 2 * 1024 * 1024;

/** Makes the client that calls the relay at `through`. */
export function throughClient(through: Readonly<URL>): ThroughClient {
  const { origin, protocol } = through;
  const request = protocol === 'https:' ? requestHttps : requestHttp;
  // Without it, Node.js would ask for the certificate of the name in `Host`.
  const servername = isIP(hostOf(through)) === 0 ? hostOf(through) : '';

  function open(call: ThroughCall): Promise<Opened> {
    const { method, path, cookie, json, timeoutMs = TIMEOUT_MS } = call;
    const body = json ? { type: 'application/json', bytes: json } : call.body;
    const sentAt = performance.now();
    const headers = {
      // As a browser sends it: a load balancer may compress for clients that accept it.
      'Accept-Encoding': 'gzip, deflate, br',
      Accept: '*/*',
      'Sec-Fetch-Site': 'same-origin',
      ...(method !== 'GET' && { Origin: origin }),
      ...(cookie !== undefined && { Cookie: cookie }),
      ...(body && { 'Content-Type': body.type, 'Content-Length': body.bytes.length }),
      ...call.headers,
    };
    return new Promise((resolve, reject) => {
      const outgoing = request(origin + path, { method, headers, agent: false, servername });
      const timer = setTimeout(() => outgoing.destroy(timedOut()), timeoutMs);
      outgoing.on('response', (response) => {
        clearTimeout(timer);
        resolve({ response, sentAt });
      });
      outgoing.on('error', (error) => {
        clearTimeout(timer);
        reject(new Error(codeOf(error)));
      });
      outgoing.end(body?.bytes);
    });
  }

  return {
    open,
    async call(call) {
      const { response } = await open(call);
      return { ...headOf(response), text: await textOf(response) };
    },
  };
}

/** The status and headers of a response. */
export function headOf({ statusCode = 0, headers }: IncomingMessage): Omit<Answer, 'text'> {
  return { status: statusCode, headers };
}

/** The body: up to 2 MiB, for up to 10 s, or what came before it broke off. */
export function textOf(response: IncomingMessage): Promise<string> {
  return readUntil(response, () => false);
}

/** The same of a stream, until a first event has come: the rest is not read. */
export function firstEventOf(response: IncomingMessage): Promise<string> {
  return readUntil(response, (chunks) => Buffer.concat(chunks).includes('\n\n'));
}

async function readUntil(
  response: IncomingMessage,
  isEnough: (chunks: readonly Buffer[]) => boolean,
): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const timer = setTimeout(() => response.destroy(), TIMEOUT_MS);
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_ANSWER_BYTES || isEnough(chunks)) break;
    }
  } catch {
    // The part that came is returned.
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The body of a sign-in. Only here does the check open the password. */
export function credentials(username: string, password: Secret): Buffer {
  return Buffer.from(JSON.stringify({ username, password: password.open() }));
}

function timedOut(): Error {
  return Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' });
}

import { type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import type { Secret } from '../secret.ts';
import { hostOf } from './connect-to.ts';
import { codeOf } from './failure-advice.ts';

/** A whole answer that came through the load balancer. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface ThroughCall {
  readonly method: 'GET' | 'POST';
  /** From the origin on. */
  readonly path: string;
  readonly cookie?: string | undefined;
  readonly json?: Buffer;
  /** Others, or in place of those that are sent anyway. */
  readonly headers?: Readonly<Record<string, string>>;
  /** How long the response's headers may take, in ms. */
  readonly timeoutMs?: number;
}

/** An answer that has begun. */
export interface Opened {
  readonly response: IncomingMessage;
  /** When the request was sent, by `performance.now()`. */
  readonly sentAt: number;
}

/** Calls the relay by its public address as a page does, each time over a connection of its own. */
export interface ThroughClient {
  /** Resolves with the answer when it is whole. @throws Error whose message is a code, if none comes */
  call(call: ThroughCall): Promise<Answer>;
  /** Resolves when the answer begins. @throws like `call` */
  open(call: ThroughCall): Promise<Opened>;
}

const PATIENCE_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;

export function throughClient(through: Readonly<URL>): ThroughClient {
  const { origin, protocol } = through;
  const request = protocol === 'https:' ? requestHttps : requestHttp;
  // Else Node.js would ask for the certificate of whatever `Host` says.
  const servername = isIP(hostOf(through)) === 0 ? hostOf(through) : '';

  function open(call: ThroughCall): Promise<Opened> {
    const { method, path, cookie, json, timeoutMs = PATIENCE_MS } = call;
    const sentAt = performance.now();
    const headers = {
      // What a browser says: a load balancer may compress for those who take it.
      'Accept-Encoding': 'gzip, deflate, br',
      Accept: '*/*',
      'Sec-Fetch-Site': 'same-origin',
      ...(method === 'POST' && { Origin: origin }),
      ...(cookie !== undefined && { Cookie: cookie }),
      ...(json && { 'Content-Type': 'application/json', 'Content-Length': json.length }),
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
      outgoing.end(json);
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

/** What a response says before its body. */
export function headOf({ statusCode = 0, headers }: IncomingMessage): Omit<Answer, 'text'> {
  return { status: statusCode, headers };
}

/** The body, up to 64 KiB and for 10 seconds at most; what there is of it if it breaks off. */
export async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const timer = setTimeout(() => response.destroy(), PATIENCE_MS);
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_ANSWER_BYTES) break;
    }
  } catch {
    // What is missing shows in what there is.
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The body of a sign-in, the only place of the check where the password is opened. */
export function credentials(username: string, password: Secret): Buffer {
  return Buffer.from(JSON.stringify({ username, password: password.open() }));
}

function timedOut(): Error {
  return Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' });
}

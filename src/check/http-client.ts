import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Secret } from '../secret.ts';
import { codeOf } from './advice.ts';
import type { Answer } from './answers.ts';

export interface Call {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** The path with the query. */
  readonly path: string;
  readonly cookie?: string | undefined;
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

const TIMEOUT_MS = 10_000;
/** More than the relay passes on of an operation's JSON. */
const MAX_ANSWER_BYTES = 2 * 1024 * 1024;

/** Calls a server, each time on a new connection. Follows no redirect. */
export class HttpClient {
  readonly #url: Readonly<URL>;
  readonly #headers: Readonly<Record<string, string>>;

  /** Calls the origin of `url`, with `headers` in each request. */
  constructor(url: Readonly<URL>, headers: Readonly<Record<string, string>>) {
    this.#url = url;
    this.#headers = headers;
  }

  /** Resolves with the whole answer. @throws Error with a code as its message, if there is no answer */
  async call(call: Call): Promise<Answer> {
    return wholeAnswer((await this.open(call)).response);
  }

  /** Resolves when the answer begins. @throws like `call` */
  open({ method, path, cookie, body, headers, timeoutMs = TIMEOUT_MS }: Call): Promise<Opened> {
    const { origin, protocol } = this.#url;
    const sentAt = performance.now();
    const allHeaders = {
      ...this.#headers,
      ...(cookie !== undefined && { Cookie: cookie }),
      ...(body && { 'Content-Type': body.type, 'Content-Length': body.bytes.length }),
      ...headers,
    };
    const options = { method, headers: allHeaders, agent: false };
    return new Promise((resolve, reject) => {
      const outgoing = (protocol === 'https:' ? requestHttps : requestHttp)(origin + path, options);
      const timer = setTimeout(() => outgoing.destroy(TIMED_OUT), timeoutMs);
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
}

/** The error of what has taken too long. */
export const TIMED_OUT = Object.assign(new Error('too late'), { code: 'ETIMEDOUT' });

/** Whether an answer is a stream of events. */
export function isStream({ statusCode, headers }: IncomingMessage): boolean {
  return statusCode === 200 && /^text\/event-stream\b/i.test(headers['content-type'] ?? '');
}

/** An answer with its body: up to 2 MiB, for up to 10 s, or what came before it broke off. */
export async function wholeAnswer(response: IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const timer = setTimeout(() => response.destroy(), TIMEOUT_MS);
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_ANSWER_BYTES) break;
    }
  } catch {
    // The part that came is returned.
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
  const { statusCode: status = 0, headers } = response;
  return { status, headers, text: Buffer.concat(chunks).toString('utf8') };
}

/** A body of JSON. */
export function jsonBody(value: object): NonNullable<Call['body']> {
  return { type: 'application/json', bytes: Buffer.from(JSON.stringify(value)) };
}

/** The body of a sign-in. Only here does the check open the password. */
export function credentials(username: string, password: Secret): NonNullable<Call['body']> {
  return jsonBody({ username, password: password.open() });
}

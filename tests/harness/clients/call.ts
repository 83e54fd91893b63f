import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';
import { expect } from '@jest/globals';
import { type ProblemCode, type ProblemDocument, problemType } from '../../../src/errors.ts';
import { SECRETS } from '../relay/secrets.ts';

/** A whole answer with its body as text. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Call {
  readonly method?: string;
  /** Sent unchanged, also those that `fetch` would change or refuse. */
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
}

/** Sends one request over a new connection. Resolves with the whole answer; rejects if it is cut or shows a secret. */
export function call(port: number, path: string, { method = 'GET', headers = {}, body }: Call = {}) {
  return new Promise<Answer>((resolve, reject) => {
    const outgoing = request({ port, host: '127.0.0.1', path, method, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const { headers, statusCode = 0 } = response;
        const body = Buffer.concat(chunks).toString('utf8');
        const secret = SECRETS.find((one) => (JSON.stringify(headers) + body).includes(one));
        if (secret === undefined) resolve({ status: statusCode, headers, body });
        else reject(new Error(`a secret has shown in an answer: ${secret}`));
      });
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** The first answer in what a raw client has received; its header names in lower case. */
export function parseAnswer(text: string): Answer {
  const headEnd = text.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = text.slice(0, headEnd).split('\r\n');
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const length = Number(headers['content-length'] ?? 0);
  return {
    status: Number(statusLine.split(' ')[1]),
    headers,
    body: text.slice(headEnd + 4, headEnd + 4 + length),
  };
}

/** Expects the answer of `/auth/session` to somebody who is not signed in. */
export function expectNobody(answer: Answer): void {
  expect(answer).toMatchObject({ status: 200, body: '{"user":null}' });
}

/** Whether this is the answer of `/auth/session` to somebody who is signed in. */
export function isSignedIn({ status, body }: Answer): boolean {
  return status === 200 && JSON.parse(body).user !== null;
}

/** Expects a problem document with exactly the members that the documents name, and those of `more`; returns it. */
export function expectProblem(
  answer: Answer,
  status: number,
  code: ProblemCode,
  more: Partial<ProblemDocument> = {},
): ProblemDocument {
  expect(answer.headers['content-type']).toBe('application/problem+json');
  const problem = JSON.parse(answer.body) as ProblemDocument;
  expect({ ...problem, answered: answer.status }).toEqual({
    answered: status,
    type: problemType(code),
    title: expect.stringMatching(/./),
    status,
    code,
    detail: expect.stringMatching(/./),
    requestId: expect.stringMatching(/^[A-Za-z0-9._-]{8,128}$/),
    retryable: expect.anything(),
    ...more,
  });
  expect(answer.headers['x-request-id']).toBe(problem.requestId);
  expect(answer.headers['cache-control']).toBe('no-store');
  return problem;
}

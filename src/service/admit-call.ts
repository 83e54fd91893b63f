import type { IncomingMessage } from 'node:http';
import type { Brain } from './brains/steps.ts';
import type { Operations } from './operations.ts';
import { Refusal } from './wire/answers.ts';
import type { Operation, Service, ServiceCall } from './wire/service-call.ts';

/** Both shapes of a bot's path, with what stands below it, and the query. */
const PATH = /^(?:\/generic)?\/ns\/([^/?]+)\/bot-provider\/([^/?]+)\/([^?]+)(?:\?(.*))?$/;
const SANDBOX = /^sandbox\/([^/]+)\//;

export interface Admission {
  readonly service: Service;
  readonly operations: Operations;
  /** The id of the project that an enabled key is of. */
  readonly projectOfKey: (key: string) => string | undefined;
  /** What answers for a bot, if the project has such a bot. */
  readonly brainOf: (projectId: string, namespace: string, name: string) => Brain | undefined;
  readonly admit: (endpoint: string) => boolean;
}

/**
 * Finds the operation of a request and admits it: its key names the project, and the bot must be one of that.
 * `message/sse` has the budget of the bot, and each other path its own.
 * @throws Refusal `NOT_FOUND`, `INVALID_API_KEY`, `BOT_NOT_FOUND` or `RATE_LIMITED`
 */
export function admitCall(
  { method, url = '', headers }: IncomingMessage,
  { service, operations, projectOfKey, brainOf, admit }: Admission,
): Omit<ServiceCall, 'req' | 'res'> & { readonly operation: Operation } {
  const [, ...parts] = PATH.exec(url) ?? [];
  const [namespace = '', botProviderName = '', below = ''] = parts.map((part = '') => part);
  const path = below.replace(SANDBOX, 'sandbox/:sandbox/');
  const name = `${method} ${path}`;
  const operation = Object.hasOwn(operations, name) ? operations[name] : undefined;
  if (!operation) throw new Refusal('NOT_FOUND');
  const key = headers['x-api-key'];
  const projectId = typeof key === 'string' ? projectOfKey(key) : undefined;
  if (projectId === undefined) throw new Refusal('INVALID_API_KEY');
  const bot = { namespace: decoded(namespace), botProviderName: decoded(botProviderName) };
  const endpoint = `${bot.namespace}/${bot.botProviderName}`;
  const brain = brainOf(projectId, bot.namespace, bot.botProviderName);
  if (!brain) throw new Refusal('BOT_NOT_FOUND');
  if (!admit(path === 'message/sse' ? endpoint : `${endpoint}/${path}`)) throw new Refusal('RATE_LIMITED');
  const sandbox = decoded(SANDBOX.exec(below)?.[1] ?? '');
  const query = new URLSearchParams(parts[3]);
  return { ...bot, service, projectId, endpoint, brain, query, sandbox, operation };
}

const WINDOW_MS = 1000;

/** Makes the function that admits at most `limit` requests of one endpoint in any window of `WINDOW_MS`. */
export function endpointLimit(limit: number): (endpoint: string) => boolean {
  const admissions = new Map<string, number[]>();
  return (endpoint) => {
    const now = performance.now();
    const recent = (admissions.get(endpoint) ?? []).filter((at) => at > now - WINDOW_MS);
    const admitted = recent.length < limit;
    if (admitted) recent.push(now);
    admissions.set(endpoint, recent);
    return admitted;
  };
}

/** Decodes a path segment. Returns an empty text, which names nothing, if its percent-encoding is broken. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return '';
  }
}

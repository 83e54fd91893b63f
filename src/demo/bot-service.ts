import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { ANSWERS, type Message, type Pace, RESUMABLE, type Step } from './bot-answers.ts';
import { endpointLimit } from './endpoint-limit.ts';
import { type OpenRuns, openRuns, SUSPENDED } from './open-runs.ts';

const PATH = /^\/generic\/ns\/([^/?]+)\/bot-provider\/([^/?]+)\/message\/sse(?:\?.*)?$/;
const SUSPEND = /^(?:\/generic)?\/ns\/([^/?]+)\/bot-provider\/([^/?]+)\/message\/suspend(?:\?(.*))?$/;
const LIMIT = 5;
const MAX_EXECUTION_MS = 180_000;

export interface BotServiceOptions {
  /** Keys that the service accepts. */
  readonly keys: readonly string[];
  readonly pace?: Partial<Pace>;
  /** The limit on the execution of one request, in ms. */
  readonly maxExecutionMs?: number;
  /** Requests that one endpoint takes in a second. */
  readonly limit?: number;
  /** Where to listen; a free loopback port if not given. */
  readonly host?: string;
  readonly port?: number;
}

export interface BotService {
  readonly url: URL;
  /** Makes a key invalid, as an operator does at the service's console. */
  disableKey(key: string): void;
  /** Makes a key valid. */
  enableKey(key: string): void;
  close(): Promise<void>;
}

/**
 * A double of the hosted bot service: the documented path and `message/suspend`, `X-API-KEY` with several valid keys, 5 requests
 * per second for each endpoint, 3 minutes and 30 steps per request, and an event stream in the shape that is
 * seen in the field, in which words arrive over time.
 * @throws the system's error if the address cannot be had
 */
export async function startBotService({
  keys,
  pace = {},
  maxExecutionMs = MAX_EXECUTION_MS,
  limit = LIMIT,
  host = '127.0.0.1',
  port = 0,
}: BotServiceOptions): Promise<BotService> {
  const valid = new Set(keys);
  const admit = endpointLimit(limit);
  const speed: Pace = { wordMs: 60, silenceMs: 40_000, ...pace };
  const runs = openRuns();
  const server = createServer((req, res) => {
    answer(req, res, { valid, admit, speed, maxExecutionMs, runs }).catch(() => res.destroy());
  });
  server.listen(port, host);
  await once(server, 'listening');
  return {
    url: new URL(`http://${host}:${(server.address() as AddressInfo).port}`),
    disableKey: (key) => valid.delete(key),
    enableKey: (key) => valid.add(key),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

interface Service {
  readonly valid: ReadonlySet<string>;
  readonly admit: (endpoint: string) => boolean;
  readonly speed: Pace;
  readonly maxExecutionMs: number;
  readonly runs: OpenRuns;
}

async function answer(req: IncomingMessage, res: ServerResponse, service: Service) {
  const { valid, admit, runs } = service;
  const suspend = SUSPEND.exec(req.url ?? '');
  const path = suspend ?? PATH.exec(req.url ?? '');
  if (!path || req.method !== 'POST') return refuse(res, 'NOT_FOUND');
  const key = req.headers['x-api-key'];
  if (typeof key !== 'string' || !valid.has(key)) return refuse(res, 'INVALID_API_KEY');
  const [namespace = '', botProviderName = ''] = path.slice(1, 3).map(decoded);
  const endpoint = `${namespace}/${botProviderName}`;
  if (!Object.hasOwn(ANSWERS, endpoint)) return refuse(res, 'BOT_NOT_FOUND');
  const budget = suspend ? `${endpoint}/message/suspend` : endpoint;
  if (!admit(budget)) return refuse(res, 'RATE_LIMITED', { 'Retry-After': '1' });
  if (suspend) return suspendRun(res, { runs, endpoint, query: new URLSearchParams(suspend[3]) });
  const message = await readMessage(req);
  if (!message) return refuse(res, 'INVALID_MESSAGE');
  const lastEventId = RESUMABLE.has(endpoint) ? req.headers['last-event-id'] : undefined;
  await run(res, { namespace, botProviderName, message, seen: parseEventId(lastEventId), ...service });
}

/** Stops what runs in a channel; the end of each run arrives on its own stream. */
function suspendRun(
  res: ServerResponse,
  { runs, endpoint, query }: { runs: OpenRuns; endpoint: string; query: URLSearchParams },
): void {
  const channelId = query.get('custom_channel_id');
  const runId = query.get('request_id') ?? undefined;
  if (!channelId) refuse(res, 'INVALID_CHANNEL');
  else if (!runs.suspend({ endpoint, channelId, runId })) refuse(res, 'NO_RUN');
  else {
    res.writeHead(200, { 'Content-Type': 'application/json' });
    res.end('{"suspended":true}');
  }
}

/** A path segment decoded; empty, which names no bot, if its percent-encoding is broken. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return '';
  }
}

async function readMessage(req: IncomingMessage): Promise<Message | undefined> {
  if (!req.headers['content-type']?.startsWith('application/json')) return undefined;
  try {
    const message: unknown = JSON.parse((await buffer(req)).toString('utf8'));
    return typeof message === 'object' && message !== null ? message : undefined;
  } catch {
    return undefined;
  }
}

interface Run extends Pick<Service, 'speed' | 'maxExecutionMs' | 'runs'> {
  readonly namespace: string;
  readonly botProviderName: string;
  readonly message: Message;
  /** The last event that the client has seen of this run, if it resumes one. */
  readonly seen: EventId | undefined;
}

interface EventId {
  readonly runId: string;
  readonly number: number;
}

function parseEventId(header: string | string[] | undefined): EventId | undefined {
  const [, runId, number] = /^([0-9a-f-]{36})\.(\d{1,6})$/.exec(String(header)) ?? [];
  return runId === undefined ? undefined : { runId, number: Number(number) };
}

/** Answers with the events of one run, until it ends, fails, takes too long or the client leaves. */
async function run(res: ServerResponse, run: Run): Promise<void> {
  const stop = new AbortController();
  const deadline = setTimeout(() => stop.abort(), run.maxExecutionMs);
  res.once('close', () => stop.abort());
  const runId = run.seen?.runId ?? randomUUID();
  const { customChannelId } = run.message;
  const endpoint = `${run.namespace}/${run.botProviderName}`;
  if (typeof customChannelId === 'string')
    run.runs.add({ endpoint, channelId: customChannelId, runId }, stop);
  res.writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Trace-Id': runId });
  const answer = ANSWERS[endpoint] as (typeof ANSWERS)[string];
  const steps = answer(run.message, run.speed, stop.signal);
  try {
    const breakOff = () => run.seen === undefined && res.destroy();
    const isSuspended = () => stop.signal.reason === SUSPENDED;
    const { namespace } = run;
    await sendEvents(steps, { send: eventSender(res, run, runId), breakOff, namespace, isSuspended });
  } finally {
    run.runs.remove(stop);
    clearTimeout(deadline);
  }
  res.end();
}

type Send = (eventType: string, fact: object) => void;

/** Sends events in the field's shape; of a run that can be resumed, with ids and without what was seen. */
function eventSender(
  res: ServerResponse,
  { namespace, botProviderName, message, seen }: Run,
  runId: string,
): Send {
  const customChannelId = message.customChannelId ?? null;
  const resumable = RESUMABLE.has(`${namespace}/${botProviderName}`);
  let number = 0;
  return (eventType, fact) => {
    number++;
    if (seen && number <= seen.number) return;
    const event = { eventType, requestId: runId, namespace, botProviderName, customChannelId, fact };
    const id = resumable ? `id: ${runId}.${number}\n` : '';
    res.write(`${id}event: ${eventType}\ndata: ${JSON.stringify(event)}\n\n`);
  };
}

interface Sending {
  readonly send: Send;
  readonly breakOff: () => void;
  readonly namespace: string;
  readonly isSuspended: () => boolean;
}

async function sendEvents(
  steps: AsyncIterable<Step>,
  { send, breakOff, namespace, isSuspended }: Sending,
): Promise<void> {
  const messageId = randomUUID();
  let text = '';
  send('asgard.run.init', { runInit: {} });
  send('asgard.message.start', { messageStart: { message: { messageId } } });
  try {
    for await (const step of steps) {
      if ('error' in step) return send('asgard.run.error', runError(step.error, namespace));
      if ('breakOff' in step) breakOff();
      else {
        text += step.say;
        send('asgard.message.delta', { messageDelta: { message: { messageId, text: step.say } } });
      }
    }
  } catch {
    const message = 'The run took longer than it may.';
    if (!isSuspended())
      return send('asgard.run.error', runError({ code: 'EXECUTION_TIMEOUT', message }, namespace));
  }
  send('asgard.message.complete', { messageComplete: { message: { messageId, text } } });
  send('asgard.run.done', { runDone: {} });
}

function runError(error: { code: string; message: string }, namespace: string) {
  const location = { namespace, workflowName: 'demo', processorName: 'answer', processorType: 'DEMO' };
  return { runError: { error: { ...error, inner: '', location } } };
}

/** The statuses with which the service refuses, by the codes in its answers. */
const REFUSALS = {
  INVALID_MESSAGE: 400,
  INVALID_CHANNEL: 400,
  INVALID_API_KEY: 401,
  NOT_FOUND: 404,
  BOT_NOT_FOUND: 404,
  NO_RUN: 404,
  RATE_LIMITED: 429,
} as const;

function refuse(res: ServerResponse, code: keyof typeof REFUSALS, headers?: Record<string, string>): void {
  res.writeHead(REFUSALS[code], { 'Content-Type': 'application/json', ...headers });
  res.end(JSON.stringify({ error: { code, message: `The bot service answered ${code}.` } }));
}

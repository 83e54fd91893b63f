/// <reference lib="dom" />
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';
import { afterAll, beforeAll, expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import {
  type BreakingService,
  ROWS,
  type Row,
  startBreakingService,
} from '../harness/service/breaking-service.ts';

const chromium = oneChromium({ keepsTabs: true });

/** A browser's own parser can only GET: each GET becomes a message, or a resumption if the browser asks for one. */
async function sendAsMessage(
  service: BreakingService,
  { headers }: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  const lastEventId = headers['last-event-id'];
  const answer = await service.relay.send(service.cookie, {
    headers: { ...(lastEventId !== undefined && { 'Last-Event-ID': String(lastEventId) }) },
  });
  res.writeHead(answer.status, { 'Content-Type': answer.headers.get('Content-Type') ?? '' });
  // A cut of the relay becomes a cut here.
  await pipeline(Readable.fromWeb(answer.body as ReadableStream), res).catch(() => {});
}

/** All events that the parser hands to the page, until it does not connect again or the run is over. */
const eventsAt = (page: Page, path: string) =>
  page.evaluate(
    (path) =>
      new Promise<{ eventType: string; n?: number }[]>((resolve) => {
        const seen: { eventType: string; n?: number }[] = [];
        const source = new EventSource(path);
        const take = (event: Event) => {
          // A connection that is lost is an event `error` without data; the browser then connects again.
          const { data } = event as MessageEvent<string | undefined>;
          if (data !== undefined) seen.push(JSON.parse(data));
          const isOver = /asgard\.run\.(done|error)/.test(data ?? '');
          if (!isOver && source.readyState !== source.CLOSED) return;
          source.close();
          resolve(seen);
        };
        source.addEventListener('message', take);
        source.addEventListener('error', take);
      }),
    path,
  );

/** The services of the rows, by the path of their streams. All streams are of one page. */
const services = new Map<string, BreakingService>();
let front: FakeLoadBalancer;
let page: Page;

async function hasOneRun(row: Row): Promise<void> {
  const service = await startBreakingService(row);
  const path = `/stream/${ROWS.indexOf(row)}`;
  services.set(path, service);
  try {
    const events = await eventsAt(page, path);
    expect(service.runs()).toBe(1);
    expect(events.at(-1)?.eventType).toBe(row.isWhole ? 'asgard.run.done' : 'asgard.run.error');
    const numbers = events.flatMap(({ n }) => n ?? []);
    if (row.isWhole) expect(numbers).toEqual([1, 2]);
    expect(new Set(numbers).size).toBe(numbers.length);
  } finally {
    await service.close();
  }
}

describeInChromium('the parser of a browser, which connects again by itself,', () => {
  beforeAll(async () => {
    front = await startFakeLoadBalancer({
      answer(req, res) {
        const service = services.get(req.url ?? '');
        if (service) void sendAsMessage(service, req, res);
        else res.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>Page</title>');
        return true;
      },
    });
    ({ page } = await chromium.open(front.url));
  });
  afterAll(() => front.close());

  testSideBySide(
    ROWS.map((row) => [
      `has one run, which looks complete only if it is, when the service ${row.what}`,
      () => hasOneRun(row),
    ]),
    5,
  );
});

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../support/call.ts';
import { type Pair, startPair } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { BOT_PATH, MESSAGE } from '../support/relay.ts';

const OWN = 'http://app.example.com';
const ALLOWED = 'https://partner.example.org';
const SITES = [
  'same-origin',
  'same-site',
  'cross-site',
  'none',
  undefined,
  'sideways',
  'same-origin, none',
  '',
];
const ORIGINS = [
  OWN,
  ALLOWED,
  'https://other.example.net',
  'null',
  'https://app.example.evil',
  'https://app.example.com.evil.net',
  'https://app.example.com',
  'http://app.example.com:8080',
  'http://evil.app.example.com',
  `${OWN}/`,
  `${OWN}, ${ALLOWED}`,
  '',
  undefined,
];
const TABLE = SITES.flatMap((site) => ORIGINS.map((origin) => [site, origin] as const));

/** The rule as it is written down, said in another way than the code says it. */
function passes(site: string | undefined, origin: string | undefined): boolean {
  if (['same-origin', 'none'].includes(site ?? 'missing')) return true;
  if (origin === OWN || origin === ALLOWED) return true;
  return site === undefined && origin === undefined;
}

let pair: Pair;
beforeAll(async () => {
  pair = await startPair((socket) => socket.write(wholeStream('data: 1\n\n')), { ALLOWED_ORIGINS: ALLOWED });
});
afterAll(() => pair.close());

function post(path: string, site: string | undefined, origin: string | undefined, more: object, body = '') {
  return call(pair.relay.port, path, {
    method: 'POST',
    body,
    headers: {
      ...(site === undefined ? {} : { 'Sec-Fetch-Site': site }),
      ...(origin === undefined ? {} : { Origin: origin }),
      ...more,
    },
  });
}

describe.each(TABLE)('Sec-Fetch-Site %j with Origin %j', (site, origin) => {
  const pass = passes(site, origin);

  test(`${pass ? 'sends' : 'refuses'} the message (G1)`, async () => {
    const before = pair.upstream.requests.length;
    const headers = { Cookie: pair.cookie, 'Content-Type': 'application/json' };
    const answer = await post(BOT_PATH, site, origin, headers, MESSAGE);
    if (pass) expect(answer).toMatchObject({ status: 200, body: 'data: 1\n\n' });
    else expectProblem(answer, 403, 'cross_site_request');
    expect(pair.upstream.requests.length - before).toBe(pass ? 1 : 0);
  });

  // What passes meets the next refusal: no need to sign in or out a hundred times.
  test(`${pass ? 'passes' : 'refuses'} the login (G1)`, async () => {
    const answer = await post('/auth/login', site, origin, { 'Content-Type': 'text/plain' });
    if (pass) expectProblem(answer, 415, 'unsupported_media_type');
    else expectProblem(answer, 403, 'cross_site_request');
  });

  test(`${pass ? 'passes' : 'refuses'} the logouts (G1)`, async () => {
    for (const path of ['/auth/logout', '/auth/logout-all']) {
      const answer = await post(path, site, origin, pass ? {} : { Cookie: pair.cookie });
      if (pass) expectProblem(answer, 401, 'unauthenticated');
      else expectProblem(answer, 403, 'cross_site_request');
    }
  });
});

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import {
  ALLOWED_ORIGIN,
  ORIGIN_TABLE,
  originHeaders,
  passesOriginCheck,
} from '../harness/clients/origin-table.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    ALLOWED_ORIGINS: ALLOWED_ORIGIN,
  });
});
afterAll(() => pair.close());

function post(path: string, site: string | undefined, origin: string | undefined, more: object, body = '') {
  return call(pair.relay.port, path, {
    method: 'POST',
    body,
    headers: { ...originHeaders(site, origin), ...more },
  });
}

describe.each(ORIGIN_TABLE)('Sec-Fetch-Site %j with Origin %j', (site, origin) => {
  const pass = passesOriginCheck(site, origin);

  test(`${pass ? 'sends' : 'refuses'} the message`, async () => {
    const before = pair.upstream.requests.length;
    const headers = { Cookie: pair.cookie, 'Content-Type': 'application/json' };
    const answer = await post(BOT_PATH, site, origin, headers, MESSAGE);
    if (pass) expect(answer).toMatchObject({ status: 200, body: 'data: 1\n\n' });
    else expectProblem(answer, 403, 'cross_site_request');
    expect(pair.upstream.requests.length - before).toBe(pass ? 1 : 0);
  });

  // A request that passes gets the next refusal, so that the test need not sign in a hundred times.
  test(`${pass ? 'passes' : 'refuses'} the login`, async () => {
    const answer = await post('/auth/login', site, origin, { 'Content-Type': 'text/plain' });
    if (pass) expectProblem(answer, 415, 'unsupported_media_type');
    else expectProblem(answer, 403, 'cross_site_request');
  });

  test(`${pass ? 'passes' : 'refuses'} the logouts`, async () => {
    for (const path of ['/auth/logout', '/auth/logout-all']) {
      const answer = await post(path, site, origin, pass ? {} : { Cookie: pair.cookie });
      if (pass) expectProblem(answer, 401, 'unauthenticated');
      else expectProblem(answer, 403, 'cross_site_request');
    }
  });
});

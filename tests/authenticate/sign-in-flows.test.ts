import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import express from 'express';
import { EncryptJWT } from 'jose';
import { type SignInFlow, type SignInFlows, signInFlows } from '../../src/authenticate/oidc/sign-in-flows.ts';
import { secret } from '../../src/secret.ts';
import { call } from '../harness/clients/call.ts';
import { Jar } from '../harness/service/identity-provider.ts';

const OURS = secret('canary-session-secret-0123456789-abcdef');
const THEIRS = secret('canary-other-session-secret-fedcba-9876543210');
const MINUTE = 60_000;

let flows: SignInFlows;
let flow: SignInFlow;
let jar: Jar;
let close: () => void;
let port: number;
/** The sign-in that `take` finds. */
let taken: SignInFlow | undefined;

beforeEach(async () => {
  jest.useFakeTimers({
    now: Date.now(),
    doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance'],
  });
  flows = signInFlows({ secrets: [OURS], realm: 'oidc', https: false });
  flow = flows.begin('/chat');
  jar = new Jar();
  const app = express()
    .get('/keep', async (req, res) => {
      await flows.keep(req, res, flow);
      res.end();
    })
    .get('/take', async (req, res) => {
      taken = await flows.take(req, res, (req.query.state as string | undefined) ?? flow.state);
      res.end();
    });
  const server = createServer(app).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  port = (server.address() as AddressInfo).port;
  close = () => server.close();
  await ask('/keep');
});
afterEach(() => {
  jest.useRealTimers();
  close();
});

async function ask(path: string, cookie = jar.header()): Promise<void> {
  taken = undefined;
  const { status, headers } = await call(port, path, { headers: { Cookie: cookie } });
  expect(status).toBe(200);
  jar.takeAll(headers['set-cookie']);
}
const nameOf = ({ state }: SignInFlow) => `bot_relay_sign_in_${state}`;
const cookieOf = (one: SignInFlow) => jar.value(nameOf(one)) as string;

/** Another sign-in of the same browser. */
async function another(): Promise<SignInFlow> {
  const first = flow;
  flow = flows.begin('/other');
  await ask('/keep');
  const second = flow;
  flow = first;
  return second;
}

describe('a sign-in under way', () => {
  test('is found once with all its values', async () => {
    await ask('/take');
    expect(taken).toMatchObject({ ...flow });
    await ask('/take');
    expect(taken).toBeUndefined();
  });

  test.each(['\xa0', '\t', '=', '"', 'x'])(
    'is not read from a cookie whose name begins with %j, and is found beside such a cookie',
    async (byte) => {
      await ask('/take', `a=b;${byte}${jar.header()}`);
      expect(taken).toBeUndefined();
      await ask('/take', `a=b;${byte}${nameOf(flow)}=bad; ${jar.header()}`);
      expect(taken).toMatchObject({ ...flow });
    },
  );

  test.each([
    ['is valid for ten minutes', 10 * MINUTE - 1000, true],
    ['expires then, also if the browser has kept the cookie', 10 * MINUTE + 1000, false],
  ])('%s', async (_, after, isGood) => {
    const cookie = jar.header();
    jest.setSystemTime(Date.now() + after);
    await ask('/take', cookie);
    expect(taken !== undefined).toBe(isGood);
  });

  test('is not found by the state of another one', async () => {
    await ask(`/take?state=${'x'.repeat(43)}`);
    expect(taken).toBeUndefined();
    await ask('/take?state=');
    expect(taken).toBeUndefined();
    expect(jar.names()).toEqual([nameOf(flow)]);
  });

  test('is not found in the cookie of another one', async () => {
    const other = await another();
    await ask('/take', `${nameOf(flow)}=${cookieOf(other)}`);
    expect(taken).toBeUndefined();
  });

  test('is not found if any part of it was changed', async () => {
    const value = cookieOf(flow);
    const parts = value.split('.');
    for (const at of [0, 2, 3, 4]) {
      const part = parts[at] as string;
      const changed = (part[5] === 'A' ? 'B' : 'A') + part.slice(6);
      const text = parts.map((one, n) => (n === at ? part.slice(0, 5) + changed : one)).join('.');
      expect(text).not.toBe(value);
      await ask('/take', `${nameOf(flow)}=${text}`);
      expect([at, taken]).toEqual([at, undefined]);
    }
    for (const text of ['x', 'a.b.c.d.e', value.slice(0, -3), `${value}.`, `${value}AAAA`]) {
      await ask('/take', `${nameOf(flow)}=${text}`);
      expect(taken).toBeUndefined();
    }
    await ask('/take', `${nameOf(flow)}=${value}`);
    expect(taken).toBeDefined();
  });

  test('is not found if it was encrypted with another secret, or not encrypted', async () => {
    const { state } = flow;
    const theirs = signInFlows({ secrets: [THEIRS], realm: 'oidc', https: false });
    const real = flows;
    flows = theirs;
    await ask('/keep', '');
    flows = real;
    await ask('/take');
    expect(taken).toBeUndefined();
    const claims = { ...flow, exp: Math.floor(Date.now() / 1000) + 60 };
    const text = await new EncryptJWT(claims)
      .setProtectedHeader({ alg: 'dir', enc: 'A256GCM' })
      .encrypt(randomBytes(32));
    const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.`;
    for (const value of [text, unsigned]) {
      await ask('/take', `bot_relay_sign_in_${state}=${value}`);
      expect(taken).toBeUndefined();
    }
  });

  test('is found if it was encrypted with an older secret', async () => {
    flows = signInFlows({ secrets: [THEIRS, OURS], realm: 'oidc', https: false });
    await ask('/take');
    expect(taken).toMatchObject({ returnTo: '/chat' });
  });

  test('is found among many other cookies, and only by its exact name', async () => {
    const pair = `${nameOf(flow)}=${cookieOf(flow)}`;
    const noise = Array.from({ length: 50 }, (_, n) => `cookie${n}=${'y'.repeat(50)}`).join('; ');
    await ask('/take', `${noise};${pair};${noise}`);
    expect(taken).toBeDefined();
    for (const cookie of [`x${pair}`, `x=${pair}`, `__Host-${pair}`, `${pair.replace('=', ' =')}`]) {
      await ask('/take', cookie);
      expect([cookie.slice(0, 30), taken]).toEqual([cookie.slice(0, 30), undefined]);
    }
  });

  test('has its own random values', () => {
    const other = flows.begin('/chat');
    expect(
      new Set([other, flow].flatMap(({ state, nonce, verifier }) => [state, nonce, verifier])).size,
    ).toBe(6);
  });
});

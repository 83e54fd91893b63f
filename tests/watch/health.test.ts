import { describe, expect, test } from '@jest/globals';
import request from 'supertest';
import { readiness } from '../../src/routes/probes.ts';
import { startRelay } from '../harness/relay/relay.ts';

describe('the probes', () => {
  test('answer that the process lives, and that it is ready while it takes requests', async () => {
    const relay = await startRelay('http://127.0.0.1:9');
    const probe = async (path: string) => {
      const { status, body } = await request(relay.url).get(path);
      return { answered: status, ...body };
    };
    expect(await probe('/healthz')).toEqual({ answered: 200, status: 'ok' });
    expect(await probe('/readyz')).toEqual({
      answered: 200,
      status: 'ready',
      checks: { accepting: 'ok' },
    });
    relay.lifecycle.enter('draining');
    expect(await probe('/healthz')).toEqual({ answered: 200, status: 'ok' });
    expect(await probe('/readyz')).toEqual({
      answered: 503,
      status: 'not ready',
      checks: { accepting: 'failed' },
    });
    await relay.close();
  });

  test('answer ready only while every check is ok, and name each check', async () => {
    let storeHolds = true;
    const checks = { accepting: async () => true, store: async () => storeHolds };
    expect(await readiness(checks)).toEqual({ ready: true, results: { accepting: 'ok', store: 'ok' } });
    storeHolds = false;
    expect(await readiness(checks)).toEqual({ ready: false, results: { accepting: 'ok', store: 'failed' } });
  });
});

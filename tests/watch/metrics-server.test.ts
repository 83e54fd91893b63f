import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { createMetrics } from '../../src/watch/metrics.ts';
import { type MetricsServer, startMetricsServer } from '../../src/watch/metrics-server.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { samplesOf } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';

const { registry, readAtScrape } = createMetrics(['0123abcd']);
readAtScrape({
  checks: { accepting: async () => true, redis: async () => false },
  openMessages: () => 7,
  runBytes: () => 0,
});
let server: MetricsServer;
beforeAll(async () => {
  server = await startMetricsServer({ host: '127.0.0.1', registry });
});
afterAll(() => server.close());

describe('the port of the metrics', () => {
  test.each(['/metrics', '/metrics?module=any'])('answers GET %s in Prometheus text format', async (path) => {
    const answer = await call(server.port, path);
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(answer.headers['cache-control']).toBe('no-store');
    const samples = samplesOf(answer.body);
    expect(samples).toContainEqual({ name: 'bot_relay_ready', labels: { check: 'accepting' }, value: 1 });
    expect(samples).toContainEqual({ name: 'bot_relay_ready', labels: { check: 'redis' }, value: 0 });
    expect(samples).toContainEqual({ name: 'bot_relay_open_messages', labels: {}, value: 7 });
    expect(samples.map(({ name }) => name)).toContain('process_resident_memory_bytes');
  });

  test('answers HEAD without a body', async () => {
    const { status, body, headers } = await call(server.port, '/metrics', { method: 'HEAD' });
    expect({ status, body }).toEqual({ status: 200, body: '' });
    expect(Number(headers['content-length'])).toBeGreaterThan(1000);
  });

  test.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('refuses %s with Allow', async (method) => {
    const answer = await call(server.port, '/metrics', { method });
    expectProblem(answer, 405, 'method_not_allowed');
    expect(answer.headers.allow).toBe('GET, HEAD');
  });

  test.each(['/', '/metrics/', '/Metrics', '/metrics/x', '/healthz', '//metrics', '*'])(
    'has nothing at %s',
    async (path) => {
      expectProblem(await call(server.port, path), 404, 'not_found');
    },
  );

  test('does not show the error when the metrics cannot be read', async () => {
    const metrics = async () => Promise.reject(new Error('secret reason'));
    const broken = await startMetricsServer({
      host: '127.0.0.1',
      registry: Object.create(registry, { metrics: { value: metrics } }),
    });
    const answer = await call(broken.port, '/metrics');
    expectProblem(answer, 500, 'internal_error');
    expect(answer.body).not.toContain('secret reason');
    await broken.close();
  });
});

describe('the public port', () => {
  let pair: RelayAndUpstream;
  afterEach(() => pair.close());

  test.each(['', '/chat-api'])('has no metrics, with the base path %j', async (basePath) => {
    pair = await startRelayAndUpstream(() => {}, { METRICS_PORT: '9090', BASE_PATH: basePath });
    for (const path of ['/metrics', `${basePath}/metrics`, '/metrics/']) {
      expectProblem(await call(pair.relay.port, path), 404, 'not_found');
    }
  });
});

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import type { LookupFunction } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { streamText } from 'ai';
import { embeddingModelOf } from '../../src/service/bot-brains.ts';
import { testConnection } from '../../src/service/models/connection-test.ts';
import { embedder } from '../../src/service/models/embedder.ts';
import { languageModel } from '../../src/service/models/language-model.ts';
import { modelError } from '../../src/service/models/provider-error.ts';
import { endpointFetch } from '../../src/service/models/safe-fetch.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { freshFolder, inFrontOf, startProcess, stopProcesses } from '../harness/relay/process.ts';
import {
  MODEL_FIXTURES,
  MODEL_KEY,
  type ModelFixture,
  modelSettings,
} from '../harness/service/model-fixtures.ts';
import {
  dataStream,
  jsonAnswer,
  type ModelServer,
  namedStream,
  type RawAnswer,
  startModelServer,
} from '../harness/service/model-server.ts';

let server: ModelServer;
let other: ModelServer;
beforeAll(async () => {
  server = await startModelServer();
  other = await startModelServer();
});
afterAll(async () => {
  await server.close();
  await other.close();
  await stopProcesses();
});

const printed: string[] = [];
beforeEach(() => {
  for (const one of [server, other]) one.requests.length = 0;
  printed.length = 0;
  for (const name of ['error', 'warn', 'log', 'info', 'debug'] as const)
    jest.spyOn(console, name).mockImplementation((...values) => void printed.push(inspect(values)));
  jest.spyOn(process, 'emitWarning').mockImplementation((warning) => void printed.push(String(warning)));
});
afterEach(() => {
  jest.restoreAllMocks();
});

const of = ({ kind, base }: ModelFixture, url = server.url) => modelSettings(kind, { endpoint: url + base });
const roleOf = ({ answer }: ModelFixture) => (answer ? 'completion' : 'embedding');
const always = (answer: RawAnswer | undefined) => {
  server.answer = () => answer;
};
const fixtureOf = (kind: string) => MODEL_FIXTURES.find((one) => one.kind === kind) as ModelFixture;
const compatible = fixtureOf('openai-compatible');
const signal = new AbortController().signal;

describe.each(MODEL_FIXTURES)('a model of kind $kind', (fixture) => {
  test('prints nothing, also where it does not know what it is asked for', async () => {
    always(fixture.answer ?? fixture.embeddings);
    await testConnection(roleOf(fixture), of(fixture));
    if (fixture.answer) {
      const model = await languageModel(of(fixture));
      const { stream } = streamText({
        model,
        prompt: 'Hello',
        temperature: 3,
        topK: 1,
        seed: 1,
        onError: () => {},
      });
      for await (const part of stream) expect(part.type).not.toBe('error');
    }
    expect(printed).toEqual([]);
  });

  test('whose key is refused says so, quotes nothing, and prints nothing', async () => {
    always(fixture.refusal);
    const report = await testConnection(roleOf(fixture), of(fixture));
    expect(report).toMatchObject({ ok: false, code: 'MODEL_KEY_REFUSED' });
    expect(JSON.stringify(report)).not.toContain(MODEL_KEY);
    expect(server.requests).toHaveLength(1);
    if (fixture.embeddings) {
      const error = await (await embedder(of(fixture)))(['one'], 'query', signal).catch(
        (one: unknown) => one,
      );
      expect(error).toMatchObject({ code: 'MODEL_KEY_REFUSED' });
      expect(inspect(error, { depth: 9, showHidden: true })).not.toContain(MODEL_KEY);
    }
    expect(printed).toEqual([]);
  });

  test('that redirects is an error, and no header goes along', async () => {
    always({ status: 307, headers: { Location: `${other.url}/v1` }, body: '' });
    const report = await testConnection(roleOf(fixture), of(fixture));
    expect(report).toMatchObject({ ok: false, code: 'MODEL_ENDPOINT_REDIRECTS' });
    expect([server.requests.length, other.requests.length]).toEqual([1, 0]);
    expect(printed).toEqual([]);
  });

  test.each([
    ['HTML', { body: `<html>${MODEL_KEY}</html>` }],
    ['garbage as a stream', { type: 'text/event-stream', body: `data: {"a":${MODEL_KEY}\n\ndata: x\n\n` }],
    ['nothing', { type: 'application/json', body: '' }],
  ])('that answers %s is a plain error', async (_title, answer) => {
    always(answer);
    const report = await testConnection(roleOf(fixture), of(fixture));
    // What Anthropic's package throws at garbage does not say more.
    const codes = fixture.kind === 'anthropic' ? /^MODEL_(BAD_ANSWER|FAILED)$/ : /^MODEL_BAD_ANSWER$/;
    expect(report).toMatchObject({ ok: false, code: expect.stringMatching(codes) });
    expect(JSON.stringify(report) + printed.join()).not.toContain(MODEL_KEY);
    expect(printed).toEqual([]);
  });

  test('takes no address and no key from the environment', async () => {
    const names = ['OPENAI_BASE_URL', 'ANTHROPIC_BASE_URL'];
    for (const name of names) process.env[name] = `${other.url}/stolen`;
    process.env.AZURE_RESOURCE_NAME = 'stolen';
    try {
      const asked: string[] = [];
      const isOwn = !['azure', 'openai-compatible'].includes(fixture.kind);
      const settings = isOwn ? modelSettings(fixture.kind) : of(fixture, 'https://host.example');
      const fetch = async (input: unknown) => {
        asked.push(new URL(String(input)).hostname);
        return new Response('', { status: 401 });
      };
      if (fixture.answer) {
        const model = await languageModel(settings, fetch);
        await streamText({ model, prompt: 'Hello', onError: () => {} }).consumeStream();
      }
      if (fixture.embeddings)
        await expect((await embedder(settings, fetch))(['one'], 'query', signal)).rejects.toThrow();
      const hosts =
        /^(api\.(openai|anthropic|mistral)\.(com|ai)|api\.voyageai\.com|generativelanguage\.googleapis\.com|host\.example)$/;
      expect(asked.length).toBeGreaterThan(0);
      expect(asked.filter((host) => !hosts.test(host))).toEqual([]);
    } finally {
      for (const name of [...names, 'AZURE_RESOURCE_NAME']) delete process.env[name];
    }
  });
});

describe('an endpoint', () => {
  const reportOf = (endpoint: string) =>
    testConnection('completion', modelSettings('openai-compatible', { endpoint }));

  test.each([
    'http://169.254.169.254/v1',
    'http://169.254.1.1:8080',
    'http://2852039166/v1',
    'http://0xa9fea9fe/v1',
    'http://0251.0376.0251.0376/v1',
    'http://[::ffff:169.254.169.254]/v1',
    'http://[64:ff9b::a9fe:a9fe]/v1',
    'http://[fe80::1]/v1',
    'http://[fd00:ec2::254]/v1',
    'http://100.100.100.200/v1',
    'http://168.63.129.16/v1',
    'http://0.0.0.0:11434/v1',
    'http://[::]:11434/v1',
  ])('with a forbidden address is refused: %s', async (endpoint) => {
    expect(await reportOf(endpoint)).toMatchObject({ ok: false, code: 'MODEL_ENDPOINT_FORBIDDEN' });
  });

  const resolving =
    (...addresses: string[]): LookupFunction =>
    (_host, _options, callback) =>
      callback(
        null,
        addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
      );

  test.each([
    ['169.254.169.254'],
    ['127.0.0.1', '169.254.169.254'],
    ['::ffff:a9fe:a9fe'],
    ['fe80::a9fe:a9fe'],
  ])('whose name leads to a forbidden address is refused: %s', async (...addresses) => {
    const fetch = endpointFetch(resolving(...addresses));
    const url = server.url.replace('127.0.0.1', 'models.example');
    await expect(fetch(url)).rejects.toMatchObject({ code: 'MODEL_ENDPOINT_FORBIDDEN' });
    expect(server.requests).toEqual([]);
  });

  test('on this machine or in a private network is allowed, by name and by address', async () => {
    always(compatible.answer);
    const url = server.url.replace('127.0.0.1', 'models.example');
    expect((await endpointFetch(resolving('127.0.0.1'))(url)).status).toBe(200);
    expect((await endpointFetch()(server.url.replace('127.0.0.1', 'localhost'))).status).toBe(200);
    expect((await endpointFetch()(server.url.replace('127.0.0.1', '2130706433'))).status).toBe(200);
    // Nobody listens there; it is not refused.
    const asked: string[] = [];
    const away: LookupFunction = (host, _options, callback) => {
      asked.push(host);
      callback(Object.assign(new Error('away'), { code: 'ENOTFOUND' }), '');
    };
    await expect(endpointFetch(away)('http://ollama.lan/v1')).rejects.toThrow();
    expect(asked).toEqual(['ollama.lan']);
  });

  test('that nobody listens to, whose name is unknown, or whose certificate is nobody’s, is told apart', async () => {
    expect(await reportOf(`http://127.0.0.1:${await freePort()}/v1`)).toMatchObject({
      code: 'MODEL_UNREACHABLE',
    });
    expect(await reportOf('http://127.0.0.1:9/v1')).toMatchObject({ code: 'MODEL_UNREACHABLE' });
    expect(await reportOf('http://models.invalid/v1')).toMatchObject({ code: 'MODEL_HOST_UNKNOWN' });
    expect(await reportOf(server.url.replace('http:', 'https:'))).toMatchObject({ code: 'MODEL_TLS_FAILED' });
  });

  test('that never answers ends with the time, and is asked once', async () => {
    always(undefined);
    const settings = of(compatible);
    for (const role of ['completion', 'embedding'] as const) {
      const report = await testConnection(role, settings, AbortSignal.timeout(200));
      expect(report).toMatchObject({ ok: false, code: 'MODEL_TIMEOUT' });
    }
    expect(server.requests).toHaveLength(2);
  });

  test('that never answers a document holds up no others for good', async () => {
    always(undefined);
    const model = embeddingModelOf({ model: () => of(compatible) }, 'demo', 100);
    const embedding = model?.embed(['one'], 'document', new AbortController().signal);
    await expect(embedding).rejects.toThrow('The model did not answer in time.');
  });

  test('that never ends its answer is cut at a size', async () => {
    let sent = 0;
    const megabyte = Buffer.alloc(2 ** 20, 'a');
    server.answer = (_request, res) => {
      res.writeHead(200, { 'Content-Type': 'application/json' });
      const more = () => {
        do sent++;
        while (!res.destroyed && res.write(megabyte));
      };
      res.on('drain', more);
      more();
      return undefined;
    };
    const report = await testConnection('embedding', of(compatible));
    expect(report).toMatchObject({ ok: false, code: 'MODEL_BAD_ANSWER' });
    // Some more is on its way.
    expect(sent).toBeLessThan(100);
  });
});

describe('what a provider says', () => {
  const error = (message: string, more: object = {}) => ({
    error: { message: `${message} ${MODEL_KEY}`, ...more },
  });
  test.each<[string, ModelFixture, RawAnswer]>([
    [
      'MODEL_QUOTA_EXCEEDED',
      fixtureOf('openai'),
      jsonAnswer(
        error('You exceeded your current quota, please check your plan and billing details.', {
          type: 'insufficient_quota',
          code: 'insufficient_quota',
        }),
        429,
      ),
    ],
    [
      'MODEL_RATE_LIMITED',
      fixtureOf('openai'),
      jsonAnswer(error('Rate limit reached for the-model', { code: 'rate_limit_exceeded' }), 429),
    ],
    [
      'MODEL_NOT_FOUND',
      fixtureOf('openai'),
      jsonAnswer(error('The model `the-model` does not exist', { code: 'model_not_found' }), 404),
    ],
    [
      'MODEL_CONTEXT_TOO_LONG',
      fixtureOf('openai'),
      namedStream({
        type: 'error',
        sequence_number: 0,
        error: {
          type: 'invalid_request_error',
          code: 'context_length_exceeded',
          message: 'Your input exceeds the context window of this model.',
        },
      }),
    ],
    [
      'MODEL_NOT_FOUND',
      fixtureOf('azure'),
      jsonAnswer(
        error('The API deployment for this resource does not exist.', { code: 'DeploymentNotFound' }),
        404,
      ),
    ],
    [
      'MODEL_CONTENT_REFUSED',
      fixtureOf('azure'),
      jsonAnswer(
        error(
          'The response was filtered due to the prompt triggering Azure OpenAI’s content management policy.',
          { code: 'content_filter' },
        ),
        400,
      ),
    ],
    [
      'MODEL_ENDPOINT_UNKNOWN',
      fixtureOf('azure'),
      jsonAnswer(error('Resource not found', { code: '404' }), 404),
    ],
    [
      'MODEL_UNAVAILABLE',
      fixtureOf('anthropic'),
      jsonAnswer({ type: 'error', ...error('Overloaded', { type: 'overloaded_error' }) }, 529),
    ],
    [
      'MODEL_UNAVAILABLE',
      fixtureOf('anthropic'),
      namedStream({ type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } } as {
        type: string;
      }),
    ],
    [
      'MODEL_NOT_FOUND',
      fixtureOf('anthropic'),
      jsonAnswer({ type: 'error', ...error('model: the-model', { type: 'not_found_error' }) }, 404),
    ],
    [
      'MODEL_QUOTA_EXCEEDED',
      fixtureOf('anthropic'),
      jsonAnswer(
        {
          type: 'error',
          ...error('Your credit balance is too low to access the Anthropic API.', {
            type: 'invalid_request_error',
          }),
        },
        400,
      ),
    ],
    [
      'MODEL_CONTEXT_TOO_LONG',
      fixtureOf('anthropic'),
      jsonAnswer(
        {
          type: 'error',
          ...error('prompt is too long: 200001 tokens > 200000 maximum', { type: 'invalid_request_error' }),
        },
        400,
      ),
    ],
    [
      'MODEL_NOT_FOUND',
      fixtureOf('mistral'),
      jsonAnswer(
        {
          object: 'error',
          message: `Invalid model: the-model ${MODEL_KEY}`,
          type: 'invalid_model',
          code: '1500',
        },
        400,
      ),
    ],
    [
      'MODEL_NOT_FOUND',
      fixtureOf('google'),
      jsonAnswer(
        error('models/the-model is not found for API version v1beta', { code: 404, status: 'NOT_FOUND' }),
        404,
      ),
    ],
    [
      'MODEL_UNAVAILABLE',
      fixtureOf('google'),
      jsonAnswer(error('The model is overloaded.', { code: 503, status: 'UNAVAILABLE' }), 503),
    ],
    [
      'MODEL_NOT_FOUND',
      compatible,
      jsonAnswer(error('model "the-model" not found, try pulling it first', { type: 'api_error' }), 404),
    ],
    ['MODEL_UNAVAILABLE', compatible, dataStream(error('boom', { type: 'server_error' }))],
    ['MODEL_ENDPOINT_UNKNOWN', compatible, { status: 404, body: '404 page not found' }],
    ['MODEL_REQUEST_REFUSED', compatible, jsonAnswer(error('tools are not for you'), 422)],
    ['MODEL_RATE_LIMITED', fixtureOf('voyage'), jsonAnswer({ detail: `Slow down ${MODEL_KEY}` }, 429)],
    [
      'MODEL_NOT_FOUND',
      fixtureOf('voyage'),
      jsonAnswer({ detail: `Model the-model is not supported. ${MODEL_KEY}` }, 400),
    ],
  ])('is %s in plain words, of kind $kind: %#', async (code, fixture, answer) => {
    always(answer);
    const report = await testConnection(roleOf(fixture), of(fixture));
    expect(report).toMatchObject({ ok: false, code });
    expect(JSON.stringify(report)).not.toContain(MODEL_KEY);
    expect(printed).toEqual([]);
  });

  test.each(['completion', 'embedding'] as const)('is asked for once by a test of %s', async (role) => {
    always({ ...jsonAnswer(error('at capacity'), 503), headers: { 'retry-after-ms': '1' } });
    expect(await testConnection(role, of(compatible))).toMatchObject({ code: 'MODEL_UNAVAILABLE' });
    expect(server.requests).toHaveLength(1);
  });

  test('is also found in the last error of several tries, and nothing of it is quoted', async () => {
    always({ ...jsonAnswer(error('at capacity'), 503), headers: { 'retry-after-ms': '1' } });
    const model = await languageModel(of(compatible));
    const errors: unknown[] = [];
    const onError = ({ error }: { error: unknown }) => void errors.push(error);
    await streamText({ model, prompt: 'Hello', maxRetries: 1, onError }).consumeStream();
    expect(server.requests).toHaveLength(2);
    expect(inspect(errors)).toContain(MODEL_KEY);
    expect(modelError(errors[0])).toMatchObject({
      code: 'MODEL_UNAVAILABLE',
      message: "The model's provider has a failure of its own.",
    });
  });

  test.each([
    undefined,
    null,
    'x',
    7,
    {},
    new Error(MODEL_KEY),
    Object.assign(new Error(), { cause: { cause: 1 } }),
  ])('may be anything: %p', (thrown) => {
    expect(modelError(thrown)).toMatchObject({ code: 'MODEL_FAILED', message: 'The model failed.' });
    expect(inspect(modelError(thrown), { depth: 9 })).not.toContain(MODEL_KEY);
  });
});

describe('the packages of the AI SDK', () => {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    peerDependencies: Record<string, string>;
    peerDependenciesMeta: Record<string, { optional: boolean }>;
    devDependencies: Record<string, string>;
  };
  const peers = Object.entries(manifest.peerDependencies);

  test('are told by the command that installs them where they are missing', () => {
    const folder = freshFolder({
      'package.json': '{"type":"module"}',
      'say.ts': `
        import { languageModel } from './service/models/language-model.ts';
        const said = {};
        for (const kind of ['openai', 'azure', 'anthropic', 'mistral', 'google', 'openai-compatible'])
          await languageModel({ kind, model: 'm', key: { open: () => 'k' }, endpoint: 'http://127.0.0.1/v1' })
            .catch(({ code, todo }) => { said[kind] = [code, todo]; });
        console.log(JSON.stringify(said));`,
    });
    for (const name of ['service/models', 'http/forbidden-addresses.ts'])
      cpSync(join(ROOT, 'src', name), join(folder, name), { recursive: true });
    mkdirSync(join(folder, 'node_modules'));
    symlinkSync(join(ROOT, 'node_modules/undici'), join(folder, 'node_modules/undici'));
    const say = () => {
      const { stdout, stderr } = spawnSync(process.execPath, ['say.ts'], { cwd: folder, encoding: 'utf8' });
      if (stdout === '') throw new Error(stderr);
      return JSON.parse(stdout) as Record<string, string[]>;
    };
    const named = peers
      .filter(([name]) => name !== 'ai')
      .map(([name, range]) => `${name}@${range.slice(1).split('.')[0]}`);
    expect(Object.values(say())).toEqual(
      expect.arrayContaining(named.map((name) => ['MODEL_PACKAGE_MISSING', `npm install ai@7 ${name}`])),
    );
    // Without `ai` alone.
    symlinkSync(join(ROOT, 'node_modules/@ai-sdk'), join(folder, 'node_modules/@ai-sdk'));
    expect(Object.values(say())).toEqual(named.map(() => ['MODEL_PACKAGE_MISSING', 'npm install ai@7']));
  });

  test('are optional peers, whose tested versions are those of the checkout', () => {
    expect(peers.map(([name]) => name)).toEqual(Object.keys(manifest.peerDependenciesMeta));
    expect(Object.values(manifest.peerDependenciesMeta)).toEqual(peers.map(() => ({ optional: true })));
    expect(peers).toEqual(peers.map(([name]) => [name, `^${manifest.devDependencies[name]}`]));
  });

  test('are not loaded by a relay alone', async () => {
    const folder = freshFolder({ 'users.json': '{"users":[]}' });
    const list = join(folder, 'loaded');
    const hook = `
      import { appendFileSync } from 'node:fs';
      import { registerHooks } from 'node:module';
      registerHooks({ resolve(name, context, next) {
        const found = next(name, context);
        appendFileSync(${JSON.stringify(list)}, found.url + '\\n');
        return found;
      } });`;
    const relay = startProcess({
      folder,
      nodeArgs: ['--import', `data:text/javascript,${encodeURIComponent(hook)}`],
      environment: inFrontOf('http://127.0.0.1:9'),
    });
    await relay.listening();
    const loaded = readFileSync(list, 'utf8').split('\n');
    expect(loaded).toContain(pathToFileURL(join(ROOT, 'dist/app.js')).href);
    expect(loaded.filter((url) => /node_modules\/(ai|@ai-sdk)\/|dist\/service\//.test(url))).toEqual([]);
  });
});

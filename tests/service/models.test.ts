import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import type { LookupFunction } from 'node:net';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { streamText } from 'ai';
import { embeddingModelOf } from '../../src/service/bot-brains.ts';
import { testConnection } from '../../src/service/models/connection-test.ts';
import { embedder } from '../../src/service/models/embedder.ts';
import { languageModel } from '../../src/service/models/language-model.ts';
import { modelError } from '../../src/service/models/provider-error.ts';
import { endpointFetch } from '../../src/service/models/safe-fetch.ts';
import type { ModelKind, ModelSettings } from '../../src/service/settings/model-settings.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { freshFolder } from '../harness/relay/process.ts';
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
  // The packages of the AI SDK print warnings, and whole answers, unless they are told not to.
  expect(printed).toEqual([]);
});

const { signal } = new AbortController();
const always = (answer: RawAnswer | undefined) => {
  server.answer = () => answer;
};
const of = ({ kind, base }: ModelFixture, url = server.url) => modelSettings(kind, { endpoint: url + base });
const roleOf = ({ answer }: ModelFixture) => (answer ? 'completion' : 'embedding');
const fixtureOf = (kind: ModelKind) => MODEL_FIXTURES.find((one) => one.kind === kind) as ModelFixture;
const compatible = fixtureOf('openai-compatible');
/** The report of a test of the model that this fixture is of. */
const report = (fixture: ModelFixture, role: 'completion' | 'embedding' = roleOf(fixture)) =>
  testConnection(role, of(fixture));
const failed = (code: string) => expect.objectContaining({ ok: false, code });

function expectRequest(fixture: ModelFixture, { path, body }: { path: string; body: object }) {
  const [name, value] = fixture.header;
  expect(server.requests[0]).toMatchObject({
    ...{ method: 'POST', path, body },
    headers: { 'content-type': 'application/json', [name]: value },
  });
}

/** What `act` finds while these are in the environment. */
async function within<T>(environment: Record<string, string>, act: () => Promise<T>): Promise<T> {
  Object.assign(process.env, environment);
  try {
    return await act();
  } finally {
    for (const name of Object.keys(environment)) delete process.env[name];
  }
}

describe.each(MODEL_FIXTURES.filter(({ answer }) => answer))('a model of kind $kind', (fixture) => {
  test('is asked as its provider documents it, and its answer comes with the usage', async () => {
    always(fixture.answer);
    const model = await languageModel(of(fixture));
    const result = streamText({ model, prompt: 'Say hello.' });
    const said: string[] = [];
    for await (const text of result.textStream) said.push(text);
    expect(said).toEqual(['Hel', 'lo']);
    expect(await result.finishReason).toBe('stop');
    expect(await result.usage).toMatchObject({ inputTokens: 12, outputTokens: 3, totalTokens: 15 });
    expect(server.requests).toHaveLength(1);
    expectRequest(fixture, fixture.question as NonNullable<ModelFixture['question']>);
    // What it does not know, it leaves out without a word.
    const more = streamText({ model, prompt: 'Hello', temperature: 3, topK: 1, seed: 1, onError: () => {} });
    for await (const part of more.stream) expect(part.type).not.toBe('error');
  });

  test('passes the connection test, which sends what a bot sends and no temperature', async () => {
    always(fixture.answer);
    const ok = { ok: true, model: 'the-model', ms: expect.any(Number), tokens: 15 };
    expect(await report(fixture)).toEqual(ok);
    const [{ body } = { body: {} }] = server.requests;
    expect(JSON.stringify(body)).not.toMatch(/temperature/i);
    // Only OpenAI would keep what it is asked.
    expect((body as { store?: boolean }).store).toBe(fixture.kind === 'openai' ? false : undefined);
  });

  test('that breaks off in its answer does not pass', async () => {
    const { body = '', ...rest } = fixture.answer as RawAnswer;
    const partOfText = body.indexOf('\n\n', body.indexOf('Hel')) + 2;
    always({ ...rest, body: body.slice(0, partOfText) });
    expect(await report(fixture)).toEqual(failed('MODEL_BAD_ANSWER'));
  });
});

describe.each(MODEL_FIXTURES.filter(({ embeddings }) => embeddings))(
  'an embedding model of kind $kind',
  (fixture) => {
    const embed = async () => (await embedder(of(fixture)))(['one', 'two'], 'document', signal);

    test('is asked as its provider documents it', async () => {
      always(fixture.embeddings);
      const vectors = [
        [1, 2],
        [3, 4],
      ];
      expect((await embed()).embeddings).toEqual(vectors);
      expectRequest(fixture, fixture.texts as NonNullable<ModelFixture['texts']>);
      always(fixture.refusal);
      const error: unknown = await embed().catch((one: unknown) => one);
      expect(error).toMatchObject({ code: 'MODEL_KEY_REFUSED' });
      expect(inspect(error, { depth: 9, showHidden: true })).not.toContain(MODEL_KEY);
    });

    test.each<[string, (text: string) => string]>([
      ['too few vectors', (text) => text.replace(/,\s*\{[^{}]*\[3,4\][^{}]*\}|\{[^{}]*\[3,4\][^{}]*\},/, '')],
      ['vectors of different lengths', (text) => text.replace('[3,4]', '[3,4,5]')],
      ['no numbers', (text) => text.replace('[3,4]', '[3,null]')],
      ['HTML', () => '<html>Sign in</html>'],
    ])('whose answer is wrong fails: %s', async (_title, alter) => {
      const { body = '', ...rest } = fixture.embeddings as RawAnswer;
      expect(alter(body)).not.toBe(body);
      always({ ...rest, body: alter(body) });
      await expect(embed()).rejects.toMatchObject({ code: 'MODEL_BAD_ANSWER' });
    });
  },
);

test('Voyage and Google are told whether a text is searched for', async () => {
  always(jsonAnswer({ embedding: { values: [1, 2] } }));
  await (await embedder(of(fixtureOf('google'))))(['one'], 'query', signal);
  always(jsonAnswer({ data: [{ index: 0, embedding: [1] }] }));
  await (await embedder(of(fixtureOf('voyage'))))(['one'], 'query', signal);
  const told = [{ taskType: 'RETRIEVAL_QUERY' }, { input_type: 'query' }];
  expect(server.requests.map(({ body }) => body)).toMatchObject(told);
});

describe.each(MODEL_FIXTURES)('any model of kind $kind', (fixture) => {
  test('whose key is refused says so, and quotes nothing', async () => {
    always(fixture.refusal);
    const told = await report(fixture);
    expect(told).toEqual(failed('MODEL_KEY_REFUSED'));
    expect(JSON.stringify(told)).not.toContain(MODEL_KEY);
    expect(server.requests).toHaveLength(1);
  });

  test('that redirects is an error, and no header goes along', async () => {
    always({ status: 307, headers: { Location: `${other.url}/v1` }, body: '' });
    expect(await report(fixture)).toEqual(failed('MODEL_ENDPOINT_REDIRECTS'));
    expect([server.requests.length, other.requests.length]).toEqual([1, 0]);
  });

  test('that answers HTML, garbage or nothing is a plain error', async () => {
    for (const answer of [
      { body: `<html>${MODEL_KEY}</html>` },
      { type: 'text/event-stream', body: `data: {"a":${MODEL_KEY}\n\ndata: x\n\n` },
      { type: 'application/json', body: '' },
    ]) {
      always(answer);
      const told = await report(fixture);
      // What Anthropic's package throws at garbage does not say more.
      const codes = fixture.kind === 'anthropic' ? /^MODEL_(BAD_ANSWER|FAILED)$/ : /^MODEL_BAD_ANSWER$/;
      expect(told).toMatchObject({ ok: false, code: expect.stringMatching(codes) });
      expect(JSON.stringify(told)).not.toContain(MODEL_KEY);
    }
  });

  test('takes no address and no key from the environment', async () => {
    const names = ['OPENAI', 'AZURE', 'ANTHROPIC', 'MISTRAL', 'GOOGLE_GENERATIVE_AI', 'VOYAGE'];
    const environment = {
      ...Object.fromEntries(names.map((name) => [`${name}_API_KEY`, 'of-the-environment'])),
      ...Object.fromEntries(names.map((name) => [`${name}_BASE_URL`, `${other.url}/stolen`])),
      AZURE_RESOURCE_NAME: 'stolen',
    };
    const isOwn = !['azure', 'openai-compatible'].includes(fixture.kind);
    const { key: _key, endpoint, ...keyless } = of(fixture, 'https://host.example');
    const settings: ModelSettings = isOwn ? keyless : { ...keyless, endpoint };
    const asked: Request[] = [];
    const fetch = async (...request: ConstructorParameters<typeof Request>) => {
      asked.push(new Request(...request));
      return new Response('', { status: 401 });
    };
    await within(environment, async () => {
      if (fixture.embeddings)
        await expect((await embedder(settings, fetch))(['one'], 'query', signal)).rejects.toThrow();
      if (!fixture.answer) return;
      const model = await languageModel(settings, fetch);
      await streamText({ model, prompt: 'Hello', onError: () => {} }).consumeStream();
    });
    const hosts =
      /^(api\.(openai|anthropic|mistral)\.(com|ai)|api\.voyageai\.com|generativelanguage\.googleapis\.com|host\.example)$/;
    expect(asked.length).toBeGreaterThan(0);
    for (const { url, headers } of asked) {
      expect(new URL(url).hostname).toMatch(hosts);
      expect(url + JSON.stringify([...headers])).not.toContain('of-the-environment');
    }
  });
});

describe('settings', () => {
  test.each<[ModelKind, 'completion' | 'embedding', string]>([
    ['anthropic', 'embedding', 'MODEL_CANNOT_EMBED'],
    ['voyage', 'completion', 'MODEL_CANNOT_ANSWER'],
    ['azure', 'completion', 'MODEL_ENDPOINT_MISSING'],
    ['openai-compatible', 'embedding', 'MODEL_ENDPOINT_MISSING'],
  ])('of kind %s for %s that cannot work are told before a request', async (kind, role, code) => {
    expect(await testConnection(role, modelSettings(kind))).toEqual(failed(code));
  });

  test('of a server that wants no key send none', async () => {
    always(compatible.answer);
    const { key: _key, ...keyless } = of(compatible);
    expect(await testConnection('completion', keyless)).toMatchObject({ ok: true });
    expect(server.requests[0]?.headers.authorization).toBeUndefined();
  });

  const RESOURCE = 'https://acme.openai.azure.com';
  const PROJECT = 'https://acme.services.ai.azure.com/api/projects/one';
  const DATED = 'deployments/our-gpt/chat/completions?api-version=2024-10-21';
  test.each<[string, string | undefined, string]>([
    [RESOURCE, undefined, `${RESOURCE}/openai/v1/chat/completions`],
    [`${RESOURCE}/openai/v1/`, undefined, `${RESOURCE}/openai/v1/chat/completions`],
    [RESOURCE, 'preview', `${RESOURCE}/openai/v1/chat/completions?api-version=preview`],
    [`${RESOURCE}/openai/v1`, '2024-10-21', `${RESOURCE}/openai/${DATED}`],
    [
      `${RESOURCE}/openai/deployments/our-gpt/chat/completions?api-version=2025-01-01-preview`,
      '2024-10-21',
      `${RESOURCE}/openai/${DATED}`,
    ],
    [PROJECT, undefined, `${PROJECT}/openai/v1/chat/completions`],
    ['https://gate.example/llm/v1', undefined, 'https://gate.example/llm/v1/chat/completions'],
    ['https://gate.example/llm', '2024-10-21', `https://gate.example/llm/${DATED}`],
  ])(
    'of Azure with the endpoint %s and version %s lead to its address',
    async (endpoint, apiVersion, url) => {
      const asked: string[] = [];
      const own = { endpoint, deployment: 'our-gpt', ...(apiVersion !== undefined && { apiVersion }) };
      const model = await languageModel(modelSettings('azure', own), async (input) => {
        asked.push(String(input));
        throw new Error('not sent');
      });
      await streamText({ model, prompt: 'Hello', maxRetries: 0, onError: () => {} }).consumeStream();
      expect(asked).toEqual([url]);
    },
  );
});

describe('an endpoint', () => {
  const reportOf = (endpoint: string) =>
    testConnection('completion', modelSettings('openai-compatible', { endpoint }));
  const resolving =
    (...addresses: string[]): LookupFunction =>
    (_host, _options, callback) =>
      callback(
        null,
        addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
      );
  const named = () => server.url.replace('127.0.0.1', 'models.example');

  test.each([
    'http://169.254.169.254/v1',
    'http://2852039166/v1',
    'http://0251.0376.0251.0376/v1',
    'http://[::ffff:169.254.169.254]/v1',
    'http://[64:ff9b::a9fe:a9fe]/v1',
    'http://[fe80::1]/v1',
    'http://169.254.1.1:8080',
    'http://100.100.100.200/v1',
    'http://168.63.129.16/v1',
    'http://192.0.0.192/v1',
    'http://[fd00:ec2::254]/v1',
    'http://[fd20:ce::254]/v1',
    'http://[::]:11434/v1',
  ])('with a forbidden address is refused: %s', async (endpoint) => {
    expect(await reportOf(endpoint)).toEqual(failed('MODEL_ENDPOINT_FORBIDDEN'));
  });

  test.each([['169.254.169.254'], ['127.0.0.1', '169.254.169.254'], ['::ffff:a9fe:a9fe']])(
    'whose name leads to a forbidden address is refused: %s',
    async (...addresses) => {
      const asked = endpointFetch(resolving(...addresses))(named());
      await expect(asked).rejects.toMatchObject({ code: 'MODEL_ENDPOINT_FORBIDDEN' });
      expect(server.requests).toEqual([]);
    },
  );

  test('on this machine or in a private network is allowed, by name and by address', async () => {
    always(compatible.answer);
    expect((await endpointFetch(resolving('127.0.0.1'))(named())).status).toBe(200);
    for (const host of ['localhost', '2130706433'])
      expect((await endpointFetch()(server.url.replace('127.0.0.1', host))).status).toBe(200);
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
    for (const port of [await freePort(), 9])
      expect(await reportOf(`http://127.0.0.1:${port}/v1`)).toEqual(failed('MODEL_UNREACHABLE'));
    expect(await reportOf('http://models.invalid/v1')).toEqual(failed('MODEL_HOST_UNKNOWN'));
    expect(await reportOf(server.url.replace('http:', 'https:'))).toEqual(failed('MODEL_TLS_FAILED'));
  });

  test('that never answers ends with the time, is asked once, and holds up no other document for good', async () => {
    always(undefined);
    for (const role of ['completion', 'embedding'] as const)
      expect(await testConnection(role, of(compatible), AbortSignal.timeout(100))).toEqual(
        failed('MODEL_TIMEOUT'),
      );
    expect(server.requests).toHaveLength(2);
    const model = embeddingModelOf({ model: () => of(compatible) }, 'demo', 100);
    const embedding = model?.embed(['one'], 'document', signal);
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
    expect(await report(compatible, 'embedding')).toEqual(failed('MODEL_BAD_ANSWER'));
    // Some more is on its way.
    expect(sent).toBeLessThan(100);
  });
});

describe('what a provider says', () => {
  const error = (message: string, more: object = {}) => ({
    error: { message: `${message} ${MODEL_KEY}`, ...more },
  });
  const ofAnthropic = (message: string, type: string) => ({ type: 'error', ...error(message, { type }) });
  test.each<[string, ModelKind, number, object | string]>([
    [
      ...(['MODEL_QUOTA_EXCEEDED', 'openai', 429] as const),
      error('You exceeded your current quota.', { type: 'insufficient_quota', code: 'insufficient_quota' }),
    ],
    ['MODEL_RATE_LIMITED', 'openai', 429, error('Rate limit reached', { code: 'rate_limit_exceeded' })],
    ['MODEL_NOT_FOUND', 'openai', 404, error('The model does not exist', { code: 'model_not_found' })],
    ['MODEL_NOT_FOUND', 'azure', 404, error('No such deployment.', { code: 'DeploymentNotFound' })],
    [
      ...(['MODEL_CONTENT_REFUSED', 'azure', 400] as const),
      error('Filtered due to Azure OpenAI’s content management policy.', { code: 'content_filter' }),
    ],
    ['MODEL_ENDPOINT_UNKNOWN', 'azure', 404, error('Resource not found', { code: '404' })],
    ['MODEL_UNAVAILABLE', 'anthropic', 529, ofAnthropic('Overloaded', 'overloaded_error')],
    ['MODEL_NOT_FOUND', 'anthropic', 404, ofAnthropic('model: the-model', 'not_found_error')],
    [
      ...(['MODEL_QUOTA_EXCEEDED', 'anthropic', 400] as const),
      ofAnthropic('Your credit balance is too low to access the Anthropic API.', 'invalid_request_error'),
    ],
    [
      ...(['MODEL_CONTEXT_TOO_LONG', 'anthropic', 400] as const),
      ofAnthropic('prompt is too long: 200001 tokens > 200000 maximum', 'invalid_request_error'),
    ],
    [
      ...(['MODEL_NOT_FOUND', 'mistral', 400] as const),
      { object: 'error', message: `Invalid model: the-model ${MODEL_KEY}`, type: 'invalid_model' },
    ],
    ['MODEL_NOT_FOUND', 'google', 404, error('models/the-model is not found', { status: 'NOT_FOUND' })],
    ['MODEL_UNAVAILABLE', 'google', 503, error('The model is overloaded.', { status: 'UNAVAILABLE' })],
    ['MODEL_NOT_FOUND', 'openai-compatible', 404, error('model "the-model" not found, try pulling it first')],
    ['MODEL_ENDPOINT_UNKNOWN', 'openai-compatible', 404, '404 page not found'],
    ['MODEL_REQUEST_REFUSED', 'openai-compatible', 422, error('tools are not for you')],
    ['MODEL_RATE_LIMITED', 'voyage', 429, { detail: `Slow down ${MODEL_KEY}` }],
    ['MODEL_NOT_FOUND', 'voyage', 400, { detail: `Model the-model is not supported. ${MODEL_KEY}` }],
  ])('is %s in plain words, of kind %s with %i: %#', async (code, kind, status, body) => {
    always(typeof body === 'string' ? { status, body } : jsonAnswer(body, status));
    const told = await report(fixtureOf(kind));
    expect(told).toEqual(failed(code));
    expect(JSON.stringify(told)).not.toContain(MODEL_KEY);
  });

  const tooLong = {
    ...{ type: 'invalid_request_error', code: 'context_length_exceeded' },
    message: 'Your input exceeds the context window of this model.',
  };
  const overloaded = { type: 'overloaded_error', message: 'Overloaded' };
  test.each<[string, ModelKind, RawAnswer]>([
    ['MODEL_CONTEXT_TOO_LONG', 'openai', namedStream({ type: 'error', sequence_number: 0, error: tooLong })],
    ['MODEL_UNAVAILABLE', 'anthropic', namedStream({ type: 'error', error: overloaded })],
    ['MODEL_UNAVAILABLE', 'openai-compatible', dataStream(error('boom', { type: 'server_error' }))],
  ])('within a stream is %s likewise, of kind %s', async (code, kind, answer) => {
    always(answer);
    expect(await report(fixtureOf(kind))).toEqual(failed(code));
  });

  const busy = { ...jsonAnswer(error('at capacity'), 503), headers: { 'retry-after-ms': '1' } };
  test('is asked for once by a connection test', async () => {
    always(busy);
    for (const role of ['completion', 'embedding'] as const)
      expect(await report(compatible, role)).toEqual(failed('MODEL_UNAVAILABLE'));
    expect(server.requests).toHaveLength(2);
  });

  test('is also found in the last error of several tries, and nothing of it is quoted', async () => {
    always(busy);
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

  test('may be anything', () => {
    const deep = Object.assign(new Error(), { cause: { cause: 1 } });
    for (const thrown of [undefined, null, 'x', 7, {}, new Error(MODEL_KEY), deep]) {
      expect(modelError(thrown)).toMatchObject({ code: 'MODEL_FAILED', message: 'The model failed.' });
      expect(inspect(modelError(thrown), { depth: 9 })).not.toContain(MODEL_KEY);
    }
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
      return Object.values(JSON.parse(stdout) as Record<string, string[]>);
    };
    const named = peers
      .filter(([name]) => name !== 'ai')
      .map(([name, range]) => `${name}@${range.slice(1).split('.')[0]}`);
    const missing = named.map((name) => ['MODEL_PACKAGE_MISSING', `npm install ai@7 ${name}`]);
    expect(say()).toEqual(expect.arrayContaining(missing));
    // Without `ai` alone.
    symlinkSync(join(ROOT, 'node_modules/@ai-sdk'), join(folder, 'node_modules/@ai-sdk'));
    expect(say()).toEqual(named.map(() => ['MODEL_PACKAGE_MISSING', 'npm install ai@7']));
  });

  test('are optional peers, whose tested versions are those of the checkout', () => {
    const optional = peers.map(([name]) => [name, { optional: true }]);
    expect(manifest.peerDependenciesMeta).toEqual(Object.fromEntries(optional));
    expect(peers).toEqual(peers.map(([name]) => [name, `^${manifest.devDependencies[name]}`]));
  });
});

import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { streamText } from 'ai';
import { testConnection } from '../../src/service/models/connection-test.ts';
import { embedder } from '../../src/service/models/embedder.ts';
import { azureAddress, languageModel } from '../../src/service/models/language-model.ts';
import type { ModelKind, ModelSettings } from '../../src/service/settings/model-settings.ts';
import { MODEL_FIXTURES, type ModelFixture, modelSettings } from '../harness/service/model-fixtures.ts';
import {
  jsonAnswer,
  type ModelRequest,
  type ModelServer,
  type RawAnswer,
  startModelServer,
} from '../harness/service/model-server.ts';

let server: ModelServer;
beforeAll(async () => {
  server = await startModelServer();
});
afterAll(() => server.close());
beforeEach(() => {
  server.requests.length = 0;
});

const answering = MODEL_FIXTURES.filter(({ answer }) => answer);
const embedding = MODEL_FIXTURES.filter(({ embeddings }) => embeddings);
const of = ({ kind, base }: ModelFixture) => modelSettings(kind, { endpoint: server.url + base });
const always = (answer: RawAnswer | undefined) => {
  server.answer = () => answer;
};
const signal = new AbortController().signal;

function expectRequest({ method, path, headers, body }: ModelRequest, fixture: ModelFixture, wanted: object) {
  expect({ method, path }).toEqual({ method: 'POST', path: (wanted as { path: string }).path });
  expect(headers).toMatchObject({
    'content-type': 'application/json',
    [fixture.header[0]]: fixture.header[1],
  });
  expect(body).toMatchObject((wanted as { body: object }).body);
}

describe.each(answering)('a model of kind $kind', (fixture) => {
  test('is asked as its provider documents it, and its answer comes with the usage', async () => {
    always(fixture.answer);
    const result = streamText({ model: await languageModel(of(fixture)), prompt: 'Say hello.' });
    const said: string[] = [];
    for await (const text of result.textStream) said.push(text);
    expect(said).toEqual(['Hel', 'lo']);
    expect(await result.finishReason).toBe('stop');
    expect(await result.usage).toMatchObject({ inputTokens: 12, outputTokens: 3, totalTokens: 15 });
    expect(server.requests).toHaveLength(1);
    expectRequest(server.requests[0] as ModelRequest, fixture, fixture.question as object);
    // Only OpenAI would keep what it is asked.
    expect(server.requests[0]?.body.store).toBe(fixture.kind === 'openai' ? false : undefined);
  });

  test('passes the connection test, which sends what a bot sends and no temperature', async () => {
    always(fixture.answer);
    const report = await testConnection('completion', of(fixture));
    expect(report).toEqual({ ok: true, model: 'the-model', ms: expect.any(Number), tokens: 15 });
    expect(JSON.stringify(server.requests[0]?.body)).not.toMatch(/temperature/i);
    expect(server.requests[0]?.body.store).toBe(fixture.kind === 'openai' ? false : undefined);
  });

  test('that breaks off in its answer does not pass', async () => {
    const { body = '', ...rest } = fixture.answer as RawAnswer;
    const partOfText = body.indexOf('\n\n', body.indexOf('Hel')) + 2;
    always({ ...rest, body: body.slice(0, partOfText) });
    expect(await testConnection('completion', of(fixture))).toMatchObject({
      ok: false,
      code: 'MODEL_BAD_ANSWER',
    });
  });
});

describe.each(embedding)('an embedding model of kind $kind', (fixture) => {
  test('is asked as its provider documents it', async () => {
    always(fixture.embeddings);
    const embed = await embedder(of(fixture));
    const { embeddings } = await embed(['one', 'two'], 'document', signal);
    expect(embeddings).toEqual([
      [1, 2],
      [3, 4],
    ]);
    expectRequest(server.requests[0] as ModelRequest, fixture, fixture.texts as object);
  });

  test.each([
    [
      'too few vectors',
      (text: string) => text.replace(/,\s*\{[^{}]*\[3,4\][^{}]*\}|\{[^{}]*\[3,4\][^{}]*\},/, ''),
    ],
    ['vectors of different lengths', (text: string) => text.replace('[3,4]', '[3,4,5]')],
    ['no numbers', (text: string) => text.replace('[3,4]', '[3,null]')],
    ['HTML', () => '<html>Sign in</html>'],
  ])('whose answer is wrong fails: %s', async (_title, alter) => {
    const { body = '', ...rest } = fixture.embeddings as RawAnswer;
    expect(alter(body)).not.toBe(body);
    always({ ...rest, body: alter(body) });
    const embed = await embedder(of(fixture));
    await expect(embed(['one', 'two'], 'document', signal)).rejects.toMatchObject({
      code: 'MODEL_BAD_ANSWER',
    });
  });
});

test('Voyage and Google are told whether a text is searched for', async () => {
  const [google, voyage] = ['google', 'voyage'].map((kind) =>
    MODEL_FIXTURES.find((one) => one.kind === kind),
  );
  always(jsonAnswer({ embedding: { values: [1, 2] } }));
  await (await embedder(of(google as ModelFixture)))(['one'], 'query', signal);
  always(jsonAnswer({ data: [{ index: 0, embedding: [1] }] }));
  await (await embedder(of(voyage as ModelFixture)))(['one'], 'query', signal);
  expect(server.requests.map(({ body }) => body)).toMatchObject([
    { taskType: 'RETRIEVAL_QUERY' },
    { input_type: 'query' },
  ]);
});

describe('settings that cannot work', () => {
  test.each<[ModelKind, 'completion' | 'embedding', Partial<ModelSettings>, string]>([
    ['anthropic', 'embedding', {}, 'MODEL_CANNOT_EMBED'],
    ['voyage', 'completion', {}, 'MODEL_CANNOT_ANSWER'],
    ['azure', 'completion', {}, 'MODEL_ENDPOINT_MISSING'],
    ['openai-compatible', 'embedding', {}, 'MODEL_ENDPOINT_MISSING'],
  ])('of kind %s for %s are told before a request: %p', async (kind, role, more, code) => {
    expect(await testConnection(role, modelSettings(kind, more))).toMatchObject({ ok: false, code });
  });

  test.each(MODEL_FIXTURES.filter(({ kind }) => kind !== 'openai-compatible'))(
    'of kind $kind without a key are sent without one, whatever keys the environment has',
    async (fixture) => {
      const names = ['OPENAI', 'AZURE', 'ANTHROPIC', 'MISTRAL', 'GOOGLE_GENERATIVE_AI', 'VOYAGE'];
      for (const name of names) process.env[`${name}_API_KEY`] = 'of-the-environment';
      try {
        const { key: _key, ...keyless } = of(fixture);
        const role = fixture.answer ? 'completion' : 'embedding';
        always(fixture.refusal);
        expect(await testConnection(role, keyless)).toMatchObject({ ok: false, code: 'MODEL_KEY_REFUSED' });
        expect(server.requests).toHaveLength(1);
        expect(JSON.stringify(server.requests)).not.toContain('of-the-environment');
      } finally {
        for (const name of names) delete process.env[`${name}_API_KEY`];
      }
    },
  );

  test('of a server that wants no key send none', async () => {
    const fixture = answering.find(({ kind }) => kind === 'openai-compatible') as ModelFixture;
    always(fixture.answer);
    const { key: _key, ...keyless } = of(fixture);
    expect(await testConnection('completion', keyless)).toMatchObject({ ok: true });
    expect(server.requests[0]?.headers.authorization).toBeUndefined();
  });
});

describe('the address of a model at Azure', () => {
  const RESOURCE = 'https://acme.openai.azure.com';
  const DATED = 'openai/deployments/our-gpt/chat/completions?api-version=2024-10-21';
  test.each([
    [RESOURCE, undefined, `${RESOURCE}/openai/v1/chat/completions`],
    [`${RESOURCE}/`, undefined, `${RESOURCE}/openai/v1/chat/completions`],
    [`${RESOURCE}/openai`, undefined, `${RESOURCE}/openai/v1/chat/completions`],
    [`${RESOURCE}/openai/v1/`, undefined, `${RESOURCE}/openai/v1/chat/completions`],
    [RESOURCE, 'v1', `${RESOURCE}/openai/v1/chat/completions?api-version=v1`],
    [RESOURCE, 'preview', `${RESOURCE}/openai/v1/chat/completions?api-version=preview`],
    [RESOURCE, '2024-10-21', `${RESOURCE}/${DATED}`],
    [`${RESOURCE}/openai/v1`, '2024-10-21', `${RESOURCE}/${DATED}`],
    [
      `${RESOURCE}/openai/deployments/our-gpt/chat/completions?api-version=2025-01-01-preview`,
      '2024-10-21',
      `${RESOURCE}/${DATED}`,
    ],
    [
      'https://acme.cognitiveservices.azure.com/',
      undefined,
      'https://acme.cognitiveservices.azure.com/openai/v1/chat/completions',
    ],
    [
      'https://acme.services.ai.azure.com/api/projects/one',
      undefined,
      'https://acme.services.ai.azure.com/api/projects/one/openai/v1/chat/completions',
    ],
    ['https://gate.example/llm/v1', undefined, 'https://gate.example/llm/v1/chat/completions'],
    [
      'https://gate.example/llm',
      '2024-10-21',
      'https://gate.example/llm/deployments/our-gpt/chat/completions?api-version=2024-10-21',
    ],
  ])('%s with version %s', async (endpoint, apiVersion, url) => {
    const asked: string[] = [];
    const settings = modelSettings('azure', {
      endpoint,
      deployment: 'our-gpt',
      ...(apiVersion !== undefined && { apiVersion }),
    });
    const model = await languageModel(settings, async (input) => {
      asked.push(String(input));
      throw new Error('not sent');
    });
    await streamText({ model, prompt: 'Hello', maxRetries: 0, onError: () => {} }).consumeStream();
    expect(asked).toEqual([url]);
  });

  test('keeps no query of the endpoint', () => {
    expect(azureAddress(`${RESOURCE}/?api-version=x`).baseURL).toBe(`${RESOURCE}/openai/v1`);
  });
});

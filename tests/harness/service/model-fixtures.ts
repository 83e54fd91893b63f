import { secret } from '../../../src/secret.ts';
import type { ModelKind, ModelSettings } from '../../../src/service/settings/model-settings.ts';
import { dataStream, jsonAnswer, namedStream, type RawAnswer } from './model-server.ts';

/** The key of every fixture; no error may contain it. */
export const MODEL_KEY = 'sk-fixture-7d41c0ffee';

/** Settings of a model; `more` replaces parts. */
export const modelSettings = (kind: ModelKind, more: Partial<ModelSettings> = {}): ModelSettings => ({
  kind,
  model: 'the-model',
  key: secret(MODEL_KEY),
  keyHint: 'ffee',
  windowCharacters: 100_000,
  ...more,
});

/** What a provider documents of its wire format. */
export interface ModelFixture {
  readonly kind: ModelKind;
  /** Where its API begins below the host. */
  readonly base: string;
  readonly header: readonly [name: string, value: string];
  /** How a question arrives, and the stream that answers `Hello` with 15 tokens. */
  readonly question?: { readonly path: string; readonly body: Readonly<Record<string, unknown>> };
  readonly answer?: RawAnswer;
  /** How two documents arrive to be embedded, and the answer [1, 2], [3, 4]. */
  readonly texts?: { readonly path: string; readonly body: Readonly<Record<string, unknown>> };
  readonly embeddings?: RawAnswer;
  /** How it refuses a key. */
  readonly refusal: RawAnswer;
}

/** A chunk of OpenAI's chat completions. */
export const chatChunk = (delta: object, finish_reason: string | null = null) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1_790_000_000,
  model: 'the-model',
  choices: [{ index: 0, delta, finish_reason }],
});
const usage = { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };

/** A stream of OpenAI's chat completions, with the usage as a last chunk of its own. */
const chatStream = dataStream(
  chatChunk({ role: 'assistant', content: '' }),
  chatChunk({ content: 'Hel' }),
  chatChunk({ content: 'lo' }),
  chatChunk({}, 'stop'),
  { ...chatChunk({}), choices: [], usage },
  '[DONE]',
);
const user = { role: 'user', content: 'Say hello.' };
const chatBody = { model: 'the-model', stream: true, messages: [user] };

const embeddingList = jsonAnswer({
  object: 'list',
  model: 'the-model',
  data: [
    { object: 'embedding', index: 0, embedding: [1, 2] },
    { object: 'embedding', index: 1, embedding: [3, 4] },
  ],
  usage: { prompt_tokens: 8, total_tokens: 8 },
});
const embeddingBody = { model: 'the-model', input: ['one', 'two'] };

const response = { id: 'resp_1', object: 'response', created_at: 1_790_000_000, model: 'the-model' };
const message = { id: 'msg_1', type: 'message', role: 'assistant' };
const place = { item_id: 'msg_1', output_index: 0, content_index: 0 };

const openai: ModelFixture = {
  kind: 'openai',
  base: '/v1',
  header: ['authorization', `Bearer ${MODEL_KEY}`],
  question: {
    path: '/v1/responses',
    body: {
      model: 'the-model',
      stream: true,
      input: [{ role: 'user', content: [{ type: 'input_text', text: 'Say hello.' }] }],
    },
  },
  answer: namedStream(
    ...[
      { type: 'response.created', response: { ...response, status: 'in_progress', output: [] } },
      {
        type: 'response.output_item.added',
        output_index: 0,
        item: { ...message, status: 'in_progress', content: [] },
      },
      {
        type: 'response.content_part.added',
        ...place,
        part: { type: 'output_text', text: '', annotations: [] },
      },
      { type: 'response.output_text.delta', ...place, delta: 'Hel' },
      { type: 'response.output_text.delta', ...place, delta: 'lo' },
      { type: 'response.output_text.done', ...place, text: 'Hello' },
      {
        type: 'response.output_item.done',
        output_index: 0,
        item: {
          ...message,
          status: 'completed',
          content: [{ type: 'output_text', text: 'Hello', annotations: [] }],
        },
      },
      {
        type: 'response.completed',
        response: {
          ...response,
          status: 'completed',
          output: [],
          usage: {
            input_tokens: 12,
            input_tokens_details: { cached_tokens: 0 },
            output_tokens: 3,
            output_tokens_details: { reasoning_tokens: 0 },
            total_tokens: 15,
          },
        },
      },
    ].map((event, sequence_number) => ({ ...event, sequence_number })),
  ),
  texts: { path: '/v1/embeddings', body: embeddingBody },
  embeddings: embeddingList,
  refusal: jsonAnswer(
    {
      error: {
        message: `Incorrect API key provided: ${MODEL_KEY}.`,
        type: 'invalid_request_error',
        param: null,
        code: 'invalid_api_key',
      },
    },
    401,
  ),
};

const azure: ModelFixture = {
  kind: 'azure',
  base: '/openai/v1',
  header: ['api-key', MODEL_KEY],
  question: { path: '/openai/v1/chat/completions', body: chatBody },
  answer: chatStream,
  texts: { path: '/openai/v1/embeddings', body: embeddingBody },
  embeddings: embeddingList,
  refusal: jsonAnswer(
    { error: { code: '401', message: `Access denied due to invalid subscription key ${MODEL_KEY}.` } },
    401,
  ),
};

const anthropic: ModelFixture = {
  kind: 'anthropic',
  base: '/v1',
  header: ['x-api-key', MODEL_KEY],
  question: {
    path: '/v1/messages',
    body: {
      model: 'the-model',
      stream: true,
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Say hello.' }] }],
    },
  },
  answer: namedStream(
    {
      type: 'message_start',
      message: {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        content: [],
        model: 'the-model',
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 12, output_tokens: 1 },
      },
    },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'ping' },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hel' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'lo' } },
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 3 },
    },
    { type: 'message_stop' },
  ),
  refusal: jsonAnswer(
    { type: 'error', error: { type: 'authentication_error', message: `invalid x-api-key ${MODEL_KEY}` } },
    401,
  ),
};

const mistral: ModelFixture = {
  kind: 'mistral',
  base: '/v1',
  header: ['authorization', `Bearer ${MODEL_KEY}`],
  question: {
    path: '/v1/chat/completions',
    body: { ...chatBody, messages: [{ role: 'user', content: [{ type: 'text', text: 'Say hello.' }] }] },
  },
  answer: dataStream(
    chatChunk({ role: 'assistant', content: '' }),
    chatChunk({ content: 'Hel' }),
    { ...chatChunk({ content: 'lo' }, 'stop'), usage },
    '[DONE]',
  ),
  texts: { path: '/v1/embeddings', body: embeddingBody },
  embeddings: embeddingList,
  refusal: jsonAnswer({ message: `Unauthorized ${MODEL_KEY}`, request_id: 'r-1' }, 401),
};

const candidate = (text: string, more: object = {}) => ({
  candidates: [{ content: { role: 'model', parts: [{ text }] }, index: 0, ...more }],
  modelVersion: 'the-model',
  usageMetadata: { promptTokenCount: 12, candidatesTokenCount: 3, totalTokenCount: 15 },
});
const googleText = (text: string) => ({
  model: 'models/the-model',
  content: { role: 'user', parts: [{ text }] },
  taskType: 'RETRIEVAL_DOCUMENT',
});

const google: ModelFixture = {
  kind: 'google',
  base: '/v1beta',
  header: ['x-goog-api-key', MODEL_KEY],
  question: {
    path: '/v1beta/models/the-model:streamGenerateContent?alt=sse',
    body: { contents: [{ role: 'user', parts: [{ text: 'Say hello.' }] }] },
  },
  answer: dataStream(candidate('Hel'), candidate('lo', { finishReason: 'STOP' })),
  texts: {
    path: '/v1beta/models/the-model:batchEmbedContents',
    body: { requests: [googleText('one'), googleText('two')] },
  },
  embeddings: jsonAnswer({ embeddings: [{ values: [1, 2] }, { values: [3, 4] }] }),
  refusal: jsonAnswer(
    {
      error: {
        code: 400,
        message: `API key not valid: ${MODEL_KEY}. Please pass a valid API key.`,
        status: 'INVALID_ARGUMENT',
      },
    },
    400,
  ),
};

const compatible: ModelFixture = {
  kind: 'openai-compatible',
  base: '/v1',
  header: ['authorization', `Bearer ${MODEL_KEY}`],
  question: {
    path: '/v1/chat/completions',
    // Without it, servers such as vLLM do not say the usage.
    body: { ...chatBody, stream_options: { include_usage: true } },
  },
  answer: chatStream,
  texts: { path: '/v1/embeddings', body: embeddingBody },
  embeddings: embeddingList,
  refusal: jsonAnswer(
    { error: { message: `no such key ${MODEL_KEY}`, type: 'unauthorized', code: 401 } },
    401,
  ),
};

const voyage: ModelFixture = {
  kind: 'voyage',
  base: '/v1',
  header: ['authorization', `Bearer ${MODEL_KEY}`],
  texts: { path: '/v1/embeddings', body: { ...embeddingBody, input_type: 'document' } },
  // In the other order, which the numbers tell.
  embeddings: jsonAnswer({
    object: 'list',
    model: 'the-model',
    data: [
      { object: 'embedding', index: 1, embedding: [3, 4] },
      { object: 'embedding', index: 0, embedding: [1, 2] },
    ],
    usage: { total_tokens: 8 },
  }),
  refusal: jsonAnswer({ detail: `Provided API key is invalid: ${MODEL_KEY}` }, 401),
};

export const MODEL_FIXTURES = [openai, azure, anthropic, mistral, google, compatible, voyage] as const;

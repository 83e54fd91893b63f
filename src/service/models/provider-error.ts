/** What can be wrong with a model: what users are told, and what an administrator can do. Nothing of a provider's text. */
const PROBLEMS = {
  MODEL_NOT_SET: [
    "The bot's project has no completion model.",
    'Set one at the console, at AI settings of the project.',
  ],
  MODEL_ENDPOINT_MISSING: [
    'The model has no endpoint.',
    'Enter the endpoint: for Azure, https://NAME.openai.azure.com; for Ollama, http://127.0.0.1:11434/v1.',
  ],
  MODEL_CANNOT_EMBED: [
    'Models of this kind make no embeddings.',
    'Choose another kind for the embedding model: OpenAI, Azure, Mistral, Google, Voyage, or one that is compatible with OpenAI.',
  ],
  MODEL_CANNOT_ANSWER: [
    'Models of this kind only make embeddings.',
    'Choose another kind for the completion model.',
  ],
  MODEL_PACKAGE_MISSING: [
    'A package for this kind of model is not installed.',
    'Install the packages of the AI SDK.',
  ],
  MODEL_ENDPOINT_FORBIDDEN: [
    "The model's endpoint has an address that is not allowed.",
    'Link-local addresses and those of metadata services are refused. Check the endpoint, and what its name resolves to.',
  ],
  MODEL_ENDPOINT_REDIRECTS: [
    "The model's endpoint redirects to another address.",
    'Redirects are not followed, since the key would go along. Enter the address that it redirects to, if it is the right one.',
  ],
  MODEL_ENDPOINT_UNKNOWN: [
    "The model's endpoint has nothing at this path.",
    'Check the path of the endpoint: most end with /v1.',
  ],
  MODEL_HOST_UNKNOWN: [
    "The host of the model's endpoint is unknown.",
    'Check the spelling of the endpoint, and the DNS of this machine.',
  ],
  MODEL_UNREACHABLE: [
    "The model's endpoint cannot be reached.",
    'Check host and port of the endpoint, and whether a firewall is between.',
  ],
  MODEL_TLS_FAILED: [
    "The certificate of the model's endpoint is not accepted.",
    'Check whether it is https or http. A certificate of your own authority is given by NODE_EXTRA_CA_CERTS.',
  ],
  MODEL_TIMEOUT: ['The model did not answer in time.', 'Try again; if it stays so, try another model.'],
  MODEL_KEY_REFUSED: [
    "The model's provider refused the key.",
    'Check the key, and whether it may use this model at this endpoint.',
  ],
  MODEL_NOT_FOUND: [
    'The provider has no such model.',
    'Check the name of the model, and for Azure the name of the deployment. For Ollama, pull the model first.',
  ],
  MODEL_QUOTA_EXCEEDED: [
    "The quota or credit at the model's provider is used up.",
    'Check plan, quota and billing at the provider.',
  ],
  MODEL_RATE_LIMITED: [
    "The model's provider takes no more requests for now.",
    'Try again in a minute; if it stays so, raise the limits at the provider.',
  ],
  MODEL_UNAVAILABLE: ["The model's provider has a failure of its own.", 'Try again in a minute.'],
  MODEL_CONTEXT_TOO_LONG: [
    'The conversation is too long for the model.',
    "Set the model's window to fewer characters, or choose a model with a larger one.",
  ],
  MODEL_CONTENT_REFUSED: [
    "The model's provider refused the content.",
    "Ask in other words, or check the provider's filters.",
  ],
  MODEL_REQUEST_REFUSED: [
    "The model's provider refused the request.",
    'Check whether the model takes what the bot uses: tools, files, a temperature.',
  ],
  MODEL_BAD_ANSWER: [
    'The answer of the model cannot be understood, or broke off.',
    'Check that the kind fits the endpoint, and that the endpoint is that of an API and no web page.',
  ],
  MODEL_FAILED: ['The model failed.', 'Try again; the connection test says more.'],
} as const satisfies Record<string, readonly [problem: string, todo: string]>;

export type ModelProblem = keyof typeof PROBLEMS;

/** A failure of a model, with nothing in it of what the provider said. `todo` replaces that of the table. */
export class ModelError extends Error {
  readonly code: ModelProblem;
  readonly todo: string;

  constructor(code: ModelProblem, todo: string = PROBLEMS[code][1]) {
    super(PROBLEMS[code][0]);
    this.name = 'ModelError';
    this.code = code;
    this.todo = todo;
  }
}

/** What any error of the AI SDK, of the network, or of this room means, as one that can be logged and shown. */
export function modelError(error: unknown): ModelError {
  const chain = causes(error);
  const own = chain.find((one) => one instanceof ModelError);
  if (own) return own;
  const code = chain.map(codeOfSystem).find((found) => found !== undefined);
  return new ModelError(
    code ?? chain.map(codeOfAnswer).find((found) => found !== undefined) ?? 'MODEL_FAILED',
  );
}

/** How many causes deep an error is looked into. */
const MAX_CAUSES = 8;

/** The error and what caused it: a `RetryError` of the AI SDK has its last error, others their cause. */
function causes(error: unknown): unknown[] {
  const chain: unknown[] = [];
  for (let one = error; one !== undefined && one !== null && chain.length < MAX_CAUSES; ) {
    chain.push(one);
    one = memberOf(one, 'lastError') ?? memberOf(one, 'cause');
  }
  return chain;
}

/** Errors are told by their members: several copies of the AI SDK's packages may be installed. */
function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

function textOf(value: unknown, name: string): string {
  const found = memberOf(value, name);
  return typeof found === 'string' ? found : '';
}

const OF_SYSTEM: readonly (readonly [RegExp, ModelProblem])[] = [
  [/^(TimeoutError|AbortError|ResponseAborted)$/, 'MODEL_TIMEOUT'],
  [/^(ETIMEDOUT|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT)$/, 'MODEL_TIMEOUT'],
  [/^(ENOTFOUND|EAI_AGAIN|EAI_FAIL|ENODATA)$/, 'MODEL_HOST_UNKNOWN'],
  [
    /^(CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERR_TLS_|ERR_SSL_|HOSTNAME_MISMATCH|EPROTO)/,
    'MODEL_TLS_FAILED',
  ],
  [/^(ECONN|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|EPIPE|UND_ERR_SOCKET)/, 'MODEL_UNREACHABLE'],
  [/^HPE_/, 'MODEL_BAD_ANSWER'],
];

function codeOfSystem(error: unknown): ModelProblem | undefined {
  const names = [textOf(error, 'name'), textOf(error, 'code')];
  return OF_SYSTEM.find(([pattern]) => names.some((name) => pattern.test(name)))?.[1];
}

/** What providers write when a status alone does not say what is wrong. */
const IN_ANSWER: readonly (readonly [RegExp, ModelProblem])[] = [
  [/rate_limit|too many requests/i, 'MODEL_RATE_LIMITED'],
  [/insufficient_quota|billing|credit balance|exceeded your current quota/i, 'MODEL_QUOTA_EXCEEDED'],
  [
    /context_length|context (length|window)|prompt is too long|too many (input )?tokens/i,
    'MODEL_CONTEXT_TOO_LONG',
  ],
  [/input token count|maximum (context|number of tokens)|too large for model/i, 'MODEL_CONTEXT_TOO_LONG'],
  [/content_filter|content_policy|content management policy|moderation|safety/i, 'MODEL_CONTENT_REFUSED'],
  [/api[ _-]?key.{0,40}(not valid|invalid|incorrect)|authentication_error/i, 'MODEL_KEY_REFUSED'],
  [/(invalid|incorrect).{0,20}api[ _-]?key/i, 'MODEL_KEY_REFUSED'],
  [/model_not_found|invalid[ _]model|DeploymentNotFound/i, 'MODEL_NOT_FOUND'],
  [/(model|deployment)\b.{0,160}(not found|not exist|not supported)/i, 'MODEL_NOT_FOUND'],
  // What fetch and the AI SDK say of connections that have no code, such as those to a port that fetch bars.
  [/^(fetch failed|cannot connect to api)/im, 'MODEL_UNREACHABLE'],
];

const OF_STATUS: Readonly<Record<number, ModelProblem>> = {
  401: 'MODEL_KEY_REFUSED',
  402: 'MODEL_QUOTA_EXCEEDED',
  403: 'MODEL_KEY_REFUSED',
  404: 'MODEL_ENDPOINT_UNKNOWN',
  405: 'MODEL_ENDPOINT_UNKNOWN',
  408: 'MODEL_TIMEOUT',
  413: 'MODEL_CONTEXT_TOO_LONG',
  429: 'MODEL_RATE_LIMITED',
};

/** Names of the AI SDK's errors about answers that it cannot read. */
const UNREADABLE =
  /^AI_(TypeValidation|JSONParse|InvalidResponseData|EmptyResponseBody|InvalidStreamPart|No(Output|Content)Generated)Error$/;

/** How much of an answer is searched, in characters. */
const SEARCHED = 4000;

function codeOfAnswer(error: unknown): ModelProblem | undefined {
  const status = Number(memberOf(error, 'statusCode') ?? Number.NaN);
  if (status < 400 || UNREADABLE.test(textOf(error, 'name'))) return 'MODEL_BAD_ANSWER';
  const said = ['type', 'code', 'message', 'responseBody'].map((name) => textOf(error, name));
  return problemOfAnswer(status, typeof error === 'string' ? error : said.join('\n'));
}

/**
 * What an answer means that is no success. `status` is its HTTP status, or NaN where an error came within a stream;
 * `text` is what the provider wrote.
 */
export function problemOfAnswer(status: number, text: string): ModelProblem | undefined {
  if (status === 401 || status === 403) return 'MODEL_KEY_REFUSED';
  if (status >= 500) return status === 504 ? 'MODEL_TIMEOUT' : 'MODEL_UNAVAILABLE';
  const said = text.slice(0, SEARCHED);
  const found = IN_ANSWER.find(([pattern]) => pattern.test(said))?.[1];
  if (found) return found;
  if (status === 404 && /\bmodel|deployment/i.test(said)) return 'MODEL_NOT_FOUND';
  if (status >= 400) return OF_STATUS[status] ?? 'MODEL_REQUEST_REFUSED';
  return /overloaded|server_error|api_error/i.test(said) ? 'MODEL_UNAVAILABLE' : undefined;
}

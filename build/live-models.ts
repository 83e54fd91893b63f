import { parseArgs } from 'node:util';
import { secret } from '../src/secret.ts';
import { testConnection } from '../src/service/models/connection-test.ts';
import type { ModelKind, ModelSettings } from '../src/service/settings/model-settings.ts';

const USAGE = `usage: node build/live-models.ts KIND MODEL [--embedding MODEL] [--endpoint URL] [--api-version VERSION]
  Asks a real provider for one answer, and for one embedding if a model for it is named. The key comes from the
  environment. For Azure, MODEL is the name of the deployment. Voyage's MODEL is one that embeds.`;

/** Where each kind's key is. */
const KEYS: Readonly<Record<ModelKind, string>> = {
  openai: 'OPENAI_API_KEY',
  azure: 'AZURE_API_KEY',
  anthropic: 'ANTHROPIC_API_KEY',
  mistral: 'MISTRAL_API_KEY',
  google: 'GOOGLE_GENERATIVE_AI_API_KEY',
  'openai-compatible': 'OPENAI_COMPATIBLE_API_KEY',
  voyage: 'VOYAGE_API_KEY',
};

const isKind = (kind: string): kind is ModelKind => kind in KEYS;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    embedding: { type: 'string' },
    endpoint: { type: 'string' },
    'api-version': { type: 'string' },
  },
});
const [kind = '', model = ''] = positionals;
if (!isKind(kind) || model === '') throw new Error(USAGE);
const key = process.env[KEYS[kind]];
const version = values['api-version'];
const settings: ModelSettings = {
  kind,
  model,
  ...(key && { key: secret(key) }),
  keyHint: '',
  ...(values.endpoint && { endpoint: values.endpoint }),
  ...(version && { apiVersion: version }),
  windowCharacters: 100_000,
};
const embedding = kind === 'voyage' ? model : values.embedding;
const reports = [
  ...(kind === 'voyage' ? [] : [await testConnection('completion', settings)]),
  ...(embedding ? [await testConnection('embedding', { ...settings, model: embedding })] : []),
];
for (const report of reports) console.log(JSON.stringify(report));
process.exitCode = reports.every(({ ok }) => ok) ? 0 : 1;

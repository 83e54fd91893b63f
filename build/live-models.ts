import { parseArgs } from 'node:util';
import { MODEL_KEYS } from '../src/config/service-model.ts';
import { secret } from '../src/secret.ts';
import { testConnection } from '../src/service/models/connection-test.ts';
import { type ModelKind, type ModelSettings, USUAL_WINDOW } from '../src/service/settings/model-settings.ts';

const USAGE = `usage: node build/live-models.ts KIND MODEL [--embedding MODEL] [--endpoint URL] [--api-version VERSION]
  Asks a real provider for one answer, and for one embedding if a model for it is named. The key comes from the
  environment. For Azure, MODEL is the name of the deployment. Voyage's MODEL is one that embeds.`;

/** Where each kind's key is. */
const KEYS: Readonly<Record<ModelKind, string>> = { ...MODEL_KEYS, voyage: 'VOYAGE_API_KEY' };

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
  windowCharacters: USUAL_WINDOW,
};
const embedding = kind === 'voyage' ? model : values.embedding;
const reports = [
  ...(kind === 'voyage' ? [] : [await testConnection('completion', settings)]),
  ...(embedding ? [await testConnection('embedding', { ...settings, model: embedding })] : []),
];
for (const report of reports) console.log(JSON.stringify(report));
process.exitCode = reports.every(({ ok }) => ok) ? 0 : 1;

import type { Database } from './database.ts';
import {
  checkModel,
  hintOf,
  type ModelRole,
  type ModelSettings,
  type NewModelSettings,
} from './model-settings.ts';
import type { Sealer } from './sealed.ts';
import { SettingsError } from './settings-error.ts';

type ModelRow = {
  kind: string;
  model: string;
  endpoint: string | null;
  deployment: string | null;
  api_version: string | null;
  window_characters: number;
  sealed_key: Uint8Array<ArrayBuffer> | null;
  key_hint: string;
};

const COLUMNS = 'kind, model, endpoint, deployment, api_version, window_characters, sealed_key, key_hint';

/** The models in the database, with their keys sealed. */
export function modelsIn(database: Database, sealer: Sealer) {
  const model = (projectId: string, role: ModelRole): ModelSettings | undefined => {
    const text = `SELECT ${COLUMNS} FROM models WHERE project_id = ? AND role = ?`;
    const row = database.get<ModelRow>(text, projectId, role);
    return row && modelOf(row, (sealed) => sealer.open(sealed, rowOf(projectId, role)));
  };
  return {
    /** The model of a project for a role, with its key. */
    model,
    /**
     * Sets a model. Without a key, the one that is kept stays if kind and endpoint do.
     * @throws SettingsError also if the kept key would go to another endpoint
     */
    saveModel(projectId: string, role: ModelRole, settings: NewModelSettings) {
      checkModel(role, settings);
      const key = settings.key ?? keptKey(model(projectId, role), settings);
      if (!key && settings.kind !== 'openai-compatible')
        throw new SettingsError(`A model of ${settings.kind} needs a key.`, 'key');
      const { kind, endpoint = null, deployment = null, apiVersion = null, windowCharacters } = settings;
      const values = [kind, settings.model, endpoint, deployment, apiVersion, windowCharacters];
      const sealed = key ? sealer.seal(key, rowOf(projectId, role)) : null;
      database.change(
        { missing: 'There is no such project.' },
        `INSERT OR REPLACE INTO models (project_id, role, ${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        ...[projectId, role, ...values, sealed, hintOf(key)],
      );
    },
    removeModel(projectId: string, role: ModelRole) {
      const text = 'DELETE FROM models WHERE project_id = ? AND role = ?';
      database.change({ missing: `There is no ${role} model.` }, text, projectId, role);
    },
  };
}

/** Where a key stands, so that it opens nowhere else. */
const rowOf = (projectId: string, role: ModelRole) => `models/${projectId}/${role}`;

/** The key that stays. To another endpoint it never goes: it would be shown there. */
function keptKey(kept: ModelSettings | undefined, { kind, endpoint }: NewModelSettings) {
  if (!kept?.key || (kept.kind === kind && kept.endpoint === endpoint)) return kept?.key;
  const message = 'Enter the key again: the one that is kept was for another kind or endpoint.';
  throw new SettingsError(message, 'key');
}

function modelOf(row: ModelRow, open: (sealed: Uint8Array) => ModelSettings['key']): ModelSettings {
  return {
    kind: row.kind as ModelSettings['kind'],
    model: row.model,
    key: row.sealed_key === null ? undefined : open(row.sealed_key),
    keyHint: row.key_hint,
    endpoint: row.endpoint ?? undefined,
    deployment: row.deployment ?? undefined,
    apiVersion: row.api_version ?? undefined,
    windowCharacters: row.window_characters,
  };
}

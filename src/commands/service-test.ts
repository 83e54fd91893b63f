import { ASSISTANT_BOT, assistantOf } from '../service/bot-brains.ts';
import { type ConnectionReport, testConnection } from '../service/models/connection-test.ts';
import { MODEL_ROLES, type ModelRole, type ModelSettings } from '../service/settings/model-settings.ts';
import type { Settings } from '../service/settings/settings.ts';
import { SettingsError } from '../service/settings/settings-error.ts';

/** A model that is to be tested, and whose it is. */
export interface TestedModel {
  /** The name of a project, or of the bot of SERVICE_MODEL. */
  readonly of: string;
  readonly role: ModelRole;
  readonly settings: ModelSettings;
}

/** The models of the projects; of one, if `name` is not undefined. @throws SettingsError if there is no such project */
export function modelsOfProjects(settings: Settings, name: string | undefined): TestedModel[] {
  const all = settings.projects();
  const projects = all.filter((project) => name === undefined || project.name === name);
  if (projects.length === 0)
    throw new SettingsError(
      `There is no project ${name}; there are: ${all.map((project) => project.name).join(', ')}`,
    );
  return projects.flatMap((project) =>
    MODEL_ROLES.flatMap((role) => {
      const found = settings.model(project.id, role);
      return found ? [{ of: project.name, role, settings: found }] : [];
    }),
  );
}

/** The model of SERVICE_MODEL, if there is one. */
export function assistantModel(model: Parameters<typeof assistantOf>[0] | undefined): TestedModel[] {
  return model ? [{ of: ASSISTANT_BOT, role: 'completion', settings: assistantOf(model) }] : [];
}

/** Tests the connections to models, one after the other. Returns the lines to print, and whether all work. */
export async function testModels(models: readonly TestedModel[], asJson: boolean) {
  if (models.length === 0) throw new SettingsError('No model is set: there is nothing to test.');
  const tested: { readonly model: TestedModel; readonly report: ConnectionReport }[] = [];
  for (const model of models)
    tested.push({ model, report: await testConnection(model.role, model.settings) });
  const reports = tested.map(({ model, report }) => ({ ...named(model), ...report }));
  const lines = asJson ? [JSON.stringify(reports)] : tested.map(({ model, report }) => lineOf(model, report));
  return { lines, isGood: tested.every(({ report }) => report.ok) };
}

const named = ({ of, role, settings: { kind, model } }: TestedModel) => ({ of, role, kind, model });

function lineOf(model: TestedModel, report: ConnectionReport): string {
  const { of, role, kind, model: name } = named(model);
  const what = `${of}   ${role}   ${kind}/${name}`;
  if (!report.ok) return `${what}   problem: ${report.problem}\n   -> ${report.todo}`;
  const tokens = report.tokens === undefined ? '' : `, ${report.tokens} tokens`;
  return `${what}   works: ${report.ms} ms${tokens}`;
}

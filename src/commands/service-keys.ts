import type { ApiKey } from '../service/settings/api-keys.ts';
import type { Project } from '../service/settings/projects.ts';
import type { Settings } from '../service/settings/settings.ts';
import { SettingsError } from '../service/settings/settings-error.ts';

/** What to do with the keys of a project of the bot service. */
export interface KeyAction {
  readonly verb: string;
  /** The name of the key; empty to list them. */
  readonly name: string;
  /** The name of the project; not needed if there is only one. */
  readonly project?: string | undefined;
  readonly yes?: boolean | undefined;
}

/** Whether there is such an action. */
export function isKeyAction({ verb, name, yes = false }: KeyAction): boolean {
  if (yes && verb !== 'delete') return false;
  return verb === 'list' ? name === '' : /^(create|disable|enable|delete)$/.test(verb) && name !== '';
}

/** Does it. Returns the lines to print. @throws SettingsError */
export function changeKeys(settings: Settings, action: KeyAction): string[] {
  const { verb, name, yes } = action;
  const { id } = projectNamed(settings, action.project);
  if (verb === 'list') return settings.keys(id).map(lineOf);
  // Nothing but the key, so that a script can take it.
  if (verb === 'create') return [settings.createKey(id, name).open()];
  const key = settings.keys(id).find((one) => one.name === name);
  if (!key) throw new SettingsError(`There is no key ${name}.`);
  if (verb === 'delete' && !yes)
    throw new SettingsError(
      `Programs with the key ${name} would be refused for good. To delete it, add --yes.`,
    );
  if (verb === 'delete') settings.deleteKey(key.id);
  else settings.setKeyEnabled(key.id, verb === 'enable');
  return [`${name} is ${verb}d.`];
}

function projectNamed(settings: Settings, name: string | undefined): Project {
  const projects = settings.projects();
  const names = projects.map((one) => one.name).join(', ');
  const [first, ...others] = projects.filter((one) => name === undefined || one.name === name);
  if (!first) throw new SettingsError(`There is no project ${name ?? ''}; there are: ${names}`);
  if (others.length > 0) throw new SettingsError(`Say which project: --project with one of ${names}`);
  return first;
}

function lineOf({ name, isEnabled, createdAt, lastUsedAt }: ApiKey): string {
  const times = `created ${timeText(createdAt)}   used ${timeText(lastUsedAt)}`;
  return `${name}   ${isEnabled ? 'active' : 'disabled'}   ${times}`;
}

function timeText(time: Date | undefined): string {
  return time ? time.toISOString().replace(/\.\d+/, '') : 'never';
}

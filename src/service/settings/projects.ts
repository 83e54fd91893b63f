import { randomUUID } from 'node:crypto';
import type { Database } from './database.ts';
import { SettingsError } from './settings-error.ts';
import { checkLine, checkName, checkWhole } from './values.ts';

/** What belongs together: namespaces with bots, models, keys, knowledge. */
export interface Project {
  readonly id: string;
  readonly name: string;
  /** How many messages it takes in a day of UTC; without it, as many as come. */
  readonly dailyCap?: number | undefined;
}

/**
 * Called after a project was removed, a namespace of it, or a bot of that: what runs for it must end, and its
 * conversations are to be deleted.
 */
export type Gone = (projectId: string, namespace?: string, bot?: string) => void;

type ProjectRow = { id: string; name: string; daily_cap: number | null };

const MAX_CAP = 1_000_000_000;
const UNDER_CAP =
  'count < coalesce((SELECT daily_cap FROM projects WHERE id = message_counts.project_id), count + 1)';
const TAKEN = 'There is already a project of this name.';
const MISSING = 'There is no such project.';

/** The projects in the database; `onGone` is called for each project that is removed. */
export function projectsIn(database: Database, onGone: Gone) {
  const change = (text: string, ...values: (string | number | null)[]) =>
    database.change({ taken: TAKEN, missing: MISSING }, text, ...values);
  const checkProjectName = (name: string) => checkLine("A project's name", name, { field: 'name', max: 100 });
  return {
    /** All projects, by name. */
    projects: (): Project[] =>
      database.all<ProjectRow>('SELECT id, name, daily_cap FROM projects ORDER BY name').map(projectOf),
    project: (id: string): Project | undefined =>
      database.all<ProjectRow>('SELECT id, name, daily_cap FROM projects WHERE id = ?', id).map(projectOf)[0],
    createProject(name: string, id: string = randomUUID()): Project {
      checkProjectName(name);
      change('INSERT INTO projects (id, name, created_at) VALUES (?, ?, ?)', id, name, Date.now());
      return { id, name };
    },
    renameProject(id: string, name: string) {
      checkProjectName(name);
      change('UPDATE projects SET name = ? WHERE id = ?', name, id);
    },
    /** Deletes a project with all that belongs to it. */
    deleteProject(id: string) {
      change('DELETE FROM projects WHERE id = ?', id);
      onGone(id);
    },
    setDailyCap(id: string, cap: number | undefined) {
      if (cap !== undefined) checkWhole('A cap of messages a day', cap, { field: 'dailyCap', max: MAX_CAP });
      change('UPDATE projects SET daily_cap = ? WHERE id = ?', cap ?? null, id);
    },
    /** Counts a message of today (UTC); returns false, and does not count it, if the cap of the day is reached. */
    countMessage(projectId: string): boolean {
      const today = new Date().toISOString().slice(0, 10);
      const text = `INSERT INTO message_counts (project_id, day, count) VALUES (?, ?, 1)
        ON CONFLICT (project_id, day) DO UPDATE SET count = count + 1 WHERE ${UNDER_CAP}`;
      return database.run(text, projectId, today) === 1;
    },
  };
}

/** The namespaces of projects; `onGone` is called for each that is removed. */
export function namespacesIn(database: Database, onGone: Gone) {
  return {
    /** The names of a project's namespaces. */
    namespaces: (projectId: string): string[] =>
      database
        .all<{ name: string }>('SELECT name FROM namespaces WHERE project_id = ? ORDER BY name', projectId)
        .map(({ name }) => name),
    /** Adds a namespace, which no other project can have then. */
    addNamespace(projectId: string, name: string) {
      checkName('A namespace', name);
      const taken = `There is already a namespace ${name}.`;
      const text = 'INSERT INTO namespaces (name, project_id) VALUES (?, ?)';
      database.change({ taken, missing: MISSING }, text, name, projectId);
    },
    /** Removes a namespace with its bots. */
    removeNamespace(name: string) {
      const projectId = projectOfNamespace(database, name);
      database.run('DELETE FROM namespaces WHERE name = ?', name);
      onGone(projectId, name);
    },
  };
}

/** The id of the project that has this namespace. @throws SettingsError if none has it */
export function projectOfNamespace(database: Database, name: string): string {
  const row = database.get<{ project_id: string }>('SELECT project_id FROM namespaces WHERE name = ?', name);
  if (!row) throw new SettingsError(`There is no namespace ${name}.`);
  return row.project_id;
}

function projectOf({ id, name, daily_cap }: ProjectRow): Project {
  return { id, name, dailyCap: daily_cap ?? undefined };
}

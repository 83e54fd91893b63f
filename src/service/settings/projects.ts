import { randomUUID } from 'node:crypto';
import { SettingsError } from './settings-error.ts';
import { changeRow, type Gone, type Sql } from './sql.ts';
import { checkLine, checkName, checkWhole } from './values.ts';

/** What belongs together: namespaces with bots, models, keys, knowledge. */
export interface Project {
  readonly id: string;
  readonly name: string;
  /** How many messages it takes in a day of UTC; without it, as many as come. */
  readonly dailyCap?: number | undefined;
}

export interface Projects {
  /** All projects, by name. */
  projects(): Project[];
  project(id: string): Project | undefined;
  createProject(name: string): Project;
  renameProject(id: string, name: string): void;
  /** Deletes a project with all that belongs to it. */
  deleteProject(id: string): void;
  setDailyCap(id: string, cap: number | undefined): void;
  /** The names of a project's namespaces. */
  namespaces(projectId: string): string[];
  /** Adds a namespace, which no other project can have then. */
  addNamespace(projectId: string, name: string): void;
  /** Removes a namespace with its bots. */
  removeNamespace(name: string): void;
  /** Counts a message of today (UTC); returns false, and does not count it, if the cap of the day is reached. */
  countMessage(projectId: string): boolean;
}

type ProjectRow = { id: string; name: string; daily_cap: number | null };

const MAX_CAP = 1_000_000_000;
const UNDER_CAP =
  'count < coalesce((SELECT daily_cap FROM projects WHERE id = message_counts.project_id), count + 1)';

/** The projects in the database; `onGone` is called for each project and namespace that is removed. */
export function projectsIn(sql: Sql, onGone: Gone): Projects {
  const sentences = {
    taken: 'There is already a project of this name.',
    missing: 'There is no such project.',
  };
  const saved = (change: () => number) => changeRow(change, sentences);
  const checked = (name: string) => checkLine("A project's name", name, { max: 100 });
  return {
    projects: () =>
      sql.all<ProjectRow>('SELECT id, name, daily_cap FROM projects ORDER BY name').map(projectOf),
    project(id) {
      const row = sql.get<ProjectRow>('SELECT id, name, daily_cap FROM projects WHERE id = ?', id);
      return row && projectOf(row);
    },
    createProject(name) {
      checked(name);
      const id = randomUUID();
      const text = 'INSERT INTO projects (id, name, created_at) VALUES (?, ?, ?)';
      saved(() => sql.run(text, id, name, Date.now()));
      return { id, name };
    },
    renameProject(id, name) {
      checked(name);
      saved(() => sql.run('UPDATE projects SET name = ? WHERE id = ?', name, id));
    },
    deleteProject(id) {
      saved(() => sql.run('DELETE FROM projects WHERE id = ?', id));
      onGone(id);
    },
    setDailyCap(id, cap) {
      if (cap !== undefined) checkWhole('A cap of messages a day', cap, { max: MAX_CAP });
      saved(() => sql.run('UPDATE projects SET daily_cap = ? WHERE id = ?', cap ?? null, id));
    },
    ...namespacesIn(sql, onGone),
    countMessage(projectId) {
      const today = new Date().toISOString().slice(0, 10);
      const text = `INSERT INTO message_counts (project_id, day, count) VALUES (?, ?, 1)
        ON CONFLICT (project_id, day) DO UPDATE SET count = count + 1 WHERE ${UNDER_CAP}`;
      return sql.run(text, projectId, today) === 1;
    },
  };
}

type Namespaces = Pick<Projects, 'namespaces' | 'addNamespace' | 'removeNamespace'>;

function namespacesIn(sql: Sql, onGone: Gone): Namespaces {
  return {
    namespaces: (projectId) =>
      sql
        .all<{ name: string }>('SELECT name FROM namespaces WHERE project_id = ? ORDER BY name', projectId)
        .map(({ name }) => name),
    addNamespace(projectId, name) {
      checkName('A namespace', name);
      const text = 'INSERT INTO namespaces (name, project_id) VALUES (?, ?)';
      const taken = `There is already a namespace ${name}.`;
      changeRow(() => sql.run(text, name, projectId), { taken, missing: 'There is no such project.' });
    },
    removeNamespace(name) {
      const projectId = projectOfNamespace(sql, name);
      sql.run('DELETE FROM namespaces WHERE name = ?', name);
      onGone(projectId, name);
    },
  };
}

/** The id of the project that has this namespace. @throws SettingsError if none has it */
export function projectOfNamespace(sql: Sql, name: string): string {
  const row = sql.get<{ project_id: string }>('SELECT project_id FROM namespaces WHERE name = ?', name);
  if (!row) throw new SettingsError(`There is no namespace ${name}.`);
  return row.project_id;
}

function projectOf({ id, name, daily_cap }: ProjectRow): Project {
  return { id, name, dailyCap: daily_cap ?? undefined };
}

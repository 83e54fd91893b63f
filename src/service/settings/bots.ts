import { type Bot, checkBot } from './bot.ts';
import { projectOfNamespace } from './projects.ts';
import { SettingsError } from './settings-error.ts';
import type { Gone, Sql } from './sql.ts';

export interface Bots {
  /** The bots of a project, by namespace and name. */
  bots(projectId: string): Bot[];
  bot(namespace: string, name: string): Bot | undefined;
  /** Adds a bot to one of the project's namespaces, or replaces the one of this name. */
  saveBot(projectId: string, bot: Bot): void;
  deleteBot(namespace: string, name: string): void;
}

type BotRow = {
  namespace: string;
  name: string;
  title: string;
  instructions: string;
  suggestions: string;
  temperature: number | null;
  tools: string;
  uses_knowledge: number;
};

const COLUMNS = 'namespace, name, title, instructions, suggestions, temperature, tools, uses_knowledge';

/** The bots in the database; `onGone` is called for each that is deleted. */
export function botsIn(sql: Sql, onGone: Gone): Bots {
  return {
    bots(projectId) {
      const mine = 'namespace IN (SELECT name FROM namespaces WHERE project_id = ?)';
      const text = `SELECT ${COLUMNS} FROM bots WHERE ${mine} ORDER BY namespace, name`;
      return sql.all<BotRow>(text, projectId).map(botOf);
    },
    bot(namespace, name) {
      const text = `SELECT ${COLUMNS} FROM bots WHERE namespace = ? AND name = ?`;
      const row = sql.get<BotRow>(text, namespace, name);
      return row && botOf(row);
    },
    saveBot(projectId, bot) {
      checkBot(bot);
      const { namespace, name, title, instructions, suggestions, temperature, tools, usesKnowledge } = bot;
      const text = `INSERT OR REPLACE INTO bots (${COLUMNS})
        SELECT name, ?, ?, ?, ?, ?, ?, ? FROM namespaces WHERE project_id = ? AND name = ?`;
      const lists = [JSON.stringify(suggestions), temperature ?? null, JSON.stringify(tools)];
      const values = [name, title, instructions, ...lists, Number(usesKnowledge)];
      if (sql.run(text, ...values, projectId, namespace) === 0)
        throw new SettingsError(`The namespace ${namespace} is none of this project.`);
    },
    deleteBot(namespace, name) {
      const projectId = projectOfNamespace(sql, namespace);
      if (sql.run('DELETE FROM bots WHERE namespace = ? AND name = ?', namespace, name) === 0)
        throw new SettingsError(`There is no bot ${namespace}/${name}.`);
      onGone(projectId, namespace, name);
    },
  };
}

function botOf({ suggestions, temperature, tools, uses_knowledge, ...texts }: BotRow): Bot {
  return {
    ...texts,
    suggestions: JSON.parse(suggestions) as Bot['suggestions'],
    temperature: temperature ?? undefined,
    tools: JSON.parse(tools) as Bot['tools'],
    usesKnowledge: uses_knowledge === 1,
  };
}

import { type Bot, checkBot } from './bot.ts';
import type { Database } from './database.ts';
import { type Gone, projectOfNamespace } from './projects.ts';

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
export function botsIn(database: Database, onGone: Gone) {
  return {
    /** The bots of a project, by namespace and name. */
    bots(projectId: string): Bot[] {
      const mine = 'namespace IN (SELECT name FROM namespaces WHERE project_id = ?)';
      const text = `SELECT ${COLUMNS} FROM bots WHERE ${mine} ORDER BY namespace, name`;
      return database.all<BotRow>(text, projectId).map(botOf);
    },
    bot(namespace: string, name: string): Bot | undefined {
      const text = `SELECT ${COLUMNS} FROM bots WHERE namespace = ? AND name = ?`;
      const row = database.get<BotRow>(text, namespace, name);
      return row && botOf(row);
    },
    /** Adds a bot to one of the project's namespaces, or replaces the one of this name. */
    saveBot(projectId: string, bot: Bot) {
      checkBot(bot);
      const { namespace, name, title, instructions, suggestions, temperature, tools, usesKnowledge } = bot;
      const text = `INSERT OR REPLACE INTO bots (${COLUMNS})
        SELECT name, ?, ?, ?, ?, ?, ?, ? FROM namespaces WHERE project_id = ? AND name = ?`;
      const lists = [JSON.stringify(suggestions), temperature ?? null, JSON.stringify(tools)];
      const values = [name, title, instructions, ...lists, Number(usesKnowledge)];
      const missing = `The namespace ${namespace} is none of this project.`;
      database.change({ missing, field: 'namespace' }, text, ...values, projectId, namespace);
    },
    deleteBot(namespace: string, name: string) {
      const projectId = projectOfNamespace(database, namespace);
      const missing = `There is no bot ${namespace}/${name}.`;
      database.change({ missing }, 'DELETE FROM bots WHERE namespace = ? AND name = ?', namespace, name);
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

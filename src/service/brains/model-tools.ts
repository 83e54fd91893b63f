import type { ToolSet } from 'ai';
import type { Bot } from '../settings/bot.ts';
import type { Found, RunError, Search } from './steps.ts';

/** What the tools of a run may use. There is no way from here to settings, keys or other conversations. */
export interface ToolParts {
  readonly bot: Bot;
  readonly search: Search | undefined;
  /** How long a result may be, in characters. */
  readonly maxCharacters: number;
  readonly runError: (error: unknown) => RunError;
}

/** The functions of `ai`, which is loaded late. */
type Sdk = Pick<typeof import('ai'), 'tool' | 'jsonSchema'>;

/** The tools of a bot, by the names that its model knows. */
export function toolsFor(sdk: Sdk, parts: ToolParts): ToolSet {
  const { bot, search } = parts;
  return {
    ...(bot.tools.includes('clock') && { clock: clock(sdk) }),
    ...(search && { search_knowledge: searchTool(sdk, search, parts) }),
  };
}

function clock({ tool, jsonSchema }: Sdk) {
  return tool({
    description: 'Tells the date and the time of now.',
    inputSchema: jsonSchema<{ readonly zone?: unknown }>({
      type: 'object',
      properties: { zone: { type: 'string', description: 'A time zone, as Asia/Taipei; UTC if not given.' } },
      additionalProperties: false,
    }),
    execute: ({ zone }) => timeIn(typeof zone === 'string' && zone !== '' ? zone : 'UTC', new Date()),
  });
}

function timeIn(zone: string, now: Date): object {
  try {
    const format = new Intl.DateTimeFormat('en-GB', { timeZone: zone, dateStyle: 'full', timeStyle: 'long' });
    return { time: format.format(now), utc: now.toISOString() };
  } catch {
    return { error: 'There is no time zone of this name.' };
  }
}

function searchTool({ tool, jsonSchema }: Sdk, search: Search, { maxCharacters, runError }: ToolParts) {
  return tool({
    description: 'Finds what the documents say. Each piece has its source.',
    inputSchema: jsonSchema<{ readonly query?: unknown }>({
      type: 'object',
      properties: { query: { type: 'string', description: 'What to look for, in words or as a question.' } },
      required: ['query'],
      additionalProperties: false,
    }),
    async execute({ query }, { abortSignal = new AbortController().signal }): Promise<object> {
      if (typeof query !== 'string' || query.trim() === '') return { error: 'The query is missing.' };
      try {
        return { found: bounded(await search(query, abortSignal), maxCharacters) };
      } catch (error) {
        abortSignal.throwIfAborted();
        return { error: runError(error).message };
      }
    },
  });
}

/** The best pieces that have room; the last of them may be cut. */
function bounded(found: readonly Found[], maxCharacters: number): Found[] {
  let left = maxCharacters;
  return found.flatMap(({ text, source }) => {
    const piece = { source, text: text.slice(0, Math.max(0, left)).toWellFormed() };
    left -= text.length + source.length;
    return piece.text === '' ? [] : [piece];
  });
}

import { SettingsError } from './settings-error.ts';
import { checkLine, checkName, checkText } from './values.ts';

/** The tools that a bot can have. */
export const TOOLS = ['clock'] as const;

/** A bot that a model answers for. */
export interface Bot {
  readonly namespace: string;
  readonly name: string;
  /** Its name as its users read it; may be empty. */
  readonly title: string;
  /** What the model is told before each conversation; may be empty. */
  readonly instructions: string;
  /** Messages that a user can send with one press. */
  readonly suggestions: readonly string[];
  /** From 0 to 2; without it, the provider's own. */
  readonly temperature?: number | undefined;
  readonly tools: readonly (typeof TOOLS)[number][];
  /** Whether it searches the knowledge of its project. */
  readonly usesKnowledge: boolean;
}

const MAX_INSTRUCTIONS = 50_000;
const MAX_SUGGESTIONS = 10;
const MAX_TEMPERATURE = 2;

/** @throws SettingsError if a bot cannot be so */
export function checkBot({
  namespace,
  name,
  title,
  instructions,
  suggestions,
  temperature,
  tools,
}: Bot): void {
  checkName('A namespace', namespace, 'namespace');
  checkName("A bot's name", name);
  checkLine("A bot's title", title, { field: 'title', min: 0, max: 200 });
  checkText('The instructions of a bot', instructions, {
    field: 'instructions',
    min: 0,
    max: MAX_INSTRUCTIONS,
  });
  if (suggestions.length > MAX_SUGGESTIONS)
    throw new SettingsError(`A bot has at most ${MAX_SUGGESTIONS} suggestions.`, 'suggestions');
  for (const suggestion of suggestions)
    checkLine('A suggestion', suggestion, { field: 'suggestions', max: 200 });
  if (temperature !== undefined && !(temperature >= 0 && temperature <= MAX_TEMPERATURE))
    throw new SettingsError(`A temperature must be a number from 0 to ${MAX_TEMPERATURE}.`, 'temperature');
  if (new Set(tools).size < tools.length || !tools.every((tool) => TOOLS.includes(tool)))
    throw new SettingsError(`The tools of a bot are ${TOOLS.join(', ')}, each at most once.`);
}

import { type Bot, TOOLS } from '../settings/bot.ts';
import { areaField, checkField, type Form, formOf, textField } from './fields.ts';
import { type Html, html } from './html.ts';

const TOOL_NAMES: Readonly<Record<Bot['tools'][number], string>> = {
  clock: 'Clock: it can ask what time it is',
};

/** The form with the settings of a bot. */
export function formOfBot({
  title,
  instructions,
  suggestions,
  temperature,
  tools,
  usesKnowledge,
}: Bot): Form {
  return formOf('bot', {
    ...{ title, instructions, temperature },
    suggestions: suggestions.join('\n'),
    usesKnowledge: usesKnowledge ? 'on' : undefined,
    ...Object.fromEntries(tools.map((tool) => [`tool-${tool}`, 'on'])),
  });
}

/** The bot in a form. */
export function botIn(values: URLSearchParams, { namespace, name }: Pick<Bot, 'namespace' | 'name'>): Bot {
  const text = (field: string) => values.get(field)?.trim() ?? '';
  const temperature = text('temperature');
  return {
    ...{ namespace, name, title: text('title') },
    instructions: values.get('instructions') ?? '',
    suggestions: text('suggestions')
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== ''),
    temperature: temperature === '' ? undefined : Number(temperature),
    tools: TOOLS.filter((tool) => values.has(`tool-${tool}`)),
    usesKnowledge: values.has('usesKnowledge'),
  };
}

/** The fields that a new bot and an old one have. */
export function botFields(form: Form): Html {
  return html`${textField(form, { name: 'title', label: 'Title', hint: 'As pages may show it.' })}
${areaField(form, { name: 'instructions', label: 'Instructions', hint: 'What the model is told before each conversation.', rows: 8 })}
${areaField(form, { name: 'suggestions', label: 'Suggestions', hint: 'One a line: messages that pages may offer to a user.', rows: 4 })}
${textField(form, {
  name: 'temperature',
  label: 'Temperature',
  hint: "From 0 to 2. Empty: the model's own; some take no other.",
  inputMode: 'decimal',
  isCode: true,
})}
<fieldset>
<legend>What it can use</legend>
${TOOLS.map((tool) => checkField(form, { name: `tool-${tool}`, label: TOOL_NAMES[tool] }))}
${checkField(form, { name: 'usesKnowledge', label: 'Knowledge: it searches the files of this project' })}
</fieldset>`;
}

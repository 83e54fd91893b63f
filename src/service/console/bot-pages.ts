import type { Express } from 'express';
import { abortWhenLeft } from '../../http/client-connection.ts';
import type { Bot } from '../settings/bot.ts';
import type { Project } from '../settings/projects.ts';
import { DEMO } from '../settings/settings.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { botFields, botIn, formOfBot } from './bot-form.ts';
import { areaField, type Form, formOf, selectField, textField } from './fields.ts';
import { html } from './html.ts';
import { actionLink, facts, pathOf, rows, showPage } from './layout.ts';
import { fieldsOf } from './read-form.ts';
import { type Call, type ConsoleParts, found, projectRoutes } from './routes.ts';
import { type TriedAnswer, triedAnswer } from './tried-answer.ts';

/** The bots of a project: all of them, a new one, and each with a box to try it. */
export function botPages(app: Express, { settings, brainOf }: ConsoleParts): void {
  const { get, post, form, deletion } = projectRoutes(app, settings);
  const botOf = ({ project, part }: Call) =>
    found(
      settings
        .bots(project.id)
        .find(({ namespace, name }) => namespace === part('namespace') && name === part('name')),
    );
  const showNew = (call: Call, form: Form) => showNewBot(call, settings.namespaces(call.project.id), form);

  get('/bots', (call) => {
    const { id } = call.project;
    showBots(call, settings.bots(id), settings.namespaces(id).includes(DEMO));
  });
  get('/bots/new', (call) => showNew(call, formOf('bot')));
  form('/bots/new', {
    ...{ id: 'bot', show: showNew },
    save({ project }, values) {
      const of = (field: string) => values.get(field)?.trim() ?? '';
      const bot = botIn(values, { namespace: of('namespace'), name: of('name') });
      if (settings.bot(bot.namespace, bot.name))
        throw new SettingsError(
          `There is already a bot of the name ${bot.name} in ${bot.namespace}.`,
          'name',
        );
      settings.saveBot(project.id, bot);
      return [botPath(project, bot), 'created'];
    },
  });
  get('/bots/:namespace/:name', (call) => showBot(call, botOf(call)));
  form('/bots/:namespace/:name', {
    id: 'bot',
    show: (call, form) => showBot(call, botOf(call), { form }),
    save(call, values) {
      const bot = botOf(call);
      settings.saveBot(call.project.id, botIn(values, bot));
      return [botPath(call.project, bot), 'saved'];
    },
  });
  post('/bots/:namespace/:name/try', async (call) => {
    const bot = botOf(call);
    const question = { id: 'try', values: await fieldsOf(call.req), faults: [] };
    const brain = found(brainOf(call.project.id, bot.namespace, bot.name));
    const text = question.values.get('text') ?? '';
    const answer = await triedAnswer(brain, text, abortWhenLeft(call.res).signal);
    showBot(call, bot, { question, answer });
  });
  deletion('/bots/:namespace/:name/delete', (call) => {
    const bot = botOf(call);
    return {
      ...{ section: 'bots', title: `Delete the bot ${bot.name}?`, button: 'Delete the bot' },
      text: 'Its conversations are deleted with it and cannot be brought back.',
      back: botPath(call.project, bot),
      after: pathOf(call.project, 'bots'),
      act: () => settings.deleteBot(bot.namespace, bot.name),
    };
  });
}

function botPath(project: Project, { namespace, name }: Bot, ...below: readonly string[]): string {
  return pathOf(project, 'bots', namespace, name, ...below);
}

/** `hasScripted`: whether the scripted bots of the demo answer in the project, too. */
function showBots({ res, project }: Call, bots: readonly Bot[], hasScripted: boolean): void {
  const items = bots.map(
    (bot) => html`<li>
<h2><a class="code" href="${botPath(project, bot)}">${bot.namespace}/${bot.name}</a></h2>
${facts([
  ['Title', bot.title || 'none'],
  ['Uses', [...bot.tools, ...(bot.usesKnowledge ? ['knowledge'] : [])].join(', ') || 'nothing'],
])}
<div class="buttons">${actionLink(botPath(project, bot, 'delete'), 'Delete', bot.name)}</div>
</li>`,
  );
  const scripted = html`<p>The scripted bots of the demo, such as <code>demo/echo</code>, answer here, too. They need no model.</p>`;
  const body = html`${rows(items, 'There is no bot yet.')}
${hasScripted && scripted}
<p><a class="button" href="${pathOf(project, 'bots', 'new')}">New bot</a></p>`;
  showPage(res, { title: 'Bots', project, section: 'bots', body });
}

function showNewBot({ res, project }: Call, namespaces: readonly string[], form: Form): void {
  const choices = namespaces.map((name) => [name, name] as const);
  const fields = html`<form method="post" action="${pathOf(project, 'bots', 'new')}">
${selectField(form, { name: 'namespace', label: 'Namespace', choices })}
${textField(form, { name: 'name', label: 'Name', hint: 'As programs call it: letters, digits, . _ -', isCode: true })}
${botFields(form)}
<div class="buttons"><button>Create bot</button> <a href="${pathOf(project, 'bots')}">Cancel</a></div>
</form>`;
  const none = html`<p>A bot needs a namespace. <a href="${pathOf(project)}">Add one to the project</a> first.</p>`;
  const body = namespaces.length > 0 ? fields : none;
  showPage(res, { title: 'New bot', project, section: 'bots', body, forms: [form] });
}

interface Shown {
  readonly form?: Form;
  readonly question?: Form;
  readonly answer?: TriedAnswer;
}

function showBot({ res, project }: Call, bot: Bot, shown: Shown = {}): void {
  const { form = formOfBot(bot), question = formOf('try'), answer } = shown;
  const called = `/generic/ns/${bot.namespace}/bot-provider/${bot.name}/message/sse`;
  const said =
    answer &&
    html`<div class="report" role="status">
<h3>${answer.text === '' ? 'No answer' : 'Answer'}</h3>
${answer.text !== '' && html`<p class="said">${answer.text}</p>`}
${answer.problem !== undefined && html`<p class="fault">${answer.problem}</p>`}
</div>`;
  const body = html`<p>Programs call it at <code>${called}</code></p>
<section>
<h2>Try it</h2>
<p>As it is saved, and without a conversation: it remembers nothing.</p>
<form method="post" action="${botPath(project, bot, 'try')}">
${areaField(question, { name: 'text', label: 'Question', rows: 3 })}
<button>Ask</button>
</form>
${said}
</section>
<section>
<h2>Settings</h2>
<form method="post" action="${botPath(project, bot)}">
${botFields(form)}
<div class="buttons"><button>Save</button>
<a class="button danger" href="${botPath(project, bot, 'delete')}">Delete the bot…</a></div>
</form>
</section>`;
  showPage(res, { title: `${bot.namespace}/${bot.name}`, project, section: 'bots', body, forms: [form] });
}

import type { Express, Request, Response } from 'express';
import { abortWhenLeft } from '../../http/client-connection.ts';
import type { Bot } from '../settings/bot.ts';
import type { Project } from '../settings/projects.ts';
import { DEMO } from '../settings/settings.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { botFields, botIn, formOfBot, SPOKEN_OF_BOT } from './bot-form.ts';
import { areaField, type Form, faultsOf, formOf, selectField, textField } from './fields.ts';
import { html } from './html.ts';
import { actionLink, deletePage, facts, goTo, pathOf, showPage } from './layout.ts';
import { type ConsoleParts, found, pathPart, projectOf } from './parts.ts';
import { fieldsOf } from './read-form.ts';
import { answerInTime, type TriedAnswer } from './tried-answer.ts';

/** The bots of a project: all of them, a new one, and each with a box to try it. */
export function botPages(app: Express, { settings, tryBot }: ConsoleParts): void {
  const botOf = (req: Request, project: Project) => {
    const [namespace, name] = [pathPart(req, 'namespace'), pathPart(req, 'name')];
    return found(settings.bots(project.id).find((bot) => bot.namespace === namespace && bot.name === name));
  };

  app.get('/projects/:project/bots', (req, res) => {
    const project = projectOf(req, settings);
    showBots(res, {
      project,
      bots: settings.bots(project.id),
      hasScripted: settings.namespaces(project.id).includes(DEMO),
    });
  });
  newBotPages(app, settings);
  app.get('/projects/:project/bots/:namespace/:name', (req, res) => {
    const project = projectOf(req, settings);
    showBot(res, { project, bot: botOf(req, project) });
  });
  app.post('/projects/:project/bots/:namespace/:name', async (req, res) => {
    const project = projectOf(req, settings);
    const bot = botOf(req, project);
    const values = await fieldsOf(req);
    const faults = await faultsOf(() => settings.saveBot(project.id, botIn(values, bot)), SPOKEN_OF_BOT);
    if (faults.length === 0) goTo(res, botPath(project, bot), 'saved');
    else showBot(res, { project, bot, form: { id: 'bot', values, faults } });
  });
  app.post('/projects/:project/bots/:namespace/:name/try', async (req, res) => {
    const project = projectOf(req, settings);
    const bot = botOf(req, project);
    const question = { id: 'try', values: await fieldsOf(req), faults: [] };
    const { namespace, name } = bot;
    const answer = await answerInTime(
      (signal) =>
        tryBot({ projectId: project.id, namespace, name }, question.values.get('text') ?? '', signal),
      abortWhenLeft(res).signal,
    );
    showBot(res, { project, bot, question, answer });
  });
  deletePage(app, '/projects/:project/bots/:namespace/:name/delete', (req) => {
    const project = projectOf(req, settings);
    const bot = botOf(req, project);
    return {
      ...{ project, section: 'bots', title: `Delete the bot ${bot.name}?`, button: 'Delete the bot' },
      text: 'Its conversations are deleted with it and cannot be brought back.',
      back: botPath(project, bot),
      after: pathOf(project, 'bots'),
      act: () => settings.deleteBot(bot.namespace, bot.name),
    };
  });
}

function newBotPages(app: Express, settings: ConsoleParts['settings']): void {
  const showNew = (res: Response, project: Project, form: Form) =>
    showNewBot(res, { project, namespaces: settings.namespaces(project.id), form });
  app.get('/projects/:project/bots/new', (req, res) => showNew(res, projectOf(req, settings), formOf('bot')));
  app.post('/projects/:project/bots/new', async (req, res) => {
    const project = projectOf(req, settings);
    const values = await fieldsOf(req);
    const of = (field: string) => values.get(field)?.trim() ?? '';
    const bot = botIn(values, { namespace: of('namespace'), name: of('name') });
    const faults = await faultsOf(() => {
      if (settings.bot(bot.namespace, bot.name))
        throw new SettingsError(`There is already a bot of the name ${bot.name} in ${bot.namespace}.`);
      settings.saveBot(project.id, bot);
    }, SPOKEN_OF_BOT);
    if (faults.length === 0) goTo(res, botPath(project, bot), 'created');
    else showNew(res, project, { id: 'bot', values, faults });
  });
}

function botPath(project: Project, { namespace, name }: Bot, ...below: readonly string[]): string {
  return pathOf(project, 'bots', namespace, name, ...below);
}

interface BotsPage {
  readonly project: Project;
  readonly bots: readonly Bot[];
  /** Whether the scripted bots of the demo answer in the project, too. */
  readonly hasScripted: boolean;
}

function showBots(res: Response, { project, bots, hasScripted }: BotsPage): void {
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
  const body = html`${items.length > 0 ? html`<ul class="rows">${items}</ul>` : html`<p>There is no bot yet.</p>`}
${hasScripted && scripted}
<p><a class="button" href="${pathOf(project, 'bots', 'new')}">New bot</a></p>`;
  showPage(res, { title: 'Bots', project, section: 'bots', body });
}

interface NewBotPage {
  readonly project: Project;
  readonly namespaces: readonly string[];
  readonly form: Form;
}

function showNewBot(res: Response, { project, namespaces, form }: NewBotPage): void {
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

interface BotPage {
  readonly project: Project;
  readonly bot: Bot;
  readonly form?: Form;
  readonly question?: Form;
  readonly answer?: TriedAnswer;
}

function showBot(res: Response, page: BotPage): void {
  const { project, bot, form = formOfBot(bot), question = formOf('try'), answer } = page;
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

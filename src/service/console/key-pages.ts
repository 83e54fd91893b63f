import type { Express, Request, Response } from 'express';
import type { ApiKey } from '../settings/api-keys.ts';
import type { Project } from '../settings/projects.ts';
import { type Form, faultsOf, formOf, textField } from './fields.ts';
import { html } from './html.ts';
import { actionButton, actionLink, deletePage, facts, goTo, pathOf, showPage, timeOf } from './layout.ts';
import { type ConsoleParts, found, pathPart, projectOf } from './parts.ts';
import { fieldsOf } from './read-form.ts';

/** Integration › App settings: the API keys of a project. */
export function keyPages(app: Express, { settings }: ConsoleParts): void {
  const keyOf = (req: Request, project: Project) =>
    found(settings.keys(project.id).find(({ id }) => id === pathPart(req, 'key')));

  app.get('/projects/:project/keys', (req, res) => {
    const project = projectOf(req, settings);
    showKeys(res, { project, keys: settings.keys(project.id), form: formOf('create') });
  });
  app.post('/projects/:project/keys', async (req, res) => {
    const project = projectOf(req, settings);
    const values = await fieldsOf(req);
    const name = values.get('name') ?? '';
    const faults = await faultsOf(() => settings.createKey(project.id, name), { name: /./ });
    const keys = settings.keys(project.id);
    const created = keys.find((key) => key.name === name);
    if (faults.length === 0 && created) goTo(res, pathOf(project, 'keys', created.id), 'created');
    else showKeys(res, { project, keys, form: { id: 'create', values, faults } });
  });

  app.get('/projects/:project/keys/:key', (req, res) => {
    const project = projectOf(req, settings);
    const key = keyOf(req, project);
    showKey(res, { project, key, text: settings.revealKey(key.id).open() });
  });
  app.post('/projects/:project/keys/:key/:state', (req, res, next) => {
    const state = pathPart(req, 'state');
    if (state !== 'enable' && state !== 'disable') return next();
    const project = projectOf(req, settings);
    settings.setKeyEnabled(keyOf(req, project).id, state === 'enable');
    goTo(res, pathOf(project, 'keys'), `${state}d`);
  });
  deletePage(app, '/projects/:project/keys/:key/delete', (req) => {
    const project = projectOf(req, settings);
    const { id, name } = keyOf(req, project);
    return {
      ...{ project, section: 'keys', title: `Delete the key ${name}?`, button: 'Delete the key' },
      text: 'Whoever still uses it is refused at once, and it cannot be brought back. Disable it first to see whether anybody does.',
      back: pathOf(project, 'keys'),
      act: () => settings.deleteKey(id),
    };
  });
}

interface KeysPage {
  readonly project: Project;
  readonly keys: readonly ApiKey[];
  readonly form: Form;
}

function showKeys(res: Response, { project, keys, form }: KeysPage): void {
  const items = keys.map(({ id, name, isEnabled, createdAt, lastUsedAt }) => {
    const path = (...below: string[]) => pathOf(project, 'keys', id, ...below);
    const change = isEnabled
      ? actionButton(path('disable'), 'Disable', name)
      : actionButton(path('enable'), 'Enable', name);
    return html`<li>
<h2>${name}</h2>
${facts([
  ['State', html`<span class="${isEnabled ? 'good' : 'bad'}">${isEnabled ? 'active' : 'disabled'}</span>`],
  ['Created', timeOf(createdAt)],
  ['Last used', lastUsedAt ? timeOf(lastUsedAt) : 'never'],
])}
<div class="buttons">${actionLink(path(), 'Copy', name)}${change}${actionLink(path('delete'), 'Delete', name)}</div>
</li>`;
  });
  const body = html`<p>Integration: a server that calls the bots of this project sends one of these keys as <code class="whole">X-API-KEY</code>.
To change a key, create a new one, use it everywhere, see that the old one is used no more, and disable that.</p>
${items.length > 0 ? html`<ul class="rows">${items}</ul>` : html`<p>There is no key yet.</p>`}
<section>
<h2>New key</h2>
<form method="post" action="${pathOf(project, 'keys')}">
${textField(form, { name: 'name', label: 'Name', hint: 'What it is for, or who uses it.' })}
<button>Create key</button>
</form>
</section>`;
  showPage(res, { title: 'App settings', project, section: 'keys', body, forms: [form] });
}

interface KeyPage {
  readonly project: Project;
  readonly key: ApiKey;
  /** The key itself. */
  readonly text: string;
}

function showKey(res: Response, { project, key, text }: KeyPage): void {
  const body = html`<p>Copy it to where it is needed. Everybody who has it can use the bots of ${project.name}.</p>
<div class="field">
<label for="key">API key</label>
<input id="key" type="text" class="code" readonly value="${text}">
</div>
<p><a href="${pathOf(project, 'keys')}">Back to the keys</a></p>`;
  showPage(res, { title: `Key ${key.name}`, project, section: 'keys', body });
}

import type { Express } from 'express';
import type { ApiKey } from '../settings/api-keys.ts';
import { type Form, formOf, textField } from './fields.ts';
import { html } from './html.ts';
import { actionButton, actionLink, facts, goTo, pathOf, rows, showPage, timeOf } from './layout.ts';
import { type Call, type ConsoleParts, found, projectRoutes } from './routes.ts';

/** Integration › App settings: the API keys of a project. */
export function keyPages(app: Express, { settings }: ConsoleParts): void {
  const { get, post, form, deletion } = projectRoutes(app, settings);
  const keyOf = ({ project, part }: Call) =>
    found(settings.keys(project.id).find(({ id }) => id === part('key')));
  const show = (call: Call, form: Form) => showKeys(call, settings.keys(call.project.id), form);

  get('/keys', (call) => show(call, formOf('create')));
  form('/keys', {
    id: 'create',
    show,
    save({ project }, values) {
      const name = values.get('name') ?? '';
      settings.createKey(project.id, name);
      const { id } = found(settings.keys(project.id).find((key) => key.name === name));
      return [pathOf(project, 'keys', id), 'created'];
    },
  });
  get('/keys/:key', (call) => showKey(call, keyOf(call).name, settings.revealKey(keyOf(call).id).open()));
  for (const [act, done] of [
    ['enable', 'enabled'],
    ['disable', 'disabled'],
  ] as const)
    post(`/keys/:key/${act}`, (call) => {
      settings.setKeyEnabled(keyOf(call).id, act === 'enable');
      goTo(call.res, pathOf(call.project, 'keys'), done);
    });
  deletion('/keys/:key/delete', (call) => {
    const { id, name } = keyOf(call);
    return {
      ...{ section: 'keys', title: `Delete the key ${name}?`, button: 'Delete the key' },
      text: 'Whoever still uses it is refused at once, and it cannot be brought back. Disable it first to see whether anybody does.',
      back: pathOf(call.project, 'keys'),
      act: () => settings.deleteKey(id),
    };
  });
}

function showKeys({ res, project }: Call, keys: readonly ApiKey[], form: Form): void {
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
${rows(items, 'There is no key yet.')}
<section>
<h2>New key</h2>
<form method="post" action="${pathOf(project, 'keys')}">
${textField(form, { name: 'name', label: 'Name', hint: 'What it is for, or who uses it.' })}
<button>Create key</button>
</form>
</section>`;
  showPage(res, { title: 'App settings', project, section: 'keys', body, forms: [form] });
}

/** `text` is the key itself. */
function showKey({ res, project }: Call, name: string, text: string): void {
  const body = html`<p>Copy it to where it is needed. Everybody who has it can use the bots of ${project.name}.</p>
<div class="field">
<label for="key">API key</label>
<input id="key" type="text" class="code" readonly value="${text}">
</div>
<p><a href="${pathOf(project, 'keys')}">Back to the keys</a></p>`;
  showPage(res, { title: `Key ${name}`, project, section: 'keys', body });
}

import type { Express, Response } from 'express';
import type { Settings } from '../settings/settings.ts';
import { type Form, faultsOf, formOf, textField } from './fields.ts';
import { html } from './html.ts';
import { actionLink, type Done, facts, goTo, pathOf, rows, showPage } from './layout.ts';
import { fieldsOf } from './read-form.ts';
import { type Call, type ConsoleParts, found, projectRoutes } from './routes.ts';

/** The pages of all projects, and of one: its name, its cap and its namespaces. */
export function projectPages(app: Express, { settings }: ConsoleParts): void {
  app.get('/', (_req, res) => showProjects(res, settings, formOf('create')));
  app.post('/projects', async (req, res) => {
    const values = await fieldsOf(req);
    const name = values.get('name') ?? '';
    const faults = await faultsOf(() => goTo(res, pathOf(settings.createProject(name)), 'created'));
    if (faults.length > 0) showProjects(res, settings, { id: 'create', values, faults });
  });

  const { get, form, deletion } = projectRoutes(app, settings);
  const show = (call: Call, sent?: Form) => showProject(call, settings.namespaces(call.project.id), sent);
  /** Adds a form with one field. */
  const change = (id: string, done: Done, act: (projectId: string, value: string) => void) =>
    form(`/${id}`, {
      ...{ id, show },
      save({ project }, values) {
        const [[, value = ''] = []] = values;
        act(project.id, value.trim());
        return [pathOf(project), done];
      },
    });
  get('', (call) => show(call));
  change('rename', 'saved', (id, name) => settings.renameProject(id, name));
  change('cap', 'saved', (id, cap) => settings.setDailyCap(id, cap === '' ? undefined : Number(cap)));
  change('namespaces', 'created', (id, name) => settings.addNamespace(id, name));
  deletion('/delete', ({ project }) => ({
    ...{ section: '', title: `Delete ${project.name}?`, button: 'Delete the project' },
    text: 'Its keys stop working at once. Its bots, models, conversations and knowledge are deleted and cannot be brought back.',
    back: pathOf(project),
    after: '/',
    act: () => settings.deleteProject(project.id),
  }));
  deletion('/namespaces/:namespace/delete', ({ project, part }) => {
    const name = found(settings.namespaces(project.id).find((one) => one === part('namespace')));
    return {
      ...{ section: '', title: `Remove the namespace ${name}?`, button: 'Remove the namespace' },
      text: 'Its bots and their conversations are deleted and cannot be brought back.',
      back: pathOf(project),
      act: () => settings.removeNamespace(name),
    };
  });
}

function showProjects(res: Response, settings: Settings, create: Form): void {
  const items = settings.projects().map(
    (project) => html`<li>
<h2><a href="${pathOf(project)}">${project.name}</a></h2>
${facts([
  ['Namespaces', settings.namespaces(project.id).join(', ') || 'none'],
  ['Bots', settings.bots(project.id).length],
  ['Messages a day', project.dailyCap ?? 'no cap'],
])}
</li>`,
  );
  const body = html`${rows(items, 'There is no project yet.')}
<section>
<h2>New project</h2>
<form method="post" action="/projects">
${textField(create, { name: 'name', label: 'Name' })}
<button>Create project</button>
</form>
</section>`;
  showPage(res, { title: 'Projects', body, forms: [create] });
}

function showProject({ res, project }: Call, namespaces: readonly string[], sent?: Form): void {
  const of = (form: Form) => (sent?.id === form.id ? sent : form);
  const rename = of(formOf('rename', { name: project.name }));
  const cap = of(formOf('cap', { dailyCap: project.dailyCap }));
  const add = of(formOf('namespaces'));
  const items = namespaces.map(
    (name) => html`<li><h3 class="code">${name}</h3>
<div class="buttons">${actionLink(pathOf(project, 'namespaces', name, 'delete'), 'Remove', name)}</div></li>`,
  );
  const body = html`<form method="post" action="${pathOf(project, 'rename')}">
${textField(rename, { name: 'name', label: 'Name' })}
<button>Rename</button>
</form>
<form method="post" action="${pathOf(project, 'cap')}">
${textField(cap, {
  name: 'dailyCap',
  label: 'Messages a day',
  hint: 'What is over it is refused until midnight, UTC. Empty: no cap.',
  inputMode: 'numeric',
  isCode: true,
})}
<button>Set the cap</button>
</form>
<section>
<h2>Namespaces</h2>
<p>The bots of this project are in them. No two projects have the same.</p>
<ul class="rows">${items}</ul>
<form method="post" action="${pathOf(project, 'namespaces')}">
${textField(add, { name: 'name', label: 'New namespace', isCode: true })}
<button>Add namespace</button>
</form>
</section>
<section>
<h2>Delete this project</h2>
<p>Its keys, bots, models, conversations and knowledge go with it.</p>
<a class="button danger" href="${pathOf(project, 'delete')}">Delete the project…</a>
</section>`;
  showPage(res, { title: project.name, project, section: '', body, forms: [rename, cap, add] });
}

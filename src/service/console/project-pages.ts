import type { Express, Response } from 'express';
import type { Project } from '../settings/projects.ts';
import { type Form, faultsOf, formOf, textField } from './fields.ts';
import { html } from './html.ts';
import { actionLink, type Done, deletePage, facts, goTo, pathOf, showPage } from './layout.ts';
import { type ConsoleParts, found, pathPart, projectOf } from './parts.ts';
import { fieldsOf } from './read-form.ts';

const ABOUT_NAME = { name: /./ };

/** The pages of all projects, and of one: its name, its cap and its namespaces. */
export function projectPages(app: Express, { settings }: ConsoleParts): void {
  app.get('/', (_req, res) => showProjects(res, settings, formOf('create')));
  app.post('/projects', async (req, res) => {
    const values = await fieldsOf(req);
    let created: Project | undefined;
    const create = () => {
      created = settings.createProject(values.get('name') ?? '');
    };
    const faults = await faultsOf(create, ABOUT_NAME);
    if (created) goTo(res, pathOf(created), 'created');
    else showProjects(res, settings, { id: 'create', values, faults });
  });

  const show = (res: Response, project: Project, sent?: Form) => {
    const { name, dailyCap } = project;
    const of = (form: Form) => (sent?.id === form.id ? sent : form);
    showProject(res, {
      project,
      namespaces: settings.namespaces(project.id),
      rename: of(formOf('rename', { name })),
      cap: of(formOf('cap', { dailyCap })),
      add: of(formOf('namespaces')),
    });
  };
  /** Adds the route of a form with one field. */
  const change = (id: string, done: Done, act: (project: Project, value: string) => void) =>
    app.post(`/projects/:project/${id}`, async (req, res) => {
      const project = projectOf(req, settings);
      const values = await fieldsOf(req);
      const [[field = '', value = ''] = []] = values;
      const faults = await faultsOf(() => act(project, value.trim()), { [field]: /./ });
      if (faults.length === 0) goTo(res, pathOf(project), done);
      else show(res, project, { id, values, faults });
    });
  app.get('/projects/:project', (req, res) => show(res, projectOf(req, settings)));
  change('rename', 'saved', ({ id, name }, value) => value !== name && settings.renameProject(id, value));
  change('cap', 'saved', ({ id }, value) =>
    settings.setDailyCap(id, value === '' ? undefined : Number(value)),
  );
  change('namespaces', 'created', ({ id }, value) => settings.addNamespace(id, value));
  deletePage(app, '/projects/:project/delete', (req) => {
    const project = projectOf(req, settings);
    return {
      ...{ project, section: '', title: `Delete ${project.name}?`, button: 'Delete the project' },
      text: 'Its keys stop working at once. Its bots, models, conversations and knowledge are deleted and cannot be brought back.',
      back: pathOf(project),
      after: '/',
      act: () => settings.deleteProject(project.id),
    };
  });
  deletePage(app, '/projects/:project/namespaces/:namespace/delete', (req) => {
    const project = projectOf(req, settings);
    const name = found(settings.namespaces(project.id).find((one) => one === pathPart(req, 'namespace')));
    return {
      ...{ project, section: '', title: `Remove the namespace ${name}?`, button: 'Remove the namespace' },
      text: 'Its bots and their conversations are deleted and cannot be brought back.',
      back: pathOf(project),
      act: () => settings.removeNamespace(name),
    };
  });
}

function showProjects(res: Response, settings: ConsoleParts['settings'], create: Form): void {
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
  const body = html`${items.length > 0 ? html`<ul class="rows">${items}</ul>` : html`<p>There is no project yet.</p>`}
<section>
<h2>New project</h2>
<form method="post" action="/projects">
${textField(create, { name: 'name', label: 'Name' })}
<button>Create project</button>
</form>
</section>`;
  showPage(res, { title: 'Projects', body, forms: [create] });
}

interface ProjectPage {
  readonly project: Project;
  readonly namespaces: readonly string[];
  readonly rename: Form;
  readonly cap: Form;
  readonly add: Form;
}

function showProject(res: Response, { project, namespaces, rename, cap, add }: ProjectPage): void {
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

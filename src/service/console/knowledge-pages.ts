import type { Express, Request, Response } from 'express';
import type { Document } from '../knowledge/documents.ts';
import { KnowledgeError } from '../knowledge/knowledge-error.ts';
import type { Project } from '../settings/projects.ts';
import { type Form, faultsOf, fileField, formOf } from './fields.ts';
import { type Html, html } from './html.ts';
import type { Indexings, Progress } from './indexings.ts';
import { actionButton, actionLink, deletePage, facts, goTo, pathOf, showPage, timeOf } from './layout.ts';
import { type ConsoleParts, found, pathPart, projectOf } from './parts.ts';
import { filesOf } from './read-form.ts';

const REFRESH_SECONDS = 2;
const NO_MODEL = 'Set the embedding model of the project at AI settings first.';

/** The knowledge of a project: its files, and how far they are indexed. */
export function knowledgePages(
  app: Express,
  { settings, knowledge, embeddingModel }: ConsoleParts,
  indexings: Indexings,
): void {
  const filesIn = (project: Project): KnowledgeFile[] =>
    knowledge.documents(project.id).map((one) => ({ ...one, progress: indexings.progressOf(one.id) }));
  const fileOf = (req: Request, project: Project) =>
    found(filesIn(project).find(({ id }) => id === pathPart(req, 'document')));
  const show = (res: Response, project: Project, form: Form) =>
    showFiles(res, { project, files: filesIn(project), form, hasModel: !!embeddingModel(project.id) });
  const modelOf = (project: Project) => {
    const model = embeddingModel(project.id);
    if (!model) throw new KnowledgeError(NO_MODEL);
    return model;
  };

  app.get('/projects/:project/knowledge', (req, res) =>
    show(res, projectOf(req, settings), formOf('upload')),
  );
  app.post('/projects/:project/knowledge', async (req, res) => {
    const project = projectOf(req, settings);
    const files = await filesOf(req);
    const model = embeddingModel(project.id);
    const refused = (files.length === 0 && 'Choose a file.') || (!model && NO_MODEL);
    const each = files.map((file) =>
      faultsOf(() => model && indexings.begin(knowledge.put(project.id, file), model), { file: /./ }),
    );
    const faults = refused ? [{ field: 'file', message: refused }] : (await Promise.all(each)).flat();
    if (faults.length === 0) goTo(res, pathOf(project, 'knowledge', 'progress'));
    else show(res, project, { ...formOf('upload'), faults });
  });
  app.get('/projects/:project/knowledge/progress', (req, res) => {
    const project = projectOf(req, settings);
    const files = filesIn(project).filter(({ progress }) => progress);
    if (files.length > 0) showProgress(res, project, files);
    else goTo(res, pathOf(project, 'knowledge'), 'indexed');
  });
  app.post('/projects/:project/knowledge/:document/index', async (req, res) => {
    const project = projectOf(req, settings);
    const { id } = fileOf(req, project);
    const faults = await faultsOf(() => indexings.begin(id, modelOf(project)));
    if (faults.length === 0) goTo(res, pathOf(project, 'knowledge', 'progress'));
    else show(res, project, { ...formOf('upload'), faults });
  });
  deletePage(app, '/projects/:project/knowledge/:document/delete', (req) => {
    const project = projectOf(req, settings);
    const { id, name } = fileOf(req, project);
    return {
      ...{ project, section: 'knowledge', title: `Delete ${name}?`, button: 'Delete the file' },
      text: 'Bots find nothing in it any more.',
      back: pathOf(project, 'knowledge'),
      act() {
        indexings.stop(id);
        knowledge.remove(id);
      },
    };
  });
}

interface KnowledgeFile extends Document {
  readonly progress: Progress | undefined;
}

interface FilesPage {
  readonly project: Project;
  readonly files: readonly KnowledgeFile[];
  readonly form: Form;
  /** Whether there is a model that can index them. */
  readonly hasModel: boolean;
}

function showFiles(res: Response, { project, files, form, hasModel }: FilesPage): void {
  const items = files.map((file) => fileItem(project, file));
  const isRunning = files.some(({ progress }) => progress);
  const follow = html`<p><a href="${pathOf(project, 'knowledge', 'progress')}">Follow the indexing</a></p>`;
  const needed = html`<p>First set the embedding model at <a href="${pathOf(project, 'models')}">AI settings</a>: it indexes the files.</p>`;
  const body = html`<p>Bots that use knowledge search these files, and name them as their sources.</p>
${isRunning && follow}
${files.length > 0 ? html`<ul class="rows">${items}</ul>` : html`<p>There is no file yet.</p>`}
<section>
<h2>Upload</h2>
${!hasModel && needed}
<form method="post" action="${pathOf(project, 'knowledge')}" enctype="multipart/form-data">
${fileField(form, {
  name: 'file',
  label: 'Files',
  hint: 'Markdown or text in UTF-8, of at most 1 MB each. One that has the name of another takes its place.',
  accept: '.md,.markdown,.txt',
})}
<button>Upload and index</button>
</form>
</section>`;
  showPage(res, { title: 'Knowledge', project, section: 'knowledge', body, forms: [form] });
}

function fileItem(project: Project, { id, name, size, pieces, ...file }: KnowledgeFile): Html {
  const path = (...below: string[]) => pathOf(project, 'knowledge', id, ...below);
  const { indexedAt, model, isCurrent, problem, progress } = file;
  const when = indexedAt !== undefined && html`${timeOf(new Date(indexedAt))} by ${model}`;
  return html`<li>
<h2>${name}</h2>
${facts([
  ['Size', `${(size / 1024).toFixed(1)} kB`],
  ['Pieces', pieces],
  ['Indexed', progress ? progressOf(progress) : when || 'not yet'],
])}
${!progress && !isCurrent && indexedAt !== undefined && html`<p>It was uploaded anew since; the pieces are of the file before.</p>`}
${!progress && problem !== undefined && html`<p class="fault">${problem}</p>`}
<div class="buttons">${actionButton(path('index'), 'Index again', name)}${actionLink(path('delete'), 'Delete', name)}</div>
</li>`;
}

/** A page of its own: it is loaded again and again, and would take away what was chosen in a form. */
function showProgress(res: Response, project: Project, files: readonly KnowledgeFile[]): void {
  const items = files.map(({ name, progress }) => {
    const { done, total } = progress ?? { done: 0, total: 0 };
    const bar = total > 0 && html`<progress value="${done}" max="${total}" aria-label="${name}"></progress>`;
    return html`<li><h2>${name}</h2><p>${progress && progressOf(progress)}</p>${bar}</li>`;
  });
  const body = html`<p>This page is loaded again every ${REFRESH_SECONDS} seconds, until all is done. The indexing goes on without it.</p>
<ul class="rows">${items}</ul>
<p><a href="${pathOf(project, 'knowledge')}">Back to the files</a></p>`;
  showPage(res, { title: 'Indexing', project, section: 'knowledge', body, refreshSeconds: REFRESH_SECONDS });
}

function progressOf({ done, total }: Progress): string {
  return total === 0 ? 'waits for its turn' : `${done} of ${total} pieces`;
}

import type { Express } from 'express';
import type { Document } from '../knowledge/documents.ts';
import type { Project } from '../settings/projects.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { type Fault, faultsOf, fileField, formOf } from './fields.ts';
import { type Html, html } from './html.ts';
import type { Indexings, Progress } from './indexings.ts';
import { actionButton, actionLink, facts, goTo, pathOf, rows, showPage, timeOf } from './layout.ts';
import { filesOf } from './read-form.ts';
import { type Call, type ConsoleParts, found, projectRoutes } from './routes.ts';

const REFRESH_SECONDS = 2;
const NO_MODEL = 'Set the embedding model of the project at AI settings first.';

/** The knowledge of a project: its files, and how far they are indexed. */
export function knowledgePages(
  app: Express,
  { settings, knowledge, embeddingModel }: ConsoleParts,
  indexings: Indexings,
): void {
  const { get, post, deletion } = projectRoutes(app, settings);
  const filesIn = (project: Project): KnowledgeFile[] =>
    knowledge.documents(project.id).map((one) => ({ ...one, progress: indexings.progressOf(one.id) }));
  const fileOf = ({ project, part }: Call) =>
    found(filesIn(project).find(({ id }) => id === part('document')));
  const modelOf = (project: Project) => {
    const model = embeddingModel(project.id);
    if (!model) throw new SettingsError(NO_MODEL);
    return model;
  };
  const show = (call: Call, faults: readonly Fault[] = []) => {
    const hasModel = embeddingModel(call.project.id) !== undefined;
    showFiles(call, filesIn(call.project), { faults, hasModel });
  };
  /** Shows how far the indexing is, or else what is wrong. */
  const showBegun = (call: Call, faults: readonly Fault[]) => {
    if (faults.length === 0) goTo(call.res, pathOf(call.project, 'knowledge', 'progress'));
    else show(call, faults);
  };

  get('/knowledge', (call) => show(call));
  post('/knowledge', async (call) => {
    const { req, project } = call;
    const files = await filesOf(req);
    const model = embeddingModel(project.id);
    if (files.length === 0) return show(call, [{ field: 'file', message: 'Choose a file.' }]);
    if (!model) return show(call, [{ field: 'file', message: NO_MODEL }]);
    const faults: Fault[] = [];
    for (const file of files) {
      const begin = () => indexings.begin(knowledge.put(project.id, file), model);
      faults.push(...(await faultsOf(begin)).map(({ message }) => ({ field: 'file', message })));
    }
    showBegun(call, faults);
  });
  get('/knowledge/progress', (call) => {
    const files = filesIn(call.project).filter(({ progress }) => progress);
    if (files.length > 0) showProgress(call, files);
    else goTo(call.res, pathOf(call.project, 'knowledge'), 'indexed');
  });
  post('/knowledge/:document/index', async (call) => {
    const { id } = fileOf(call);
    showBegun(call, await faultsOf(() => indexings.begin(id, modelOf(call.project))));
  });
  deletion('/knowledge/:document/delete', (call) => {
    const { id, name } = fileOf(call);
    return {
      ...{ section: 'knowledge', title: `Delete ${name}?`, button: 'Delete the file' },
      text: 'Bots find nothing in it any more.',
      back: pathOf(call.project, 'knowledge'),
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

function showFiles(
  { res, project }: Call,
  files: readonly KnowledgeFile[],
  { faults, hasModel }: { readonly faults: readonly Fault[]; readonly hasModel: boolean },
): void {
  const form = { ...formOf('upload'), faults };
  const items = files.map((file) => fileItem(project, file));
  const isRunning = files.some(({ progress }) => progress);
  const follow = html`<p><a href="${pathOf(project, 'knowledge', 'progress')}">Follow the indexing</a></p>`;
  const needed = html`<p>First set the embedding model at <a href="${pathOf(project, 'models')}">AI settings</a>: it indexes the files.</p>`;
  const body = html`<p>Bots that use knowledge search these files, and name them as their sources.</p>
${isRunning && follow}
${rows(items, 'There is no file yet.')}
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
  const when = indexedAt !== null && html`${timeOf(new Date(indexedAt))} by ${model ?? ''}`;
  return html`<li>
<h2>${name}</h2>
${facts([
  ['Size', `${(size / 1024).toFixed(1)} kB`],
  ['Pieces', pieces],
  ['Indexed', progress ? progressOf(progress) : when || 'not yet'],
])}
${!progress && !isCurrent && indexedAt !== null && html`<p>It was uploaded anew since; the pieces are of the file before.</p>`}
${!progress && problem !== null && html`<p class="fault">${problem}</p>`}
<div class="buttons">${actionButton(path('index'), 'Index again', name)}${actionLink(path('delete'), 'Delete', name)}</div>
</li>`;
}

/** A page of its own: it is loaded again and again, and would take away what was chosen in a form. */
function showProgress({ res, project }: Call, files: readonly KnowledgeFile[]): void {
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

import type { Express, Request, Response } from 'express';
import { abortWhenLeft } from '../../http/client-connection.ts';
import { secret } from '../../secret.ts';
import type { ConnectionReport } from '../models/connection-test.ts';
import {
  MODEL_KINDS,
  MODEL_ROLES,
  type ModelKind,
  type ModelRole,
  type ModelSettings,
} from '../settings/model-settings.ts';
import type { Project } from '../settings/projects.ts';
import { type Form, faultsOf, formOf, secretField, selectField, textField } from './fields.ts';
import { type Html, html } from './html.ts';
import { actionLink, deletePage, goTo, pathOf, showPage } from './layout.ts';
import { type ConsoleParts, found, pathPart, projectOf } from './parts.ts';
import { fieldsOf } from './read-form.ts';

const TITLES: Readonly<Record<ModelRole, string>> = {
  completion: 'Completion model',
  embedding: 'Embedding model',
};
const PURPOSES: Readonly<Record<ModelRole, string>> = {
  completion: 'It answers for the bots of this project.',
  embedding:
    'It finds the pieces of the knowledge that a question is about. Only bots with knowledge need it.',
};
const KIND_NAMES: Readonly<Record<ModelKind, string>> = {
  openai: 'OpenAI',
  azure: 'OpenAI on Azure',
  anthropic: 'Anthropic',
  mistral: 'Mistral',
  google: 'Google Gemini',
  voyage: 'Voyage',
  'openai-compatible': 'Compatible with OpenAI (Ollama, vLLM …)',
};
const DEFAULT_WINDOW = 100_000;
const ABOUT = {
  key: /^(A key|Enter the key)|needs a key/,
  kind: /no other kind/,
  endpoint: /endpoint/,
  deployment: /deployment/,
  windowCharacters: /window/,
  model: /model/,
};

/** AI settings: the completion model and the embedding model of a project, and whether they can be reached. */
export function modelPages(app: Express, { settings, testConnection }: ConsoleParts): void {
  const formFor = (project: Project, role: ModelRole): Form => {
    const { key, keyHint, ...values } = settings.model(project.id, role) ?? NEW_MODEL;
    return formOf(role, values);
  };
  const show = (res: Response, project: Project, sent: { form?: Form; report?: Html } = {}) => {
    const forms = MODEL_ROLES.map((role) => (sent.form?.id === role ? sent.form : formFor(project, role)));
    const parts = MODEL_ROLES.map((role, at) =>
      modelSection({ project, role, form: forms[at] as Form, saved: settings.model(project.id, role) }),
    );
    const body = html`${sent.report}${parts}`;
    showPage(res, { title: 'AI settings', project, section: 'models', body, forms });
  };

  app.get('/projects/:project/models', (req, res) => show(res, projectOf(req, settings)));
  app.post('/projects/:project/models/:role', async (req, res) => {
    const project = projectOf(req, settings);
    const role = roleOf(req);
    const values = await fieldsOf(req);
    const faults = await faultsOf(() => settings.saveModel(project.id, role, modelIn(values, role)), ABOUT);
    const saved = settings.model(project.id, role);
    if (faults.length > 0) return show(res, project, { form: { id: role, values, faults } });
    if (!values.has('test') || !saved) return goTo(res, pathOf(project, 'models'), 'saved');
    const report = await testConnection(role, saved, abortWhenLeft(res).signal);
    show(res, project, { report: reportOf(role, report) });
  });
  deletePage(app, '/projects/:project/models/:role/delete', (req) => {
    const project = projectOf(req, settings);
    const role = roleOf(req);
    return {
      ...{ project, section: 'models', title: `Remove the ${role} model?`, button: 'Remove the model' },
      text: 'Its key is forgotten. What needs it answers with an error until there is another one.',
      back: pathOf(project, 'models'),
      act: () => settings.removeModel(project.id, role),
    };
  });
}

const NEW_MODEL: ModelSettings = { kind: 'openai', model: '', keyHint: '', windowCharacters: DEFAULT_WINDOW };

function roleOf(req: Request): ModelRole {
  return found(MODEL_ROLES.find((role) => role === pathPart(req, 'role')));
}

/** The settings in a form; an empty field is not set. */
function modelIn(values: URLSearchParams, role: ModelRole) {
  const text = (name: string) => values.get(name)?.trim() || undefined;
  const key = text('key');
  const window = role === 'completion' ? Number(text('windowCharacters')) : DEFAULT_WINDOW;
  return {
    kind: (text('kind') ?? '') as ModelKind,
    model: text('model') ?? '',
    key: key === undefined ? undefined : secret(key),
    endpoint: text('endpoint'),
    deployment: text('deployment'),
    apiVersion: text('apiVersion'),
    windowCharacters: window,
  };
}

function reportOf(role: ModelRole, report: ConnectionReport): Html {
  const name = TITLES[role];
  if (!report.ok)
    return html`<div class="report bad" role="status"><h2>${name}: the test failed</h2>
<p>${report.problem}</p><p>${report.todo}</p></div>`;
  const { model, ms, tokens } = report;
  const cost = tokens === undefined ? '' : ` It took ${tokens} tokens.`;
  return html`<div class="report good" role="status"><h2>${name}: it works</h2>
<p>${model} answered in ${ms} ms.${cost}</p></div>`;
}

interface ModelSection {
  readonly project: Project;
  readonly role: ModelRole;
  readonly form: Form;
  readonly saved: ModelSettings | undefined;
}

function modelSection({ project, role, form, saved }: ModelSection): Html {
  const choices = MODEL_KINDS[role].map((kind) => [kind, KIND_NAMES[kind]] as const);
  const ending = saved?.keyHint ? ` that ends in ${saved.keyHint}` : '';
  const code = { isCode: true };
  const what = html`<span class="unseen"> of the ${role} model</span>`;
  return html`<section>
<h2>${TITLES[role]}</h2>
<p>${PURPOSES[role]}</p>
<form method="post" action="${pathOf(project, 'models', role)}">
${selectField(form, { name: 'kind', label: 'Provider', choices })}
${secretField(form, {
  name: 'key',
  label: 'Key',
  hint: saved?.key
    ? `A key${ending} is saved. Empty: it stays.`
    : 'A key of the provider. Empty if it needs none.',
  autocomplete: 'new-password',
})}
${textField(form, { ...code, name: 'model', label: 'Model', hint: 'As the provider names it.' })}
${textField(form, {
  ...code,
  name: 'endpoint',
  label: 'Endpoint',
  hint: "Empty: the provider's own. Azure and compatible providers need it.",
  inputMode: 'url',
})}
${
  role === 'completion' &&
  textField(form, {
    ...code,
    name: 'windowCharacters',
    label: 'Window, in characters',
    hint: 'How much of a conversation the model gets. A token is about four characters.',
    inputMode: 'numeric',
  })
}
<fieldset>
<legend>Azure only</legend>
${textField(form, { ...code, name: 'deployment', label: 'Deployment', hint: 'Empty: it is called as the model.' })}
${textField(form, { ...code, name: 'apiVersion', label: 'API version', hint: 'Empty: v1.' })}
</fieldset>
<div class="buttons"><button>Save${what}</button>
<button name="test" value="on" class="plain">Save and test connection${what}</button>
${saved && actionLink(pathOf(project, 'models', role, 'delete'), 'Remove', TITLES[role])}</div>
</form>
</section>`;
}

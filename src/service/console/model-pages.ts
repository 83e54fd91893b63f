import type { Express } from 'express';
import { abortWhenLeft } from '../../http/client-connection.ts';
import { secret } from '../../secret.ts';
import type { ConnectionReport } from '../models/connection-test.ts';
import {
  MODEL_KINDS,
  MODEL_ROLES,
  type ModelKind,
  type ModelRole,
  type ModelSettings,
  USUAL_WINDOW,
} from '../settings/model-settings.ts';
import type { Project } from '../settings/projects.ts';
import { type Form, faultsOf, formOf, secretField, selectField, textField } from './fields.ts';
import { type Html, html } from './html.ts';
import { actionLink, goTo, pathOf, showPage } from './layout.ts';
import { fieldsOf } from './read-form.ts';
import { type Call, type ConsoleParts, found, projectRoutes } from './routes.ts';

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
/** AI settings: the completion model and the embedding model of a project, and whether they can be reached. */
export function modelPages(app: Express, { settings, testConnection }: ConsoleParts): void {
  const { get, post, deletion } = projectRoutes(app, settings);
  const show = ({ res, project }: Call, sent: { form?: Form; report?: Html } = {}) => {
    const forms = MODEL_ROLES.map((role) => {
      const { key, keyHint, ...values } = settings.model(project.id, role) ?? NEW_MODEL;
      return sent.form?.id === role ? sent.form : formOf(role, values);
    });
    const parts = forms.map((form) =>
      modelSection(project, form, settings.model(project.id, form.id as ModelRole)),
    );
    const body = html`${sent.report}${parts}`;
    showPage(res, { title: 'AI settings', project, section: 'models', body, forms });
  };

  get('/models', (call) => show(call));
  post('/models/:role', async (call) => {
    const { req, res, project } = call;
    const role = roleOf(call);
    const values = await fieldsOf(req);
    const faults = await faultsOf(() => settings.saveModel(project.id, role, modelIn(values, role)));
    if (faults.length > 0) return show(call, { form: { id: role, values, faults } });
    const saved = settings.model(project.id, role);
    if (!values.has('test') || !saved) return goTo(res, pathOf(project, 'models'), 'saved');
    const report = await testConnection(role, saved, abortWhenLeft(res).signal);
    show(call, { report: reportOf(role, report) });
  });
  deletion('/models/:role/delete', (call) => {
    const role = roleOf(call);
    return {
      ...{ section: 'models', title: `Remove the ${role} model?`, button: 'Remove the model' },
      text: 'Its key is forgotten. What needs it answers with an error until there is another one.',
      back: pathOf(call.project, 'models'),
      act: () => settings.removeModel(call.project.id, role),
    };
  });
}

const NEW_MODEL: ModelSettings = { kind: 'openai', model: '', keyHint: '', windowCharacters: USUAL_WINDOW };

function roleOf({ part }: Call): ModelRole {
  return found(MODEL_ROLES.find((role) => role === part('role')));
}

/** The settings in a form; an empty field is not set. */
function modelIn(values: URLSearchParams, role: ModelRole) {
  const text = (name: string) => values.get(name)?.trim() || undefined;
  const key = text('key');
  const window = role === 'completion' ? Number(text('windowCharacters')) : USUAL_WINDOW;
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

function modelSection(project: Project, form: Form, saved: ModelSettings | undefined): Html {
  const role = form.id as ModelRole;
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

import type { Express, Request, Response } from 'express';
import { Problem } from '../../errors.ts';
import type { Brain } from '../brains/steps.ts';
import type { EmbeddingModel } from '../knowledge/embedding-model.ts';
import type { Knowledge } from '../knowledge/knowledge.ts';
import type { ConnectionReport } from '../models/connection-test.ts';
import type { ModelRole, ModelSettings } from '../settings/model-settings.ts';
import type { Project } from '../settings/projects.ts';
import type { Settings } from '../settings/settings.ts';
import { type Form, faultsOf } from './fields.ts';
import { html } from './html.ts';
import { type Done, goTo, type Section, showPage } from './layout.ts';
import { fieldsOf } from './read-form.ts';

/** What the pages of the console show and change. */
export interface ConsoleParts {
  readonly settings: Settings;
  readonly knowledge: Pick<Knowledge, 'documents' | 'put' | 'remove' | 'index'>;
  /** The embedding model of a project, if it has one. */
  readonly embeddingModel: (projectId: string) => EmbeddingModel | undefined;
  readonly testConnection: (
    role: ModelRole,
    settings: ModelSettings,
    signal: AbortSignal,
  ) => Promise<ConnectionReport>;
  /** What answers for a bot. */
  readonly brainOf: (projectId: string, namespace: string, name: string) => Brain | undefined;
}

/** A request for a page of a project. */
export interface Call {
  readonly res: Response;
  readonly req: Request;
  readonly project: Project;
  /** One part of the path by its name. */
  readonly part: (name: string) => string;
}

/** A form that is sent. */
interface Sending {
  /** That of the form in its page. */
  readonly id: string;
  /** Makes the change. Returns the path to go to, and what is said there. @throws SettingsError */
  readonly save: (call: Call, values: URLSearchParams) => readonly [path: string, done: Done];
  /** Shows the page of the form with what is wrong. */
  readonly show: (call: Call, form: Form) => void;
}

interface Question {
  readonly section: Section;
  readonly title: string;
  readonly text: string;
  readonly button: string;
  /** Where to go without doing it; and after it, if `after` is not given. */
  readonly back: string;
  readonly after?: string;
  readonly act: () => void;
}

/** Adds the pages of projects. Each path stands below that of a project, which must be there. */
export function projectRoutes(app: Express, settings: Settings) {
  const callOf = (req: Request, res: Response): Call => {
    const part = (name: string) => String(req.params[name]);
    return { req, res, part, project: found(settings.project(part('project'))) };
  };
  const get = (path: string, show: (call: Call) => void) =>
    app.get(`/projects/:project${path}`, (req, res) => show(callOf(req, res)));
  const post = (path: string, act: (call: Call) => unknown) =>
    app.post(`/projects/:project${path}`, (req, res) => act(callOf(req, res)));
  return {
    get,
    post,
    /** A form, which is shown again with what is wrong if it cannot be saved. */
    form: (path: string, { id, save, show }: Sending) =>
      post(path, async (call) => {
        const values = await fieldsOf(call.req);
        let to: ReturnType<typeof save> | undefined;
        const faults = await faultsOf(() => {
          to = save(call, values);
        });
        if (to) goTo(call.res, ...to);
        else show(call, { id, values, faults });
      }),
    /** Asks before something is deleted: GET asks, POST does it. */
    deletion(path: string, questionOf: (call: Call) => Question) {
      get(path, (call) => {
        const { text, button, back, title, section } = questionOf(call);
        const body = html`<p>${text}</p>
<form method="post" action="${call.req.path}" class="buttons"><button class="danger">${button}</button> <a href="${back}">Cancel</a></form>`;
        showPage(call.res, { title, body, section, project: call.project });
      });
      post(path, (call) => {
        const { act, back, after = back } = questionOf(call);
        act();
        goTo(call.res, after, 'deleted');
      });
    },
  };
}

/** What was looked for. @throws Problem `not_found` if it is not there */
export function found<T>(one: T | undefined): T {
  if (one === undefined)
    throw new Problem('not_found', 'What you look for has been deleted, or was never there.');
  return one;
}

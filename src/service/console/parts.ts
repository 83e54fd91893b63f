import type { Request } from 'express';
import { Problem } from '../../errors.ts';
import type { Brain } from '../brains/steps.ts';
import type { EmbeddingModel } from '../knowledge/embedding-model.ts';
import type { Knowledge } from '../knowledge/knowledge.ts';
import type { ConnectionReport } from '../models/connection-test.ts';
import type { ModelRole, ModelSettings } from '../settings/model-settings.ts';
import type { Project } from '../settings/projects.ts';
import type { Settings } from '../settings/settings.ts';

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

/** One part of the path of a request; empty if its route has none of this name. */
export function pathPart(req: Request, name: string): string {
  const part = req.params[name];
  return typeof part === 'string' ? part : '';
}

/** The project of a request's path. @throws Problem `not_found` */
export function projectOf(req: Request, settings: Settings): Project {
  return found(settings.project(pathPart(req, 'project')));
}

/** What was looked for. @throws Problem `not_found` if it is not there */
export function found<T>(one: T | undefined): T {
  if (one === undefined)
    throw new Problem('not_found', 'What you look for has been deleted, or was never there.');
  return one;
}

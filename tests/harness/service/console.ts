import { expect } from '@jest/globals';
import { secret } from '../../../src/secret.ts';
import type { Brain } from '../../../src/service/brains/steps.ts';
import { type ConsoleOptions, startConsole } from '../../../src/service/console/console.ts';
import { knowledge } from '../../../src/service/knowledge/knowledge.ts';
import { openDatabase } from '../../../src/service/settings/database.ts';
import { sealer } from '../../../src/service/settings/sealed.ts';
import { openSettings, PASSWORD_HASH } from '../../../src/service/settings/settings.ts';
import { type Answer, call } from '../clients/call.ts';

/** A bot that answers with these texts, the last of which may be what is wrong. */
export const answering = (answer: (text: string) => readonly [said: string, problem?: string]): Brain => ({
  ...{ isResumable: false, hasSandbox: false, metadata: {} },
  async *answer({ text }) {
    const [say, problem] = answer(text);
    yield { startMessage: true };
    yield { say };
    if (problem !== undefined) yield { error: { code: 'X', message: problem } };
  },
});

export interface TestConsoleOptions extends Partial<ConsoleOptions> {
  readonly passwordHash?: string;
}

/** Starts a console on settings in memory. Its models and bots are played; `options` replace what it is started with. */
export async function startTestConsole({ passwordHash, ...options }: TestConsoleOptions = {}) {
  const database = openDatabase();
  const settings = openSettings(database, sealer(secret('a secret of the service, long enough')));
  if (passwordHash !== undefined) settings.setConsoleValue(PASSWORD_HASH, passwordHash);
  const faults: unknown[] = [];
  const known = knowledge(database);
  const console = await startConsole({
    port: 0,
    host: '127.0.0.1',
    settings,
    knowledge: known,
    embeddingModel(projectId) {
      const model = settings.model(projectId, 'embedding');
      const embed = async (texts: readonly string[]) => texts.map(() => Float32Array.of(1, 0));
      return model && { model: model.model, embed };
    },
    testConnection: async (_role, { model }) => ({ ok: true, model, ms: 7, tokens: 3 }),
    brainOf: () => answering((text) => [`You said: ${text}`]),
    onFault: (error) => faults.push(error),
    ...options,
  });
  const { port } = console;
  return {
    ...console,
    ...{ settings, faults, documents: known.documents },
    /** A browser that has not signed in. */
    visitor: () => visitor(port),
    /** A browser that has signed in by the link. */
    async administrator() {
      const one = visitor(port);
      const token = console.signInLink?.searchParams.get('token') ?? '';
      expect((await one.post('/sign-in', { token })).status).toBe(303);
      return one;
    },
  };
}

export type TestConsole = Awaited<ReturnType<typeof startTestConsole>>;
export type Visitor = ReturnType<typeof visitor>;

type Fields = Readonly<Record<string, string>>;

/** A browser without scripts: it keeps its cookie, and sends forms as a browser does. */
function visitor(port: number) {
  let cookie: string | undefined;
  const origin = `http://127.0.0.1:${port}`;
  async function send(
    path: string,
    more: { method?: string; headers?: Fields; body?: string | Buffer } = {},
  ) {
    const headers = { ...(cookie !== undefined && { Cookie: cookie }), ...more.headers };
    const answer = await call(port, path, { ...more, headers });
    for (const set of answer.headers['set-cookie'] ?? []) cookie = set.split(';', 1)[0];
    return answer;
  }
  async function post(path: string, fields: Fields | FormData = {}, headers: Fields = {}) {
    const form = fields instanceof FormData ? fields : new URLSearchParams(fields);
    const request = new Request(origin, { method: 'POST', body: form });
    const type = request.headers.get('content-type') ?? '';
    const body = Buffer.from(await request.arrayBuffer());
    return send(path, {
      method: 'POST',
      body,
      headers: { Origin: origin, 'Content-Type': type, ...headers },
    });
  }
  return {
    origin,
    get: (path: string, headers: Fields = {}) => send(path, { headers }),
    post,
    /** Sends a form that must be taken; resolves with the page to which it leads. */
    async submit(path: string, fields: Fields | FormData = {}): Promise<Answer & { readonly path: string }> {
      const answer = await post(path, fields);
      expect([path, answer.status]).toEqual([path, 303]);
      const to = `${answer.headers.location}`;
      return { ...(await send(to)), path: to };
    },
    /** Sends a form that must be refused with a fault; resolves with its page. */
    async fail(path: string, fields: Fields | FormData = {}): Promise<string> {
      const { status, body } = await post(path, fields);
      expect([path, status]).toEqual([path, 422]);
      expect(body).toContain('role="alert"');
      return body;
    },
  };
}

/** A form with files. */
export function filesForm(...files: readonly (readonly [name: string, text: string | Buffer])[]): FormData {
  const form = new FormData();
  for (const [name, text] of files) form.append('file', new Blob([new Uint8Array(Buffer.from(text))]), name);
  return form;
}

/** The text of a page, without its tags, as a reader sees it. */
export function readable(page: string): string {
  return page
    .replace(/<[^>]*>/g, ' ')
    .replace(/&#(\d+);/g, (_all, code: string) => String.fromCharCode(Number(code)))
    .replace(/\s+/g, ' ');
}

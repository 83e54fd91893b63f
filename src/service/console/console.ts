import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import { asProblem, isFault, PROBLEMS, Problem, type ProblemCode, problemHeaders } from '../../errors.ts';
import { originCheck } from '../../guard/fetch-metadata.ts';
import { knownHost } from '../../guard/known-host.ts';
import { CLIENT_LEFT } from '../../http/client-connection.ts';
import { hostNamed, isLoopback } from '../../http/hosts.ts';
import { PASSWORD_HASH } from '../settings/settings.ts';
import { SettingsError } from '../settings/settings-error.ts';
import { botPages } from './bot-pages.ts';
import { html } from './html.ts';
import { indexings } from './indexings.ts';
import { keyPages } from './key-pages.ts';
import { knowledgePages } from './knowledge-pages.ts';
import { showPage } from './layout.ts';
import { modelPages } from './model-pages.ts';
import { projectPages } from './project-pages.ts';
import type { ConsoleParts } from './routes.ts';
import { consoleSessions, endedByNewPassword, oneTimeToken, signedInOnly, signInPages } from './sign-in.ts';
import { ICON, STYLE } from './style.ts';

export interface ConsoleOptions extends ConsoleParts {
  readonly port: number;
  /** Where to listen. Only on a loopback address there is a link to sign in; elsewhere the password is asked for. */
  readonly host: string;
  /** The address that browsers show, if it is another one, such as that of a proxy with TLS. */
  readonly publicUrl?: URL | undefined;
  /** Called with each error that is a fault of the service. */
  readonly onFault: (error: unknown) => void;
}

export interface Console {
  readonly url: URL;
  /** Where it listens. */
  readonly port: number;
  /** The link that signs in once; none if the console does not listen on a loopback address. */
  readonly signInLink: URL | undefined;
  close(): Promise<void>;
}

/**
 * Starts the console of the bot service: pages on a listener of their own.
 * @throws SettingsError if it would be reached from other machines and has no password; the system's error if the
 * address cannot be used
 */
export async function startConsole(options: ConsoleOptions): Promise<Console> {
  const { port, host, publicUrl, settings } = options;
  const passwordHash = () => settings.consoleValue(PASSWORD_HASH);
  const name = hostNamed(host) ?? host;
  const token = isLoopback(name) ? oneTimeToken() : undefined;
  if (!token && passwordHash() === undefined)
    throw new SettingsError(
      'SERVICE_CONSOLE_HOST is not a loopback address, and the console has no password. Set one with bot-relay service password, and start again.',
    );
  const { sessions, endAll, close: closeSessions } = consoleSessions(publicUrl?.protocol === 'https:');
  const app = express().disable('x-powered-by').disable('etag');
  for (const stage of firstStages(options, name)) app.use(stage);
  files(app);
  app.use(endedByNewPassword(passwordHash, endAll));
  signInPages(app, { sessions, token, passwordHash });
  app.use(signedInOnly(sessions));
  for (const addPages of [projectPages, keyPages, modelPages, botPages]) addPages(app, options);
  const running = indexings(options.knowledge.index, options.onFault);
  knowledgePages(app, options, running);
  app.use(() => {
    throw new Problem('not_found', 'The address is wrong, or what was there has been deleted.');
  });
  app.use(problemPage(options));
  const server = createServer(app);
  server.listen(port, host);
  await once(server, 'listening');
  const listening = (server.address() as AddressInfo).port;
  const url = publicUrl ?? new URL(`http://${name}:${listening}/`);
  return {
    ...{ url, port: listening },
    signInLink: token && new URL(`/sign-in?token=${token.text}`, url),
    close: () =>
      new Promise((resolve) => {
        running.close();
        closeSessions();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** What stands before all pages: headers, the host's name, the origin of forms. */
function firstStages({ publicUrl }: ConsoleOptions, name: string): RequestHandler[] {
  const isHttps = publicUrl?.protocol === 'https:';
  const names = [name, ...(publicUrl ? [publicUrl.hostname] : [])];
  return [
    helmet({
      contentSecurityPolicy: {
        useDefaults: false,
        directives: {
          defaultSrc: ["'none'"],
          styleSrc: ["'self'"],
          imgSrc: ["'self'"],
          formAction: ["'self'"],
          baseUri: ["'none'"],
          frameAncestors: ["'none'"],
        },
      },
      strictTransportSecurity: isHttps && { includeSubDomains: false },
      xFrameOptions: { action: 'deny' },
      // With `no-referrer`, a form's `Origin` is `null` (WHATWG Fetch, "append a request Origin header").
      referrerPolicy: { policy: 'same-origin' },
    }),
    function neverCached(_req, res, next) {
      res.setHeader('Cache-Control', 'no-store');
      next();
    },
    knownHost({ names, loopback: true, exceptPaths: [] }),
    function ownOrigin(req, _res, next) {
      const own = `${isHttps ? 'https' : 'http'}://${req.headers.host}`;
      if (req.method === 'POST') originCheck({ own, allowed: [] })(req.headers);
      next();
    },
  ];
}

function files(app: Express): void {
  app.get('/console.css', (_req, res) => void res.type('css').send(STYLE));
  app.get('/console.svg', (_req, res) => void res.type('svg').send(ICON));
}

/** A page for everything that was refused or has failed. */
function problemPage({ onFault }: ConsoleOptions): ErrorRequestHandler {
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  return function problemPage(error: unknown, _req, res, _next) {
    const problem =
      error instanceof URIError ? new Problem('not_found', 'The address is wrong.') : asProblem(error);
    if (error === CLIENT_LEFT) return;
    if (isFault(problem)) onFault(problem.cause ?? problem);
    if (res.headersSent) return void res.destroy();
    for (const [name, value] of Object.entries(problemHeaders(problem))) res.setHeader(name, value);
    res.status(problem.status);
    const { title, text } = WORDS[problem.code] ?? {
      title: PROBLEMS[problem.code].title,
      text: problem.message,
    };
    const body = html`<p>${text}</p><p><a href="/">To the projects</a></p>`;
    showPage(res, { title, body, isSignedOut: true });
  };
}

/** What the console says in other words than the relay. */
const WORDS: Partial<Record<ProblemCode, { readonly title: string; readonly text: string }>> = {
  unknown_host: {
    title: PROBLEMS.unknown_host.title,
    text: 'Open the console at the address where it listens, or set its public address.',
  },
  internal_error: { title: 'Something went wrong', text: 'The log of the service says more.' },
};

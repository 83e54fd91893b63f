import { createHash } from 'node:crypto';
import { dirname } from 'node:path/posix';
import type { Request, Response } from 'express';
import { PROBLEMS, Problem, problemHeaders, recordOutcome } from '../../errors.ts';
import { localPath, queryOf } from './return-to.ts';

const STYLE =
  ':root{color-scheme:light dark}' +
  'body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}' +
  'h1{font-size:1.5rem;line-height:1.25}' +
  'small{opacity:.75}' +
  'code{overflow-wrap:anywhere}';
const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');
const POLICY = `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

/** The request whose sign-in has failed, and the local path to which the sign-in was to return. */
export interface FailedSignIn {
  readonly req: Request;
  readonly res: Response;
  readonly returnTo: string;
}

/** Answers with a page if a person sees the answer, and returns true; returns false if a script is to get the problem. */
export type SignInPage = (error: unknown, failed: FailedSignIn) => boolean;

/** Makes the small page for a failed sign-in. It says what is wrong and links to the sign-in at `signInPath`. */
export function signInPage(signInPath: string): SignInPage {
  return function signInPage(error, { req, res, returnTo }) {
    if (!(error instanceof Problem) || res.headersSent || !isNavigation(req)) return false;
    // The next stage logs a fault with its stack.
    if (error.cause instanceof Error) return false;
    recordOutcome(res.locals, error);
    for (const [name, value] of Object.entries(problemHeaders(error))) res.setHeader(name, value);
    res.status(error.status);
    res.setHeader('Content-Security-Policy', POLICY);
    res.type('html').send(
      page({
        title: PROBLEMS[error.code].title,
        detail: error.message,
        link: linkTo(signInPath, returnTo, error),
        linkText: error.code === 'not_allowed' ? 'Sign in as somebody else' : 'Try again',
        requestId: res.locals.requestId,
      }),
    );
    return true;
  };
}

/** Decides by fetch metadata (W3C Fetch Metadata §2.2), and for old browsers by what the request prefers. */
function isNavigation(req: Request): boolean {
  const mode = req.headers['sec-fetch-mode'];
  if (mode !== undefined) return mode === 'navigate';
  return req.accepts(['json', 'html']) === 'html';
}

/**
 * The return path of a sign-in that was refused at `signInPath`; `/` elsewhere, where only the sign-in's cookie has it.
 */
export function returnToOf(req: Request, signInPath: string): string {
  if (req.baseUrl !== signInPath) return '/';
  return localPath(new URLSearchParams(queryOf(req)).get('returnTo'), dirname(signInPath));
}

function linkTo(signInPath: string, returnTo: string, { code }: Problem): string {
  const query = new URLSearchParams({ returnTo, ...(code === 'not_allowed' && { prompt: 'login' }) });
  return `${signInPath}?${query}`;
}

interface Page {
  readonly title: string;
  readonly detail: string;
  readonly link: string;
  readonly linkText: string;
  readonly requestId: string;
}

function page({ title, detail, link, linkText, requestId }: Page): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
<main>
<h1>${escaped(title)}</h1>
<p>${escaped(detail)}</p>
<p><a href="${escaped(link)}">${escaped(linkText)}</a></p>
<p><small>Request <code>${escaped(requestId)}</code></small></p>
</main>
</html>
`;
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

function escaped(text: string): string {
  return text.replaceAll(/[&<>"]/g, (character) => ENTITIES[character] as string);
}

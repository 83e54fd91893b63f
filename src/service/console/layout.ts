import type { Response } from 'express';
import type { Project } from '../settings/projects.ts';
import { type Form, faultSummary } from './fields.ts';
import { type Html, html } from './html.ts';

/** The pages of a project, by their path below it. */
const SECTIONS = {
  '': 'Project',
  keys: 'App settings',
  models: 'AI settings',
  bots: 'Bots',
  knowledge: 'Knowledge',
} as const;
export type Section = keyof typeof SECTIONS;

/** What was done, by the word in the address of the page that says it. */
const DONE = {
  saved: 'Saved.',
  created: 'Created.',
  deleted: 'Deleted.',
  enabled: 'The key is active: it works from now on.',
  disabled: 'The key is disabled: it works no more.',
  indexed: 'The indexing is over.',
} as const;
export type Done = keyof typeof DONE;

export interface PageOptions {
  readonly title: string;
  readonly body: Html;
  /** The project that the page is of, and which of its pages it is. */
  readonly project?: Project;
  readonly section?: Section;
  /** The forms of the page: their faults are listed at its top. */
  readonly forms?: readonly Form[];
  /** Whoever has not signed in sees no links. */
  readonly isSignedOut?: boolean;
  /** In how many seconds the page is loaded again. */
  readonly refreshSeconds?: number;
}

/** The path of a page of a project, with what stands below it. */
export function pathOf({ id }: Pick<Project, 'id'>, ...below: readonly string[]): string {
  return `/${['projects', id, ...below].map(encodeURIComponent).join('/')}`;
}

/** Answers with a page: with 422 (RFC 9110 §15.5.21) if one of its forms has a fault. */
export function showPage(res: Response, options: PageOptions): void {
  const faulty = (options.forms ?? []).filter(({ faults }) => faults.length > 0);
  if (faulty.length > 0) res.status(422);
  const done = new URLSearchParams(res.req.url.split('?')[1]).get('done') ?? '';
  const said = Object.hasOwn(DONE, done) && faulty.length === 0 ? DONE[done as Done] : undefined;
  const before = html`${said && html`<p class="done" role="status">${said}</p>`}${faulty.map(faultSummary)}`;
  res.type('html').send(documentOf(options, { before, isFaulty: faulty.length > 0 }).text);
}

/** Goes to a page after something was done (RFC 9110 §15.4.4). The page says it. */
export function goTo(res: Response, path: string, done?: Done): void {
  res.redirect(303, done === undefined ? path : `${path}?done=${done}`);
}

function documentOf(options: PageOptions, { before, isFaulty }: { before: Html; isFaulty: boolean }): Html {
  const { title, body, project, section, isSignedOut, refreshSeconds } = options;
  const name = project ? `${title} · ${project.name}` : title;
  const signOut = html`<form method="post" action="/sign-out"><button class="plain">Sign out</button></form>`;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
${refreshSeconds !== undefined && html`<meta http-equiv="refresh" content="${refreshSeconds}">`}
<title>${isFaulty && 'Not saved: '}${name} · bot-relay console</title>
<link rel="icon" href="/console.svg">
<link rel="stylesheet" href="/console.css">
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<a class="brand" href="/">bot-relay console</a>
${!isSignedOut && signOut}
</header>
${project && navigation(project, section)}
<main id="main" tabindex="-1">
${before}
<h1>${title}</h1>
${body}
</main>
</body>
</html>
`;
}

function navigation(project: Project, section: Section | undefined): Html {
  const links = Object.entries(SECTIONS).map(([path, name]) => {
    const isHere = path === section && html` aria-current="page"`;
    return html`<li><a href="${pathOf(project, ...(path === '' ? [] : [path]))}"${isHere}>${name}</a></li>`;
  });
  return html`<nav aria-label="${project.name}"><p>${project.name}</p><ul>${links}</ul></nav>`;
}

/** A button that does something at once. `subject` says to screen readers what it is about. */
export function actionButton(action: string, label: string, subject: string): Html {
  return html`<form method="post" action="${action}"><button class="plain">${label}<span class="unseen"> ${subject}</span></button></form>`;
}

/** A link that looks like a button. */
export function actionLink(path: string, label: string, subject: string): Html {
  return html`<a class="button plain" href="${path}">${label}<span class="unseen"> ${subject}</span></a>`;
}

/** A time, in UTC. */
export function timeOf(date: Date): Html {
  const iso = date.toISOString();
  return html`<time datetime="${iso}">${iso.slice(0, 16).replace('T', ' ')} UTC</time>`;
}

/** A list of what there is, or a sentence if there is nothing. */
export function rows(items: readonly Html[], none: string): Html {
  return items.length > 0 ? html`<ul class="rows">${items}</ul>` : html`<p>${none}</p>`;
}

/** A list of names and values. */
export function facts(items: readonly (readonly [name: string, value: Html | string | number])[]): Html {
  return html`<dl>${items.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

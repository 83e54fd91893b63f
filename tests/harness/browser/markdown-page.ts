/// <reference lib="dom" />
import type { Page } from 'playwright-core';
import type { ShowMarkdown } from '../../../src/client/element/markdown-view.ts';

/** The script of a page with the view of Markdown; `hit` counts scripts that ran. */
export const MARKDOWN_PAGE = `
  import { markdownView } from './markdown-view.ts';
  const words = { copy: 'Copy', code: 'Code', table: 'Table' };
  globalThis.refused = [];
  globalThis.hits = 0;
  globalThis.hit = globalThis.alert = () => { hits += 1; };
  addEventListener('securitypolicyviolation', (event) => refused.push(event.violatedDirective + ' ' + event.blockedURI));
  globalThis.newView = () => {
    const root = document.createElement('div');
    document.querySelector('main').append(root);
    return { root, show: markdownView(root, words) };
  };
`;

/** The globals of that page. */
export type MarkdownWindow = typeof globalThis & {
  readonly refused: string[];
  readonly hits: number;
  newView(): { root: HTMLElement; show: ShowMarkdown };
};

/** Shows texts in the page, each in pieces that grow, and returns each thing that stands in no list of what may be there. */
export function faultsOf(page: Page, texts: readonly string[]): Promise<string[]> {
  return page.evaluate((all) => {
    const { newView } = globalThis as MarkdownWindow;
    const NAMES =
      'P BR STRONG EM DEL CODE A H3 HR UL OL LI BLOCKQUOTE PRE DIV SPAN BUTTON TABLE THEAD TBODY TR TH TD'.split(
        ' ',
      );
    const ATTRIBUTES =
      'dir part href target rel class role tabindex aria-label type start data-depth data-align data-copy-code'.split(
        ' ',
      );
    const faults: string[] = [];
    const judge = (element: Element, text: string) => {
      const fault = (what: string) => faults.push(`${what} of ${JSON.stringify(text)}`);
      if (!NAMES.includes(element.nodeName)) fault(`the element ${element.nodeName}`);
      for (const { name } of element.attributes)
        if (!ATTRIBUTES.includes(name)) fault(`the attribute ${name}`);
      if (!(element instanceof HTMLAnchorElement)) return;
      if (!['http:', 'https:', 'mailto:'].includes(element.protocol)) fault(`the link ${element.href}`);
      if (element.rel !== 'noopener noreferrer') fault('a link without rel');
      if (element.parentElement?.closest('a')) fault('a link in a link');
    };
    for (const text of all) {
      const { root, show } = newView();
      for (const part of [0.3, 0.7]) show(text.slice(0, text.length * part), false);
      show(text, true);
      for (const element of root.querySelectorAll('*')) judge(element, text);
      root.remove();
    }
    return faults;
  }, texts);
}

/** What was run, refused or asked for in the page since its start. */
export async function traces(page: Page): Promise<{ hits: number; refused: string[] }> {
  // A request that was begun is known after the next two frames.
  return page.evaluate(async () => {
    for (let frames = 0; frames < 2; frames += 1)
      await new Promise((resolve) => requestAnimationFrame(resolve));
    const { hits, refused } = globalThis as MarkdownWindow;
    return { hits, refused };
  });
}

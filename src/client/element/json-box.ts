import { newElement } from './dom.ts';

/** The most characters of a value that are shown. */
const LONGEST = 4_000;

/** A value as JSON. One whose values are too deep in each other is left out. */
function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value, null, 2) ?? '';
  } catch {
    return '…';
  }
}

/** A value as people can read it: a text as it is, anything else as JSON. The end of a long one is left out. */
export function readable(value: unknown): string {
  const text = typeof value === 'string' ? value : jsonText(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
}

/** Whether there is nothing to show of a value. */
export function isBlank(value: unknown): boolean {
  return value === undefined || value === null || ['', '{}', '[]'].includes(readable(value).trim());
}

/** A value in a box, which can be scrolled with the keyboard. */
export function jsonBox(value: unknown, label: string): HTMLElement {
  const attributes = { class: 'value', dir: 'auto', tabindex: '0', role: 'group', 'aria-label': label };
  return newElement('pre', attributes, newElement('code', {}, readable(value)));
}

import { ENGLISH, type Words } from './english.ts';

export type { Words } from './english.ts';

/** The words of one language, and the direction of its script. */
export interface Language {
  readonly lang: string;
  readonly dir: 'ltr' | 'rtl';
  readonly words: Words;
}

/** The language of pages in a language for which there are no words. */
export const IN_ENGLISH: Language = { lang: 'en', dir: 'ltr', words: ENGLISH };

/** The languages that are loaded by the pages in them. */
const LATER = new Map<string, () => Promise<Language>>([
  ['ar', async () => ({ lang: 'ar', dir: 'rtl', words: (await import('./arabic.ts')).ARABIC })],
]);

/** The language of `lang`, such as `ar-EG`; English if there are no words in it, or if they cannot be had. */
export async function languageOf(lang: string): Promise<Language> {
  const load = LATER.get(lang.toLowerCase().split('-', 1)[0] ?? '');
  return (await load?.().catch(() => undefined)) ?? IN_ENGLISH;
}

/** Puts the values into a text, in place of `{name}`. */
export function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

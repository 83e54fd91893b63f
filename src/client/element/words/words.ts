import { ARABIC } from './arabic.ts';
import { ENGLISH, type Words } from './english.ts';

export type { Words } from './english.ts';

/** The words of one language, and the direction of its script. */
export interface Language {
  readonly lang: string;
  readonly dir: 'ltr' | 'rtl';
  readonly words: Words;
}

const LANGUAGES: Readonly<Record<string, Language>> = {
  en: { lang: 'en', dir: 'ltr', words: ENGLISH },
  ar: { lang: 'ar', dir: 'rtl', words: ARABIC },
};

/** The language of `lang`, such as `ar-EG`; English if there are no words in it. `own` replaces single words. */
export function languageOf(lang: string, own: Partial<Words> = {}): Language {
  const found = LANGUAGES[lang.toLowerCase().split('-', 1)[0] ?? ''] ?? LANGUAGES.en;
  const { dir, words } = found as Language;
  return { lang: (found as Language).lang, dir, words: { ...words, ...own } };
}

/** Puts the values into a text, in place of `{name}`. */
export function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

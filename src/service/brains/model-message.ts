import type { UserContent, UserModelMessage } from 'ai';
import type { Ask, AskedFile, RunError } from './steps.ts';

/** What a model is asked. */
export interface Asked {
  readonly message: UserModelMessage;
  /** What later turns remember of it: of files, their names alone. */
  readonly remembered: string;
  /** How long its text is, with the files that are text. */
  readonly characters: number;
}

const IMAGES: readonly string[] = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const PDF = 'application/pdf';
const TEXT_TYPE = /^(text\/.+|application\/(json|xml|yaml|x-yaml|toml|sql|javascript))$/;
/** Browsers know no type of these. */
const TEXT_NAME = /\.(md|markdown|txt|csv|tsv|json|ya?ml|toml|xml|log)$/i;
const NO_TYPE: readonly string[] = ['', 'application/octet-stream'];

type Part = Exclude<UserContent, string>[number];

/** The message of the user as a model takes it, or why it cannot. */
export function askedMessage({ text, files }: Ask): Asked | { readonly error: RunError } {
  const parts = files.map(partOf);
  const refused = files.find((_file, index) => parts[index] === undefined);
  if (refused) return { error: notSupported(refused) };
  const names = files.map(({ name }) => `[The user sent the file ${JSON.stringify(name)}.]`);
  const content = [textPart(text), ...parts].filter((part) => part !== undefined);
  return {
    message: { role: 'user', content: files.length === 0 ? text : content },
    remembered: [text, ...names].filter((line) => line !== '').join('\n'),
    characters: content.reduce((sum, part) => sum + (part.type === 'text' ? part.text.length : 0), 0),
  };
}

const textPart = (text: string): Part | undefined => (text === '' ? undefined : { type: 'text', text });

/** Undefined if no model takes a file of this kind. */
function partOf(file: AskedFile): Part | undefined {
  const { name, bytes } = file;
  const mediaType = file.type.split(';')[0]?.trim().toLowerCase() ?? '';
  if (IMAGES.includes(mediaType) || mediaType === PDF)
    return { type: 'file', mediaType, data: bytes, filename: name };
  const isText = TEXT_TYPE.test(mediaType) || (NO_TYPE.includes(mediaType) && TEXT_NAME.test(name));
  const text = isText ? textOf(bytes) : undefined;
  if (text === undefined) return undefined;
  const quoted = JSON.stringify(name);
  return { type: 'text', text: `The file ${quoted}:\n\n${text}\n\nThe end of the file ${quoted}.` };
}

/** Undefined if the bytes are not UTF-8, or are none that people read. */
function textOf(bytes: Buffer): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

const notSupported = ({ name }: AskedFile): RunError => ({
  code: 'FILE_NOT_SUPPORTED',
  message: `The file ${JSON.stringify(name)} is of a kind that this bot cannot read. It reads images (PNG, JPEG, GIF, WebP), PDF, and text in UTF-8.`,
});

import { SettingsError } from '../settings/settings-error.ts';

/** A file as it was uploaded. */
export interface Upload {
  readonly name: string;
  readonly bytes: Uint8Array;
}

const MAX_BYTES = 1_048_576;
const MAX_NAME = 200;
const ENDING = /\.(?:md|markdown|txt)$/i;
/** Slashes, control characters, line ends, and marks that turn the direction of writing around. */
const NOT_IN_A_NAME = /[/\\\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]|\.\./u;
/** Control characters but tab, line ends and form feed. */
const NOT_IN_A_TEXT = /[^\P{Cc}\t\n\f\r\u0080-\u009f]/u;

/**
 * The name of a document, one for each way to write its characters.
 * @throws SettingsError if it is no plain name of a Markdown or text file
 */
export function documentName(name: string): string {
  const isPlain = name !== '' && name.isWellFormed() && !NOT_IN_A_NAME.test(name) && !/^[\s.]|\s$/.test(name);
  if (!isPlain || name.length > MAX_NAME)
    throw new SettingsError(
      `A document's name must be a plain file name of at most ${MAX_NAME} characters, without slashes, ".." and control characters.`,
    );
  if (!ENDING.test(name))
    throw new SettingsError(
      `${name} is neither Markdown nor text: its name must end in .md, .markdown or .txt.`,
    );
  return name.normalize('NFC');
}

/** Whether a document of this name is Markdown. */
export function isMarkdown(name: string): boolean {
  return !/\.txt$/i.test(name);
}

/**
 * The text of a document, without a byte order mark.
 * @throws SettingsError if it is too long, empty, or no text in UTF-8
 */
export function documentText({ name, bytes }: Upload): string {
  if (bytes.length > MAX_BYTES) {
    const [has, most] = [bytes.length, MAX_BYTES].map((count) => count.toLocaleString('en'));
    throw new SettingsError(`${name} has ${has} bytes. A document can have at most ${most}.`);
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new SettingsError(`${name} is not text in UTF-8. Save it as UTF-8, and upload it again.`);
  }
  if (NOT_IN_A_TEXT.test(text)) throw new SettingsError(`${name} has control characters: it is not text.`);
  if (!/\S/.test(text)) throw new SettingsError(`${name} is empty.`);
  return text;
}

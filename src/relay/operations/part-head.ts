import { isUtf8 } from 'node:buffer';
import { Problem } from '../../errors.ts';

/** What the headers of one part of a form say. */
export interface PartHead {
  /** The name of the field. */
  readonly name: string;
  /** Undefined if the part is no file. Without folders. */
  readonly fileName: string | undefined;
  /** The media type of a file. */
  readonly type: string;
}

const QUOTED = String.raw`"((?:[^"\\]|\\.)*)"`;
const DISPOSITION = new RegExp(`^form-data *; *name=${QUOTED}(?: *; *filename=${QUOTED})? *;?$`, 'i');
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}(?: *; *charset=[\w-]{1,40})?$/;
const PLAIN_ENCODINGS = /^(?:7bit|8bit|binary)$/i;
const MAX_NAME_LENGTH = 255;

/**
 * Reads the headers of a part (RFC 7578 §4). Their bytes come as characters; the names must be UTF-8.
 * @throws Problem `invalid_form` if they are not those of a field or of a file that is sent as it is
 */
export function partHead(headers: Readonly<Record<string, readonly string[] | undefined>>): PartHead {
  const dispositions = headers['content-disposition'] ?? [];
  const [found, name = '', fileName] = DISPOSITION.exec(dispositions[0] ?? '') ?? [];
  const { 'content-transfer-encoding': encodings = [], 'content-type': types = [] } = headers;
  const isPlain = encodings.every((encoding) => PLAIN_ENCODINGS.test(encoding));
  if (found === undefined || dispositions.length > 1 || types.length > 1 || !isPlain)
    throw invalidForm('A part of the form has headers that cannot be used.');
  const [type = ''] = types;
  return {
    name: textOf(name),
    fileName: fileName === undefined ? undefined : baseName(textOf(fileName)),
    type: MEDIA_TYPE.test(type) ? type : 'application/octet-stream',
  };
}

/** A form that is not as it must be. */
export function invalidForm(detail: string): Problem {
  return new Problem('invalid_form', detail);
}

function textOf(characters: string): string {
  const bytes = Buffer.from(characters, 'latin1');
  if (!isUtf8(bytes)) throw invalidForm('A name in the form is not UTF-8.');
  return bytes.toString('utf8').replaceAll('\\"', '"');
}

/** The last part of a path. What it must not hold in a header, or as the name of a file, is replaced. */
function baseName(path: string): string {
  const name = (path.split(/[/\\]/).at(-1) ?? '').replace(/\p{Cc}/gu, '_').slice(0, MAX_NAME_LENGTH);
  return /^\.{0,2}$/.test(name) ? 'file' : name.toWellFormed();
}

import { parseArgs } from 'node:util';
import { isKeyAction, type KeyAction } from './service-keys.ts';

/** What the command line asks for. */
export type Asked =
  | { readonly what: 'start'; readonly keysFile: string | undefined; readonly limit: number | undefined }
  | { readonly what: 'test'; readonly project: string | undefined; readonly asJson: boolean }
  | { readonly what: 'keys'; readonly action: KeyAction }
  | { readonly what: 'password' }
  | { readonly what: 'backup'; readonly file: string };

const OPTIONS = {
  project: { type: 'string' },
  yes: { type: 'boolean' },
  json: { type: 'boolean' },
  'keys-file': { type: 'string' },
  'rate-limit': { type: 'string' },
} as const;

/** The options that each action has. */
const OPTIONS_OF: Readonly<Record<string, readonly string[]>> = {
  start: ['keys-file', 'rate-limit'],
  test: ['json'],
  keys: ['project', 'yes'],
};

/** Reads the arguments behind `service`; undefined if they are wrong. */
export function readServiceArguments(args: readonly string[]): Asked | undefined {
  const parsed = parse(args);
  if (!parsed) return undefined;
  const { values, positionals } = parsed;
  const [action, name = '', ...more] = positionals;
  const what = action ?? 'start';
  if (!Object.keys(values).every((option) => OPTIONS_OF[what]?.includes(option))) return undefined;
  if (what === 'keys') {
    const [key = '', ...others] = more;
    const { project, yes } = values;
    const keyAction = { verb: name, name: key, project, yes };
    return others.length === 0 && isKeyAction(keyAction) ? { what, action: keyAction } : undefined;
  }
  if (more.length > 0) return undefined;
  if (what === 'test') return { what, project: name || undefined, asJson: values.json === true };
  if (what === 'backup') return name === '' ? undefined : { what, file: name };
  if (name !== '') return undefined;
  if (what === 'password') return { what };
  const limit = values['rate-limit'];
  if (action !== undefined || !/^[1-9]\d{0,5}$/.test(limit ?? '1')) return undefined;
  return { what: 'start', keysFile: values['keys-file'], limit: limit === undefined ? limit : Number(limit) };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch {
    return undefined;
  }
}

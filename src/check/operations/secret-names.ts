/** Words in the name of a member that holds a secret, without separators and in lower case. */
const SECRET_NAME =
  /apikey|secret|password|passwd|passphrase|privatekey|accesskey|authorization|credential|connectionstring|token$/;
/** A value that is masked, such as `****`, or that says that there is none. */
const NO_VALUE = /^(?:[*•.xX\s]*|null|none|undefined|true|false)$/;
const MAX_NAMES = 10;
const MAX_DEPTH = 30;

/** The paths of the members in `json` that are named like a secret and have a value. The values are not returned. */
export function secretNamesIn(json: unknown): string[] {
  return [...new Set(found(json, []))].slice(0, MAX_NAMES);
}

function found(value: unknown, path: readonly string[]): string[] {
  if (typeof value !== 'object' || value === null || path.length > MAX_DEPTH) return [];
  const pair = namedPair(value);
  if (pair && isSecret(pair.name, pair.value)) return [[...path, pair.name].join('.')];
  return Object.entries(value).flatMap(([name, inner]) => {
    const here = [...path, name];
    return isSecret(name, inner) ? [here.join('.')] : found(inner, here);
  });
}

/** Settings are often lists of `{name, value}`. */
function namedPair(value: object): { readonly name: string; readonly value: unknown } | undefined {
  const { name, key, value: inner } = value as Partial<Record<string, unknown>>;
  const named = name ?? key;
  return typeof named === 'string' && inner !== undefined ? { name: named, value: inner } : undefined;
}

function isSecret(name: string, value: unknown): boolean {
  if (typeof value !== 'string' || NO_VALUE.test(value)) return false;
  return (
    SECRET_NAME.test(name.toLowerCase().replace(/[^a-z0-9]/g, '')) ||
    /-----BEGIN [A-Z ]*PRIVATE KEY/.test(value)
  );
}

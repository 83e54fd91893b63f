import { Problem } from '../errors.ts';

/** One segment of a path that no service reads as another one: without dots, slashes, and what an encoder escapes. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/;

/**
 * The name of a sandbox, as it stands in a path.
 * @throws Problem `bad_request` if it cannot be one
 */
export function sandboxName(name: unknown): string {
  if (isSandboxName(name)) return name;
  throw new Problem('bad_request', 'The path does not name a sandbox.');
}

/**
 * The names of the sandboxes that a conversation has launched, by its metadata: the member `launchedSandboxes`, alone
 * or in the service's `data`. Other names than those of `sandboxName` are left out.
 */
export function launchedSandboxes(metadata: unknown): readonly string[] {
  const launched = memberOf(memberOf(metadata, 'data'), 'launchedSandboxes');
  const list = launched ?? memberOf(metadata, 'launchedSandboxes');
  return Array.isArray(list) ? list.map((one) => memberOf(one, 'sandboxName')).filter(isSandboxName) : [];
}

function isSandboxName(name: unknown): name is string {
  return typeof name === 'string' && NAME.test(name);
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

import { builtFile, cachedFile, type Page } from './cached-file.ts';

/**
 * The package of the client, from where npm installs it. It is read once. Empty if it is not built, since the relay can
 * run without it.
 */
export function clientPackage(): Page[] {
  const name = 'bot-relay-client.tgz';
  const body = builtFile(name);
  return body ? [cachedFile({ path: `/client/${name}`, type: 'application/gzip', body })] : [];
}

import type { Secret } from '../secret.ts';

/** One server of a Redis URL. */
export interface RedisNode {
  /** Name and port. */
  readonly host: string;
  readonly hostname: string;
  readonly port: number;
}

/** What a Redis URL says, without its user and password. */
export interface RedisAddress {
  /** The servers, with a comma between. */
  readonly host: string;
  readonly nodes: readonly RedisNode[];
  readonly tls: boolean;
  readonly hasPassword: boolean;
  readonly database: number;
}

const DEFAULT_PORT = 6379;
const SERVERS = /^(rediss?:\/\/(?:[^@,/?#]*@)?)([^@/?#]+)((?:\/\d{1,3})?)$/;

/** One URL for each server of a Redis URL with one or several; empty if it is not such a URL. */
export function redisUrls(text: string): URL[] {
  const [, before = '', servers = '', after = ''] = SERVERS.exec(text) ?? [];
  const urls = servers.split(',').map((server) => URL.parse(before + server + after));
  return urls.every((url) => url !== null && url.hostname !== '') ? urls.filter((url) => url !== null) : [];
}

/** Reads a Redis URL. */
export function redisAddress(url: Secret): RedisAddress {
  const urls = redisUrls(url.open());
  const { protocol, password, pathname } = urls[0] as URL;
  const nodes = urls.map(({ host, hostname, port }) => ({
    host,
    // As sockets take it: only a URL has brackets around an IPv6 address.
    hostname: hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(port || DEFAULT_PORT),
  }));
  return {
    host: nodes.map(({ host }) => host).join(','),
    nodes,
    tls: protocol === 'rediss:',
    hasPassword: password !== '',
    database: Number(pathname.slice(1)),
  };
}

import { isLoopback } from '../http/hosts.ts';
import { redisAddress } from '../storage/redis-address.ts';
import type { Config } from './config.ts';
import { FILES_OF_STREAM, OTHER_FILES } from './settings.ts';

/** The longest run that the bot service allows, in ms. */
const LONGEST_RUN_MS = 180_000;

/** Risks that the configuration takes, in plain words: what can happen, and what to set instead. */
export function risksOf(config: Config): string[] {
  const { demo, unused } = config;
  if (demo) return [...unused];
  return [
    ...unused,
    ...redisRisks(config),
    ...browserRisks(config),
    ...guestRisks(config),
    ...serviceRisks(config),
    ...channelRisks(config),
    ...operationRisks(config),
    ...openFilesRisks(config),
  ];
}

function redisRisks({ production, redis }: Config): string[] {
  if (!redis) {
    return production
      ? ['REDIS_URL is not set: sessions and budgets are in the memory of this process; run only one']
      : [];
  }
  const { nodes, tls, hasPassword } = redisAddress(redis.url);
  const risks: string[] = [];
  if (nodes.every(({ hostname }) => isLoopback(hostname))) return risks;
  // With a client certificate, Redis lets only its holder in.
  if (!hasPassword && !redis.tls?.cert) {
    risks.push(
      'REDIS_URL has no password: everybody who reaches Redis can change sessions and lift limits; set one in Redis and in REDIS_URL',
    );
  }
  if (!tls) {
    risks.push(
      'REDIS_URL is not rediss://: what Redis holds, and its password, cross the network in clear text; use TLS',
    );
  }
  return risks;
}

function browserRisks({ publicUrl, trustProxy, allowedOrigins, session }: Config): string[] {
  const { protocol, hostname } = publicUrl;
  const isHttps = protocol === 'https:';
  const risks: string[] = [];
  if (!isHttps) risks.push('PUBLIC_URL is not https: session cookies are not Secure');
  // With http on this machine there is no load balancer.
  if (trustProxy === false && (isHttps || !isLoopback(hostname))) {
    risks.push(
      'TRUST_PROXY is not set: all clients behind the load balancer count as one address and share its limits; set it to the number of proxies in front, or to 0 if there is none',
    );
  }
  if (allowedOrigins.length > 0 && session.sameSite === 'none') {
    risks.push(
      'ALLOWED_ORIGINS with COOKIE_SAME_SITE=none: a script in a page of these origins can do what the user who is signed in can; allow only pages that you trust like your own',
    );
  }
  return risks;
}

function guestRisks(config: Config): string[] {
  const { authMode, production, trustProxy, guestsPerAddress, clientLimits } = config;
  if (authMode !== 'guest') return [];
  const risks: string[] = [];
  if (production && trustProxy === false) {
    risks.push(
      'TRUST_PROXY is not set with AUTH_MODE=guest: all guests share the places of one address, and one guest can take them all; set it to the number of proxies in front',
    );
  }
  const limits = {
    GUESTS_PER_ADDRESS: guestsPerAddress,
    CLIENT_LIMIT_PER_ADDRESS: clientLimits.perAddress,
    CLIENT_LIMIT_PER_SESSION: clientLimits.perSession,
  };
  const without = Object.entries(limits).flatMap(([name, limit]) => (limit === 0 ? [name] : []));
  if (without.length > 0) {
    risks.push(
      `${without.join(' and ')} 0 with AUTH_MODE=guest: one program can send messages without this limit, and each is a paid run; set a limit`,
    );
  }
  return risks;
}

function channelRisks({ channels }: Config): string[] {
  if (channels.mode === 'shared')
    return [
      'CHANNELS is shared: who learns the id of a conversation can read and write it; set it to scoped',
    ];
  return channels.secretIsSet
    ? []
    : ['CHANNEL_SECRET is not set: after a restart, users no longer reach their conversations; set it'];
}

function operationRisks({ operations, upstream }: Config): string[] {
  const own = Object.entries(upstream.own).flatMap(([bot, settings]) =>
    settings.operations ? [[`operations of ${bot} in BOTS_FILE`, settings.operations] as const] : [],
  );
  return [['OPERATIONS', operations] as const, ...own].flatMap(([place, groups]) => [
    ...(groups.includes('message')
      ? []
      : [`${place} without message: pages can send no message; add message`]),
    ...(groups.includes('metadata')
      ? [
          `${place} with metadata: every user who is signed in can read the bot's configuration; take it out if pages do not need it`,
        ]
      : []),
  ]);
}

function serviceRisks({ upstream, shutdown }: Config): string[] {
  const { protocol, hostname } = upstream.baseUrl as URL;
  const risks: string[] = [];
  if (protocol !== 'https:' && !isLoopback(hostname)) {
    risks.push('UPSTREAM_BASE_URL is not https: the API key crosses the network in clear text');
  }
  if (upstream.maxExecutionMs > LONGEST_RUN_MS) {
    risks.push(
      `MAX_EXECUTION_MS is above ${LONGEST_RUN_MS}: the bot service ends a run by then, and a stream that hangs keeps its place for longer; set it to ${LONGEST_RUN_MS} or less`,
    );
  }
  if (shutdown.graceMs < upstream.maxExecutionMs) {
    risks.push(
      'SHUTDOWN_GRACE_MS is less than MAX_EXECUTION_MS: a shutdown cuts answers that take longer; set it to more',
    );
  }
  return risks;
}

/**
 * Whether the limit of open files is too low for MAX_CONNECTIONS, or else for the streams of one bot at its highest
 * rate.
 */
function openFilesRisks({ connections, rate, upstream }: Config): string[] {
  const { most, isSet, openFiles } = connections;
  const streams = Math.ceil((rate.limit * upstream.maxExecutionMs) / rate.windowMs);
  const needed = (isSet ? most : streams) * FILES_OF_STREAM + OTHER_FILES;
  if (openFiles === undefined || openFiles >= needed) return [];
  const what = isSet ? 'MAX_CONNECTIONS needs' : 'one bot at its highest rate needs';
  return [
    `the limit of open files is ${openFiles}, and ${what} ${needed}: messages would be refused with busy; raise it (ulimit -n, LimitNOFILE of systemd)`,
  ];
}

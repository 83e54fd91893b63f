import { createPrivateKey, X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { hostNamed, isAddress } from '../http/hosts.ts';
import { secret } from '../secret.ts';
import { redisUrls } from '../storage/redis-address.ts';

/** `claim:value`, split at the last colon, since the name of a claim may contain colons. */
export const requiredClaim = z
  .string()
  .regex(/^[^\s].*:[^:]*[^:\s]$/, 'must be claim:value, such as groups:chat-users')
  .transform((text) => {
    const colon = text.lastIndexOf(':');
    return { name: text.slice(0, colon), value: text.slice(colon + 1) };
  });

/** A secret, since it may contain a password. */
export const redisUrl = z
  .string()
  .refine((text) => redisUrls(text).length > 0, {
    message:
      'must be a URL such as redis://user:password@host:6379/0, or rediss:// for TLS; several servers with a comma between',
  })
  .refine((text) => redisUrls(text).every(isDecodable), {
    message: 'holds a % in its user or password that must be written as %25',
  })
  .transform(secret);

function isDecodable({ username, password }: URL): boolean {
  return succeeds(() => decodeURIComponent(username + password));
}

function succeeds(work: () => unknown): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
const HINT = 'the path of a file goes into the variable with _FILE at its end';

/** One certificate or several, in PEM form. */
export const certificates = z.string().refine(
  (text) => {
    const found = text.match(CERTIFICATE) ?? [];
    return found.length > 0 && found.every((one) => succeeds(() => new X509Certificate(one)));
  },
  { message: `holds no certificate in PEM form; ${HINT}` },
);

/** A private key in PEM form. */
export const privateKey = z
  .string()
  .refine((text) => succeeds(() => createPrivateKey(text)), {
    message: `holds no private key in PEM form, or one with a passphrase; ${HINT}`,
  })
  .transform(secret);

const SAMPLE_WORDS = /change.?me|example|sample|replace|your.?secret|placeholder/i;
/** Long, and not one of the samples that documents show. */
export const longSecret = z
  .string()
  .min(32, 'holds a secret of fewer than 32 characters')
  .refine((text) => new Set(text).size >= 8 && !SAMPLE_WORDS.test(text), {
    message: 'holds a sample or easily guessed secret; make one with: openssl rand -base64 48',
  })
  .transform(secret);

/** A host name or an IP address, as a `Host` header names it. */
export const hostName = z
  .string()
  .transform((text) => hostNamed(text) ?? '')
  .refine((name) => name !== '', 'must be host names or IP addresses separated by commas');

/** Names that reach another conversation, or run tools without consent, in any case and with any separators. */
const FORBIDDEN_PARAMETERS = /^(customchannelid|bypasstoolcallconsent)$/;
export const forwardedParameter = z
  .string()
  .regex(/^[A-Za-z0-9_.-]+$/, 'must be names of query parameters separated by commas')
  .refine(
    (name) =>
      [name, name.split('.', 1)[0] ?? ''].every(
        (part) => !FORBIDDEN_PARAMETERS.test(part.toLowerCase().replace(/[^a-z0-9]/g, '')),
      ),
    'must not name a conversation, or leave out the consent to tool calls',
  );

/** The name of a header that a page may send. */
export const headerName = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be names of headers separated by commas');

const FORBIDDEN_USER_HEADERS =
  /^(x-api-key|cookie|authorization|host|connection|content-.*|transfer-encoding|te|trailer|upgrade|expect|accept.*|keep-alive|proxy-.*|last-event-id|x-request-id|traceparent)$/i;
/** A header's name that is none of the relay's own. */
export const userHeader = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, 'must be a header name')
  .refine((name) => !FORBIDDEN_USER_HEADERS.test(name), 'must not be a header that the relay itself sets');

/** Express's `trust proxy`: a hop count, or a list of addresses and CIDRs (never `true`: that trusts everyone). */
export const trustProxy = z
  .string()
  .refine((text) => /^\d{1,2}$/.test(text) || text.split(',').every((part) => isAddress(part.trim())), {
    message: 'must be the number of load balancers in front, or their addresses or CIDRs separated by commas',
  })
  .transform((text) => (/^\d+$/.test(text) ? Number(text) : text.split(',').map((part) => part.trim())));
